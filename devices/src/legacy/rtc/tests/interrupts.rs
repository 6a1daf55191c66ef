//! Alarm, update and what the owner has to do for them.

use super::*;

const SECOND_LONG: Duration = Duration::from_secs(1);
const DAY_LONG: Duration = Duration::from_secs(86_400);

fn was_raised(rtc: &Rtc) -> bool {
    rtc.interrupt.eventfd().read().is_ok()
}

/// Writes and gives the effect.
fn write(rtc: &Rtc, index: u8, byte: u8) -> Effect {
    put_index(rtc, index);
    rtc.write(DATA, &[byte])
}

/// Sets the alarm and enables its interrupt, beside what else `control` enables.
fn set_alarm(rtc: &Rtc, control: u8, [hour, minute, second]: [u8; 3]) -> Effect {
    put(rtc, B, control & !(B_ALARM | B_UPDATE));
    put(rtc, HOUR_ALARM, hour);
    put(rtc, MINUTE_ALARM, minute);
    put(rtc, SECOND_ALARM, second);
    write(rtc, B, control | B_ALARM)
}

/// Does what the owner does for so long: waits as it is told, and ticks. Gives the moments of interrupts, in seconds
/// from its start; the guest reads the flags each time.
fn own(rtc: &Rtc, clock: &TestClock, limit: Duration) -> Vec<u64> {
    let (start, end) = (clock.now(), clock.now() + limit);
    let mut interrupts = Vec::new();
    loop {
        let wait = rtc.tick();
        assert_ne!(wait, Some(Duration::ZERO), "the owner would spin");
        if was_raised(rtc) {
            assert_ne!(get(rtc, C) & C_RAISED, 0);
            interrupts.push((clock.now() - start).as_secs());
        }
        match wait {
            Some(wait) if clock.now() + wait <= end => clock.advance(wait),
            _ => break,
        }
    }
    interrupts
}

#[test]
fn alarm_raises_the_line_at_its_second_and_reading_the_flags_clears_them() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    assert_eq!(set_alarm(&rtc, B_24_HOURS, [0x13, 0x45, 0x32]), Effect::Rearm);
    assert_eq!(rtc.tick(), Some(Duration::from_millis(1750)));
    clock.advance(Duration::from_millis(1749));
    assert_eq!(rtc.tick(), Some(Duration::from_millis(1)));
    assert!(!was_raised(&rtc));
    clock.advance(Duration::from_millis(1));
    assert_eq!(rtc.tick(), Some(LONGEST_WAIT));
    assert!(was_raised(&rtc));
    assert_eq!(get(&rtc, C), C_RAISED | C_ALARM | C_UPDATE);
    assert_eq!(get(&rtc, C), 0);
    assert!(!was_raised(&rtc));
}

#[test]
fn alarm_goes_off_once_a_day_or_as_often_as_fields_that_are_any_say() {
    for (alarm, control, limit, interrupts) in [
        ([0x13, 0x46, 0x00], B_24_HOURS, DAY_LONG * 2, vec![30, 86_430]),
        ([0x13, 0x46, 0xc0], B_24_HOURS, DAY_LONG, (30..90).collect()),
        ([0x14, 0xff, 0x00], B_24_HOURS, DAY_LONG, (0..60).map(|n| 870 + n * 60).collect()),
        ([0xc5, 0x45, 0x31], B_24_HOURS, DAY_LONG, (0..24).map(|n| 1 + n * 3600).collect()),
        ([0xff, 0xff, 0xff], B_24_HOURS, Duration::from_secs(5), vec![1, 2, 3, 4, 5]),
        // 1:46 in the afternoon, and at night; 17 is binary.
        ([0x81, 0x46, 0x00], 0, DAY_LONG, vec![30]),
        ([0x01, 0x46, 0x00], 0, DAY_LONG, vec![43_230]),
        ([17, 45, 30], B_24_HOURS | B_BINARY, DAY_LONG, vec![4 * 3600]),
    ] {
        // On the tick: moments are whole seconds.
        let clock = clock_at(Duration::from_secs(NOW.as_secs()));
        let rtc = clock.rtc();
        let _ = set_alarm(&rtc, control, alarm);
        assert_eq!(own(&rtc, &clock, limit), interrupts, "{alarm:x?}");
    }
}

#[test]
fn alarm_at_no_time_of_day_never_goes_off() {
    for (alarm, control) in [
        ([0x24, 0x00, 0x00], B_24_HOURS),
        ([0x0a, 0x00, 0x00], B_24_HOURS),
        ([0x13, 0x60, 0x00], B_24_HOURS),
        ([0x13, 0x00, 0x6a], B_24_HOURS),
        ([0x00, 0x00, 0x00], 0),
        ([0x13, 0x00, 0x00], 0),
        ([24, 0, 0], B_24_HOURS | B_BINARY),
        ([0, 60, 0], B_24_HOURS | B_BINARY),
    ] {
        let clock = clock_at(NOW);
        let rtc = clock.rtc();
        assert_eq!(set_alarm(&rtc, control, alarm), Effect::None);
        assert_eq!(rtc.tick(), None, "{alarm:x?}");
        clock.advance(DAY_LONG * 2);
        assert_eq!(get(&rtc, C), C_UPDATE, "{alarm:x?}");
    }
}

#[test]
fn update_raises_the_line_each_second_the_guest_reads_the_flags_in() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    assert_eq!(write(&rtc, B, B_24_HOURS | B_UPDATE), Effect::Rearm);
    assert_eq!(rtc.tick(), Some(Duration::from_millis(750)));
    clock.advance(Duration::from_millis(750));
    assert_eq!(rtc.tick(), Some(SECOND_LONG));
    assert!(was_raised(&rtc));
    // The line is still raised, so there is no edge.
    clock.advance(SECOND_LONG);
    assert_eq!(rtc.tick(), Some(SECOND_LONG));
    assert!(!was_raised(&rtc));
    assert_eq!(get(&rtc, C), C_RAISED | C_UPDATE);
    clock.advance(SECOND_LONG);
    assert_eq!(rtc.tick(), Some(SECOND_LONG));
    assert!(was_raised(&rtc));
}

#[test]
fn flags_are_set_without_interrupts_and_raise_the_line_once_these_are_enabled() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    put(&rtc, HOUR_ALARM, 0x13);
    put(&rtc, MINUTE_ALARM, 0x46);
    clock.advance(Duration::from_secs(60));
    assert_eq!(rtc.tick(), None);
    assert!(!was_raised(&rtc));
    assert_eq!(write(&rtc, B, B_24_HOURS | B_ALARM), Effect::Rearm);
    assert!(was_raised(&rtc));
    put(&rtc, B, B_24_HOURS);
    assert_eq!(get(&rtc, C), C_ALARM | C_UPDATE);
}

#[test]
fn flags_that_an_access_finds_first_raise_the_line_too() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    let _ = write(&rtc, B, B_24_HOURS | B_UPDATE);
    clock.advance(SECOND_LONG);
    assert_eq!(get(&rtc, C), C_RAISED | C_UPDATE);
    assert!(was_raised(&rtc));
    assert_eq!(rtc.tick(), Some(Duration::from_millis(750)));
    assert!(!was_raised(&rtc));
}

#[test]
fn alarm_is_compared_with_the_time_the_guest_has_set() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    set_as_linux_does(&rtc);
    let _ = set_alarm(&rtc, B_24_HOURS, [0x04, 0x05, 0x09]);
    assert_eq!(rtc.tick(), Some(Duration::from_millis(2750)));
}

#[test]
fn time_set_past_the_alarm_does_not_make_it_go_off() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    let _ = set_alarm(&rtc, B_24_HOURS, [0x14, 0x00, 0x00]);
    let _ = write(&rtc, HOUR, 0x15);
    assert_eq!(get(&rtc, C), 0);
    set_as_linux_does(&rtc);
    assert_eq!((rtc.tick(), was_raised(&rtc)), (Some(LONGEST_WAIT), false));
    assert_eq!(own(&rtc, &clock, DAY_LONG).len(), 1);
}

#[test]
fn nothing_is_due_while_the_time_is_set_and_updates_are_disabled_by_it() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    let _ = set_alarm(&rtc, B_24_HOURS | B_UPDATE, [0xff; 3]);
    put(&rtc, B, B_SET | B_24_HOURS | B_ALARM | B_UPDATE);
    assert_eq!(get(&rtc, B), B_SET | B_24_HOURS | B_ALARM);
    assert_eq!(rtc.tick(), None);
    clock.advance(DAY_LONG);
    assert_eq!((rtc.tick(), get(&rtc, C)), (None, 0));
    assert_eq!(write(&rtc, B, B_24_HOURS | B_ALARM | B_UPDATE), Effect::Rearm);
    assert_eq!((rtc.tick(), get(&rtc, C)), (Some(Duration::from_millis(750)), 0));
}

#[test]
fn periodic_interrupts_read_back_as_disabled() {
    let rtc = rtc_at(NOW);
    put(&rtc, B, B_PERIODIC | B_24_HOURS);
    assert_eq!(get(&rtc, B), B_24_HOURS);
    assert_eq!(rtc.tick(), None);
    let older = r#"{"index":11,"offset":0,"registers":{"11":66}}"#;
    rtc.load(serde_json::from_str(older).unwrap()).unwrap();
    assert_eq!(read(&rtc, DATA, 1), [B_24_HOURS]);
}

#[test]
fn owner_is_told_once_and_only_of_what_is_due_sooner() {
    let rtc = rtc_at(NOW);
    // In half an hour.
    assert_eq!(set_alarm(&rtc, B_24_HOURS, [0x14, 0x15, 0x30]), Effect::Rearm);
    for _ in 0..3 {
        put(&rtc, MINUTE_ALARM, 0x50);
        put(&rtc, B, B_24_HOURS);
        put(&rtc, B, B_24_HOURS | B_ALARM | B_UPDATE);
    }
    put(&rtc, B, B_24_HOURS | B_ALARM);
    let _ = rtc.tick();
    // Later, never, as before: the owner comes too early, which does no harm.
    put(&rtc, MINUTE_ALARM, 0x51);
    put(&rtc, B, B_24_HOURS);
    put(&rtc, B, B_24_HOURS | B_ALARM);
    put(&rtc, MINUTE_ALARM, 0x50);
    // Sooner.
    assert_eq!(write(&rtc, MINUTE_ALARM, 0x49), Effect::Rearm);
    put(&rtc, MINUTE_ALARM, 0x48);
    let _ = rtc.tick();
    // The clock is what moves.
    assert_eq!(write(&rtc, MINUTE, 0x47), Effect::Rearm);
}

#[test]
fn alarm_that_passed_while_nobody_ticked_goes_off_once_with_the_next_tick() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    let _ = set_alarm(&rtc, B_24_HOURS, [0x14, 0x00, 0x00]);
    let _ = rtc.tick();
    clock.advance(DAY_LONG * 3);
    let _ = rtc.tick();
    assert_eq!((was_raised(&rtc), get(&rtc, C)), (true, C_RAISED | C_ALARM | C_UPDATE));
    let _ = rtc.tick();
    assert_eq!((was_raised(&rtc), get(&rtc, C)), (false, 0));
}

#[test]
fn alarm_that_passed_between_save_and_load_goes_off_with_the_first_tick() {
    let clock = clock_at(NOW);
    let first = clock.rtc();
    let _ = set_alarm(&first, B_24_HOURS, [0x14, 0x00, 0x00]);
    let state = first.save();
    clock.advance(Duration::from_secs(3600));
    let second = clock.rtc();
    second.load(state).unwrap();
    assert!(!was_raised(&second));
    let _ = second.tick();
    assert_eq!((was_raised(&second), get(&second, C)), (true, C_RAISED | C_ALARM | C_UPDATE));
}

#[test]
fn line_that_is_raised_in_a_state_rises_again() {
    let clock = clock_at(NOW);
    let first = clock.rtc();
    let _ = write(&first, B, B_24_HOURS | B_UPDATE);
    clock.advance(SECOND_LONG);
    let _ = first.tick();
    let second = clock.rtc();
    second.load(first.save()).unwrap();
    assert_eq!((was_raised(&second), get(&second, C)), (true, C_RAISED | C_UPDATE));
}

#[test]
fn state_with_an_alarm_is_golden() {
    let golden = r#"{"index":12,"offset":-3600,"registers":{"1":21,"3":19,"5":18,"10":38,"11":34,"12":16},"seen":1794833130}"#;
    let rtc = rtc_at(NOW);
    rtc.load(serde_json::from_str(golden).unwrap()).unwrap();
    assert_eq!(serde_json::to_string(&rtc.save()).unwrap(), golden);
    assert_eq!(read(&rtc, DATA, 1), [C_UPDATE]);
    assert_eq!(rtc.tick(), Some(LONGEST_WAIT));
}

#[test]
fn alarm_of_a_record_that_does_not_know_how_far_it_came_begins_with_the_load() {
    let older = r#"{"index":0,"offset":0,"registers":{"5":19,"10":38,"11":34}}"#;
    let clock = clock_at(Duration::from_secs(NOW.as_secs()));
    let rtc = clock.rtc();
    rtc.load(serde_json::from_str(older).unwrap()).unwrap();
    assert_eq!(get(&rtc, C), 0);
    // 13:00 is tomorrow.
    assert_eq!(own(&rtc, &clock, DAY_LONG), [86_400 - 45 * 60 - 30]);
}

#[test]
fn host_clock_set_back_sets_no_flags_and_interrupts_go_on_from_there() {
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    let _ = set_alarm(&rtc, B_24_HOURS | B_UPDATE, [0x13, 0x00, 0x00]);
    clock.set(NOW - Duration::from_secs(3600));
    assert_eq!(rtc.tick(), Some(Duration::from_millis(750)));
    assert_eq!(get(&rtc, C), 0);
    put(&rtc, B, B_24_HOURS | B_ALARM);
    assert_eq!(own(&rtc, &clock, DAY_LONG), [869]);
}

#[test]
fn nothing_is_due_beyond_the_calendar() {
    let rtc = rtc_at(Duration::MAX);
    assert_eq!(set_alarm(&rtc, B_24_HOURS | B_UPDATE, [0xff; 3]), Effect::None);
    assert_eq!(rtc.tick(), None);
    // The guest is a year behind a host's clock that stands at its end.
    put(&rtc, YEAR, 0x98);
    assert_eq!(rtc.tick(), None);
    // The guest is at the end itself.
    let clock = clock_at(NOW);
    let rtc = clock.rtc();
    put(&rtc, B, B_SET | B_24_HOURS);
    for (index, byte) in TIME.into_iter().zip([0x58, 0x59, 0x23, 0, 0x31, 0x12, 0x99, 0x99]) {
        put(&rtc, index, byte);
    }
    assert_eq!(write(&rtc, B, B_24_HOURS | B_UPDATE), Effect::Rearm);
    assert_eq!(own(&rtc, &clock, DAY_LONG), [0]);
    assert_eq!(rtc.tick(), None);
}

proptest! {
    // Each case looks at an hour of seconds.
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Waiting as told misses nothing that looking at each second finds.
    #[test]
    fn owner_that_waits_as_told_sees_each_interrupt(
        start in 0..2 * 86_400_u64,
        alarm in proptest::array::uniform3(prop_oneof![0..24_u8, Just(0xff)]),
        update in proptest::bool::weighted(0.2),
    ) {
        let control = B_24_HOURS | B_BINARY | if update { B_UPDATE } else { 0 };
        let limit = Duration::from_secs(3600);
        let clock = clock_at(Duration::from_secs(start));
        let rtc = clock.rtc();
        let _ = set_alarm(&rtc, control, alarm);
        let told = own(&rtc, &clock, limit);

        let clock = clock_at(Duration::from_secs(start));
        let rtc = clock.rtc();
        let _ = set_alarm(&rtc, control, alarm);
        let each = (1..=limit.as_secs()).filter(|_| {
            clock.advance(SECOND_LONG);
            let _ = rtc.tick();
            let _ = get(&rtc, C);
            was_raised(&rtc)
        });
        prop_assert_eq!(told, each.collect::<Vec<_>>());
    }
}

proptest! {
    /// Whatever a guest writes, the owner waits before it looks again, and no date overflows.
    #[test]
    fn no_guest_makes_the_owner_spin(
        seconds in prop_oneof![any::<u64>(), 0..2_u64.pow(34)],
        nanos in 0..1_000_000_000_u32,
        settings in proptest::collection::vec((0..14_u8, any::<u8>()), 0..64),
    ) {
        let rtc = rtc_at(Duration::new(seconds, nanos));
        let mut told = 0;
        for (index, byte) in settings {
            let index = if index > 12 { CENTURY } else { index };
            told += u32::from(write(&rtc, index, byte) == Effect::Rearm);
        }
        prop_assert!(told <= 1);
        prop_assert_ne!(rtc.tick(), Some(Duration::ZERO));
        prop_assert_eq!(get(&rtc, C), 0);
    }
}
