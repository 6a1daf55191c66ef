//! The outer tar archive: blobs whose names are known only after they are written.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::document::Blob;
use super::error::Failure;

const BLOCK: u64 = 512;

/// A tar archive of small files in memory and one streamed blob.
pub(super) struct Archive<W> {
    output: W,
}

impl<W: Write + Seek> Archive<W> {
    /// An archive that starts where `output` stands.
    pub(super) fn new(output: W) -> Self {
        Self { output }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.output.write_all(header(path, content.len() as u64)?.as_bytes())?;
        self.output.write_all(content)?;
        self.pad(content.len() as u64)
    }

    /// Adds the blob that `write` writes. The header in front of it is filled in afterwards.
    pub(super) fn stream<T>(
        &mut self,
        write: impl FnOnce(&mut W) -> Result<(Blob, T), Failure>,
    ) -> Result<(Blob, T), Failure> {
        let start = self.output.stream_position()?;
        self.output.write_all(tar::Header::new_gnu().as_bytes())?;
        let (blob, more) = write(&mut self.output)?;
        self.pad(blob.size)?;
        let end = self.output.stream_position()?;
        self.output.seek(SeekFrom::Start(start))?;
        self.output.write_all(header(&blob.digest.path(), blob.size)?.as_bytes())?;
        self.output.seek(SeekFrom::Start(end))?;
        Ok((blob, more))
    }

    /// Writes the end of the archive: two empty blocks.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&[0; 1024])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        io::copy(&mut io::repeat(0).take(size.next_multiple_of(BLOCK) - size), &mut self.output)?;
        Ok(())
    }
}

fn header(path: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_path(path)?;
    header.set_size(size);
    header.set_mode(0o444);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_blob_is_found_under_its_digest_and_with_its_size() {
        let mut archive = Archive::new(io::Cursor::new(Vec::new()));
        archive.add("first", b"1").unwrap();
        let blob = Blob::of(b"streamed");
        let streamed = archive.stream(|output| {
            output.write_all(b"streamed")?;
            Ok((blob, ()))
        });
        assert!(streamed.is_ok());
        archive.add("last", b"2").unwrap();
        let bytes = archive.finish().unwrap().into_inner();

        let mut found = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            found.push((entry.path().unwrap().display().to_string(), content));
        }
        let expected = [
            ("first".to_owned(), "1".to_owned()),
            (blob.digest.path(), "streamed".to_owned()),
            ("last".to_owned(), "2".to_owned()),
        ];
        assert_eq!(found, expected);
    }
}
