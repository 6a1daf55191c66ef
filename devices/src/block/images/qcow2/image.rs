//! An open image: where the content of its disk is.

use std::io;
use std::sync::{Arc, Mutex};

use super::entry::{Cluster, Damage, table_of};
use super::header::{ENTRY, Header, Qcow2Error};
use crate::block::images::cache::Cache;
use crate::block::images::read_at::ReadAt;
use crate::pci::lock;

/// Entries that are read and kept together: 4 KiB, or a whole table where clusters are smaller.
const SLICE_ENTRIES: u64 = 512;
/// Slices that are kept: 1 MiB, which with clusters of 64 KiB is the map of 8 GiB.
const SLICES: usize = 256;
/// Bytes of decompressed clusters that are kept, unless one alone is larger.
const EXPANDED: u64 = 1 << 20;

/// Where a part of a disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::block::images) enum Place {
    /// Not here.
    Unallocated,
    /// Nowhere.
    Zeroes,
    /// In the image's file from this offset on.
    File(u64),
    /// In memory: a cluster, from this byte on.
    Memory(Arc<[u8]>, usize),
}

/// An image that is open.
pub(in crate::block::images) struct Image<S> {
    source: S,
    length: u64,
    header: Header,
    /// By number; none where there is no table.
    slices: Mutex<Cache<Option<Arc<[u64]>>>>,
    /// By number of the cluster.
    expanded: Mutex<Cache<Arc<[u8]>>>,
}

impl<S: ReadAt> Image<S> {
    /// The image in `source`, which has `length` bytes.
    pub(in crate::block::images) fn open(source: S, length: u64) -> Result<Self, Qcow2Error> {
        let header = Header::read(&source, length)?;
        let clusters = usize::try_from(EXPANDED / header.cluster_size()).unwrap_or(1).max(1);
        Ok(Self {
            source,
            length,
            header,
            slices: Mutex::new(Cache::new(SLICES)),
            expanded: Mutex::new(Cache::new(clusters)),
        })
    }

    /// Bytes of its disk.
    pub(in crate::block::images) fn size(&self) -> u64 {
        self.header.size
    }

    /// The name it gives for its backing file, if it needs one.
    pub(in crate::block::images) fn backing(&self) -> Option<&str> {
        self.header.backing.as_deref()
    }

    /// What [`Place::File`] is an offset in.
    pub(in crate::block::images) fn source(&self) -> &S {
        &self.source
    }

    /// Where the byte at `offset` is, and how many of the `length` bytes from it on are at the same place: one at least.
    pub(in crate::block::images) fn locate(
        &self,
        offset: u64,
        length: u64,
    ) -> io::Result<(Place, u64)> {
        let size = self.header.cluster_size();
        let (number, within) = (offset / size, offset % size);
        let slice_entries = self.slice_entries();
        let Some(slice) = self.slice(number / slice_entries)? else {
            let clusters = slice_entries - number % slice_entries;
            return Ok((Place::Unallocated, length.min(clusters * size - within)));
        };
        let first = usize::try_from(number % slice_entries).unwrap_or(usize::MAX);
        let mut entries = slice.iter().skip(first).map(|entry| self.cluster_of(*entry));
        let cluster = entries.next().unwrap_or(Ok(Cluster::Unallocated))?;
        let to_end = size - within;
        Ok(match cluster {
            Cluster::Compressed { offset, length: input } => {
                let bytes = self.expand(number, offset, input)?;
                let within = usize::try_from(within).unwrap_or(usize::MAX);
                (Place::Memory(bytes, within), length.min(to_end))
            }
            Cluster::Data { offset } if offset + within >= self.length => {
                (Place::Zeroes, length.min(to_end))
            }
            Cluster::Data { offset } => {
                let next = (1..).map(|index| Cluster::Data { offset: offset + index * size });
                let more = entries.zip(next).take_while(|(entry, next)| *entry == Ok(*next));
                let run = to_end + clusters_within(more, length, to_end, size);
                let place = offset + within;
                (Place::File(place), length.min(run).min(self.length - place))
            }
            Cluster::Zeroes | Cluster::Unallocated => {
                let more = entries.take_while(|entry| *entry == Ok(cluster));
                let run = to_end + clusters_within(more, length, to_end, size);
                let is_here = cluster == Cluster::Zeroes;
                let place = if is_here { Place::Zeroes } else { Place::Unallocated };
                (place, length.min(run))
            }
        })
    }

    fn cluster_of(&self, entry: u64) -> Result<Cluster, Damage> {
        Cluster::of(entry, &self.header, self.length)
    }

    fn slice_entries(&self) -> u64 {
        self.header.table_entries().min(SLICE_ENTRIES)
    }

    /// A part of an L2 table. The lock is not held while the file is read: two that miss the same slice both read it.
    fn slice(&self, number: u64) -> io::Result<Option<Arc<[u64]>>> {
        if let Some(slice) = lock(&self.slices).get(number) {
            return Ok(slice);
        }
        let slice = self.read_slice(number)?;
        lock(&self.slices).put(number, slice.clone());
        Ok(slice)
    }

    fn read_slice(&self, number: u64) -> io::Result<Option<Arc<[u64]>>> {
        let entries = self.slice_entries();
        let slices = self.header.table_entries() / entries;
        let mut pointer = [0; 8];
        let pointer_at = self.header.l1_offset + number / slices * ENTRY;
        self.source.fill(pointer_at, &mut pointer)?;
        let table = table_of(u64::from_be_bytes(pointer), &self.header, self.length)?;
        let Some(table) = table else { return Ok(None) };
        let length = entries * ENTRY;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.source.fill(table + number % slices * length, &mut bytes)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(Some(numbers.iter().map(|number| u64::from_be_bytes(*number)).collect()))
    }

    /// The content of a compressed cluster.
    fn expand(&self, number: u64, offset: u64, length: u64) -> io::Result<Arc<[u8]>> {
        if let Some(bytes) = lock(&self.expanded).get(number) {
            return Ok(bytes);
        }
        let mut input = vec![0; usize::try_from(length).unwrap_or(0)];
        self.source.fill(offset, &mut input)?;
        let size = usize::try_from(self.header.cluster_size()).unwrap_or(0);
        let bytes: Arc<[u8]> = self.header.compression.expand(&input, size)?.into();
        lock(&self.expanded).put(number, Arc::clone(&bytes));
        Ok(bytes)
    }
}

/// Bytes of those clusters, as far as `length` bytes need them behind the first `to_end`.
fn clusters_within<T>(
    clusters: impl Iterator<Item = T>,
    length: u64,
    to_end: u64,
    size: u64,
) -> u64 {
    let needed = length.saturating_sub(to_end).div_ceil(size);
    let needed = usize::try_from(needed).unwrap_or(usize::MAX);
    clusters.take(needed).count() as u64 * size
}
