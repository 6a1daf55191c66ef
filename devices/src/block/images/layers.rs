//! The disk as transfers see it: a file that does a part of what is asked at a time.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use libc::{EIO, EROFS, c_int, iovec};

use super::chain::{Chain, Content};
use super::overlay::{CLUSTER, Claim, Overlay};
use super::vectors::{clear, first, gather, length_of, scatter};
use crate::block::backend::{Medium, Step, sys};

/// Images, and the overlay on top of them.
pub(super) struct Layers {
    chain: Chain<File>,
    overlay: Option<Overlay>,
}

impl Layers {
    pub(super) fn new(chain: Chain<File>, overlay: Option<Overlay>) -> Self {
        Self { chain, overlay }
    }

    /// Bytes of the disk.
    pub(super) fn size(&self) -> u64 {
        self.chain.size()
    }

    pub(super) fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_ref()
    }

    fn writable(&self) -> Result<&Overlay, c_int> {
        self.overlay.as_ref().ok_or(EROFS)
    }

    /// How many of `length` bytes from `offset` on are on the disk. None is an error of whoever asks.
    fn on_disk(&self, offset: u64, length: u64) -> Result<u64, c_int> {
        match self.size().checked_sub(offset) {
            None | Some(0) => Err(EIO),
            Some(left) => Ok(length.min(left)),
        }
    }

    fn read(&self, vectors: &[iovec], offset: u64) -> Result<usize, c_int> {
        let mut length = self.on_disk(offset, length_of(vectors))?;
        if let Some(overlay) = &self.overlay {
            let (is_here, run) = overlay.run(offset, length);
            if is_here {
                let vectors = &first(vectors, run);
                return sys::call(overlay.file(), &Step::Read { vectors, offset });
            }
            length = run;
        }
        let found = self.chain.locate(offset, length, |content, length| {
            let vectors = &first(vectors, length);
            match content {
                Content::File(file, offset) => {
                    return sys::call(file, &Step::Read { vectors, offset });
                }
                Content::Memory(bytes) => scatter(bytes, vectors),
                Content::Zeroes => clear(vectors),
            }
            Ok(usize::try_from(length).unwrap_or(usize::MAX))
        });
        found.map_err(|error| number_of(&error))?
    }

    fn write(&self, vectors: &[iovec], offset: u64) -> Result<usize, c_int> {
        let overlay = self.writable()?;
        let length = self.on_disk(offset, length_of(vectors))?;
        let (is_here, run) = overlay.run(offset, length);
        if is_here {
            let vectors = &first(vectors, run);
            return sys::call(overlay.file(), &Step::Write { vectors, offset });
        }
        let cluster = offset / CLUSTER;
        let end = overlay.bytes_of(cluster).end.min(offset + length);
        let claim = overlay.claim(cluster..cluster + 1);
        if claim.is_here() {
            drop(claim);
            let vectors = &first(vectors, end - offset);
            return sys::call(overlay.file(), &Step::Write { vectors, offset });
        }
        self.copy_up(claim, overlay.bytes_of(cluster), offset..end, |part| gather(vectors, part))?;
        usize::try_from(end - offset).map_err(|_| EIO)
    }

    /// Puts a claimed cluster into the overlay: `part` of it as `fill` makes it, the rest as it is in the images.
    fn copy_up(
        &self,
        claim: Claim<'_>,
        whole: Range<u64>,
        part: Range<u64>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), c_int> {
        let length = |range: Range<u64>| usize::try_from(range.end - range.start).unwrap_or(0);
        let mut bytes = vec![0; length(whole.clone())];
        let (head, rest) = bytes.split_at_mut(length(whole.start..part.start));
        let (middle, tail) = rest.split_at_mut(length(part.clone()));
        let copied = self.chain.read(whole.start, head);
        copied.and_then(|()| self.chain.read(part.end, tail)).map_err(|error| number_of(&error))?;
        fill(middle);
        let written = self.writable()?.file().write_all_at(&bytes, whole.start);
        written.map_err(|error| number_of(&error))?;
        claim.settle();
        Ok(())
    }

    /// Makes a range read as zeroes, by fallocate in that mode where it is in the overlay or a whole cluster.
    fn zero(&self, mode: c_int, offset: u64, length: u64) -> Result<usize, c_int> {
        let overlay = self.writable()?;
        let end = offset + self.on_disk(offset, length)?;
        let whole_from = offset.next_multiple_of(CLUSTER).min(end);
        // The last cluster of a disk is whole where the disk ends.
        let last = if end == self.size() { end } else { end - end % CLUSTER };
        let whole_to = last.max(whole_from);
        self.zero_part(overlay, mode, offset..whole_from)?;
        if whole_from < whole_to {
            let claim = overlay.claim(whole_from / CLUSTER..whole_to.div_ceil(CLUSTER));
            allocate(overlay, mode, whole_from..whole_to)?;
            claim.settle();
        }
        self.zero_part(overlay, mode, whole_to..end)?;
        Ok(0)
    }

    /// A range within one cluster.
    fn zero_part(&self, overlay: &Overlay, mode: c_int, part: Range<u64>) -> Result<(), c_int> {
        if part.is_empty() {
            return Ok(());
        }
        let cluster = part.start / CLUSTER;
        let claim = overlay.claim(cluster..cluster + 1);
        if claim.is_here() {
            return allocate(overlay, mode, part);
        }
        let is_zero = self.chain.is_zero(part.start, part.end - part.start);
        if is_zero.map_err(|error| number_of(&error))? {
            return Ok(());
        }
        self.copy_up(claim, overlay.bytes_of(cluster), part, |part| part.fill(0))
    }
}

impl Medium for Layers {
    fn call(&self, step: &Step<'_>) -> Result<usize, c_int> {
        match *step {
            Step::Read { vectors, offset } => self.read(vectors, offset),
            Step::Write { vectors, offset } => self.write(vectors, offset),
            Step::Allocate { mode, offset, length } => self.zero(mode, offset, length),
            // Without an overlay there is nothing that was written.
            Step::Sync => self
                .overlay
                .as_ref()
                .map_or(Ok(0), |overlay| sys::call(overlay.file(), &Step::Sync)),
        }
    }
}

fn allocate(overlay: &Overlay, mode: c_int, range: Range<u64>) -> Result<(), c_int> {
    let (offset, length) = (range.start, range.end - range.start);
    sys::call(overlay.file(), &Step::Allocate { mode, offset, length }).map(|_| ())
}

/// What is wrong with an image has no number of its own.
fn number_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(EIO)
}
