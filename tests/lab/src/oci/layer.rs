//! The layer: a tar archive of the image's files and the directories they lie in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

use super::digest::{BlobDigest, Digesting};
use super::document::Blob;
use super::error::{Failure, ImageError};
use super::image::LayerFormat;

/// A file that goes into the image.
#[derive(Clone, Debug)]
pub(super) struct ImageFile {
    /// What it is.
    pub(super) content: Content,
    /// Absolute path in the image.
    pub(super) path: String,
    /// Permission bits.
    pub(super) mode: u32,
    /// Owner.
    pub(super) uid: u32,
    /// Group.
    pub(super) gid: u32,
}

/// What a file in the image is.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The bytes of this file.
    Copy(PathBuf),
    /// A symbolic link to this path.
    Link(String),
}

enum Node<'a> {
    Directory,
    File(&'a ImageFile),
}

/// The tree of files, by path without the leading slash; a directory comes before what is in it.
pub(super) struct Layer<'a> {
    nodes: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Layer<'a> {
    /// A layer of `files` and the directories they need.
    pub(super) fn new(files: &'a [ImageFile]) -> Result<Self, ImageError> {
        let mut nodes = BTreeMap::new();
        for file in files {
            let path = relative(&file.path)?;
            for (slash, _) in path.match_indices('/') {
                if let Node::File(_) = nodes.entry(&path[..slash]).or_insert(Node::Directory) {
                    return Err(ImageError::Occupied { path: format!("/{}", &path[..slash]) });
                }
            }
            if nodes.insert(path, Node::File(file)).is_some() {
                return Err(ImageError::Occupied { path: file.path.clone() });
            }
        }
        Ok(Self { nodes })
    }

    /// Writes the layer; returns the blob that was written and the digest of the archive in it.
    pub(super) fn write(
        &self,
        output: impl Write,
        format: LayerFormat,
    ) -> Result<(Blob, BlobDigest), Failure> {
        match format {
            LayerFormat::Plain => {
                let (digest, size, _) = self.write_tar(Digesting::new(output))?.finish();
                Ok((Blob { digest, size }, digest))
            }
            LayerFormat::Gzip => {
                // Neither a time nor the name of an operating system (RFC 1952: 255 is unknown).
                let gzip = GzBuilder::new()
                    .mtime(0)
                    .operating_system(255)
                    .write(Digesting::new(output), Compression::default());
                let (diff_id, _, gzip) = self.write_tar(Digesting::new(gzip))?.finish();
                let (digest, size, _) = gzip.finish()?.finish();
                Ok((Blob { digest, size }, diff_id))
            }
        }
    }

    fn write_tar<W: Write>(&self, output: W) -> Result<W, Failure> {
        let mut archive = tar::Builder::new(output);
        for (path, node) in &self.nodes {
            match node {
                Node::Directory => {
                    let mut header = header(tar::EntryType::Directory, 0o755);
                    archive.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Node::File(file) => append(&mut archive, path, file)?,
            }
        }
        Ok(archive.into_inner()?)
    }
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    file: &ImageFile,
) -> Result<(), Failure> {
    let source = match &file.content {
        Content::Copy(source) => source,
        Content::Link(target) => {
            let mut header = header(tar::EntryType::Symlink, file.mode);
            return Ok(archive.append_link(&mut header, path, target)?);
        }
    };
    let mut source = Source::open(source)?;
    let mut header = header(tar::EntryType::Regular, file.mode);
    header.set_uid(file.uid.into());
    header.set_gid(file.gid.into());
    header.set_size(source.left);
    let appended = archive.append_data(&mut header, path, &mut source);
    match source.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(appended?),
    }
}

fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

/// `path` without the slash in front.
fn relative(path: &str) -> Result<&str, ImageError> {
    match path.strip_prefix('/') {
        Some(rest) if rest.split('/').all(|part| !matches!(part, "" | "." | "..")) => Ok(rest),
        _ => Err(ImageError::BadPath { path: path.to_owned() }),
    }
}

/// Reads exactly as many bytes as the file had when it was opened, and keeps what went wrong: the archive's writer
/// does not tell faults of reading from those of writing.
struct Source<'a> {
    path: &'a Path,
    file: File,
    left: u64,
    failure: Option<ImageError>,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(ImageError::NotAFile { path: path.to_owned() });
        }
        Ok(Self { path, file, left: metadata.len(), failure: None })
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let path = || self.path.to_owned();
        match (&self.file).take(self.left).read(buffer) {
            Ok(0) => {
                self.failure = Some(ImageError::Shrunk { path: path() });
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(read) => {
                self.left -= read as u64;
                Ok(read)
            }
            Err(source) if source.kind() == io::ErrorKind::Interrupted => Err(source),
            Err(source) => {
                self.failure = Some(ImageError::Read { path: path(), source });
                Err(io::ErrorKind::Other.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ImageFile {
        let (source, path) = (PathBuf::from("/dev/null"), path.to_owned());
        ImageFile { content: Content::Copy(source), path, mode: 0o644, uid: 0, gid: 0 }
    }

    fn paths(files: &[ImageFile]) -> Vec<String> {
        Layer::new(files).unwrap().nodes.keys().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn parents_are_added_once_and_come_first() {
        let files = [file("/b/c/2"), file("/b/c/1"), file("/a")];
        assert_eq!(paths(&files), ["a", "b", "b/c", "b/c/1", "b/c/2"]);
    }

    #[test]
    fn paths_that_leave_the_image_are_refused() {
        for path in ["", "/", "disk/a", "/a//b", "/a/../b", "/./a", "/a/"] {
            let error = Layer::new(&[file(path)]).err().unwrap();
            assert!(matches!(error, ImageError::BadPath { path: named } if named == path));
        }
    }

    #[test]
    fn two_files_at_one_path_are_refused() {
        for files in
            [[file("/a"), file("/a")], [file("/a"), file("/a/b")], [file("/a/b"), file("/a")]]
        {
            let error = Layer::new(&files).err().unwrap();
            assert_eq!(error.to_string(), "/a is in the image twice");
        }
    }

    #[test]
    fn device_as_source_is_refused_by_name() {
        let files = [file("/null")];
        let error =
            Layer::new(&files).unwrap().write(io::sink(), LayerFormat::Plain).err().unwrap();
        assert_eq!(error.at(Path::new("out")).to_string(), "/dev/null is not a regular file");
    }

    #[test]
    fn file_that_shrinks_is_an_error_naming_it() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        scratch.as_file().set_len(10).unwrap();
        let mut source = Source::open(scratch.path()).unwrap();
        scratch.as_file().set_len(4).unwrap();
        let copied = io::copy(&mut source, &mut io::sink());
        assert!(copied.is_err());
        assert!(
            matches!(source.failure, Some(ImageError::Shrunk { path }) if path == scratch.path())
        );
    }
}
