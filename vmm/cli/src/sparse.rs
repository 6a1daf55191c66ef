//! Copies of files that are mostly holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

const PIECE: usize = 1 << 20;

/// Copies what `from` holds to `to`, which becomes as long; holes stay holes.
pub fn copy(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(0)?;
    to.set_len(length)?;
    let end = i64::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut at = 0;
    let mut bytes = vec![0; PIECE];
    while at < end {
        let start = match lseek(from, at, Whence::SeekData) {
            // Nothing but a hole is left.
            Err(Errno::ENXIO) => break,
            start => start?,
        };
        let stop = lseek(from, start, Whence::SeekHole)?.min(end);
        at = start;
        while at < stop {
            let (Ok(left), Ok(place)) = (usize::try_from(stop - at), u64::try_from(at)) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let piece = &mut bytes[..left.min(PIECE)];
            from.read_exact_at(piece, place)?;
            to.write_all_at(piece, place)?;
            at += i64::try_from(piece.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn copy_has_the_content_and_the_holes() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.set_len(64 << 20).unwrap();
        from.write_all_at(b"begin", 0).unwrap();
        from.write_all_at(&[7; 3 << 20], 20 << 20).unwrap();
        to.write_all_at(&[1; 100], 1000).unwrap();
        copy(&from, &to).unwrap();
        let metadata = to.metadata().unwrap();
        assert_eq!(metadata.len(), 64 << 20);
        assert!(metadata.blocks() * 512 < 8 << 20, "{} blocks", metadata.blocks());
        let mut bytes = [0; 6];
        to.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"begin\0");
        to.read_exact_at(&mut bytes, (23 << 20) - 3).unwrap();
        assert_eq!(bytes, [7, 7, 7, 0, 0, 0]);
        to.read_exact_at(&mut bytes, 1000).unwrap();
        assert_eq!(bytes, [0; 6]);
    }
}
