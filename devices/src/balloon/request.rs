//! From descriptors to what they name. Everything in them is the guest's word.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::layout::{NUMBER, PAGE_SIZE, STATISTIC};
use super::run::{Run, merge};
use super::statistics::Statistics;
use crate::virtio::GuestRam;

/// Page numbers in one request. Linux sends 256 at most. Each may be a hole of its own, all made in one go.
pub(super) const MAX_PAGES: usize = 1024;
/// Bytes in one report. Linux sends 32 blocks of 4 MiB at most.
pub(super) const MAX_REPORT: u64 = 128 << 20;
/// Statistics in one list. Linux 6.12 has 16.
const MAX_STATISTICS: usize = 64;

/// What a chain names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named<T> {
    pub(super) what: T,
    /// Something of the chain could not be, and was left out.
    pub(super) is_wrong: bool,
}

/// Whether these are a chain of a queue with that many descriptors: it ends, and no later (2.7.5.3.1), and is all in memory.
pub(super) fn is_chain(
    descriptors: impl Iterator<Item = Descriptor>,
    most: u16,
    ram: &GuestRam,
) -> bool {
    let mut is_complete = false;
    for (count, descriptor) in descriptors.enumerate() {
        let length = descriptor.len() as usize;
        let is_there = length == 0
            || GuestMemory::check_range(&**ram, descriptor.addr(), length, Permissions::ReadWrite);
        if count >= usize::from(most) || !is_there {
            return false;
        }
        is_complete = !descriptor.has_next();
    }
    is_complete
}

/// The pages that a chain puts into the balloon: those that are memory, each once. `most` is the number of descriptors
/// that a chain of this queue may have (2.7.5.3.1): more are not looked at.
pub(super) fn inflated(
    buffers: impl Iterator<Item = Descriptor>,
    most: u16,
    ram: &GuestRam,
) -> Named<Vec<Run>> {
    let list = read_list(buffers, most, MAX_PAGES * NUMBER, ram);
    let numbers = list.what.chunks_exact(NUMBER);
    let mut is_wrong = list.is_wrong || !numbers.remainder().is_empty();
    let mut runs = Vec::with_capacity(numbers.len());
    for number in numbers {
        let &[a, b, c, d] = number else { continue };
        let number = u64::from(u32::from_le_bytes([a, b, c, d]));
        let run = Run { start: GuestAddress(number * PAGE_SIZE), length: PAGE_SIZE };
        if is_memory(run, ram) {
            runs.push(run);
        } else {
            is_wrong = true;
        }
    }
    Named { what: merge(runs), is_wrong }
}

/// How many pages a chain takes out of the balloon. Which ones does not matter.
pub(super) fn deflated(mut buffers: impl Iterator<Item = Descriptor>, most: u16) -> Named<u64> {
    let mut bytes = 0;
    let mut is_wrong = false;
    for buffer in buffers.by_ref().take(most.into()) {
        is_wrong |= buffer.is_write_only();
        bytes += if buffer.is_write_only() { 0 } else { u64::from(buffer.len()) };
    }
    let (number, longest) = (NUMBER as u64, MAX_PAGES as u64);
    is_wrong |= !bytes.is_multiple_of(number) || bytes / number > longest;
    is_wrong |= buffers.next().is_some();
    Named { what: (bytes / number).min(longest), is_wrong }
}

/// The memory that a chain reports as free: its buffers, as far as they are whole pages.
pub(super) fn reported(
    mut buffers: impl Iterator<Item = Descriptor>,
    most: u16,
    ram: &GuestRam,
) -> Named<Vec<Run>> {
    let mut runs = Vec::new();
    let mut room = MAX_REPORT;
    let mut is_wrong = false;
    for buffer in buffers.by_ref().take(most.into()) {
        match whole_pages(buffer) {
            // Free is what the device may write to.
            Some(run) if buffer.is_write_only() && run.length <= room && is_memory(run, ram) => {
                room -= run.length;
                is_wrong |= run.length != u64::from(buffer.len());
                runs.push(run);
            }
            _ => is_wrong = true,
        }
    }
    is_wrong |= buffers.next().is_some();
    Named { what: merge(runs), is_wrong }
}

/// What a chain tells of the guest's memory.
pub(super) fn told(
    buffers: impl Iterator<Item = Descriptor>,
    most: u16,
    ram: &GuestRam,
) -> Named<Statistics> {
    let list = read_list(buffers, most, MAX_STATISTICS * STATISTIC, ram);
    let is_wrong = list.is_wrong || !list.what.len().is_multiple_of(STATISTIC);
    Named { what: Statistics::parse(&list.what), is_wrong }
}

/// The bytes of a chain, however they are spread over buffers: `longest` at most, and up to the first that are not
/// there.
fn read_list(
    mut buffers: impl Iterator<Item = Descriptor>,
    most: u16,
    longest: usize,
    ram: &GuestRam,
) -> Named<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut is_wrong = false;
    for buffer in buffers.by_ref().take(most.into()) {
        if buffer.is_write_only() {
            is_wrong = true;
            continue;
        }
        let (start, length) = (bytes.len(), buffer.len() as usize);
        let fits = length.min(longest - start);
        bytes.resize(start + fits, 0);
        if ram.read_slice(&mut bytes[start..], buffer.addr()).is_err() {
            bytes.truncate(start);
            return Named { what: bytes, is_wrong: true };
        }
        is_wrong |= fits < length;
    }
    is_wrong |= buffers.next().is_some();
    Named { what: bytes, is_wrong }
}

/// The pages that lie wholly in a buffer, if there are any.
fn whole_pages(buffer: Descriptor) -> Option<Run> {
    let start = buffer.addr().0.checked_next_multiple_of(PAGE_SIZE)?;
    let end = buffer.addr().0.checked_add(buffer.len().into())?;
    let length = (end - end % PAGE_SIZE).checked_sub(start).filter(|length| *length > 0)?;
    Some(Run { start: GuestAddress(start), length })
}

fn is_memory(run: Run, ram: &GuestRam) -> bool {
    usize::try_from(run.length)
        .is_ok_and(|length| GuestMemory::check_range(&**ram, run.start, length, Permissions::Write))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::guest_ram;

    const WRITE: u16 = 2;
    const MOST: u16 = 16;

    fn chain(buffers: &[(u64, u32, u16)]) -> impl Iterator<Item = Descriptor> {
        let buffer = |(address, length, flags): &(u64, u32, u16)| {
            Descriptor::new(*address, *length, *flags, 0)
        };
        buffers.iter().map(buffer).collect::<Vec<_>>().into_iter()
    }

    /// Writes a list of page numbers to 0x1000.
    fn with_numbers(numbers: &[u32]) -> GuestRam {
        let ram = guest_ram();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        ram.write_slice(&bytes, GuestAddress(0x1000)).unwrap();
        ram
    }

    fn run(start: u64, length: u64) -> Run {
        Run { start: GuestAddress(start), length }
    }

    #[test]
    fn page_numbers_become_runs_however_they_are_framed() {
        let ram = with_numbers(&[9, 5, 4, 8, 6, 5]);
        let expected =
            Named { what: vec![run(0x4000, 0x3000), run(0x8000, 0x2000)], is_wrong: false };
        assert_eq!(inflated(chain(&[(0x1000, 24, 0)]), MOST, &ram), expected);
        let split = [(0x1000, 1, 0), (0x1001, 0, 0), (0x1001, 6, 0), (0x1007, 17, 0)];
        assert_eq!(inflated(chain(&split), MOST, &ram), expected);
    }

    #[test]
    fn pages_that_are_not_memory_are_left_out() {
        let ram = with_numbers(&[15, 16, u32::MAX, 2]);
        let runs = vec![run(0x2000, 0x1000), run(0xf000, 0x1000)];
        let expected = Named { what: runs, is_wrong: true };
        assert_eq!(inflated(chain(&[(0x1000, 16, 0)]), MOST, &ram), expected);
    }

    #[test]
    fn odd_lists_count_as_far_as_they_can_be() {
        let ram = with_numbers(&[2, 3]);
        let one = Named { what: vec![run(0x2000, 0x1000)], is_wrong: true };
        let none = Named { what: vec![], is_wrong: true };
        for (buffers, expected) in [
            (&[(0x1000, 7, 0)][..], &one),
            (&[(0x1000, 4, 0), (0x1004, 4, WRITE)], &one),
            (&[(0x1000, 4, 0), (0x1_0000, 4, 0), (0x1004, 4, 0)], &one),
            (&[(0x1000, 4, 0), (u64::MAX, 4, 0)], &one),
            (&[(0x1000, 3, 0)], &none),
            (&[(0x1000, 8, WRITE)], &none),
            (&[(0xfffc, 8, 0)], &none),
        ] {
            assert_eq!(&inflated(chain(buffers), MOST, &ram), expected, "{buffers:?}");
        }
        let empty = Named { what: vec![], is_wrong: false };
        assert_eq!(inflated(chain(&[]), MOST, &ram), empty);
    }

    #[test]
    fn lists_that_are_too_long_are_cut() {
        let ram = with_numbers(&[2]);
        // Page 0 behind the first: the rest of memory is zeros.
        let longest = u32::try_from(MAX_PAGES * NUMBER).unwrap();
        let full = [(0x1000, 4, 0), (0x2000, longest - 4, 0)];
        assert!(!inflated(chain(&full), MOST, &ram).is_wrong);
        let long = inflated(chain(&[(0x1000, 4, 0), (0x2000, longest, 0)]), MOST, &ram);
        assert!(long.is_wrong);
        assert_eq!(long.what, [run(0, 0x1000), run(0x2000, 0x1000)]);
        let deep = inflated(chain(&[(0x1000, 4, 0); 17]), MOST, &ram);
        assert_eq!(deep, Named { what: vec![run(0x2000, 0x1000)], is_wrong: true });
    }

    #[test]
    fn deflated_pages_are_counted_up_to_a_limit() {
        let count = |buffers: &[(u64, u32, u16)]| {
            let named = deflated(chain(buffers), MOST);
            (named.what, named.is_wrong)
        };
        assert_eq!(count(&[]), (0, false));
        assert_eq!(count(&[(0x1000, 6, 0), (0, 2, 0)]), (2, false));
        assert_eq!(count(&[(0x1000, 6, 0)]), (1, true));
        assert_eq!(count(&[(0x1000, 8, WRITE)]), (0, true));
        assert_eq!(count(&[(0x1000, u32::MAX, 0); 2]), (MAX_PAGES as u64, true));
        assert_eq!(count(&[(0x1000, 4, 0); 17]), (16, true));
    }

    #[test]
    fn reports_are_whole_pages_that_the_device_may_write_to() {
        let ram = guest_ram();
        let report = |buffers: &[(u64, u32, u16)]| {
            let named = reported(chain(buffers), MOST, &ram);
            (named.what, named.is_wrong)
        };
        assert_eq!(report(&[]), (vec![], false));
        let touching = [(0x8000, 0x2000, WRITE), (0xa000, 0x1000, WRITE), (0x2000, 0x1000, WRITE)];
        assert_eq!(report(&touching), (vec![run(0x2000, 0x1000), run(0x8000, 0x3000)], false));
        assert_eq!(report(&[(0x1fff, 0x2002, WRITE)]), (vec![run(0x2000, 0x2000)], true));
        for wrong in [
            (0x2000, 0x1000, 0),
            (0x2001, 0x1ffe, WRITE),
            (0x2000, 0, WRITE),
            (0xf000, 0x2000, WRITE),
            (u64::MAX, 0x1000, WRITE),
            (0x2000, u32::MAX, WRITE),
        ] {
            assert_eq!(report(&[wrong]), (vec![], true), "{wrong:?}");
        }
        assert_eq!(report(&[(0x2000, 0x1000, WRITE); 17]), (vec![run(0x2000, 0x1000)], true));
    }

    #[test]
    fn reports_of_more_than_drivers_send_are_cut() {
        let ranges = [(GuestAddress(0), usize::try_from(MAX_REPORT).unwrap() * 2)];
        let (ram, _file) = crate::testing::shared_guest_ram(&ranges);
        let half = u32::try_from(MAX_REPORT / 2).unwrap();
        let at = |half_number: u64| (half_number * u64::from(half), half, WRITE);
        let whole = reported(chain(&[at(0), at(1)]), MOST, &ram);
        assert_eq!(whole, Named { what: vec![run(0, MAX_REPORT)], is_wrong: false });
        let more = reported(chain(&[at(0), at(3), at(1)]), MOST, &ram);
        let runs = vec![run(0, MAX_REPORT / 2), run(MAX_REPORT / 2 * 3, MAX_REPORT / 2)];
        assert_eq!(more, Named { what: runs, is_wrong: true });
    }

    #[test]
    fn statistics_are_read_up_to_a_limit() {
        let ram = guest_ram();
        ram.write_slice(&[4, 0, 7, 0, 0, 0, 0, 0, 0, 0], GuestAddress(0x1000)).unwrap();
        let free = Statistics { free: Some(7), ..Statistics::default() };
        assert_eq!(
            told(chain(&[(0x1000, 3, 0), (0x1003, 7, 0)]), MOST, &ram),
            Named { what: free, is_wrong: false }
        );
        assert_eq!(
            told(chain(&[(0x1000, 11, 0)]), MOST, &ram),
            Named { what: free, is_wrong: true }
        );
        assert!(told(chain(&[(0x1000, 641, 0)]), MOST, &ram).is_wrong);
        assert_eq!(told(chain(&[]), MOST, &ram).what, Statistics::default());
    }

    proptest! {
        #[test]
        fn any_chain_names_memory_or_nothing(
            bytes in prop::collection::vec(any::<u8>(), 256),
            buffers in prop::collection::vec(
                (
                    prop_oneof![0x1000_u64..0x1100, 0_u64..0x1_1000, any::<u64>()],
                    prop_oneof![0_u32..64, 0_u32..0x4000, any::<u32>()],
                    0_u16..4,
                ),
                0..20,
            ),
        ) {
            let ram = guest_ram();
            ram.write_slice(&bytes, GuestAddress(0x1000)).unwrap();
            for named in
                [inflated(chain(&buffers), MOST, &ram), reported(chain(&buffers), MOST, &ram)]
            {
                for run in &named.what {
                    prop_assert!(is_memory(*run, &ram));
                    prop_assert!(run.start.0.is_multiple_of(PAGE_SIZE) && run.length > 0);
                    prop_assert!(run.length.is_multiple_of(PAGE_SIZE));
                }
            }
            prop_assert!(deflated(chain(&buffers), MOST).what <= MAX_PAGES as u64);
            let _ = told(chain(&buffers), MOST, &ram);
        }
    }
}
