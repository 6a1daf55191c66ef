//! The register file of the clock chip: what each register shows and does at a given time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alarm::Alarm;
use super::calendar::{Date, FIRST, LAST};
use crate::State;

/// Where the century is, for the FADT.
pub const CENTURY: u8 = 0x32;

/// Bit 7 of the index port masks NMIs and is not part of the index.
pub(super) const INDEX_MASK: u8 = 0x7f;
const SIZE: usize = 128;

pub(super) const SECOND: u8 = 0;
pub(super) const SECOND_ALARM: u8 = 1;
pub(super) const MINUTE: u8 = 2;
pub(super) const MINUTE_ALARM: u8 = 3;
pub(super) const HOUR: u8 = 4;
pub(super) const HOUR_ALARM: u8 = 5;
pub(super) const WEEKDAY: u8 = 6;
pub(super) const DAY: u8 = 7;
pub(super) const MONTH: u8 = 8;
pub(super) const YEAR: u8 = 9;
pub(super) const TIME: [u8; 8] = [SECOND, MINUTE, HOUR, WEEKDAY, DAY, MONTH, YEAR, CENTURY];

pub(super) const A: u8 = 0x0a;
pub(super) const B: u8 = 0x0b;
pub(super) const C: u8 = 0x0c;
pub(super) const D: u8 = 0x0d;

/// The time will change soon.
const A_UPDATE: u8 = 1 << 7;
/// 32768 Hz oscillator, 1024 Hz periodic rate: what firmware sets up.
const A_DEFAULT: u8 = 0x26;
/// The guest sets the time: it stands still.
pub(super) const B_SET: u8 = 1 << 7;
/// Interrupts at a rate of up to 8192 a second. There are none: see [`super::Rtc`].
pub(super) const B_PERIODIC: u8 = 1 << 6;
/// Interrupts by the alarm.
pub(super) const B_ALARM: u8 = 1 << 5;
/// Interrupts whenever the time has changed, thus once a second.
pub(super) const B_UPDATE: u8 = 1 << 4;
pub(super) const B_BINARY: u8 = 1 << 2;
pub(super) const B_24_HOURS: u8 = 1 << 1;
/// The line is raised: a flag is set whose interrupt is enabled.
pub(super) const C_RAISED: u8 = 1 << 7;
/// Flags stand where the bits of B are that enable their interrupts.
pub(super) const C_ALARM: u8 = B_ALARM;
pub(super) const C_UPDATE: u8 = B_UPDATE;
const C_FLAGS: u8 = C_ALARM | C_UPDATE;
const D_VALID: u8 = 1 << 7;
const HOUR_PM: u8 = 1 << 7;
/// An alarm register with both bits set matches any time.
const ANY: u8 = 0b11 << 6;

/// How long before a tick the update bit is set. The chip sets it 244 us before and takes up to 1984 us; a guest that
/// finds it clear has at least that long to read all registers, at 100 us an exit about as long as it needs.
const UPDATE: Duration = Duration::from_micros(244 + 1984);

/// The registers. Before each access [`Self::catch_up`] brings the flags up to the time of the access.
pub(super) struct RtcRegisters {
    pub(super) index: u8,
    /// Seconds that the guest is ahead of the host.
    offset: i64,
    /// The guest's second up to which flags are set. Nothing in between is missed, however long nobody looked.
    seen: i64,
    /// What the guest wrote, and the flags of C that it has not read. The time is here only while it stands still,
    /// otherwise there are zeros.
    bytes: [u8; SIZE],
}

/// State of an [`Rtc`](super::Rtc).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtcState {
    index: u8,
    pub(super) offset: i64,
    /// Those that are not zero.
    registers: BTreeMap<u8, u8>,
    /// The guest's second up to which flags are set. Only with an interrupt enabled, which may be due by the time of the
    /// load; otherwise, and in records of builds that raised none, flags begin with the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<i64>,
}

impl State for RtcState {
    const KIND: &'static str = "rtc";
    const VERSION: u16 = 1;
}

impl RtcRegisters {
    /// Registers that show the host's time, which is `now`.
    pub(super) fn new(now: Duration) -> Self {
        let mut bytes = [0; SIZE];
        bytes[usize::from(A)] = A_DEFAULT;
        bytes[usize::from(B)] = B_24_HOURS;
        Self { index: 0, offset: 0, seen: host_seconds(now), bytes }
    }

    pub(super) fn save(&self) -> RtcState {
        let registers = (0..).zip(self.bytes).filter(|(_, byte)| *byte != 0).collect();
        let waits = self.byte(B) & C_FLAGS != 0;
        let seen = waits.then_some(self.seen);
        RtcState { index: self.index, offset: self.offset, registers, seen }
    }

    /// The registers of a state, or what is wrong with it.
    pub(super) fn from_state(state: RtcState, now: Duration) -> Result<Self, String> {
        let RtcState { index, offset, registers: bytes, seen } = state;
        if index & !INDEX_MASK != 0 {
            return Err(format!("index {index:#x}"));
        }
        // The host may show any time from 1970 on, the guest any at all.
        if !(FIRST - LAST..=LAST).contains(&offset) {
            return Err(format!("offset of {offset} seconds"));
        }
        if let Some(seen) = seen.filter(|seen| !(FIRST..=LAST).contains(seen)) {
            return Err(format!("flags up to second {seen}"));
        }
        let mut registers = Self { index, offset, seen: 0, bytes: [0; SIZE] };
        for (index, byte) in bytes {
            let possible = match index {
                A => byte & A_UPDATE == 0,
                C => byte & !C_FLAGS == 0,
                D => false,
                index => usize::from(index) < SIZE,
            };
            if !possible || byte == 0 {
                return Err(format!("{byte:#x} in register {index:#x}"));
            }
            registers.put(index, byte);
        }
        if !registers.is_set() && TIME.iter().any(|index| registers.byte(*index) != 0) {
            return Err("a time that is not being set".into());
        }
        // Builds that raised no interrupts let the guest enable it.
        registers.put(B, registers.byte(B) & !B_PERIODIC);
        registers.seen = seen.unwrap_or_else(|| registers.seconds(now));
        Ok(registers)
    }

    /// Sets the flags of what came to pass since the last call.
    pub(super) fn catch_up(&mut self, now: Duration) {
        let seconds = self.seconds(now);
        if self.is_set() || seconds == self.seen {
            return;
        }
        // Where the host's clock was set back, the guest's goes on from there.
        if seconds > self.seen {
            let alarm = self.alarm().and_then(|alarm| alarm.next_after(self.seen));
            let rang = alarm.is_some_and(|alarm| alarm <= seconds);
            self.put(C, self.byte(C) | C_UPDATE | if rang { C_ALARM } else { 0 });
        }
        self.seen = seconds;
    }

    /// The second of the host's clock at which an enabled interrupt comes next. It is after that of the last
    /// [`Self::catch_up`].
    pub(super) fn due(&self) -> Option<i64> {
        if self.is_set() {
            return None;
        }
        let is_enabled = |bit| self.byte(B) & bit != 0;
        let update = is_enabled(B_UPDATE).then_some(self.seen + 1).filter(|at| *at <= LAST);
        let alarm = self.alarm().filter(|_| is_enabled(B_ALARM));
        let alarm = alarm.and_then(|alarm| alarm.next_after(self.seen));
        let first = update.into_iter().chain(alarm).min()?;
        // A host's clock beyond the calendar stands still for us.
        Some(first - self.offset).filter(|at| *at <= LAST)
    }

    /// Whether the interrupt line is raised.
    pub(super) fn is_raised(&self) -> bool {
        self.byte(B) & self.byte(C) & C_FLAGS != 0
    }

    /// What the register at the index shows. Reading the flags clears them.
    pub(super) fn read(&mut self, now: Duration) -> u8 {
        match self.index {
            index if TIME.contains(&index) && !self.is_set() => self.time_register(index, now),
            A if self.is_about_to_tick(now) => self.byte(A) | A_UPDATE,
            C => {
                let raised = if self.is_raised() { C_RAISED } else { 0 };
                let flags = self.byte(C) | raised;
                self.put(C, 0);
                flags
            }
            D => D_VALID,
            index => self.byte(index),
        }
    }

    pub(super) fn write(&mut self, byte: u8, now: Duration) {
        match self.index {
            A => self.put(A, byte & !A_UPDATE),
            B => self.write_b(byte & !B_PERIODIC, now),
            C | D => {}
            index if TIME.contains(&index) && !self.is_set() => {
                self.show(now);
                self.put(index, byte);
                self.set_time(now);
            }
            index => self.put(index, byte),
        }
    }

    /// The time stands still from the moment that its bit is set, and is taken over when it is cleared. While it
    /// stands, no update can end: setting the bit clears the one of that interrupt.
    fn write_b(&mut self, byte: u8, now: Duration) {
        let was_set = self.is_set();
        self.put(B, if byte & B_SET != 0 { byte & !B_UPDATE } else { byte });
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

    /// Takes the time from the registers. If they hold none (a 31st of February), it goes on as before. What lies
    /// between the old and the new time did not come to pass.
    fn set_time(&mut self, now: Duration) {
        if let Some(seconds) = self.shown().and_then(Date::to_seconds) {
            self.offset = seconds - host_seconds(now);
        }
        for index in TIME {
            self.put(index, 0);
        }
        self.seen = self.seconds(now);
    }

    /// The guest's time.
    fn seconds(&self, now: Duration) -> i64 {
        (host_seconds(now) + self.offset).clamp(FIRST, LAST)
    }

    fn time_register(&self, index: u8, now: Duration) -> u8 {
        let seconds = self.seconds(now);
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
        Some(Date {
            year: number(CENTURY)? * 100 + number(YEAR).filter(|year| *year < 100)?,
            month: number(MONTH)?,
            day: number(DAY)?,
            hour: self.decode_hour(self.byte(HOUR))?,
            minute: number(MINUTE)?,
            second: number(SECOND)?,
        })
    }

    /// The alarm in the registers; none if it is at no time of day.
    fn alarm(&self) -> Option<Alarm> {
        // Some(None) is any, None is never.
        let field = |index, decode: &dyn Fn(u8) -> Option<i64>, end| match self.byte(index) {
            byte if byte & ANY == ANY => Some(None),
            byte => decode(byte).filter(|number| *number < end).map(Some),
        };
        Some(Alarm {
            hour: field(HOUR_ALARM, &|byte| self.decode_hour(byte), 24)?,
            minute: field(MINUTE_ALARM, &|byte| self.decode(byte), 60)?,
            second: field(SECOND_ALARM, &|byte| self.decode(byte), 60)?,
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

    fn decode_hour(&self, byte: u8) -> Option<i64> {
        if self.byte(B) & B_24_HOURS != 0 {
            return self.decode(byte);
        }
        let hour = self.decode(byte & !HOUR_PM).filter(|hour| (1..=12).contains(hour))?;
        Some(hour % 12 + if byte & HOUR_PM != 0 { 12 } else { 0 })
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
