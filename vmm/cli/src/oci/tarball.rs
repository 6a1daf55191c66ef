//! Tar archives whose every part is bounded.
//!
//! Names longer than a header holds come as entries of their own, of any size. So this reads entry by entry itself, and takes
//! from the crate `tar` only the form of a header (POSIX ustar, and GNU's).

use std::fs::File;
use std::io::{self, BufReader, Read};

use tar::{EntryType, Header};

const BLOCK: u64 = 512;

/// The longest path and the longest target of a link, as Linux has it.
pub(super) const MAX_PATH: usize = 4096;

/// Extended headers hold names, times and extended attributes; of the last, Linux allows 64 KiB for each file.
const MAX_EXTENSION: u64 = 256 << 10;

/// An entry. What it is made of is read from the archive before the next one.
#[derive(Debug)]
pub(super) struct Entry {
    /// As it is written there.
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryKind,
    /// Bytes that follow.
    pub(super) size: u64,
    /// Where they begin in the archive.
    pub(super) offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    Symlink(Vec<u8>),
    Hardlink(Vec<u8>),
    /// A device, a pipe, or something unknown: it hides what was there before, and is never made.
    Other,
}

/// What extended headers say of the next entry.
#[derive(Debug, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

/// An archive that is read once.
pub(super) struct Tarball<R> {
    inner: R,
    position: u64,
    /// Of the present entry, padding included.
    left: u64,
    skip: fn(&mut R, u64) -> io::Result<()>,
}

impl Tarball<BufReader<File>> {
    /// One that lies in a file, so that contents nobody wants need not be read. That they are cut off goes unnoticed.
    pub(super) fn in_file(file: File) -> Self {
        fn skip(file: &mut BufReader<File>, count: u64) -> io::Result<()> {
            let count =
                i64::try_from(count).map_err(|_| invalid("an entry has an impossible size"))?;
            file.seek_relative(count)
        }
        Self { skip, ..Self::new(BufReader::new(file)) }
    }
}

impl<R: Read> Tarball<R> {
    pub(super) fn new(inner: R) -> Self {
        fn skip<R: Read>(inner: &mut R, count: u64) -> io::Result<()> {
            let skipped = io::copy(&mut inner.take(count), &mut io::sink())?;
            if skipped < count { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
        }
        Self { inner, position: 0, left: 0, skip }
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }

    /// The next entry; what is left of the one before is skipped.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut extension = Extension::default();
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let size = header.entry_size()?;
            match kind {
                EntryType::GNULongName => extension.path = Some(trimmed(self.extension(size)?)),
                EntryType::GNULongLink => extension.link = Some(trimmed(self.extension(size)?)),
                EntryType::XHeader => pax(&self.extension(size)?, &mut extension)?,
                // Defaults for all entries: nobody puts names there.
                EntryType::XGlobalHeader => drop(self.extension(size)?),
                _ => return self.entry(&header, extension).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header, extension: Extension) -> io::Result<Entry> {
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = || {
            let from_header = || header.link_name_bytes().map(|link| link.into_owned());
            extension.link.clone().or_else(from_header).unwrap_or_default()
        };
        if extension.sparse || header.entry_type() == EntryType::GNUSparse {
            let name = String::from_utf8_lossy(&path).into_owned();
            return Err(invalid(format!(
                "{name} is stored as a sparse file, which is not supported"
            )));
        }
        let kind = match header.entry_type() {
            // An old archive marks a directory by its name only.
            EntryType::Regular if path.ends_with(b"/") => EntryKind::Directory,
            EntryType::Regular | EntryType::Continuous => EntryKind::File,
            EntryType::Directory => EntryKind::Directory,
            EntryType::Symlink => EntryKind::Symlink(link()),
            EntryType::Link => EntryKind::Hardlink(link()),
            _ => EntryKind::Other,
        };
        // Links and the like have no content, whatever size they say.
        let size = match kind {
            EntryKind::File | EntryKind::Other => {
                extension.size.map_or_else(|| header.entry_size(), Ok)?
            }
            EntryKind::Directory | EntryKind::Symlink(_) | EntryKind::Hardlink(_) => 0,
        };
        let long = matches!(&kind, EntryKind::Symlink(to) | EntryKind::Hardlink(to) if to.len() > MAX_PATH);
        if path.len() > MAX_PATH || long {
            return Err(invalid(format!("it has a path of more than {MAX_PATH} bytes")));
        }
        self.expect(size)?;
        Ok(Entry { path, kind, size, offset: self.position })
    }

    /// The content of the present entry.
    pub(super) fn content(&mut self, entry: &Entry) -> Content<'_, R> {
        Content { tarball: self, left: entry.size }
    }

    /// Reads the header of whatever comes next. The end is two empty blocks, or no block where one would begin.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let left = std::mem::take(&mut self.left);
        (self.skip)(&mut self.inner, left)?;
        self.position += left;
        let mut header = Header::new_old();
        let bytes = header.as_mut_bytes();
        let mut filled = 0;
        while filled < bytes.len() {
            match self.inner.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.position += BLOCK;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The sum is of all bytes, with blanks in its own place.
        let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|byte| u32::from(*byte)).sum();
        if header.cksum().ok() != Some(sum + 8 * u32::from(b' ')) {
            return Err(invalid(
                "it is no tar archive, or it is damaged: a header's checksum is wrong",
            ));
        }
        Ok(Some(header))
    }

    fn expect(&mut self, size: u64) -> io::Result<()> {
        let padded = size.checked_next_multiple_of(BLOCK);
        self.left = padded.ok_or_else(|| invalid("an entry has an impossible size"))?;
        Ok(())
    }

    fn extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTENSION {
            return Err(invalid(format!("an extended header has more than {MAX_EXTENSION} bytes")));
        }
        self.expect(size)?;
        let mut bytes = Vec::new();
        let count = (&mut self.inner).take(size).read_to_end(&mut bytes)? as u64;
        if count < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += size;
        self.left -= size;
        Ok(bytes)
    }
}

/// Records of the form `LENGTH NAME=VALUE\n`, where LENGTH is that of all of it.
fn pax(mut bytes: &[u8], extension: &mut Extension) -> io::Result<()> {
    let bad = || invalid("an extended header is malformed");
    while !bytes.is_empty() {
        let blank = bytes.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
        let length = number(&bytes[..blank]).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| (blank + 2..=bytes.len()).contains(length));
        let (record, rest) = bytes.split_at(length.ok_or_else(bad)?);
        bytes = rest;
        let record = record[blank + 1..].strip_suffix(b"\n").ok_or_else(bad)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        let (name, value) = (&record[..equals], &record[equals + 1..]);
        match name {
            b"path" => extension.path = Some(value.to_vec()),
            b"linkpath" => extension.link = Some(value.to_vec()),
            b"size" => extension.size = Some(number(value).ok_or_else(bad)?),
            _ if name.starts_with(b"GNU.sparse.") => extension.sparse = true,
            _ => {}
        }
    }
    Ok(())
}

/// GNU's names end with a NUL.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// Content of an entry, as a reader that does not go beyond it.
pub(super) struct Content<'a, R> {
    tarball: &'a mut Tarball<R>,
    left: u64,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.tarball.inner.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count_64 = count as u64;
        self.left -= count_64;
        self.tarball.left -= count_64;
        self.tarball.position += count_64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> io::Result<Vec<(String, EntryKind, u64)>> {
        let mut tarball = Tarball::new(bytes);
        let mut names = Vec::new();
        while let Some(entry) = tarball.next()? {
            names.push((String::from_utf8_lossy(&entry.path).into(), entry.kind, entry.size));
        }
        Ok(names)
    }

    fn archive(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn header(size: u64, kind: EntryType) -> Header {
        let mut header = Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        header.set_entry_type(kind);
        header
    }

    #[test]
    fn files_links_and_long_names_are_read() {
        let long = format!("{}/name", "directory/".repeat(40).trim_end_matches('/'));
        let bytes = archive(|builder| {
            builder.append_data(&mut header(3, EntryType::Regular), "a", &b"abc"[..]).unwrap();
            builder
                .append_data(&mut header(600, EntryType::Regular), &long, &[7; 600][..])
                .unwrap();
            builder.append_link(&mut header(0, EntryType::Symlink), "link", &long).unwrap();
            builder.append_link(&mut header(0, EntryType::Link), "hard", "a").unwrap();
            builder.append_data(&mut header(0, EntryType::Char), "null", &b""[..]).unwrap();
            builder.append_pax_extensions([("path", &b"from pax"[..]), ("mtime", b"1.5")]).unwrap();
            builder.append_data(&mut header(0, EntryType::Directory), "short", &b""[..]).unwrap();
        });
        let expected = [
            ("a".into(), EntryKind::File, 3),
            (long.clone(), EntryKind::File, 600),
            ("link".into(), EntryKind::Symlink(long.into_bytes()), 0),
            ("hard".into(), EntryKind::Hardlink(b"a".to_vec()), 0),
            ("null".into(), EntryKind::Other, 0),
            ("from pax".into(), EntryKind::Directory, 0),
        ];
        assert_eq!(names(&bytes).unwrap(), expected);
    }

    #[test]
    fn contents_begin_where_the_entry_says() {
        let bytes = archive(|builder| {
            builder.append_data(&mut header(3, EntryType::Regular), "a", &b"abc"[..]).unwrap();
            builder.append_data(&mut header(2, EntryType::Regular), "b", &b"de"[..]).unwrap();
        });
        let mut tarball = Tarball::new(&bytes[..]);
        for expected in ["abc", "de"] {
            let entry = tarball.next().unwrap().unwrap();
            let mut text = String::new();
            tarball.content(&entry).read_to_string(&mut text).unwrap();
            assert_eq!(text, expected);
            let at = usize::try_from(entry.offset).unwrap();
            assert_eq!(&bytes[at..at + expected.len()], expected.as_bytes());
        }
    }

    #[test]
    fn huge_extensions_sparse_files_cut_and_damaged_archives_are_errors() {
        let huge = archive(|builder| {
            builder.append_pax_extensions([("comment", &[b'x'; 300 << 10][..])]).unwrap();
        });
        let sparse = archive(|builder| {
            builder.append_pax_extensions([("GNU.sparse.major", &b"1"[..])]).unwrap();
            builder.append_data(&mut header(0, EntryType::Regular), "a", &b""[..]).unwrap();
        });
        let good = archive(|builder| {
            builder.append_data(&mut header(600, EntryType::Regular), "a", &[1; 600][..]).unwrap();
        });
        let mut damaged = good.clone();
        damaged[0] ^= 1;
        for bytes in [&huge[..], &sparse, &good[..700], &good[..100], &damaged] {
            assert!(names(bytes).is_err());
        }
        assert_eq!(names(&[0; 1024]).unwrap(), []);
        assert_eq!(names(b"").unwrap(), []);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_archive_or_an_error(bytes in proptest::collection::vec(0_u8..=255, 0..2048)) {
            let _ = names(&bytes);
            let _ = pax(&bytes, &mut Extension::default());
        }
    }
}
