//! What is saved and what may be loaded.

use proptest::prelude::*;

use super::*;
use crate::virtio::Device;

const GOLDEN: &str = include_str!("golden-v1.json");

impl Bench {
    fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("vsock", &mut records).unwrap();
        records
    }

    /// A device just made, with what this one has saved and its memory, at work.
    fn moved(&self) -> Self {
        let records = self.save();
        let mut target = Self::new(PATIENCE);
        let mut memory = vec![0; 0x1_0000];
        self.ram.read_slice(&mut memory, GuestAddress(0)).unwrap();
        target.ram.write_slice(&memory, GuestAddress(0)).unwrap();
        let mut loaded = records.clone();
        target.function.load("vsock", &mut loaded).unwrap();
        loaded.finish().unwrap();
        assert_eq!(target.save(), records);
        for ring in &mut target.rings {
            // Where the driver was in it.
            let index = target.ram.read_obj(GuestAddress(ring.available().0 + 2)).unwrap();
            ring.set_available_index(index);
            ring.take_used();
        }
        target.resume();
        target.settle();
        target
    }

    fn give_event_buffer(&mut self, length: u32) {
        let buffer = (GuestAddress(EVENT_BUFFER), length);
        self.rings[EVENTS].describe(0, buffer, FakeRing::WRITE, 0);
        self.rings[EVENTS].offer(0);
        self.driver.ring(2);
    }
}

fn vsock(guest_cid: u64) -> Vsock {
    Vsock::new(VsockConfig { guest_cid, patience: PATIENCE }, Arc::new(|_| {})).unwrap()
}

fn state(vsock: &Vsock) -> VsockState {
    let mut records = Records::default();
    vsock.save("vsock", &mut records).unwrap();
    records.take("vsock").unwrap()
}

#[test]
fn state_of_version_1_reads_as_it_did() {
    let golden: Records = serde_json::from_str(GOLDEN).unwrap();
    let mut vsock = vsock(GUEST_CID);
    vsock.load("vsock", &mut golden.clone()).unwrap();
    let mut records = Records::default();
    vsock.save("vsock", &mut records).unwrap();
    assert_eq!(records, golden);
}

#[test]
fn guest_of_another_address_is_refused() {
    let mut records = Records::default();
    let mut vsock = vsock(7);
    records.put("vsock", &VsockState { guest_cid: 8, owes_reset: true }).unwrap();
    let error = vsock.load("vsock", &mut records).unwrap_err().to_string();
    assert!(error.contains("its guest's CID was 8, this device's is 7"), "{error}");
    assert_eq!(state(&vsock), VsockState { guest_cid: 7, owes_reset: false });
}

#[test]
fn records_that_are_damaged_are_refused() {
    for payload in [
        r#"{"guest_cid":5}"#,
        r#"{"guest_cid":5,"owes_reset":1}"#,
        r#"{"guest_cid":5,"owes_reset":true,"x":0}"#,
    ] {
        let json =
            format!(r#"[{{"kind":"vsock","instance":"v","version":1,"payload":{payload}}}]"#);
        let mut records: Records = serde_json::from_str(&json).unwrap();
        let error = vsock(5).load("v", &mut records).unwrap_err();
        assert!(matches!(error, RecordError::Damaged { .. }), "{error}");
    }
}

#[test]
fn device_without_driver_owes_nothing() {
    assert!(!state(&vsock(5)).owes_reset);
    let mut bench = Bench::running();
    bench.pause();
    assert!(bench.function.device(state).owes_reset);
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    assert!(!bench.function.device(state).owes_reset);
}

#[test]
fn guest_that_was_moved_is_told_once() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.give_event_buffer(4);
    bench.settle();
    assert_eq!(bench.rings[EVENTS].take_used(), []);
    bench.ram.write_obj(0xaaaa_aaaa_u32, GuestAddress(EVENT_BUFFER)).unwrap();
    bench.pause();
    let mut target = bench.moved();
    assert_eq!(target.rings[EVENTS].take_used(), [(0, 4)]);
    assert_eq!(target.ram.read_obj::<u32>(GuestAddress(EVENT_BUFFER)).unwrap(), 0);
    assert!(was_raised(&target.interrupts[3]));
    target.pause();
    target.resume();
    target.settle();
    assert_eq!(target.rings[EVENTS].take_used(), []);
    // The source works on as if nothing had been saved.
    bench.resume();
    bench.send_data(b"still here");
    assert_eq!(read(&mut theirs), b"still here");
    assert_eq!(bench.rings[EVENTS].take_used(), []);
}

#[test]
fn guest_without_event_buffer_is_told_later_and_on_another_host() {
    let mut bench = Bench::running();
    bench.pause();
    let mut first = bench.moved();
    first.pause();
    let mut second = first.moved();
    // Neither has room for the event.
    second.give_event_buffer(3);
    second.settle();
    assert_eq!(second.rings[EVENTS].take_used(), [(0, 0)]);
    second.give_event_buffer(4);
    second.settle();
    assert_eq!(second.rings[EVENTS].take_used(), [(0, 4)]);
    second.give_event_buffer(4);
    second.settle();
    assert_eq!(second.rings[EVENTS].take_used(), []);
}

#[test]
fn packets_of_connections_before_the_move_are_reset() {
    let mut bench = Bench::running();
    let _theirs = bench.connected();
    bench.pause();
    let mut target = bench.moved();
    target.send_data(b"lost");
    target.receive_one(Operation::Reset);
    assert_eq!(target.connections(), 0);
}

proptest! {
    #[test]
    fn save_load_save_is_equal(guest_cid in 3..0xffff_ffff_u64, owes_reset: bool) {
        let saved = VsockState { guest_cid, owes_reset };
        let mut records = Records::default();
        records.put("vsock", &saved).unwrap();
        let mut vsock = vsock(guest_cid);
        vsock.load("vsock", &mut records).unwrap();
        prop_assert_eq!(state(&vsock), saved);
    }
}
