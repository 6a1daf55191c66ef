//! Time, registers and state. Interrupts have a file of their own.

mod interrupts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::testing::{accesses, apply, read};
use super::registers::*;
use super::*;

/// Monday, 2026-11-16 13:45:30, and some.
const NOW: Duration = Duration::from_millis(1_794_836_730_250);

/// A host's clock that stands still until it is moved.
#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Duration) {
        self.0.store(now.as_millis().try_into().unwrap(), Ordering::Relaxed);
    }

    fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// A device that shows this clock's time.
    fn rtc(&self) -> Rtc {
        let clock = self.clone();
        Rtc::new(Box::new(move || clock.now()), Interrupt::new().unwrap())
    }
}

fn clock_at(now: Duration) -> TestClock {
    let clock = TestClock(Arc::default());
    clock.set(now);
    clock
}

fn rtc_at(now: Duration) -> Rtc {
    Rtc::new(Box::new(move || now), Interrupt::new().unwrap())
}

fn get(rtc: &Rtc, index: u8) -> u8 {
    put_index(rtc, index);
    read(rtc, DATA, 1)[0]
}

fn put(rtc: &Rtc, index: u8, byte: u8) {
    put_index(rtc, index);
    assert_eq!(rtc.write(DATA, &[byte]), Effect::None);
}

fn put_index(rtc: &Rtc, index: u8) {
    assert_eq!(rtc.write(INDEX, &[index]), Effect::None);
}

fn time(rtc: &Rtc) -> [u8; 8] {
    TIME.map(|index| get(rtc, index))
}

/// As Linux sets it: 2031-02-03 04:05:06.
fn set_as_linux_does(rtc: &Rtc) {
    let (control, frequency) = (get(rtc, B), get(rtc, A));
    put(rtc, B, control | B_SET);
    put(rtc, A, frequency | 0x70);
    for (index, byte) in [(YEAR, 0x31), (MONTH, 2), (DAY, 3), (HOUR, 4), (MINUTE, 5), (SECOND, 6)] {
        put(rtc, index, byte);
    }
    put(rtc, CENTURY, 0x20);
    put(rtc, B, control);
    put(rtc, A, frequency);
}

#[test]
fn time_is_the_hosts_as_decimal_digits_and_24_hours() {
    assert_eq!(time(&rtc_at(NOW)), [0x30, 0x45, 0x13, 2, 0x16, 0x11, 0x26, 0x20]);
}

#[test]
fn time_is_binary_or_of_12_hours_on_demand() {
    let rtc = rtc_at(NOW);
    put(&rtc, B, B_BINARY | B_24_HOURS);
    assert_eq!(time(&rtc), [30, 45, 13, 2, 16, 11, 26, 20]);
    put(&rtc, B, 0);
    assert_eq!(get(&rtc, HOUR), 0x81);
    for (hour, shown) in [(0, 0x12), (11, 0x11), (12, 0x92), (23, 0x91)] {
        let rtc = rtc_at(Duration::from_secs(hour * 3600));
        put(&rtc, B, 0);
        assert_eq!(get(&rtc, HOUR), shown);
    }
}

#[test]
fn linux_finds_a_clock_that_works() {
    let rtc = rtc_at(NOW);
    assert_eq!(get(&rtc, D), 0x80);
    assert_eq!(get(&rtc, A), 0x26);
    assert_eq!(get(&rtc, B), 0x02);
    assert_eq!(get(&rtc, C), 0);
}

#[test]
fn update_bit_is_set_shortly_before_a_tick_only() {
    for (micros, bit) in [(0, 0), (500_000, 0), (997_771, 0), (997_772, 0x80), (999_999, 0x80)] {
        let rtc = rtc_at(Duration::from_secs(1) + Duration::from_micros(micros));
        assert_eq!(get(&rtc, A) & 0x80, bit, "{micros}");
    }
}

#[test]
fn update_bit_is_clear_while_the_time_is_set_and_cannot_be_written() {
    let rtc = rtc_at(Duration::from_micros(999_999));
    put(&rtc, B, B_SET);
    put(&rtc, A, 0xff);
    assert_eq!(get(&rtc, A), 0x7f);
}

#[test]
fn time_set_by_linux_goes_on_from_there() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    set_as_linux_does(&rtc);
    assert_eq!(time(&rtc), [6, 5, 4, 2, 3, 2, 0x31, 0x20]);
    clock.advance(Duration::from_secs(3600));
    assert_eq!(time(&rtc), [6, 5, 5, 2, 3, 2, 0x31, 0x20]);
}

#[test]
fn guest_that_sets_the_hosts_time_has_no_offset() {
    let rtc = rtc_at(NOW);
    put(&rtc, B, 0x82);
    put(&rtc, B, 0x02);
    assert_eq!(rtc.save().offset, 0);
}

#[test]
fn time_stands_still_while_it_is_set() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    put(&rtc, B, 0x82);
    let before = time(&rtc);
    clock.advance(Duration::from_secs(100));
    assert_eq!(time(&rtc), before);
}

#[test]
fn single_register_can_be_set_on_the_run() {
    let rtc = rtc_at(NOW);
    put(&rtc, HOUR, 0x07);
    assert_eq!(time(&rtc), [0x30, 0x45, 0x07, 2, 0x16, 0x11, 0x26, 0x20]);
    put(&rtc, WEEKDAY, 7);
    assert_eq!(get(&rtc, WEEKDAY), 2);
}

#[test]
fn time_that_is_none_changes_nothing() {
    let rtc = rtc_at(NOW);
    let before = time(&rtc);
    for (index, byte) in [
        (SECOND, 0x60),
        (SECOND, 0x0a),
        (MINUTE, 0xa0),
        (HOUR, 0x24),
        (HOUR, 0x81),
        (DAY, 0),
        (DAY, 0x31),
        (MONTH, 0),
        (MONTH, 0x13),
        (YEAR, 0xff),
        (CENTURY, 0x9f),
    ] {
        put(&rtc, index, byte);
        assert_eq!(time(&rtc), before, "{byte:#x} in {index:#x} on the run");
        put(&rtc, B, 0x82);
        put(&rtc, index, byte);
        assert_eq!(get(&rtc, index), byte);
        put(&rtc, B, 0x02);
        assert_eq!(time(&rtc), before, "{byte:#x} in {index:#x}");
    }
}

#[test]
fn time_of_12_hours_or_binary_can_be_set() {
    let rtc = rtc_at(NOW);
    put(&rtc, B, 0);
    for (shown, hour) in [(0x12, 0), (0x01, 1), (0x92, 0x12), (0x91, 0x23)] {
        put(&rtc, B, 0);
        put(&rtc, HOUR, shown);
        put(&rtc, B, B_24_HOURS);
        assert_eq!(get(&rtc, HOUR), hour);
    }
    put(&rtc, B, B_BINARY | B_24_HOURS);
    put(&rtc, HOUR, 17);
    put(&rtc, B, B_24_HOURS);
    assert_eq!(get(&rtc, HOUR), 0x17);
}

#[test]
fn memory_and_alarms_are_kept_and_flags_are_not_writable() {
    let rtc = rtc_at(NOW);
    for index in [1, 3, 5, 0x0e, 0x0f, 0x31, 0x33, 0x7f] {
        put(&rtc, index, index ^ 0x55);
        assert_eq!(get(&rtc, index), index ^ 0x55);
    }
    put(&rtc, C, 0xff);
    put(&rtc, D, 0);
    assert_eq!((get(&rtc, C), get(&rtc, D)), (0, 0x80));
}

#[test]
fn index_ignores_the_nmi_bit_and_cannot_be_read() {
    let rtc = rtc_at(NOW);
    put(&rtc, 0x8f, 0x0a);
    assert_eq!(get(&rtc, 0x0f), 0x0a);
    assert_eq!(read(&rtc, INDEX, 4), [0xff, 0x0a, 0xff, 0xff]);
}

#[test]
fn clock_far_off_is_shown_as_the_last_second() {
    assert_eq!(time(&rtc_at(Duration::MAX))[5..], [0x12, 0x99, 0x99]);
    assert_eq!(get(&rtc_at(Duration::MAX), SECOND), 0x59);
}

#[test]
fn state_of_version_1_is_golden() {
    let golden = r#"{"index":15,"offset":-3600,"registers":{"10":38,"11":2,"15":10}}"#;
    let rtc = rtc_at(NOW);
    rtc.load(serde_json::from_str(golden).unwrap()).unwrap();
    assert_eq!(serde_json::to_string(&rtc.save()).unwrap(), golden);
    assert_eq!(read(&rtc, DATA, 1), [10]);
    assert_eq!(get(&rtc, HOUR), 0x12);
    // The record's form on the way: its keys are strings there.
    let value = serde_json::to_value(rtc.save()).unwrap();
    assert_eq!(serde_json::from_value::<RtcState>(value).unwrap(), rtc.save());
}

#[test]
fn impossible_states_are_refused_and_change_nothing() {
    for state in [
        r#"{"index":128,"offset":0,"registers":{}}"#,
        r#"{"index":0,"offset":253402300800,"registers":{}}"#,
        r#"{"index":0,"offset":-9223372036854775808,"registers":{}}"#,
        r#"{"index":0,"offset":0,"registers":{"128":1}}"#,
        r#"{"index":0,"offset":0,"registers":{"14":0}}"#,
        r#"{"index":0,"offset":0,"registers":{"10":128}}"#,
        r#"{"index":0,"offset":0,"registers":{"12":64}}"#,
        r#"{"index":0,"offset":0,"registers":{"12":128}}"#,
        r#"{"index":0,"offset":0,"registers":{"13":128}}"#,
        r#"{"index":0,"offset":0,"registers":{"50":32}}"#,
        r#"{"index":0,"offset":0,"registers":{},"seen":253402300800}"#,
        r#"{"index":0,"offset":0,"registers":{},"seen":-62167219201}"#,
    ] {
        let rtc = rtc_at(NOW);
        let before = rtc.save();
        let error = rtc.load(serde_json::from_str(state).unwrap()).unwrap_err();
        assert!(matches!(error, RecordError::Impossible { .. }), "{state}");
        assert_eq!(rtc.save(), before);
    }
}

proptest! {
    #[test]
    fn save_load_save_is_equal(
        seconds in prop_oneof![any::<u64>(), 0..2_u64.pow(34)],
        nanos in 0..1_000_000_000_u32,
        accesses in accesses(2),
        times in accesses(2),
        // Most random values are no time; these are.
        settings in proptest::collection::vec((0..13_usize, 0..0x40_u8), 0..32),
    ) {
        let now = Duration::new(seconds, nanos);
        let first = rtc_at(now);
        apply(&first, &accesses);
        for (which, byte) in settings {
            put_index(&first, *TIME.get(which).unwrap_or(&B));
            let _ = first.write(DATA, &[byte | u8::from(which > 10) << 7]);
        }
        apply(&first, &times);
        let second = rtc_at(now);
        second.load(first.save()).unwrap();
        prop_assert_eq!(second.save(), first.save());
        for index in 0..0x80 {
            prop_assert_eq!(get(&second, index), get(&first, index), "{:#x}", index);
        }
    }
}
