//! From layers to the files that are wanted.
//!
//! Each layer is read once, from below: its digest is computed on the way, what it does to the tree is noted, and files
//! that are where a wanted one is expected are written to the staging directory at once. Which of them it is, the whole tree
//! says in the end. Only where links lead elsewhere is a layer read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::compression::Plain;
use super::digest::{ContentDigest, Hashing};
use super::error::ImageError;
use super::local::Extent;
use super::tarball::{Entry, Tarball};
use super::tree::{Location, Tree};

/// Where container disks have their disk.
const DISK: &[u8] = b"disk";

/// How much of a file is looked at for zeros, and not written if it has nothing else.
const BLOCK: usize = 64 << 10;

/// How many names an error lists.
const LISTED: usize = 10;

/// How a layer is known to be whole.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// By what is stored.
    Blob { digest: ContentDigest, size: u64 },
    /// By what that is once it is decompressed.
    Stream(ContentDigest),
}

/// A layer, wherever it lies.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// For people.
    pub(super) what: String,
    pub(super) extent: Extent,
    pub(super) check: Check,
}

/// What is wanted of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The only file under `/disk`.
    Disk,
    /// The file that this path leads to.
    File(String),
}

impl Wanted {
    /// Whether a file there may be it, as far as can be told before the end.
    fn may_be(&self, path: &[u8]) -> bool {
        match self {
            Self::Disk => path.strip_prefix(DISK).is_some_and(|rest| rest.starts_with(b"/")),
            Self::File(wanted) => path == wanted.trim_matches('/').as_bytes(),
        }
    }
}

/// How large an image may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of all layers, decompressed: a small image can hold a great many zeros.
    pub(super) unpacked: u64,
    /// Bytes to be written.
    pub(super) written: u64,
}

/// A wanted file: its path in the image, and where it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) path: Vec<u8>,
    pub(super) file: PathBuf,
}

/// Puts the wanted files into `staging`, in the order in which they are wanted.
pub(super) fn unpack(
    image: &str,
    layers: &[Layer],
    wanted: &[Wanted],
    staging: &Path,
    room: Room,
) -> Result<Vec<Unpacked>, ImageError> {
    let mut work = Work { image, staging, unpacked: room.unpacked, written: room.written, room };
    let mut tree = Tree::default();
    let mut staged = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        work.read(number, layer, |work, location, entry, content| {
            let path = match tree.add(location, &entry.path, &entry.kind) {
                Ok(Some(path)) => path,
                Ok(None) => return Ok(()),
                Err(_) => return Err(work.malformed("it has more files than any system has")),
            };
            if wanted.iter().any(|wanted| wanted.may_be(&path)) {
                staged.insert(location, work.write(location, content)?);
            }
            Ok(())
        })?;
    }
    let paths = wanted.iter().map(|wanted| choose(image, &tree, wanted));
    let paths: Vec<(Vec<u8>, Location)> = paths.collect::<Result<_, _>>()?;
    let missing: BTreeSet<Location> = paths.iter().map(|(_, location)| *location).collect();
    for (number, layer) in layers.iter().enumerate() {
        let here = |at: &&Location| at.layer == number && !staged.contains_key(*at);
        let missing: BTreeSet<Location> = missing.iter().filter(here).copied().collect();
        if missing.is_empty() {
            continue;
        }
        work.read(number, layer, |work, location, _, content| {
            if missing.contains(&location) {
                staged.insert(location, work.write(location, content)?);
            }
            Ok(())
        })?;
    }
    let unpacked = paths.into_iter().map(|(path, location)| match staged.get(&location) {
        Some(file) => Ok(Unpacked { path, file: file.clone() }),
        None => Err(work.malformed("it has changed while it was read")),
    });
    unpacked.collect()
}

/// The path and the place of a wanted file.
fn choose(image: &str, tree: &Tree, wanted: &Wanted) -> Result<(Vec<u8>, Location), ImageError> {
    let listed = |paths: Vec<Vec<u8>>| match paths.is_empty() {
        true => "no files".to_owned(),
        false => {
            let names: Vec<String> = paths
                .iter()
                .map(|path| format!("/{}", String::from_utf8_lossy(path).escape_debug()))
                .collect();
            names.join(", ")
        }
    };
    let image = image.to_owned();
    match wanted {
        Wanted::Disk => {
            let mut disks = tree.files_in(DISK, LISTED);
            match (disks.len(), disks.pop()) {
                (1, Some(disk)) => {
                    let location = tree.file(&disk).map_err(|missing| ImageError::NoFile {
                        image: image.clone(),
                        path: "/disk".into(),
                        reason: missing.reason(),
                        there: String::new(),
                    })?;
                    Ok((disk, location))
                }
                (0, _) => {
                    let there = listed(tree.files_in(b"", LISTED));
                    Err(ImageError::NoDisk { image, there })
                }
                _ => {
                    let there = listed(tree.files_in(DISK, LISTED));
                    Err(ImageError::SeveralDisks { image, there })
                }
            }
        }
        Wanted::File(path) => {
            let location = tree.file(path.as_bytes()).map_err(|missing| {
                let directory =
                    path.trim_end_matches('/').rsplit_once('/').map_or("", |(before, _)| before);
                let mut near = tree.files_in(directory.as_bytes(), LISTED);
                if near.is_empty() {
                    near = tree.files_in(b"", LISTED);
                }
                let (path, reason, there) = (path.clone(), missing.reason(), listed(near));
                ImageError::NoFile { image, path, reason, there }
            })?;
            Ok((path.trim_matches('/').as_bytes().to_vec(), location))
        }
    }
}

/// What is left of the room, and for whom.
struct Work<'a> {
    image: &'a str,
    staging: &'a Path,
    unpacked: u64,
    written: u64,
    room: Room,
}

type LayerReader<'a> = Hashing<Limited<'a, Plain<Hashing<io::Take<File>>>>>;

impl Work<'_> {
    fn malformed(&self, what: &str) -> ImageError {
        ImageError::Malformed { image: self.image.into(), what: what.into() }
    }

    fn unreadable(&self, what: &str, source: io::Error) -> ImageError {
        let image = self.image.to_owned();
        if source.kind() == io::ErrorKind::FileTooLarge {
            let what = "that is the limit for images";
            return ImageError::TooLarge { image, limit: self.room.unpacked, what };
        }
        ImageError::Unreadable { image, what: what.into(), source }
    }

    /// Goes through the entries of a layer, and checks then that it was whole.
    fn read(
        &mut self,
        number: usize,
        layer: &Layer,
        mut each: impl FnMut(&mut Self, Location, &Entry, &mut dyn Read) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let mut left = self.unpacked;
        let of_blob = matches!(layer.check, Check::Blob { .. });
        let opened = layer.extent.open().and_then(|file| Plain::new(Hashing::new(file, of_blob)));
        let plain = opened.map_err(|source| self.unreadable(&layer.what, source))?;
        let limited = Limited { inner: plain, left: &mut left };
        let mut tarball: Tarball<LayerReader<'_>> = Tarball::new(Hashing::new(limited, !of_blob));
        let mut count = 0;
        while let Some(entry) =
            tarball.next().map_err(|source| self.unreadable(&layer.what, source))?
        {
            let location = Location { layer: number, entry: count };
            each(self, location, &entry, &mut tarball.content(&entry))?;
            count += 1;
        }
        let finished = tarball.into_inner().finish().and_then(|(stream, _, limited)| {
            let (blob, size, _) = limited.inner.into_inner().finish()?;
            Ok((stream, blob, size))
        });
        let (stream, blob, stored) =
            finished.map_err(|source| self.unreadable(&layer.what, source))?;
        self.unpacked = left;
        let (expected, found) = match &layer.check {
            Check::Blob { digest, size } if *size == stored => (digest, blob),
            Check::Blob { size, .. } => {
                let what = format!("{} has {stored} bytes and not {size}", layer.what);
                return Err(self.malformed(&what));
            }
            Check::Stream(digest) => (digest, stream),
        };
        match found {
            Some(found) if found == *expected => Ok(()),
            found => Err(ImageError::Digest {
                image: self.image.into(),
                what: layer.what.clone(),
                expected: expected.clone(),
                found: found.unwrap_or_else(|| ContentDigest::of(b"")),
            }),
        }
    }

    /// Writes a file to the staging directory, with holes where it has only zeros.
    fn write(&mut self, location: Location, content: &mut dyn Read) -> Result<PathBuf, ImageError> {
        let path = self.staging.join(format!("{}-{}", location.layer, location.entry));
        let failed = |source| ImageError::Host { what: "write", path: path.clone(), source };
        // Not there yet: an entry is written once.
        let mut file = File::create_new(&path).map_err(failed)?;
        let mut block = vec![0; BLOCK];
        let mut length = 0;
        loop {
            let count = fill(content, &mut block)
                .map_err(|source| self.unreadable("a file of a layer", source))?;
            if count == 0 {
                break;
            }
            length += count as u64;
            if block[..count].iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Start(length)).map_err(failed)?;
                continue;
            }
            self.written = self.written.checked_sub(count as u64).ok_or_else(|| {
                let what = "the cache's file system has no room for more; free some, or use another directory";
                ImageError::TooLarge { image: self.image.into(), limit: self.room.written, what }
            })?;
            file.write_all(&block[..count]).map_err(failed)?;
        }
        file.set_len(length).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        Ok(path)
    }
}

/// Reads until the block is full or all is read.
fn fill(content: &mut dyn Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match content.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A reader that fails beyond so many bytes.
struct Limited<'a, R> {
    inner: R,
    left: &'a mut u64,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => *self.left = left,
            None => return Err(io::ErrorKind::FileTooLarge.into()),
        }
        Ok(count)
    }
}
