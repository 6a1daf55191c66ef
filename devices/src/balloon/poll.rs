//! When to ask for statistics.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::pci::lock;

/// Longer than any machine runs, and not too long for a timer to be set.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// A timer that the owner sets and the task waits for.
pub(super) struct Poll {
    timer: TimerFd,
    /// Held while the timer is set, so that the timer is what the interval says.
    interval: Mutex<Option<Duration>>,
}

impl Poll {
    /// One that never comes.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self { timer, interval: Mutex::new(None) })
    }

    /// Readable when it is time.
    pub(super) fn fd(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }

    pub(super) fn interval(&self) -> Option<Duration> {
        *lock(&self.interval)
    }

    /// Sets the interval, and begins it. None and no time at all are never.
    pub(super) fn set(&self, interval: Option<Duration>) {
        let mut place = lock(&self.interval);
        *place = interval.filter(|interval| !interval.is_zero());
        self.start(*place);
    }

    /// Begins the interval anew: a timer that ran during a pause, or in another process, says nothing.
    pub(super) fn restart(&self) {
        let interval = lock(&self.interval);
        self.start(*interval);
    }

    fn start(&self, interval: Option<Duration>) {
        // The only failures are a bad descriptor and a bad time.
        let _ = match interval {
            Some(interval) => {
                let each = Expiration::Interval(TimeSpec::from_duration(interval.min(LONGEST)));
                self.timer.set(each, TimerSetTimeFlags::empty())
            }
            None => self.timer.unset(),
        };
    }

    /// Whether it is time, once for each time.
    pub(super) fn is_due(&self) -> bool {
        // Not readable if the time has not come.
        self.timer.wait().is_ok()
    }
}
