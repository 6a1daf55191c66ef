//! How a VM is brought to its end: the power button, then a grace period, then the kill, then force.

use std::time::{Duration, Instant};

/// How long the VM process may take to end once it was told to. kubelet leaves the Pod 15 seconds beyond its grace
/// period; this has to fit in.
const FORCE_AFTER: Duration = Duration::from_secs(5);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Press the power button.
    PowerButton,
    /// Tell the VM process to end.
    Kill,
    /// End the VM process by signal.
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Going,
    Asked { kill_at: Instant },
    Ending { force_at: Instant, cause: Cause },
    Forced { cause: Cause },
}

/// Why a VM process has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It was told to.
    Told,
    /// It was told to, as its guest did not power off in time.
    OutOfGrace,
    /// It closed its link.
    Silent,
}

/// How far a VM is on its way to the end.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    grace: Duration,
    phase: Phase,
    /// The power button was pressed on the way.
    is_pressed: bool,
    /// Whether something in the guest has taken notice of it, as far as that is known.
    noticed: Option<bool>,
}

impl Stop {
    /// Not on its way. `grace` is what the guest gets from the power button to the kill.
    pub fn new(grace: Duration) -> Self {
        Self { grace, phase: Phase::Going, is_pressed: false, noticed: None }
    }

    /// Another grace period, unless it has begun: that must not move the deadline.
    pub fn set_grace(&mut self, grace: Duration) {
        if self.phase == Phase::Going {
            self.grace = grace;
        }
    }

    /// Whether the guest was asked by the power button to switch itself off.
    pub fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// The guest has taken notice of the power button, or not yet.
    pub fn notice(&mut self, noticed: bool) {
        self.noticed = Some(noticed);
    }

    /// SIGTERM came. Only the first one counts: a second one must not move the deadline.
    pub fn terminate(&mut self, now: Instant) -> Step {
        match self.phase {
            Phase::Going if self.grace.is_zero() => self.kill(now),
            Phase::Going => {
                self.is_pressed = true;
                self.phase = Phase::Asked { kill_at: now + self.grace };
                Step::PowerButton
            }
            _ => Step::Nothing,
        }
    }

    /// The VM is to end at once.
    pub fn kill(&mut self, now: Instant) -> Step {
        self.end(now, Cause::Told)
    }

    /// The VM process has closed its link: it ends by itself, or has to be made to.
    pub fn link_closed(&mut self, now: Instant) {
        let _ = self.end(now, Cause::Silent);
    }

    fn end(&mut self, now: Instant, cause: Cause) -> Step {
        match self.phase {
            Phase::Going | Phase::Asked { .. } => {
                self.phase = Phase::Ending { force_at: now + FORCE_AFTER, cause };
                Step::Kill
            }
            Phase::Ending { .. } | Phase::Forced { .. } => Step::Nothing,
        }
    }

    /// Time has passed.
    pub fn due(&mut self, now: Instant) -> Step {
        match self.phase {
            Phase::Asked { kill_at } if now >= kill_at => self.end(now, Cause::OutOfGrace),
            Phase::Ending { force_at, cause } if now >= force_at => {
                self.phase = Phase::Forced { cause };
                Step::Force
            }
            _ => Step::Nothing,
        }
    }

    /// When [`Stop::due`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asked { kill_at } => Some(kill_at),
            Phase::Ending { force_at, .. } => Some(force_at),
            Phase::Going | Phase::Forced { .. } => None,
        }
    }

    /// Why the VM was killed, for people.
    pub fn detail(&self) -> String {
        match self.phase {
            Phase::Ending { cause: Cause::OutOfGrace, .. } => {
                let reaction = match self.noticed {
                    Some(true) => ", of which it has taken notice",
                    Some(false) => {
                        "; nothing in it has taken notice of that: its kernel hangs, does not run yet or knows no ACPI"
                    }
                    None => "",
                };
                let grace = self.grace.as_secs();
                format!(
                    "the guest did not power off within {grace} s of the power button{reaction}"
                )
            }
            Phase::Forced { .. } => "the VM process did not end when told to".into(),
            Phase::Going | Phase::Asked { .. } | Phase::Ending { .. } => String::new(),
        }
    }

    /// Whether the end was wanted from outside.
    pub fn is_killing(&self) -> bool {
        match self.phase {
            Phase::Going | Phase::Asked { .. } => false,
            Phase::Ending { cause, .. } | Phase::Forced { cause } => cause != Cause::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn guest_that_ignores_the_button_is_killed_and_then_forced() {
        let start = Instant::now();
        let mut stop = Stop::new(GRACE);
        assert_eq!(stop.deadline(), None);
        assert_eq!(stop.terminate(start), Step::PowerButton);
        assert_eq!(stop.deadline(), Some(start + GRACE));
        assert_eq!(stop.due(start + GRACE - MOMENT), Step::Nothing);
        assert_eq!(stop.due(start + GRACE), Step::Kill);
        assert_eq!(stop.detail(), "the guest did not power off within 30 s of the power button");
        assert_eq!(stop.due(start + GRACE + FORCE_AFTER - MOMENT), Step::Nothing);
        assert_eq!(stop.due(start + GRACE + FORCE_AFTER), Step::Force);
        assert_eq!(stop.due(start + 10 * GRACE), Step::Nothing);
        assert_eq!(stop.deadline(), None);
    }

    #[test]
    fn end_says_whether_the_guest_took_notice_of_the_button() {
        for (noticed, expected) in [
            (true, "of the power button, of which it has taken notice"),
            (false, "of the power button; nothing in it has taken notice of that: "),
        ] {
            let start = Instant::now();
            let mut stop = Stop::new(GRACE);
            stop.terminate(start);
            assert!(stop.is_pressed());
            stop.due(start + GRACE);
            stop.notice(noticed);
            assert!(stop.detail().contains(expected), "{}", stop.detail());
        }
        assert!(!Stop::new(GRACE).is_pressed());
    }

    #[test]
    fn grace_changes_until_it_has_begun() {
        let start = Instant::now();
        let mut stop = Stop::new(GRACE);
        stop.set_grace(2 * GRACE);
        stop.terminate(start);
        stop.set_grace(Duration::ZERO);
        assert_eq!(stop.deadline(), Some(start + 2 * GRACE));
    }

    #[test]
    fn second_sigterm_does_not_move_the_deadline() {
        let start = Instant::now();
        let mut stop = Stop::new(GRACE);
        stop.terminate(start);
        assert_eq!(stop.terminate(start + GRACE / 2), Step::Nothing);
        assert_eq!(stop.deadline(), Some(start + GRACE));
    }

    #[test]
    fn no_grace_is_a_kill() {
        assert_eq!(Stop::new(Duration::ZERO).terminate(Instant::now()), Step::Kill);
    }

    #[test]
    fn kill_cuts_the_grace_short_and_comes_once() {
        let start = Instant::now();
        let mut stop = Stop::new(GRACE);
        stop.terminate(start);
        assert_eq!(stop.kill(start), Step::Kill);
        assert_eq!(stop.kill(start), Step::Nothing);
        assert_eq!(stop.terminate(start), Step::Nothing);
        assert_eq!(stop.detail(), "");
        assert!(stop.is_killing());
    }

    #[test]
    fn vm_process_that_falls_silent_is_forced_but_was_not_killed() {
        let start = Instant::now();
        let mut stop = Stop::new(GRACE);
        stop.link_closed(start);
        assert!(!stop.is_killing());
        assert_eq!(stop.due(start + FORCE_AFTER), Step::Force);
        assert!(!stop.is_killing());
    }
}
