//! Guest memory as vhost is told of it.

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};

use crate::virtio::GuestRam;

/// Bytes of a region: where the guest has it, how long it is, where this process has it, and what must be zero.
const REGION: usize = 32;

/// The kernel's `struct vhost_memory` with its regions: for VHOST_SET_MEM_TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryTable(Vec<u8>);

impl MemoryTable {
    /// All memory of the guest's.
    pub(super) fn of(ram: &GuestRam) -> Self {
        let count = u32::try_from(ram.num_regions()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(8 + REGION * ram.num_regions());
        bytes.extend(count.to_ne_bytes());
        bytes.extend([0; 4]);
        for region in ram.iter() {
            let here = region.get_mmap().as_ptr().addr() as u64;
            for field in [region.start_addr().raw_value(), region.len(), here, 0] {
                bytes.extend(field.to_ne_bytes());
            }
        }
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::GuestAddress;

    use super::*;
    use crate::testing::shared_guest_ram;

    #[test]
    fn table_has_every_region_where_guest_and_process_have_it() {
        let (low, high) = (GuestAddress(0), GuestAddress(0x1_0000_0000));
        let (ram, _file) = shared_guest_ram(&[(low, 0x3000), (high, 0x1000)]);
        let table = MemoryTable::of(&ram);
        let (header, regions) = table.bytes().split_at(8);
        assert_eq!(header, [2_u32.to_ne_bytes(), [0; 4]].concat());
        let here = |address| ram.get_host_address(address).unwrap().addr() as u64;
        let expected = [[0, 0x3000, here(low), 0], [high.0, 0x1000, here(high), 0]];
        let expected: Vec<u8> =
            expected.as_flattened().iter().flat_map(|f| f.to_ne_bytes()).collect();
        assert_eq!(regions, expected);
    }
}
