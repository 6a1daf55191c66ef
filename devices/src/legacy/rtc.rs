//! MC146818 real-time clock: the time of day, and 114 bytes of memory.
//!
//! Its time is the host's, in UTC, plus an offset of whole seconds that changes when the guest sets the clock. Whole
//! seconds keep the tick where the host's is: Linux, which corrects the clock at the middle of a second, leaves it as
//! exact as it was. Alarm, periodic and update interrupts can be set up and read back, but never come: the flags of
//! register C stay clear.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::calendar::{Date, FIRST, LAST};
use super::impossible;
use super::ports::{read_each, write_each};
use crate::{Effect, RecordError, Registers, State};

/// Where the century is, for the FADT.
pub const CENTURY: u8 = 0x32;

const INDEX: u64 = 0;
const DATA: u64 = 1;
/// Bit 7 of the index port masks NMIs and is not part of the index.
const INDEX_MASK: u8 = 0x7f;
const SIZE: usize = 128;

const SECOND: u8 = 0;
const MINUTE: u8 = 2;
const HOUR: u8 = 4;
const WEEKDAY: u8 = 6;
const DAY: u8 = 7;
const MONTH: u8 = 8;
const YEAR: u8 = 9;
const TIME: [u8; 8] = [SECOND, MINUTE, HOUR, WEEKDAY, DAY, MONTH, YEAR, CENTURY];

const A: u8 = 0x0a;
const B: u8 = 0x0b;
const C: u8 = 0x0c;
const D: u8 = 0x0d;

/// The time will change soon.
const A_UPDATE: u8 = 1 << 7;
/// 32768 Hz oscillator, 1024 Hz periodic rate: what firmware sets up.
const A_DEFAULT: u8 = 0x26;
/// The guest sets the time: it stands still.
const B_SET: u8 = 1 << 7;
const B_BINARY: u8 = 1 << 2;
const B_24_HOURS: u8 = 1 << 1;
const D_VALID: u8 = 1 << 7;
const HOUR_PM: u8 = 1 << 7;

/// How long before a tick the update bit is set. The chip sets it 244 us before and takes up to 1984 us; a guest that
/// finds it clear has at least that long to read all registers, at 100 us an exit about as long as it needs.
const UPDATE: Duration = Duration::from_micros(244 + 1984);

/// The host's clock: time since 1970 began. Must not wait for anything.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The host's clock as it is.
pub fn system_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The device.
pub struct Rtc {
    clock: Clock,
    registers: Mutex<RtcRegisters>,
}

struct RtcRegisters {
    index: u8,
    /// Seconds that the guest is ahead of the host.
    offset: i64,
    /// What the guest wrote. The time is here only while it stands still, otherwise there are zeros.
    bytes: [u8; SIZE],
}

/// State of an [`Rtc`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtcState {
    index: u8,
    offset: i64,
    /// Those that are not zero.
    registers: BTreeMap<u8, u8>,
}

impl State for RtcState {
    const KIND: &'static str = "rtc";
    const VERSION: u16 = 1;
}

impl Rtc {
    /// A clock that shows the host's time.
    pub fn new(clock: Clock) -> Self {
        Self { clock, registers: Mutex::new(RtcRegisters::new()) }
    }

    /// Its state. The time itself is not part of it: it goes on with the clock of the host that loads it.
    pub fn save(&self) -> RtcState {
        let registers = self.registers();
        let bytes = (0..).zip(registers.bytes).filter(|(_, byte)| *byte != 0).collect();
        RtcState { index: registers.index, offset: registers.offset, registers: bytes }
    }

    /// Takes a state.
    pub fn load(&self, state: RtcState) -> Result<(), RecordError> {
        let registers = RtcRegisters::try_from(state).map_err(impossible::<RtcState>)?;
        *self.registers() = registers;
        Ok(())
    }

    fn registers(&self) -> MutexGuard<'_, RtcRegisters> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registers for Rtc {
    fn read(&self, offset: u64, data: &mut [u8]) {
        read_each(offset, data, |port| match port {
            DATA => self.registers().read((self.clock)()),
            _ => 0xff,
        });
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        write_each(offset, data, |port, byte| {
            match port {
                INDEX => self.registers().index = byte & INDEX_MASK,
                DATA => self.registers().write(byte, (self.clock)()),
                _ => {}
            }
            Effect::None
        })
    }
}

impl fmt::Debug for Rtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtc").finish_non_exhaustive()
    }
}

impl RtcRegisters {
    fn new() -> Self {
        let mut bytes = [0; SIZE];
        bytes[usize::from(A)] = A_DEFAULT;
        bytes[usize::from(B)] = B_24_HOURS;
        Self { index: 0, offset: 0, bytes }
    }

    fn read(&self, now: Duration) -> u8 {
        match self.index {
            index if TIME.contains(&index) && !self.is_set() => self.time_register(index, now),
            A if self.is_about_to_tick(now) => self.byte(A) | A_UPDATE,
            D => D_VALID,
            index => self.byte(index),
        }
    }

    fn write(&mut self, byte: u8, now: Duration) {
        match self.index {
            A => self.put(A, byte & !A_UPDATE),
            B => self.write_b(byte, now),
            C | D => {}
            index if TIME.contains(&index) && !self.is_set() => {
                self.show(now);
                self.put(index, byte);
                self.set_time(now);
            }
            index => self.put(index, byte),
        }
    }

    /// The time stands still from the moment that its bit is set, and is taken over when it is cleared.
    fn write_b(&mut self, byte: u8, now: Duration) {
        let was_set = self.is_set();
        self.put(B, byte);
        match (was_set, self.is_set()) {
            (false, true) => self.show(now),
            (true, false) => self.set_time(now),
            _ => {}
        }
    }

    /// Puts the time into the registers.
    fn show(&mut self, now: Duration) {
        for index in TIME {
            self.put(index, self.time_register(index, now));
        }
    }

    /// Takes the time from the registers. If they hold none (a 31st of February), it goes on as before.
    fn set_time(&mut self, now: Duration) {
        if let Some(seconds) = self.shown().and_then(Date::to_seconds) {
            self.offset = seconds - host_seconds(now);
        }
        for index in TIME {
            self.put(index, 0);
        }
    }

    fn time_register(&self, index: u8, now: Duration) -> u8 {
        let seconds = (host_seconds(now) + self.offset).clamp(FIRST, LAST);
        let date = Date::from_seconds(seconds);
        match index {
            SECOND => self.encode(date.second),
            MINUTE => self.encode(date.minute),
            HOUR if self.byte(B) & B_24_HOURS != 0 => self.encode(date.hour),
            HOUR => {
                let pm = if date.hour >= 12 { HOUR_PM } else { 0 };
                self.encode((date.hour + 11) % 12 + 1) | pm
            }
            WEEKDAY => self.encode(Date::weekday_of(seconds)),
            DAY => self.encode(date.day),
            MONTH => self.encode(date.month),
            YEAR => self.encode(date.year % 100),
            _ => self.encode(date.year / 100),
        }
    }

    /// The date in the registers, if they are numbers.
    fn shown(&self) -> Option<Date> {
        let number = |index| self.decode(self.byte(index));
        let hour = if self.byte(B) & B_24_HOURS != 0 {
            number(HOUR)?
        } else {
            let hour = self.decode(self.byte(HOUR) & !HOUR_PM)?;
            let pm = self.byte(HOUR) & HOUR_PM != 0;
            (1..=12).contains(&hour).then_some(hour % 12 + if pm { 12 } else { 0 })?
        };
        Some(Date {
            year: number(CENTURY)? * 100 + number(YEAR).filter(|year| *year < 100)?,
            month: number(MONTH)?,
            day: number(DAY)?,
            hour,
            minute: number(MINUTE)?,
            second: number(SECOND)?,
        })
    }

    /// A number below 100 as the guest wants it: binary, or a decimal digit in each half.
    fn encode(&self, number: i64) -> u8 {
        let [number, ..] = number.rem_euclid(100).to_le_bytes();
        if self.byte(B) & B_BINARY != 0 { number } else { ((number / 10) << 4) | (number % 10) }
    }

    fn decode(&self, byte: u8) -> Option<i64> {
        if self.byte(B) & B_BINARY != 0 {
            return Some(byte.into());
        }
        let (tens, ones) = (byte >> 4, byte & 0x0f);
        (tens < 10 && ones < 10).then(|| (tens * 10 + ones).into())
    }

    fn is_set(&self) -> bool {
        self.byte(B) & B_SET != 0
    }

    fn is_about_to_tick(&self, now: Duration) -> bool {
        let tick = Duration::from_secs(1);
        !self.is_set() && tick - Duration::from_nanos(now.subsec_nanos().into()) <= UPDATE
    }

    fn byte(&self, index: u8) -> u8 {
        self.bytes[usize::from(index & INDEX_MASK)]
    }

    fn put(&mut self, index: u8, byte: u8) {
        self.bytes[usize::from(index & INDEX_MASK)] = byte;
    }
}

/// Seconds since 1970, none of them beyond the last one that can be shown.
fn host_seconds(now: Duration) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(LAST).min(LAST)
}

impl TryFrom<RtcState> for RtcRegisters {
    type Error = String;

    fn try_from(state: RtcState) -> Result<Self, String> {
        if state.index & !INDEX_MASK != 0 {
            return Err(format!("index {:#x}", state.index));
        }
        // The host may show any time from 1970 on, the guest any at all.
        if !(FIRST - LAST..=LAST).contains(&state.offset) {
            return Err(format!("offset of {} seconds", state.offset));
        }
        let mut registers = Self { index: state.index, offset: state.offset, bytes: [0; SIZE] };
        for (index, byte) in &state.registers {
            let possible = match *index {
                A => byte & A_UPDATE == 0,
                C | D => false,
                index => usize::from(index) < SIZE,
            };
            if !possible || *byte == 0 {
                return Err(format!("{byte:#x} in register {index:#x}"));
            }
            registers.put(*index, *byte);
        }
        if !registers.is_set() && TIME.iter().any(|index| registers.byte(*index) != 0) {
            return Err("a time that is not being set".into());
        }
        Ok(registers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::super::testing::{accesses, apply, read};
    use super::*;

    /// Monday, 2026-11-16 13:45:30, and some.
    const NOW: Duration = Duration::from_millis(1_794_836_730_250);

    fn rtc_at(now: Duration) -> Rtc {
        Rtc::new(Box::new(move || now))
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
        for (index, byte) in
            [(YEAR, 0x31), (MONTH, 2), (DAY, 3), (HOUR, 4), (MINUTE, 5), (SECOND, 6)]
        {
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
        for (micros, bit) in [(0, 0), (500_000, 0), (997_771, 0), (997_772, 0x80), (999_999, 0x80)]
        {
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
        let seconds = Arc::new(AtomicU64::new(NOW.as_secs()));
        let clock = Arc::clone(&seconds);
        let rtc = Rtc::new(Box::new(move || Duration::from_secs(clock.load(Ordering::Relaxed))));
        set_as_linux_does(&rtc);
        assert_eq!(time(&rtc), [6, 5, 4, 2, 3, 2, 0x31, 0x20]);
        seconds.fetch_add(3600, Ordering::Relaxed);
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
        let seconds = Arc::new(AtomicU64::new(NOW.as_secs()));
        let clock = Arc::clone(&seconds);
        let rtc = Rtc::new(Box::new(move || Duration::from_secs(clock.load(Ordering::Relaxed))));
        put(&rtc, B, 0x82);
        let before = time(&rtc);
        seconds.fetch_add(100, Ordering::Relaxed);
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
            r#"{"index":0,"offset":0,"registers":{"12":128}}"#,
            r#"{"index":0,"offset":0,"registers":{"13":128}}"#,
            r#"{"index":0,"offset":0,"registers":{"50":32}}"#,
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
                put(&first, *TIME.get(which).unwrap_or(&B), byte | u8::from(which > 10) << 7);
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
}
