//! The overlay: a file of the disk's size, and which parts of it count.

use std::fs::File;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use super::bitmap::Bitmap;
use super::state::{Allocation, OverlayState};
use crate::pci::lock;

/// What is in the overlay or in the images as a whole. Part of what is saved: another one is another version.
pub(super) const CLUSTER: u64 = 64 << 10;

/// Where what is written goes.
pub(super) struct Overlay {
    file: File,
    size: u64,
    clusters: Mutex<Clusters>,
    released: Condvar,
}

struct Clusters {
    bitmap: Bitmap,
    /// Those that a thread is about to put into the overlay: at most one range for each thread.
    claims: Vec<Range<u64>>,
}

impl Overlay {
    /// One that has nothing of a disk of `size` bytes yet, whatever is in the file.
    pub(super) fn new(file: File, size: u64) -> Self {
        let bitmap = Bitmap::new(size.div_ceil(CLUSTER));
        let clusters = Mutex::new(Clusters { bitmap, claims: Vec::new() });
        Self { file, size, clusters, released: Condvar::new() }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The bytes of a cluster. The last one may be short.
    pub(super) fn bytes_of(&self, cluster: u64) -> Range<u64> {
        let start = cluster * CLUSTER;
        start..self.size.min(start + CLUSTER)
    }

    /// Whether the byte at `offset` is here, and for how many of the `length` bytes from it on that is so.
    pub(super) fn run(&self, offset: u64, length: u64) -> (bool, u64) {
        let limit = (offset + length).div_ceil(CLUSTER);
        let (is_here, end) = lock(&self.clusters).bitmap.run(offset / CLUSTER, limit);
        (is_here, length.min((end * CLUSTER).saturating_sub(offset)))
    }

    /// Claims clusters, to put them here. Waits for whoever has claimed one of them, so one thread has one claim.
    pub(super) fn claim(&self, range: Range<u64>) -> Claim<'_> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let mut clusters = lock(&self.clusters);
        while clusters.claims.iter().any(overlaps) {
            clusters = self.released.wait(clusters).unwrap_or_else(PoisonError::into_inner);
        }
        clusters.claims.push(range.clone());
        Claim { overlay: self, range }
    }

    pub(super) fn save(&self) -> OverlayState {
        let allocated = Allocation::of(&lock(&self.clusters).bitmap);
        OverlayState { size: self.size, cluster: CLUSTER, allocated }
    }

    pub(super) fn load(&self, saved: &OverlayState) -> Result<(), String> {
        let bitmap = saved.bitmap(self.size)?;
        lock(&self.clusters).bitmap = bitmap;
        Ok(())
    }
}

/// Clusters that one thread alone may put into the overlay. Let go when dropped.
pub(super) struct Claim<'a> {
    overlay: &'a Overlay,
    range: Range<u64>,
}

impl Claim<'_> {
    /// Whether the first of them is here already, by somebody who had claimed it before.
    pub(super) fn is_here(&self) -> bool {
        lock(&self.overlay.clusters).bitmap.is_set(self.range.start)
    }

    /// They are in the file now.
    pub(super) fn settle(self) {
        lock(&self.overlay.clusters).bitmap.set(self.range.clone());
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.overlay.clusters).claims.retain(|range| *range != self.range);
        self.overlay.released.notify_all();
    }
}
