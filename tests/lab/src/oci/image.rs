//! An image to be written.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::archive::Archive;
use super::document::{self, Blob, Config};
use super::error::{Failure, ImageError};
use super::layer::{Content, ImageFile, Layer};

/// Owner of a disk in a containerDisk image: the user that VMMs run as.
const DISK_OWNER: u32 = 107;

/// How the layer is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerFormat {
    /// As it is: quickest to write and to import.
    #[default]
    Plain,
    /// Compressed, as registries serve it.
    Gzip,
}

impl LayerFormat {
    fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        }
    }
}

/// An image of one layer.
///
/// ```no_run
/// # use corten_lab::oci::Image;
/// let image = Image::new("lab/agent:test").file("target/agent", "/bin/agent", 0o755, 0, 0);
/// let digest = image.write("agent.tar".as_ref())?;
/// # Ok::<(), corten_lab::oci::ImageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    files: Vec<ImageFile>,
    config: Config,
    format: LayerFormat,
}

impl Image {
    /// An empty image that is called `name` where it is imported.
    pub fn new(name: impl Into<String>) -> Self {
        let (name, config) = (name.into(), Config::default());
        Self { name, files: Vec::new(), config, format: LayerFormat::default() }
    }

    /// A containerDisk: `disk` as the one file in `/disk`, for uid 107 to read.
    pub fn container_disk(name: impl Into<String>, disk: &Path, file_name: &str) -> Self {
        Self::new(name).file(disk, format!("/disk/{file_name}"), 0o440, DISK_OWNER, DISK_OWNER)
    }

    /// An image to boot a kernel from: `files` (source and name) in `/boot`, for everybody to read.
    pub fn kernel_boot(name: impl Into<String>, files: &[(&Path, &str)]) -> Self {
        files.iter().fold(Self::new(name), |image, (source, file_name)| {
            image.file(*source, format!("/boot/{file_name}"), 0o444, 0, 0)
        })
    }

    /// Adds the content of `source` as `path`. Directories above it belong to root and have mode 0755.
    #[must_use]
    pub fn file(
        mut self,
        source: impl Into<PathBuf>,
        path: impl Into<String>,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Self {
        let content = Content::Copy(source.into());
        self.files.push(ImageFile { content, path: path.into(), mode, uid, gid });
        self
    }

    /// Adds a symbolic link to `target` as `path`.
    #[must_use]
    pub fn link(mut self, target: impl Into<String>, path: impl Into<String>) -> Self {
        let content = Content::Link(target.into());
        self.files.push(ImageFile { content, path: path.into(), mode: 0o777, uid: 0, gid: 0 });
        self
    }

    /// Says how containers of the image start.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Says how the layer is stored.
    #[must_use]
    pub fn layer_format(mut self, format: LayerFormat) -> Self {
        self.format = format;
        self
    }

    /// Writes the archive to `path`, whole or not at all, and returns the digest of the image's manifest.
    pub fn write(&self, path: &Path) -> Result<String, ImageError> {
        let layer = Layer::new(&self.files)?;
        self.write_layer(&layer, path).map_err(|failure| failure.at(path))
    }

    fn write_layer(&self, layer: &Layer<'_>, path: &Path) -> Result<String, Failure> {
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let unfinished = tempfile::NamedTempFile::new_in(directory)?;

        let mut archive = Archive::new(BufWriter::new(unfinished));
        archive.add("oci-layout", document::LAYOUT)?;
        let (blob, diff_id) = archive.stream(|output| layer.write(output, self.format))?;
        let config = document::config(&self.config, diff_id)?;
        let config_blob = Blob::of(&config);
        archive.add(&config_blob.digest.path(), &config)?;
        let manifest = document::manifest(config_blob, blob, self.format.media_type())?;
        let manifest_blob = Blob::of(&manifest);
        archive.add(&manifest_blob.digest.path(), &manifest)?;
        archive.add("index.json", &document::index(&self.name, manifest_blob)?)?;

        let finished = archive.finish()?.into_inner().map_err(io::Error::from)?;
        // A temporary file is for its owner only; an archive is read by whoever imports it.
        fs::set_permissions(finished.path(), Permissions::from_mode(0o644))?;
        finished.persist(path).map_err(|error| error.error)?;
        Ok(manifest_blob.digest.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};

    use flate2::read::GzDecoder;
    use serde_json::Value;

    use super::super::digest::BlobDigest;
    use super::*;

    struct Bench {
        directory: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn source(&self, name: &str, content: &[u8]) -> PathBuf {
            fs::write(self.path(name), content).unwrap();
            self.path(name)
        }

        /// Writes `image` and reads all files of the archive back.
        fn written(&self, image: &Image) -> Written {
            image.write(&self.path("image.tar")).unwrap();
            let archive = File::open(self.path("image.tar")).unwrap();
            Written {
                files: unpack(archive).into_iter().map(|file| (file.path, file.content)).collect(),
            }
        }
    }

    struct Unpacked {
        path: String,
        content: Vec<u8>,
        mode: u32,
        owner: (u64, u64),
        mtime: u64,
    }

    fn unpack(archive: impl Read) -> Vec<Unpacked> {
        let mut files = Vec::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let header = entry.header();
            files.push(Unpacked {
                path: entry.path().unwrap().display().to_string(),
                content,
                mode: header.mode().unwrap(),
                owner: (header.uid().unwrap(), header.gid().unwrap()),
                mtime: header.mtime().unwrap(),
            });
        }
        files
    }

    struct Written {
        files: HashMap<String, Vec<u8>>,
    }

    impl Written {
        fn json(&self, path: &str) -> Value {
            serde_json::from_slice(&self.files[path]).unwrap()
        }

        /// The blob that `descriptor` names; its digest and size are checked.
        fn blob(&self, descriptor: &Value) -> &[u8] {
            let digest = descriptor["digest"].as_str().unwrap();
            let blob = &self.files[&format!("blobs/sha256/{}", &digest["sha256:".len()..])];
            assert_eq!(descriptor["size"], blob.len());
            assert_eq!(BlobDigest::of(blob).to_string(), digest);
            blob
        }

        fn manifest(&self) -> Value {
            serde_json::from_slice(self.blob(&self.json("index.json")["manifests"][0])).unwrap()
        }

        fn config(&self) -> Value {
            serde_json::from_slice(self.blob(&self.manifest()["config"])).unwrap()
        }

        fn layer(&self) -> Vec<u8> {
            self.blob(&self.manifest()["layers"][0]).to_vec()
        }
    }

    #[test]
    fn layout_is_complete_and_every_digest_matches() {
        let bench = Bench::new();
        let disk = bench.source("disk", b"bytes of a disk");
        let written = bench.written(&Image::container_disk("lab/tiny:1", &disk, "disk.img"));

        assert_eq!(written.files.len(), 5);
        assert_eq!(written.json("oci-layout")["imageLayoutVersion"], "1.0.0");
        let annotations = &written.json("index.json")["manifests"][0]["annotations"];
        assert_eq!(annotations["io.containerd.image.name"], "lab/tiny:1");
        assert_eq!(annotations["org.opencontainers.image.ref.name"], "lab/tiny:1");
        let layer = written.layer();
        let diff_id = BlobDigest::of(&layer).to_string();
        assert_eq!(written.config()["rootfs"]["diff_ids"][0], diff_id);
        assert_eq!(
            written.manifest()["layers"][0]["mediaType"],
            "application/vnd.oci.image.layer.v1.tar"
        );
    }

    #[test]
    fn diff_id_of_a_compressed_layer_is_that_of_the_archive_in_it() {
        let bench = Bench::new();
        let kernel = bench.source("vmlinuz", &[7; 100_000]);
        let image =
            Image::kernel_boot("k", &[(&kernel, "vmlinuz")]).layer_format(LayerFormat::Gzip);
        let written = bench.written(&image);

        let layer = written.layer();
        let mut unpacked = Vec::new();
        GzDecoder::new(layer.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert!(layer.len() < unpacked.len() / 10);
        assert_eq!(
            written.config()["rootfs"]["diff_ids"][0],
            BlobDigest::of(&unpacked).to_string()
        );
        assert_eq!(
            written.manifest()["layers"][0]["mediaType"],
            "application/vnd.oci.image.layer.v1.tar+gzip"
        );
    }

    #[test]
    fn files_have_the_owner_and_mode_that_was_asked_for() {
        let bench = Bench::new();
        let disk = bench.source("disk", b"x");
        let written = bench.written(&Image::container_disk("d", &disk, "disk.img"));

        let files = unpack(written.layer().as_slice());
        let (directory, file) = (&files[0], &files[1]);
        assert_eq!(
            (directory.path.as_str(), directory.mode, directory.owner),
            ("disk/", 0o755, (0, 0))
        );
        assert_eq!(
            (file.path.as_str(), file.mode, file.owner),
            ("disk/disk.img", 0o440, (107, 107))
        );
        assert_eq!((file.mtime, file.content.as_slice()), (0, b"x".as_slice()));
    }

    #[test]
    fn same_files_in_another_order_give_the_same_bytes() {
        let bench = Bench::new();
        let (one, two) = (bench.source("one", b"1"), bench.source("two", b"2"));
        for format in [LayerFormat::Plain, LayerFormat::Gzip] {
            let first = Image::new("n").file(&one, "/a", 0o644, 0, 0).file(&two, "/b", 0o644, 0, 0);
            let second =
                Image::new("n").file(&two, "/b", 0o644, 0, 0).file(&one, "/a", 0o644, 0, 0);
            let digest = first.layer_format(format).write(&bench.path("first")).unwrap();
            assert_eq!(digest, second.layer_format(format).write(&bench.path("second")).unwrap());
            let (first, second) = (fs::read(bench.path("first")), fs::read(bench.path("second")));
            assert_eq!(first.unwrap(), second.unwrap());
        }
    }

    #[test]
    fn link_is_a_link_to_its_target() {
        let bench = Bench::new();
        let written = bench.written(&Image::new("l").link("busybox", "/bin/sh"));

        let layer = written.layer();
        let mut archive = tar::Archive::new(layer.as_slice());
        let entry = archive.entries().unwrap().nth(1).unwrap().unwrap();
        assert_eq!(entry.path().unwrap(), Path::new("bin/sh"));
        assert_eq!(entry.header().entry_type(), tar::EntryType::Symlink);
        assert_eq!(entry.link_name().unwrap().unwrap(), Path::new("busybox"));
    }

    #[test]
    fn missing_source_is_an_error_naming_it_and_leaves_no_archive() {
        let bench = Bench::new();
        let missing = bench.path("missing");
        let error =
            Image::container_disk("d", &missing, "d").write(&bench.path("out")).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot read {}", missing.display()));
        assert_eq!(fs::read_dir(bench.directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn missing_target_directory_is_an_error_naming_the_archive() {
        let error = Image::new("e").write(Path::new("/nonexistent/out.tar")).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nonexistent/out.tar");
    }

    #[test]
    fn path_of_more_than_a_hundred_characters_is_kept() {
        let bench = Bench::new();
        let source = bench.source("s", b"long");
        let path = format!("{}/file", "/directory-with-a-name".repeat(12));
        let written = bench.written(&Image::new("l").file(&source, &path, 0o644, 0, 0));

        let files = unpack(written.layer().as_slice());
        let last = files.last().unwrap();
        assert_eq!(format!("/{}", last.path), path);
        assert_eq!(last.content, b"long");
        assert_eq!(files.len(), 13);
    }

    #[test]
    fn large_sparse_file_is_streamed_as_zeros_and_compresses_well() {
        const SIZE: usize = 64 << 20;
        let bench = Bench::new();
        let mut disk = File::create(bench.path("disk")).unwrap();
        disk.set_len(SIZE as u64).unwrap();
        disk.seek(SeekFrom::Start(SIZE as u64 / 2)).unwrap();
        disk.write_all(b"middle").unwrap();
        let image = Image::container_disk("big", &bench.path("disk"), "disk.img");
        let written = bench.written(&image.layer_format(LayerFormat::Gzip));

        let layer = written.layer();
        assert!(layer.len() < 1 << 20);
        let files = unpack(GzDecoder::new(layer.as_slice()));
        let content = &files[1].content;
        assert_eq!(content.len(), SIZE);
        assert!(content[SIZE / 2..].starts_with(b"middle\0"));
    }
}
