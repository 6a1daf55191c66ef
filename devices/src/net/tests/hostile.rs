//! Guests that write anything anywhere.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

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
    /// A chain that is nearly right.
    Chain {
        queue: u16,
        first: u16,
        buffers: Vec<(u64, u32)>,
    },
    /// Bytes of a command, or of a table of descriptors.
    Fill {
        at: u64,
        bytes: Vec<u8>,
    },
    Offer {
        queue: u16,
        head: u16,
    },
    /// A frame of the host's.
    Frame(usize),
    Turn,
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    let address = || prop_oneof![0x4000_u64..0x1_0100, 0_u64..0x3000, any::<u64>()];
    let length = || prop_oneof![Just(12_u32), Just(16), Just(1), 0_u32..0x2000, any::<u32>()];
    let buffer = || (address(), length());
    let good = (0x4000_u64..0xe000, 0_u32..0x800);
    prop_oneof![
        2 => (0_u16..3, 0_u16..17, buffer(), 0_u16..8, 0_u16..18).prop_map(
            |(queue, index, buffer, flags, next)| Step::Describe { queue, index, buffer, flags, next }
        ),
        4 => (0_u16..3, 0_u16..12, prop::collection::vec(good, 1..4)).prop_map(
            |(queue, first, buffers)| Step::Chain { queue, first, buffers }
        ),
        2 => (0x4000_u64..0xe000, prop::collection::vec(0_u8..6, 1..40)).prop_map(
            |(at, bytes)| Step::Fill { at, bytes }
        ),
        1 => (0_u16..3, 0_u16..17).prop_map(|(queue, head)| Step::Offer { queue, head }),
        3 => (14_usize..1500).prop_map(Step::Frame),
        3 => Just(Step::Turn),
        1 => Just(Step::Stop),
    ]
}

impl Bench {
    fn take(&mut self, wire: &Wire, step: Step) {
        match step {
            Step::Describe { queue, index, buffer: (address, length), flags, next } => {
                let ring = &self.rings[usize::from(queue)];
                ring.describe(index, (GuestAddress(address), length), flags, next);
            }
            Step::Chain { queue, first, buffers } => {
                let flags = if queue == 0 { FakeRing::WRITE } else { 0 };
                self.chain(queue, first, &buffers, flags);
                // The last buffer of a command is for its answer.
                let last = first + u16::try_from(buffers.len()).unwrap() - 1;
                let (address, length) = buffers[buffers.len() - 1];
                let flags = if queue == 1 { 0 } else { FakeRing::WRITE };
                let ring = &self.rings[usize::from(queue)];
                ring.describe(last, (GuestAddress(address), length), flags, 0);
            }
            Step::Fill { at, bytes } => self.fill(at, &bytes),
            Step::Offer { queue, head } => self.offer(queue, head),
            Step::Frame(length) => wire.send(&frame(MAC, length)),
            Step::Turn => drop(self.turn()),
            Step::Stop => {
                self.pause();
                let records = self.save();
                assert_eq!(self.save(), records);
                self.resume();
            }
        }
    }
}

#[test]
fn no_guest_stops_a_pause_or_keeps_the_worker_busy() {
    in_new_network(|| {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 40,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let guests = (prop::collection::vec(step(), 1..40), any::<bool>());
        let result = runner.run(&guests, |(steps, is_mergeable)| {
            let left_out = if is_mergeable { 0 } else { MRG_RXBUF };
            let mut bench = Bench::running_without(left_out, &NetConfig::new(MAC), taps(1));
            let wire = Wire::new();
            for step in steps {
                bench.take(&wire, step);
            }
            bench.settle();
            bench.pause();
            Ok(())
        });
        result.unwrap();
    });
}

#[test]
fn chain_that_is_no_frame_is_given_back_and_counted() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        let wire = Wire::new();
        let long = [(0, 0xf000), (0, 0x1000), (0, 0x30)];
        let chains: [&[(u64, u32)]; 3] = [&[(DATA, 25)], &[(DATA, 0)], &long];
        for chain in chains {
            bench.chain(1, 0, chain, 0);
            assert_eq!(bench.used(1, 1), [(0, 0)], "{chain:?}");
        }
        bench.chain(1, 0, &[(DATA, 100)], FakeRing::WRITE);
        assert_eq!(bench.used(1, 1), [(0, 0)]);
        assert_eq!(bench.counters().malformed, 4);
        assert_eq!(wire.try_receive(), None);
        assert_eq!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    });
}

#[test]
fn chain_to_send_that_is_none_fails_the_device() {
    in_new_network(|| {
        for (address, length, flags) in
            [(u64::MAX - 5, 100, 0), (0xfff0, 17, 0), (DATA, 100, FakeRing::NEXT)]
        {
            let mut bench = Bench::running(1);
            let wire = Wire::new();
            bench.rings[1].describe(0, (GuestAddress(address), length), flags, 0);
            bench.offer(1, 0);
            bench.settle();
            assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0, "{address:x}");
            assert_eq!((bench.rings[1].take_used(), wire.try_receive()), (vec![], None));
            bench.pause();
        }
    });
}

#[test]
fn chain_that_cannot_be_received_into_fails_the_device() {
    in_new_network(|| {
        for (buffers, flags) in [
            (&[(DATA, 100)][..], 0),
            (&[(DATA, 11)], FakeRing::WRITE),
            (&[(DATA, 100), (0xffff, 2)], FakeRing::WRITE),
        ] {
            let mut bench = Bench::running(1);
            bench.chain(0, 3, &[(0x8000, 20)], FakeRing::WRITE);
            bench.chain(0, 0, buffers, flags);
            bench.settle();
            assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0, "{buffers:?}");
            bench.pause();
            assert_eq!(bench.rings[0].take_used(), []);
        }
    });
}

#[test]
fn command_without_a_place_for_its_answer_fails_the_device() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        bench.chain(2, 0, &[(COMMAND, 3)], 0);
        bench.settle();
        assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
        bench.pause();
    });
}
