//! Makes a launcher's own what it may not open although it is its VM's: the block device of a claim, a disk image of root's.
//!
//! The launcher shows it as an O_PATH descriptor, and opens it itself afterwards, so that the rules of its container still
//! decide what it may open. It may be hostile, and the agent may change the owner of anything: a launcher that shows what is
//! not its VM's must not get it. So all of this must hold, of the very descriptor, not of a name:
//!
//! * its role names a volume of the VMI that is a claim or a DataVolume;
//! * it is at the place of that volume in a launcher's container;
//! * it is a block device, or a regular file with one name and without set-user-ID or set-group-ID: a second name could be of a
//!   file elsewhere in the file system;
//! * it is root's, or the launcher's already: what has another owner is in somebody else's use.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use corten_link::{Grant, Role};
use corten_resources::machine::Source;
use corten_resources::names::VOLUMES_MOUNT;
use corten_resources::types::{VirtualMachineInstance, Volume};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchownat};
use thiserror::Error;

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Why something stays what it is.
#[derive(Debug, Error)]
pub enum OpenUpError {
    /// Not the role of a disk's content.
    #[error("{0} is no part of a disk")]
    Role(String),
    /// Not a claim of this VMI.
    #[error("{0}: the VirtualMachineInstance has no claim or DataVolume of that name")]
    NoVolume(String),
    /// It cannot be looked at.
    #[error("{role} cannot be looked at")]
    Look {
        /// The role.
        role: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Not where the volume is.
    #[error("{role} is at {path:?}, which is not where its volume is")]
    Place {
        /// The role.
        role: String,
        /// Where it is in the launcher's container.
        path: PathBuf,
    },
    /// A directory, a character device or something else.
    #[error("{0} is neither a block device nor a regular file")]
    Kind(String),
    /// More than one name, or none.
    #[error("{role} has {links} names instead of one")]
    Links {
        /// The role.
        role: String,
        /// How many.
        links: u64,
    },
    /// A program that runs as its owner.
    #[error("{0} is set-user-ID or set-group-ID")]
    SetId(String),
    /// Somebody else's.
    #[error("{role} belongs to user {owner}")]
    Owner {
        /// The role.
        role: String,
        /// Its owner.
        owner: u32,
    },
    /// The file system does not let it be done.
    #[error("the owner of {role} cannot be changed")]
    Change {
        /// The role.
        role: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
}

/// Whose launchers are, and where the volumes of theirs are in their containers.
#[derive(Clone, Debug)]
pub struct OpenUp {
    /// User and group of launchers.
    pub launcher: u32,
    /// Where volumes are, each by its name. Their container may know the directory by several names.
    pub volumes: Vec<PathBuf>,
}

impl OpenUp {
    /// For launchers of the user `launcher`, as Pods are made.
    pub fn new(launcher: u32) -> Self {
        // /var/run is a link to /run in most images.
        let short = VOLUMES_MOUNT.strip_prefix("/var").unwrap_or(VOLUMES_MOUNT);
        Self { launcher, volumes: vec![VOLUMES_MOUNT.into(), short.into()] }
    }

    /// Makes all of `shown` the launcher's, or nothing of it. It may take as long as a file system that does not answer.
    pub fn open_up(&self, vmi: &VirtualMachineInstance, shown: &Grant) -> Result<(), OpenUpError> {
        for (role, descriptor) in shown {
            self.check(vmi, role, descriptor)?;
        }
        let (user, group) = (Uid::from_raw(self.launcher), Gid::from_raw(self.launcher));
        for (role, descriptor) in shown {
            fchownat(descriptor, "", Some(user), Some(group), AtFlags::AT_EMPTY_PATH)
                .map_err(|source| OpenUpError::Change { role: role.to_string(), source })?;
        }
        Ok(())
    }

    fn check(
        &self,
        vmi: &VirtualMachineInstance,
        role: &Role,
        descriptor: &OwnedFd,
    ) -> Result<(), OpenUpError> {
        let name = || role.to_string();
        let segment = role.content_of().ok_or_else(|| OpenUpError::Role(name()))?;
        let mut volumes = vmi.spec.volumes.iter();
        let volume = volumes.find(|volume| Role::segment(&volume.name) == segment);
        let volume = volume.filter(|volume| may_be_roots(volume));
        let volume = volume.ok_or_else(|| OpenUpError::NoVolume(name()))?;
        let look = |source| OpenUpError::Look { role: name(), source };
        let stat = fstat(descriptor).map_err(look)?;
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        let is_block = kind == SFlag::S_IFBLK;
        if !is_block && kind != SFlag::S_IFREG {
            return Err(OpenUpError::Kind(name()));
        }
        self.check_place(volume, is_block, &name(), descriptor)?;
        self.check_file(&stat, is_block, name())
    }

    /// By the kernel's own word of where a descriptor leads: a path in the launcher's container.
    fn check_place(
        &self,
        volume: &Volume,
        is_block: bool,
        role: &str,
        descriptor: &OwnedFd,
    ) -> Result<(), OpenUpError> {
        let path = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        let path = path.map_err(|error| OpenUpError::Look {
            role: role.into(),
            source: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
        })?;
        let place = if is_block { Some(path.as_path()) } else { path.parent() };
        let is_there = |volumes: &PathBuf| place == Some(volumes.join(&volume.name).as_path());
        match self.volumes.iter().any(is_there) {
            true => Ok(()),
            false => Err(OpenUpError::Place { role: role.into(), path }),
        }
    }

    fn check_file(&self, stat: &FileStat, is_block: bool, role: String) -> Result<(), OpenUpError> {
        let links = stat.st_nlink;
        if !is_block && links != 1 {
            return Err(OpenUpError::Links { role, links });
        }
        if stat.st_mode & SET_ID != 0 {
            return Err(OpenUpError::SetId(role));
        }
        match stat.st_uid {
            owner if owner == 0 || owner == self.launcher => Ok(()),
            owner => Err(OpenUpError::Owner { role, owner }),
        }
    }
}

/// What is made by others than the launcher and kubelet: others may have made it root's.
fn may_be_roots(volume: &Volume) -> bool {
    matches!(
        volume.source(),
        Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_) | Source::Ephemeral(_))
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions, Permissions};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};

    use std::path::Path;

    use nix::sys::stat::{Mode, mknod};
    use serde_json::json;

    use super::*;

    fn at(volumes: &Path) -> OpenUp {
        OpenUp { launcher: 107, volumes: vec![volumes.into()] }
    }

    fn vmi() -> VirtualMachineInstance {
        serde_json::from_value(json!({"spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "image", "containerDisk": {"image": "i"}},
            {"name": "files", "secret": {"secretName": "s"}},
            {"name": "host", "hostDisk": {"path": "/etc/passwd", "type": "Disk"}},
        ]}}))
        .unwrap()
    }

    /// The volumes of a container, each with a file of root's.
    fn volumes() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in ["data", "image", "files", "host", "other"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            File::create(directory.path().join(name).join("disk.img")).unwrap();
        }
        directory
    }

    fn shown(role: &str, path: &Path) -> Grant {
        let mut options = OpenOptions::new();
        let path_only = options.read(true).custom_flags(nix::libc::O_PATH | nix::libc::O_NOFOLLOW);
        [(role.parse().unwrap(), path_only.open(path).unwrap().into())].into()
    }

    fn is_root() -> bool {
        Uid::effective().is_root()
    }

    #[test]
    fn file_of_roots_on_a_claim_becomes_the_launchers() {
        assert!(is_root(), "owners are changed by root alone");
        let volumes = volumes();
        let path = volumes.path().join("data/disk.img");
        at(volumes.path()).open_up(&vmi(), &shown("disk/data", &path)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (107, 107));
        // Twice is as good as once.
        at(volumes.path()).open_up(&vmi(), &shown("disk/data", &path)).unwrap();
    }

    #[test]
    fn block_device_of_a_claim_becomes_the_launchers() {
        let volumes = volumes();
        let path = volumes.path().join("data");
        fs::remove_dir_all(&path).unwrap();
        // Number 0 is nobody's: there is nothing behind it.
        mknod(&path, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, 0).unwrap();
        at(volumes.path()).open_up(&vmi(), &shown("disk/data", &path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), 107);
    }

    #[test]
    fn nothing_else_changes_hands() {
        let volumes = volumes();
        let place = |path: &str| volumes.path().join(path);
        let data = place("data");
        let made = |name: &str| {
            let path = data.join(name);
            File::create(&path).unwrap();
            path
        };
        let two_names = made("two");
        fs::hard_link(&two_names, data.join("two-again")).unwrap();
        let set_id = made("set-id");
        fs::set_permissions(&set_id, Permissions::from_mode(0o4755)).unwrap();
        let somebodys = made("somebodys");
        chown(&somebodys, Some(1000), Some(1000)).unwrap();
        let character = data.join("char");
        mknod(&character, SFlag::S_IFCHR, Mode::S_IRUSR, nix::libc::makedev(1, 3)).unwrap();
        let link = data.join("link");
        symlink("/etc/passwd", &link).unwrap();
        let block = data.join("block");
        mknod(&block, SFlag::S_IFBLK, Mode::S_IRUSR, 0).unwrap();
        let deeper = data.join("deep/disk.img");
        fs::create_dir(data.join("deep")).unwrap();
        File::create(&deeper).unwrap();
        let gone = made("gone");
        let shown_gone = shown("disk/data", &gone);
        fs::remove_file(&gone).unwrap();

        let cases = [
            ("another volume's", shown("disk/data", &place("other/disk.img")), "not where"),
            ("a container image's", shown("disk/image", &place("image/disk.img")), "no claim"),
            ("a Secret's", shown("disk/files", &place("files/disk.img")), "no claim"),
            ("a file of the node", shown("disk/host", &place("host/disk.img")), "no claim"),
            ("no volume's", shown("disk/other", &place("other/disk.img")), "no claim"),
            ("no disk", shown("kernel", &place("data/disk.img")), "no part of a disk"),
            ("two names", shown("disk/data", &two_names), "2 names"),
            ("no name", shown_gone, "0 names"),
            ("set-user-ID", shown("disk/data", &set_id), "set-user-ID"),
            ("somebody else's", shown("disk/data", &somebodys), "user 1000"),
            ("a character device", shown("disk/data", &character), "neither"),
            ("a link", shown("disk/data", &link), "neither"),
            ("a directory", shown("disk/data", &data), "neither"),
            ("a device on a volume", shown("disk/data", &block), "not where"),
            ("deeper", shown("disk/data", &deeper), "not where"),
        ];
        for (case, shown, expected) in cases {
            let before = owners(&shown);
            let error = at(volumes.path()).open_up(&vmi(), &shown).unwrap_err().to_string();
            assert!(error.contains(expected), "{case}: {error}");
            assert_eq!(owners(&shown), before, "{case}");
        }
    }

    #[test]
    fn one_that_is_refused_refuses_all() {
        let volumes = volumes();
        let mut both = shown("disk/data", &volumes.path().join("data/disk.img"));
        both.append(&mut shown("disk/files", &volumes.path().join("files/disk.img")));
        at(volumes.path()).open_up(&vmi(), &both).unwrap_err();
        assert_eq!(owners(&both), [0, 0]);
    }

    #[test]
    fn volumes_are_where_pods_have_them() {
        let places = OpenUp::new(107).volumes;
        assert_eq!(places, ["/var/run/corten/volumes", "/run/corten/volumes"].map(PathBuf::from));
    }

    fn owners(shown: &Grant) -> Vec<u32> {
        shown.values().map(|descriptor| fstat(descriptor).unwrap().st_uid).collect()
    }
}
