//! Files of the image volume.
//!
//! Whoever made the image also made its links. Paths are resolved as in a container of that image: its root is the
//! end of the world, whatever `..` or links say.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use thiserror::Error;

/// Why a file of the image is not to be had.
#[derive(Debug, Error)]
pub enum ImageError {
    /// No volume.
    #[error("cannot open the image volume {path}")]
    Volume {
        /// Where it should be mounted.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Not a path within the image.
    #[error("{field}: {path:?} is no path of a file in the image")]
    Path {
        /// Field of the VMI.
        field: String,
        /// Its value.
        path: String,
    },
    /// No such file, or none that can be read.
    #[error(
        "{field}: cannot open {path} in the image; check that kernelBoot.container.image has it"
    )]
    Open {
        /// Field of the VMI.
        field: String,
        /// Its value.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Something else than a file.
    #[error("{field}: {path} in the image is no regular file")]
    NotAFile {
        /// Field of the VMI.
        field: String,
        /// Its value.
        path: String,
    },
}

/// The mounted image.
#[derive(Debug)]
pub struct Image(OwnedFd);

impl Image {
    /// Opens the volume at `path`.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = openat(AT_FDCWD, path, flags, Mode::empty());
        directory.map(Self).map_err(|source| ImageError::Volume { path: path.into(), source })
    }

    /// Opens `path`, which `field` of the VMI names, for reading.
    pub fn file(&self, field: &str, path: &str) -> Result<File, ImageError> {
        let relative = path.trim_start_matches('/');
        if relative.is_empty() || relative.contains('\0') || relative.split('/').any(|p| p == "..")
        {
            return Err(ImageError::Path { field: field.into(), path: path.into() });
        }
        // A pipe or a device in the image must not make the launcher wait.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        let failed = |source| ImageError::Open { field: field.into(), path: path.into(), source };
        let file = openat2(&self.0, relative, how).map_err(failed)?;
        let kind = SFlag::from_bits_truncate(fstat(&file).map_err(failed)?.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFREG {
            return Err(ImageError::NotAFile { field: field.into(), path: path.into() });
        }
        Ok(file.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A volume with a kernel, beside a secret that no path may reach.
    fn volume() -> (tempfile::TempDir, Image) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("volume");
        fs::create_dir_all(root.join("boot")).unwrap();
        fs::write(root.join("boot/vmlinuz-1"), "kernel").unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        symlink("/boot/vmlinuz-1", root.join("absolute")).unwrap();
        symlink("boot/vmlinuz-1", root.join("relative")).unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(directory.path().join("secret"), root.join("out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), Mode::S_IRWXU).unwrap();
        let image = Image::open(&root).unwrap();
        (directory, image)
    }

    #[test]
    fn files_and_links_within_the_image_open() {
        let (_directory, image) = volume();
        for path in
            ["/boot/vmlinuz-1", "boot/vmlinuz-1", "//boot//vmlinuz-1", "absolute", "relative"]
        {
            let mut text = String::new();
            image.file("kernelPath", path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "kernel", "{path}");
        }
    }

    #[test]
    fn nothing_outside_of_the_image_opens() {
        let (_directory, image) = volume();
        for path in ["", "/", "..", "../secret", "/boot/../../secret", "up", "out", "loop"] {
            assert!(image.file("kernelPath", path).is_err(), "{path}");
        }
    }

    #[test]
    fn directories_and_pipes_are_no_kernels_and_nobody_waits_for_them() {
        let (_directory, image) = volume();
        for path in ["boot", "pipe"] {
            let error = image.file("initrdPath", path).unwrap_err();
            assert!(matches!(error, ImageError::NotAFile { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn missing_file_is_named_with_its_field() {
        let (_directory, image) = volume();
        let error = image.file("kernelPath", "/boot/vmlinux").unwrap_err();
        assert!(
            error.to_string().starts_with("kernelPath: cannot open /boot/vmlinux in the image")
        );
        assert!(matches!(Image::open(Path::new("/nonexistent")), Err(ImageError::Volume { .. })));
    }
}
