//! A blob on its way into a file.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::RegistryError;
use crate::oci::digest::ContentDigest;

/// What is there of a blob, and the digest so far.
pub(super) struct Download {
    file: File,
    path: PathBuf,
    hash: Sha256,
    have: u64,
}

impl Download {
    /// Goes on with what a file has of a blob of this size.
    pub(super) async fn open(path: &Path, size: u64) -> Result<Self, RegistryError> {
        let failed = |source| RegistryError::Write { path: path.into(), source };
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let file = options.open(path).await.map_err(failed)?;
        let mut download = Self { file, path: path.into(), hash: Sha256::new(), have: 0 };
        download.rehash(size).await.map_err(failed)?;
        Ok(download)
    }

    async fn rehash(&mut self, size: u64) -> io::Result<()> {
        let length = self.file.metadata().await?.len();
        if length > size {
            return self.file.set_len(0).await;
        }
        let mut buffer = vec![0; 256 << 10];
        loop {
            match self.file.read(&mut buffer).await? {
                0 => return Ok(()),
                count => {
                    self.hash.update(&buffer[..count]);
                    self.have += count as u64;
                }
            }
        }
    }

    /// Bytes so far.
    pub(super) fn have(&self) -> u64 {
        self.have
    }

    fn failed(&self, source: io::Error) -> RegistryError {
        RegistryError::Write { path: self.path.clone(), source }
    }

    /// Begins anew.
    pub(super) async fn restart(&mut self) -> Result<(), RegistryError> {
        (self.hash, self.have) = (Sha256::new(), 0);
        let emptied = self.file.set_len(0).await;
        emptied.map_err(|source| self.failed(source))?;
        let sought = self.file.seek(SeekFrom::Start(0)).await;
        sought.map(drop).map_err(|source| self.failed(source))
    }

    /// Takes in what came.
    pub(super) async fn append(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        let written = self.file.write_all(bytes).await;
        written.map_err(|source| self.failed(source))?;
        self.hash.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    /// Makes sure that it is all on the disk, and gives its digest.
    pub(super) async fn finish(mut self) -> Result<ContentDigest, RegistryError> {
        let flushed = self.file.flush().await;
        flushed.map_err(|source| self.failed(source))?;
        let synced = self.file.sync_data().await;
        synced.map_err(|source| self.failed(source))?;
        Ok(ContentDigest::finish(self.hash))
    }

    /// Makes sure that what came so far is kept, whatever comes next.
    pub(super) async fn keep(&mut self) {
        let _ = self.file.flush().await;
    }
}

/// Throws away what is of no use for another attempt.
pub(super) async fn discard(path: &Path) {
    let _ = fs::remove_file(path).await;
}
