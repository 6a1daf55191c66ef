//! What is saved: the transport's part, and nothing of the device's own.

use super::*;
use crate::virtio::Device;

fn save(bench: &Bench) -> Records {
    let mut records = Records::default();
    bench.function.save("rng", &mut records).unwrap();
    records
}

/// A device just made, with what this one has saved and its memory, at work.
fn moved(bench: &Bench) -> Bench {
    let records = save(bench);
    let mut target = Bench::new(RateLimits::default());
    let mut memory = vec![0; 0x1_0000];
    bench.ram.read_slice(&mut memory, GuestAddress(0)).unwrap();
    target.ram.write_slice(&memory, GuestAddress(0)).unwrap();
    let mut loaded = records.clone();
    target.function.load("rng", &mut loaded).unwrap();
    loaded.finish().unwrap();
    assert_eq!(save(&target), records);
    let index = target.ram.read_obj(GuestAddress(target.ring.available().0 + 2)).unwrap();
    target.ring.set_available_index(index);
    target.ring.take_used();
    target.resume();
    target
}

#[test]
fn device_adds_nothing_to_what_is_saved() {
    let mut records = Records::default();
    Rng::new(RateLimits::default()).unwrap().save("rng", &mut records).unwrap();
    assert_eq!(serde_json::to_string(&records).unwrap(), "[]");
    Rng::new(RateLimits::default()).unwrap().load("rng", &mut records).unwrap();
    records.finish().unwrap();
}

#[test]
fn request_that_waited_is_answered_after_two_moves() {
    let mut bench = Bench::running(RateLimits { bytes: limit(1, 8), operations: None });
    bench.ask(0, 8);
    bench.ask(1, 8);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 8)]);
    bench.pause();
    let mut first = moved(&bench);
    first.pause();
    let mut second = moved(&first);
    second.settle();
    assert_eq!(second.ring.take_used(), [(1, 8)]);
    assert!(was_raised(&second.interrupts[1]));
    second.ask(2, 8);
    second.settle();
    assert_eq!(second.ring.take_used(), [(2, 8)]);
}
