//! Guests that ask for what cannot be given.

use proptest::prelude::*;

use super::*;

#[test]
fn requests_that_cannot_be_come_back_empty_and_harm_no_other() {
    let mut bench = Bench::running(RateLimits::default());
    let at = GuestAddress(BUFFERS);
    let write = FakeRing::WRITE;
    let chains: [&[(GuestAddress, u32, u16)]; 4] = [
        &[(at, 64, 0)],
        &[(at, 0, write)],
        &[(at, 64, FakeRing::NEXT), (at, 64, write)],
        &[(at, 64, write | FakeRing::NEXT), (at, 64, 0)],
    ];
    for chain in chains {
        for (index, (address, length, flags)) in (0_u16..).zip(chain) {
            bench.ring.describe(index, (*address, *length), *flags, index + 1);
        }
        bench.ring.offer(0);
        bench.driver.ring(0);
        bench.settle();
        assert_eq!(bench.ring.take_used(), [(0, 0)]);
    }
    assert_eq!(bench.bytes(0, 128), [0; 128]);
    assert_eq!(bench.counters().bad_requests, 4);
    bench.ask(0, 8);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 8)]);
}

#[test]
fn chains_that_are_none_have_the_device_reset() {
    let (at, write) = (GuestAddress(BUFFERS), FakeRing::WRITE);
    for (address, length, flags) in [
        // A circle.
        (at, 8, write | FakeRing::NEXT),
        (GuestAddress(0xfff0), 64, write),
        (GuestAddress(u64::MAX), 64, write),
        (at, u32::MAX, write),
        // A table that is none.
        (at, 17, FakeRing::INDIRECT),
    ] {
        let mut bench = Bench::running(RateLimits::default());
        bench.ring.describe(0, (address, length), flags, 0);
        bench.ring.offer(0);
        bench.driver.ring(0);
        bench.settle();
        assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0, "{flags}");
        assert_eq!(bench.ring.take_used(), []);
        assert_eq!(bench.bytes(0, 128), [0; 128]);
    }
}

#[test]
fn ring_full_of_one_descriptor_is_answered() {
    let mut bench = Bench::running(RateLimits::default());
    bench.ask(0, 8);
    (0..15).for_each(|_| bench.ring.offer(0));
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 8); 16]);
}

#[test]
fn ring_that_runs_ahead_has_the_device_reset() {
    let mut bench = Bench::running(RateLimits::default());
    bench.settle();
    bench.ring.set_available_index(100);
    bench.driver.ring(0);
    bench.settle();
    assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    bench.pause();
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    bench.ring = FakeRing::new(&bench.ram, GuestAddress(0x2000), 16);
    assert!(bench.driver.negotiate(bench.driver.offered()));
    assert!(bench.driver.set_up_queue(0, &bench.ring, 0xffff));
    let _ = bench.driver.ready();
    bench.resume();
    bench.ask(0, 8);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 8)]);
}

#[test]
fn reset_while_a_request_waits_leaves_nothing_behind() {
    let mut bench = Bench::running(RateLimits { bytes: limit(1, 8), operations: None });
    bench.ask(0, 8);
    bench.ask(1, 8);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 8)]);
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    assert_eq!(bench.driver.status(), 0);
    assert_eq!(bench.ring.take_used(), []);
}

proptest! {
    #[test]
    fn whatever_the_driver_describes_the_worker_comes_to_rest(
        steps in prop::collection::vec(
            (0_u16..17, prop_oneof![0x3000_u64..0x1_1000, any::<u64>()],
             prop_oneof![0_u32..0x2000, any::<u32>()], 0_u16..8, 0_u16..17),
            1..40,
        ),
    ) {
        let mut bench = Bench::running(RateLimits::default());
        for (index, address, length, flags, next) in steps {
            bench.ring.describe(index % 16, (GuestAddress(address), length), flags, next);
            bench.ring.offer(index);
            bench.driver.ring(0);
            bench.settle();
        }
        bench.pause();
    }
}
