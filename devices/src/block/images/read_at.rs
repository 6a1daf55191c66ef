//! What images are read from: a file, or bytes in memory where tests and the fuzzer have them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at offsets. The end is measured when it is opened, and nothing behind it is ever asked for.
pub(in crate::block) trait ReadAt: Send + Sync {
    /// Fills `bytes` from `offset` on. An error if there are not as many.
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}
