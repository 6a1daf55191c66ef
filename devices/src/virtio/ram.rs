//! Guest memory as devices see it.

use std::ops::Deref;
use std::sync::Arc;

use vm_memory::bitmap::{AtomicBitmap, Bitmap};
use vm_memory::{GuestAddress, GuestMemory, GuestMemoryError, GuestMemoryMmap, Permissions};

/// The guest's memory. Writing through it marks what was written, for migration to send again.
#[derive(Clone, Debug)]
pub struct GuestRam(Arc<GuestMemoryMmap<AtomicBitmap>>);

impl GuestRam {
    /// Marks memory as written that was written past this type, by the kernel for instance. To be called when the data
    /// has landed: marked earlier, it could be sent without it.
    pub fn mark_written(
        &self,
        address: GuestAddress,
        length: usize,
    ) -> Result<(), GuestMemoryError> {
        for slice in GuestMemory::get_slices(&*self.0, address, length, Permissions::Write)? {
            let slice = slice?;
            slice.bitmap().mark_dirty(0, slice.len());
        }
        Ok(())
    }
}

impl From<Arc<GuestMemoryMmap<AtomicBitmap>>> for GuestRam {
    fn from(memory: Arc<GuestMemoryMmap<AtomicBitmap>>) -> Self {
        Self(memory)
    }
}

impl Deref for GuestRam {
    type Target = GuestMemoryMmap<AtomicBitmap>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestMemoryBackend};

    use super::*;
    use crate::testing::guest_ram;

    fn written(ram: &GuestRam, address: u64) -> bool {
        let region = ram.iter().next().unwrap();
        region.get_mmap().bitmap().is_addr_set(usize::try_from(address).unwrap())
    }

    #[test]
    fn written_memory_is_marked_both_ways() {
        let ram = guest_ram();
        ram.write_obj(7_u32, GuestAddress(0x1000)).unwrap();
        ram.mark_written(GuestAddress(0x2fff), 2).unwrap();
        let marks = [0, 0x1000, 0x2000, 0x3000, 0x4000].map(|at| written(&ram, at));
        assert_eq!(marks, [false, true, true, true, false]);
    }

    #[test]
    fn memory_that_is_not_there_cannot_be_marked() {
        let ram = guest_ram();
        let end = ram.last_addr().0;
        assert!(ram.mark_written(GuestAddress(end), 2).is_err());
        assert!(ram.mark_written(GuestAddress(u64::MAX), 2).is_err());
    }
}
