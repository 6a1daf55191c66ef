//! MC146818 real-time clock: the time of day, an alarm, and 114 bytes of memory.
//!
//! **Time** is the host's, in UTC, plus an offset of whole seconds that changes when the guest sets the clock. Whole
//! seconds keep the tick where the host's is: Linux, which corrects the clock at the middle of a second, leaves it as
//! exact as it was.
//!
//! **Interrupts** come by the alarm and after each update of the time, once a second at most. The line is an edge: it
//! rises when a flag of register C is set whose interrupt is enabled, or enabled whose flag is set, and falls when the
//! guest reads C. There are no periodic interrupts, since a guest could have 8192 of them a second made by the host:
//! their bit reads back as disabled, their flag stays clear.
//!
//! **No thread, no timer**: flags follow from the time that has passed since somebody looked last. Whoever owns the
//! machine calls [`Rtc::tick`], which says how long it may wait until the next call. If nobody calls it, flags are right
//! nevertheless, but no interrupt comes by itself.

mod alarm;
mod calendar;
mod registers;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::impossible;
use super::ports::{read_each, write_each};
use crate::{Effect, Interrupt, RecordError, Registers};

pub use registers::{CENTURY, RtcState};
use registers::{INDEX_MASK, RtcRegisters};

const INDEX: u64 = 0;
const DATA: u64 = 1;

/// The longest wait for an interrupt to come: the host's clock may be set meanwhile, which nobody is told of.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The host's clock: time since 1970 began. Must not wait for anything.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The host's clock as it is.
pub fn system_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The device.
pub struct Rtc {
    clock: Clock,
    interrupt: Interrupt,
    chip: Mutex<Chip>,
}

/// What the lock guards.
struct Chip {
    registers: RtcRegisters,
    next_tick: NextTick,
}

/// When the owner calls [`Rtc::tick`] next, as far as we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NextTick {
    /// As soon as it gets our effect. A guest that goes on and on has no further one queued.
    Asked,
    /// At this second of the host's clock, or earlier.
    At(i64),
    /// Not by itself.
    Never,
}

impl Rtc {
    /// A clock that shows the host's time.
    pub fn new(clock: Clock, interrupt: Interrupt) -> Self {
        let registers = RtcRegisters::new(clock());
        let chip = Mutex::new(Chip { registers, next_tick: NextTick::Never });
        Self { clock, interrupt, chip }
    }

    /// Raises the interrupt if it has become due, and says after how long to call again, at the latest; not at all if no
    /// interrupt is due ever, until [`Effect::Rearm`] says otherwise.
    ///
    /// For the machine's owner, while the guest runs. Called more often or later than it asked for, it does no harm:
    /// what was due since the last call comes with the next one. Thus it is not called while the guest is stopped, and
    /// is as soon as it goes on, be it here or where its state was loaded.
    pub fn tick(&self) -> Option<Duration> {
        let mut chip = self.chip();
        let now = self.catch_up(&mut chip);
        let due = chip.registers.due();
        chip.next_tick = due.map_or(NextTick::Never, NextTick::At);
        let due = Duration::from_secs(u64::try_from(due?).unwrap_or(0));
        Some(due.saturating_sub(now).min(LONGEST_WAIT))
    }

    /// Its state. The time itself is not part of it: it goes on with the clock of the host that loads it.
    pub fn save(&self) -> RtcState {
        self.chip().registers.save()
    }

    /// Takes a state. If the line is raised in it, it rises again.
    pub fn load(&self, state: RtcState) -> Result<(), RecordError> {
        let registers = RtcRegisters::from_state(state, (self.clock)());
        let registers = registers.map_err(impossible::<RtcState>)?;
        let mut chip = self.chip();
        *chip = Chip { registers, next_tick: NextTick::Never };
        if chip.registers.is_raised() {
            self.interrupt.raise();
        }
        Ok(())
    }

    fn read_data(&self) -> u8 {
        let mut chip = self.chip();
        let now = self.catch_up(&mut chip);
        chip.registers.read(now)
    }

    fn write_data(&self, byte: u8) -> Effect {
        let mut chip = self.chip();
        let now = self.catch_up(&mut chip);
        self.watch_line(&mut chip, |registers| registers.write(byte, now));
        match chip.registers.due().map(NextTick::At) {
            // What is due later is found in time: when the owner comes for what it knows of.
            Some(due) if due < chip.next_tick => {
                chip.next_tick = NextTick::Asked;
                Effect::Rearm
            }
            _ => Effect::None,
        }
    }

    /// Sets the flags as they are now, which is returned. The clock is read under the lock, or another vCPU's access
    /// could take this one's time for a clock that was set back.
    fn catch_up(&self, chip: &mut Chip) -> Duration {
        let now = (self.clock)();
        self.watch_line(chip, |registers| registers.catch_up(now));
        now
    }

    fn watch_line(&self, chip: &mut Chip, change: impl FnOnce(&mut RtcRegisters)) {
        let was_raised = chip.registers.is_raised();
        change(&mut chip.registers);
        if chip.registers.is_raised() && !was_raised {
            self.interrupt.raise();
        }
    }

    fn chip(&self) -> MutexGuard<'_, Chip> {
        self.chip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registers for Rtc {
    fn read(&self, offset: u64, data: &mut [u8]) {
        read_each(offset, data, |port| match port {
            DATA => self.read_data(),
            _ => 0xff,
        });
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        write_each(offset, data, |port, byte| match port {
            INDEX => {
                self.chip().registers.index = byte & INDEX_MASK;
                Effect::None
            }
            DATA => self.write_data(byte),
            _ => Effect::None,
        })
    }
}

impl fmt::Debug for Rtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtc").finish_non_exhaustive()
    }
}
