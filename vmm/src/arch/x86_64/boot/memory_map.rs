//! Which memory the guest may use.

use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::arch::x86_64::layout;
use crate::ram::GuestMemory;

/// Kinds of memory; the numbers are those of e820 and of PVH's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Usable = 1,
    Reserved = 2,
}

/// One range of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) kind: Kind,
}

pub(super) fn entries(memory: &GuestMemory) -> Vec<Entry> {
    let between = |start: GuestAddress, end: u64, kind| Entry {
        start: start.0,
        size: end.saturating_sub(start.0),
        kind,
    };
    let mut entries = vec![
        between(GuestAddress(0), layout::LOW_MEMORY_END.0, Kind::Usable),
        between(layout::LOW_MEMORY_END, 0xa_0000, Kind::Reserved),
        between(layout::FIRMWARE, layout::KERNEL.0, Kind::Reserved),
    ];
    for region in memory.iter() {
        let start = region.start_addr().max(layout::KERNEL);
        entries.push(between(start, region.start_addr().0 + region.len(), Kind::Usable));
    }
    let configuration = layout::PCI_CONFIGURATION;
    entries.push(Entry {
        start: configuration.base,
        size: configuration.size,
        kind: Kind::Reserved,
    });
    entries.retain(|entry| entry.size > 0);
    entries.sort_by_key(|entry| entry.start);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::{Ram, slots};

    #[test]
    fn usable_and_reserved_never_overlap_and_add_up() {
        let ram =
            Ram::new(&slots(4 << 30, layout::LOW_RAM_END, layout::HIGH_RAM).unwrap()).unwrap();
        let entries = entries(ram.memory());
        for pair in entries.windows(2) {
            assert!(pair[0].start + pair[0].size <= pair[1].start, "{pair:?}");
        }
        let usable: u64 =
            entries.iter().filter(|entry| entry.kind == Kind::Usable).map(|entry| entry.size).sum();
        assert_eq!(usable, (4 << 30) - 0x10_0000 + layout::LOW_MEMORY_END.0);
    }
}
