//! Guests that write anything anywhere.

use proptest::prelude::*;

use super::*;

#[test]
fn repeated_pages_are_given_back_once() {
    let mut bench = Bench::running();
    bench.fill();
    let before = bench.pages();
    assert!(bench.list(INFLATE, &[0x300; 1024]));
    assert!(bench.list(INFLATE, &[0x300; 1024]));
    assert_eq!(bench.pages(), before);
    let counters = bench.counters();
    assert_eq!((counters.inflated_pages, counters.runs, counters.bad_requests), (2, 2, 0));
}

#[test]
fn pages_that_are_not_memory_hurt_nobody() {
    let mut bench = Bench::running();
    bench.fill();
    let before = bench.pages();
    // Behind the low range, in the gap, behind the high range, and as far as numbers go; two that are there.
    let numbers = [0x7ff, 0x800, 0xfff, 0x1000, 0x1400, 0x10_0000, u32::MAX - 1, u32::MAX];
    assert!(bench.list(INFLATE, &numbers));
    assert_eq!(bench.pages(), before + 1 - 2);
    let counters = bench.counters();
    assert_eq!((counters.inflated_pages, counters.bad_requests, counters.failures), (2, 1, 0));
    assert!(bench.report(REPORTING, &[(0x3f_f001, 0x1ffe)]));
    assert_eq!((bench.counters().reported_bytes, bench.counters().bad_requests), (0, 2));
    assert!(!bench.needs_reset());
}

#[test]
fn chains_that_are_none_have_the_device_reset() {
    for (queue, buffers) in [
        (REPORTING, &[(0x7f_f000, 0x2000)][..]),
        (REPORTING, &[(HIGH - 0x1000, 0x2000)]),
        (REPORTING, &[(u64::MAX - 0xfff, 0x2000)]),
        (INFLATE, &[(LIST, 4), (u64::MAX - 8, 4)]),
        (DEFLATE, &[(LIST, u32::MAX)]),
        (STATISTICS, &[(HIGH - 4, 10)]),
    ] {
        let mut bench = Bench::running();
        bench.fill();
        let before = bench.pages();
        let flags = if queue == REPORTING { FakeRing::WRITE } else { 0 };
        assert!(!bench.give(queue, buffers, flags), "{buffers:x?}");
        assert!(bench.needs_reset(), "{buffers:x?}");
        assert_eq!((bench.pages(), bench.counters().bad_requests), (before, 1));
        bench.pause();
    }
    let mut bench = Bench::running();
    bench.rings[usize::from(INFLATE)].describe(0, (GuestAddress(LIST), 4), FakeRing::NEXT, 0);
    bench.rings[usize::from(INFLATE)].offer(0);
    bench.driver.ring(INFLATE);
    bench.settle();
    assert!(bench.needs_reset(), "a circle");
}

#[test]
fn lists_of_any_length_come_back() {
    let mut bench = Bench::running();
    for length in [0, 1, 3, 5, 4097, 0x1_0000] {
        for queue in [INFLATE, DEFLATE, REPORTING] {
            assert!(bench.give(queue, &[(LIST, length)], 0), "{length} on {queue}");
            assert!(bench.give(queue, &[(LIST, length)], FakeRing::WRITE), "{length} on {queue}");
        }
    }
    assert!(!bench.needs_reset());
    bench.pause();
}

#[test]
fn guest_that_gives_its_own_rings_back_hurts_itself_only() {
    let mut bench = Bench::running();
    bench.fill();
    // All rings, the list and page 0: 0 to 0x10.
    let numbers: Vec<u32> = (0..=0x10).collect();
    // The used ring is zeros before the chain comes back, so this one does.
    assert!(bench.list(INFLATE, &numbers));
    assert_eq!(bench.counters().inflated_pages, 0x11);
    for queue in [INFLATE, DEFLATE, STATISTICS, REPORTING] {
        bench.driver.ring(queue);
    }
    bench.settle();
    // An index that went back to 0 is one no driver writes.
    assert!(bench.needs_reset());
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    let ring = |queue: u64| FakeRing::new(&bench.ram, GuestAddress(0x1000 * (queue + 1)), 16);
    bench.rings = (0..5).map(ring).collect();
    bench.start(u64::MAX);
    assert!(bench.list(INFLATE, &[0x301]));
    assert_eq!(bench.content(0x300..0x303), [7, 0, 7]);
}

#[test]
fn work_is_done_in_parts_with_others_between() {
    let mut bench = Bench::running();
    bench.settle();
    // Every eighth page of the low range but the first 32: 252 runs for each chain, in 8 chains.
    let numbers: Vec<u8> = (0x20_u32..0x800).step_by(8).flat_map(u32::to_le_bytes).collect();
    bench.ram.write_slice(&numbers, GuestAddress(LIST)).unwrap();
    let length = u32::try_from(numbers.len()).unwrap();
    for index in 0..8 {
        bench.rings[0].describe(index, (GuestAddress(LIST), length), 0, 0);
        bench.rings[0].offer(index);
    }
    bench.driver.ring(INFLATE);
    assert!(bench.turn());
    assert_eq!(bench.rings[0].take_used(), [(0, 0), (1, 0)]);
    assert!(bench.turn());
    assert_eq!(bench.rings[0].take_used(), [(2, 0), (3, 0)]);
    bench.settle();
    assert_eq!(bench.rings[0].take_used(), [(4, 0), (5, 0), (6, 0), (7, 0)]);
    assert_eq!(bench.counters().runs, 8 * 252);
}

#[derive(Clone, Debug)]
enum Step {
    /// A descriptor with anything in it.
    Describe {
        queue: u16,
        index: u16,
        buffer: (u64, u32),
        flags: u16,
        next: u16,
    },
    Put {
        address: u64,
        numbers: Vec<u32>,
    },
    Offer {
        queue: u16,
        head: u16,
    },
    Config {
        offset: u64,
        bytes: Vec<u8>,
    },
    Turn,
    Ask,
    /// Saved, and loaded into another, which goes on.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let low = 0_u64..0x2_1000;
    let address = prop_oneof![4 => low, 2 => 0_u64..0x80_2000, 1 => any::<u64>()];
    let length = prop_oneof![0_u32..64, Just(0x1000), Just(0x20_0000), any::<u32>()];
    let number = prop_oneof![0x20_u32..0x802, 0x1000_u32..0x1402, any::<u32>()];
    prop_oneof![
        6 => (0_u16..5, 0_u16..17, (address, length), 0_u16..8, 0_u16..18).prop_map(
            |(queue, index, buffer, flags, next)| Step::Describe { queue, index, buffer, flags, next }
        ),
        3 => (LIST..LIST + 0x100, prop::collection::vec(number, 0..32)).prop_map(
            |(address, numbers)| Step::Put { address, numbers }
        ),
        6 => (0_u16..5, 0_u16..17).prop_map(|(queue, head)| Step::Offer { queue, head }),
        1 => (0_u64..12, prop::collection::vec(any::<u8>(), 1..5)).prop_map(
            |(offset, bytes)| Step::Config { offset, bytes }
        ),
        3 => Just(Step::Turn),
        1 => Just(Step::Ask),
        1 => Just(Step::Move),
    ]
}

impl Bench {
    fn take(&mut self, step: Step) {
        match step {
            Step::Describe { queue, index, buffer, flags, next } => {
                let buffer = (GuestAddress(buffer.0), buffer.1);
                self.rings[usize::from(queue)].describe(index, buffer, flags, next);
            }
            Step::Put { address, numbers } => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
                self.ram.write_slice(&bytes, GuestAddress(address)).unwrap();
            }
            Step::Offer { queue, head } => {
                self.rings[usize::from(queue)].offer(head);
                self.driver.ring(queue);
            }
            Step::Config { offset, bytes } => self.driver.set_config(offset, &bytes),
            Step::Turn => drop(self.turn()),
            Step::Ask => {
                let soon = Some(Duration::from_nanos(1));
                self.function.device(|balloon| balloon.set_statistics_interval(soon));
                self.turn();
                self.function.device(|balloon| balloon.set_statistics_interval(None));
            }
            Step::Move => {
                self.pause();
                let records = self.save();
                let mut target = Bench::new(WITH_ALL);
                target.take_over(self);
                target.load(&records).unwrap();
                assert_eq!(target.save(), records);
                target.resume();
                *self = target;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_guest_keeps_a_balloon_from_rest(steps in prop::collection::vec(step(), 1..60)) {
        let mut bench = Bench::running();
        for step in steps {
            bench.take(step);
        }
        bench.settle();
        bench.pause();
        prop_assert_eq!(bench.file.metadata().unwrap().len(), (LOW + HIGH_SIZE) as u64);
        prop_assert_eq!(bench.counters().failures, 0);
        let faults = bench.function.faults();
        prop_assert_eq!((faults.registers, faults.features, faults.queues), (0, 0, 0));
    }
}
