//! What a guest says of its memory.

use super::layout::STATISTIC;

/// What a guest said of its memory: its own word, by its own count. None of what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes read back from swap.
    pub swap_in: Option<u64>,
    /// Bytes written to swap.
    pub swap_out: Option<u64>,
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Page faults that waited for none.
    pub minor_faults: Option<u64>,
    /// Bytes that are used for nothing.
    pub free: Option<u64>,
    /// Bytes that there are.
    pub total: Option<u64>,
    /// Bytes that could be had without swapping.
    pub available: Option<u64>,
    /// Bytes of files, which could be had at once.
    pub caches: Option<u64>,
    /// Huge pages that were handed out by hugetlb.
    pub hugetlb_allocations: Option<u64>,
    /// Huge pages that hugetlb did not have.
    pub hugetlb_failures: Option<u64>,
    /// Times that a process was killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Times that an allocation had to wait for memory to be made free.
    pub allocation_stalls: Option<u64>,
    /// Bytes looked at, to find some to make free, in the background.
    pub scanned_in_background: Option<u64>,
    /// Bytes looked at for an allocation that waited.
    pub scanned_directly: Option<u64>,
    /// Bytes made free in the background.
    pub reclaimed_in_background: Option<u64>,
    /// Bytes made free for an allocation that waited.
    pub reclaimed_directly: Option<u64>,
}

impl Statistics {
    /// What a driver's list says. Tags that are not known are those of newer drivers; of one that is there twice the
    /// last counts.
    pub(super) fn parse(list: &[u8]) -> Self {
        let mut statistics = Self::default();
        for entry in list.chunks_exact(STATISTIC) {
            let &[t0, t1, v0, v1, v2, v3, v4, v5, v6, v7] = entry else { continue };
            if let Some(place) = statistics.place(u16::from_le_bytes([t0, t1])) {
                *place = Some(u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]));
            }
        }
        statistics
    }

    /// The tags of Linux 6.12; the specification has those up to 9.
    fn place(&mut self, tag: u16) -> Option<&mut Option<u64>> {
        Some(match tag {
            0 => &mut self.swap_in,
            1 => &mut self.swap_out,
            2 => &mut self.major_faults,
            3 => &mut self.minor_faults,
            4 => &mut self.free,
            5 => &mut self.total,
            6 => &mut self.available,
            7 => &mut self.caches,
            8 => &mut self.hugetlb_allocations,
            9 => &mut self.hugetlb_failures,
            10 => &mut self.oom_kills,
            11 => &mut self.allocation_stalls,
            12 => &mut self.scanned_in_background,
            13 => &mut self.scanned_directly,
            14 => &mut self.reclaimed_in_background,
            15 => &mut self.reclaimed_directly,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u16, value: u64) -> Vec<u8> {
        [&tag.to_le_bytes()[..], &value.to_le_bytes()].concat()
    }

    #[test]
    fn every_tag_has_a_place_of_its_own() {
        let list: Vec<u8> = (0..16).flat_map(|tag| entry(tag, 100 + u64::from(tag))).collect();
        let expected = Statistics {
            swap_in: Some(100),
            swap_out: Some(101),
            major_faults: Some(102),
            minor_faults: Some(103),
            free: Some(104),
            total: Some(105),
            available: Some(106),
            caches: Some(107),
            hugetlb_allocations: Some(108),
            hugetlb_failures: Some(109),
            oom_kills: Some(110),
            allocation_stalls: Some(111),
            scanned_in_background: Some(112),
            scanned_directly: Some(113),
            reclaimed_in_background: Some(114),
            reclaimed_directly: Some(115),
        };
        assert_eq!(Statistics::parse(&list), expected);
    }

    #[test]
    fn unknown_tags_and_cut_entries_are_left_out() {
        let list =
            [entry(16, 1), entry(u16::MAX, 2), entry(4, 3), entry(4, 5), entry(5, 7)].concat();
        let expected = Statistics { free: Some(5), ..Statistics::default() };
        assert_eq!(Statistics::parse(&list[..49]), expected);
    }
}
