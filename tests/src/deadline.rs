//! Getting a thread out of KVM_RUN in time.
//!
//! A timer of the kernel signals just the thread that runs the vCPU. It goes on doing so each millisecond, because
//! the first signal may come before the thread is inside KVM_RUN and then interrupts nothing.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;

const KICK: Signal = Signal::SIGUSR1;
const KICK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// From its time on, interrupts system calls of the thread that made it, until it is dropped.
#[derive(Debug)]
pub struct Deadline {
    at: Instant,
    _timer: Timer,
}

impl Deadline {
    /// For the calling thread.
    pub fn after(within: Duration) -> Result<Self, Errno> {
        handle_kicks()?;
        let at = Instant::now() + within;
        let event = SigEvent::new(SigevNotify::SigevThreadId {
            signal: KICK,
            thread_id: gettid().as_raw(),
            si_value: 0,
        });
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, event)?;
        // A delay of zero would disarm it.
        let delay = within.max(Duration::from_nanos(1));
        let expiration = Expiration::IntervalDelayed(delay.into(), KICK_AGAIN_AFTER.into());
        timer.set(expiration, TimerSetTimeFlags::empty())?;
        Ok(Self { at, _timer: timer })
    }

    /// Whether the time has come.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }
}

/// A handler that does nothing: without one the signal would end the process, and an ignored one interrupts nothing.
fn handle_kicks() -> Result<(), Errno> {
    extern "C" fn nothing(_: libc::c_int) {}
    static HANDLED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *HANDLED.get_or_init(|| {
        let action =
            SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler touches nothing, so it may run anywhere; no other code of this crate uses the signal.
        unsafe { sigaction(KICK, &action) }.map(|_| ())
    })
}
