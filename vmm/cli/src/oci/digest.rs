//! Digests of contents, and readers that check them.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A SHA-256 of a content, as `sha256:` and 64 digits in lower case. Registries use no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentDigest(String);

/// Not a digest.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no digest of the form sha256:HEX; no other kind is supported")]
pub struct DigestError(String);

const PREFIX: &str = "sha256:";

impl ContentDigest {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    pub(super) fn finish(hash: Sha256) -> Self {
        let mut text = String::from(PREFIX);
        for byte in hash.finalize() {
            text.push_str(&format!("{byte:02x}"));
        }
        Self(text)
    }

    /// The 64 digits.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl FromStr for ContentDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let hex = text.strip_prefix(PREFIX).filter(|hex| hex.len() == 64 && hex.bytes().all(digit));
        match hex {
            Some(_) => Ok(Self(text.to_owned())),
            None => Err(DigestError(text.chars().take(100).collect())),
        }
    }
}

impl TryFrom<String> for ContentDigest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<ContentDigest> for String {
    fn from(digest: ContentDigest) -> Self {
        digest.0
    }
}

impl Display for ContentDigest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A reader that keeps the digest of what went through it, if that is wanted.
#[derive(Debug)]
pub(super) struct Hashing<R> {
    inner: R,
    hash: Option<Sha256>,
    count: u64,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R, wanted: bool) -> Self {
        Self { inner, hash: wanted.then(Sha256::new), count: 0 }
    }

    /// Reads to the end, and gives digest and number of all bytes, and the reader.
    pub(super) fn finish(mut self) -> io::Result<(Option<ContentDigest>, u64, R)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.hash.map(ContentDigest::finish), self.count, self.inner))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(hash) = &mut self.hash {
            hash.update(&buffer[..count]);
        }
        self.count += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_nothing_is_the_known_one_and_reads_back() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ContentDigest::of(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(ContentDigest::of(b"")));
        let (digest, count, _) = Hashing::new(&b"abc"[..], true).finish().unwrap();
        assert_eq!((digest, count), (Some(ContentDigest::of(b"abc")), 3));
    }

    #[test]
    fn anything_else_is_no_digest() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let short = format!("sha256:{}", "a".repeat(63));
        let path = format!("sha256:{}", "../".repeat(22));
        let other = format!("sha512:{}", "a".repeat(128));
        for text in ["", "sha256:", &upper, &short, &path, &other] {
            assert!(text.parse::<ContentDigest>().is_err(), "{text}");
        }
    }
}
