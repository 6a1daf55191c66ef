//! Digests of what passes by.

use std::fmt;
use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

/// Name of a blob: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlobDigest([u8; 32]);

impl BlobDigest {
    /// Digest of bytes in memory.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The path of this blob in an image layout.
    pub(super) fn path(&self) -> String {
        format!("blobs/sha256/{}", self.hex())
    }

    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.hex())
    }
}

/// Passes bytes on and keeps their digest and count.
pub(super) struct Digesting<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Digesting<W> {
    /// Starts with nothing written.
    pub(super) fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    /// What all bytes came to, and the writer they went to.
    pub(super) fn finish(self) -> (BlobDigest, u64, W) {
        (BlobDigest(self.hash.finalize().into()), self.size, self.inner)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn bytes_passed_on_in_parts_have_the_digest_of_the_whole() {
        let mut writer = Digesting::new(Vec::new());
        writer.write_all(b"a").unwrap();
        writer.write_all(b"bc").unwrap();
        let (digest, size, inner) = writer.finish();
        assert_eq!(digest.to_string(), ABC);
        assert_eq!(digest, BlobDigest::of(b"abc"));
        assert_eq!((size, inner.as_slice()), (3, b"abc".as_slice()));
    }
}
