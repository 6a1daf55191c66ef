//! What is seen of the guest that whoever looks after the VM should know: that its console says nothing, and what it makes of its
//! power button.

use std::time::{Duration, Instant};

use corten_link::Request;
use corten_link::launcher::{Sign, ToAgent};

use super::Launcher;

/// How long a guest that was started may say nothing. A kernel that speaks does so within a second, in emulation within ten.
const SILENCE: Duration = Duration::from_secs(60);
/// How long after the power button was pressed it is asked whether the guest has taken notice. An interrupt is enough for that.
const NOTICE: Duration = Duration::from_secs(5);

/// What was seen, and when to look next.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// When a console that has said nothing is silent.
    silent_at: Option<Instant>,
    is_silent: bool,
    has_spoken: bool,
    /// When to look whether the power button was noticed.
    look_at: Option<Instant>,
    button: Option<Sign>,
}

impl Signs {
    /// The guest runs, and its console is listened to.
    fn begin(&mut self, now: Instant) {
        if !self.has_spoken && !self.is_silent {
            self.silent_at = Some(now + SILENCE);
        }
    }

    /// The guest stands still: nobody can expect words of it.
    fn rest(&mut self) {
        self.silent_at = None;
    }

    /// Its console has said something. What is news.
    fn hear(&mut self) -> Option<Sign> {
        (self.silent_at, self.has_spoken) = (None, true);
        std::mem::take(&mut self.is_silent).then_some(Sign::ConsoleHeard)
    }

    /// The power button was pressed.
    fn press(&mut self, now: Instant) -> Sign {
        self.look_at = Some(now + NOTICE);
        *self.button.insert(Sign::PowerButton { noticed: None })
    }

    /// Whether the guest has taken notice of it, as far as that is known now. What is news.
    fn notice(&mut self, noticed: bool) -> Option<Sign> {
        let sign = Sign::PowerButton { noticed: Some(noticed) };
        // It is looked at again and again; right after it was pressed nothing can be said.
        if self.button.is_none()
            || self.button == Some(sign)
            || (!noticed && self.look_at.is_some())
        {
            return None;
        }
        self.button = Some(sign);
        Some(sign)
    }

    /// What is news as time has passed, and whether to look at the power button.
    fn due(&mut self, now: Instant) -> (Option<Sign>, bool) {
        let sign = self.silent_at.take_if(|at| *at <= now).map(|_| {
            self.is_silent = true;
            silence()
        });
        (sign, self.look_at.take_if(|at| *at <= now).is_some())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.silent_at.into_iter().chain(self.look_at).min()
    }

    /// What still holds.
    fn standing(&self) -> impl Iterator<Item = Sign> {
        self.is_silent.then(silence).into_iter().chain(self.button)
    }
}

fn silence() -> Sign {
    Sign::ConsoleSilent { seconds: u32::try_from(SILENCE.as_secs()).unwrap_or(u32::MAX) }
}

impl Launcher {
    /// The guest runs, or stands still.
    pub(super) fn watch_console(&mut self, runs: bool, now: Instant) {
        let Some(running) = self.running.as_mut().filter(|running| running.console.is_some())
        else {
            return;
        };
        if runs { running.signs.begin(now) } else { running.signs.rest() }
    }

    /// The guest's console has said something.
    pub(super) fn console_spoke(&mut self) {
        let sign = self.running.as_mut().and_then(|running| running.signs.hear());
        self.tell_sign(sign);
    }

    /// The power button was pressed for the end.
    pub(super) fn button_pressed(&mut self, now: Instant) {
        let sign = self.running.as_mut().map(|running| running.signs.press(now));
        self.tell_sign(sign);
    }

    /// The guest has taken notice of it, or not yet.
    pub(super) fn button_noticed(&mut self, noticed: bool) {
        let sign = self.running.as_mut().and_then(|running| running.signs.notice(noticed));
        self.tell_sign(sign);
    }

    /// Tells what is due by the clock.
    pub(super) fn look_for_signs(&mut self, now: Instant) {
        let Some(running) = &mut self.running else { return };
        let (sign, look) = running.signs.due(now);
        self.tell_sign(sign);
        if look {
            self.ask_own(Request::Info);
        }
    }

    /// Tells a new agent what still holds.
    pub(super) fn repeat_signs(&mut self) {
        let signs: Vec<Sign> =
            self.running.iter().flat_map(|running| running.signs.standing()).collect();
        signs.into_iter().for_each(|sign| self.tell_sign(Some(sign)));
    }

    fn tell_sign(&mut self, sign: Option<Sign>) {
        if let Some(sign) = sign {
            self.tell(&ToAgent::Sign { sign });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn console_that_says_nothing_for_a_minute_is_told_until_it_speaks() {
        let (start, mut signs) = (Instant::now(), Signs::default());
        signs.begin(start);
        assert_eq!(signs.deadline(), Some(start + SILENCE));
        assert_eq!(signs.due(start + SILENCE - MOMENT), (None, false));
        let silent = Some(Sign::ConsoleSilent { seconds: 60 });
        assert_eq!(signs.due(start + SILENCE), (silent, false));
        assert_eq!(signs.due(start + 2 * SILENCE), (None, false));
        assert_eq!(signs.standing().next(), silent);
        assert_eq!((signs.hear(), signs.hear()), (Some(Sign::ConsoleHeard), None));
        assert_eq!(signs.standing().count(), 0);
        signs.begin(start);
        assert_eq!(signs.deadline(), None, "it has spoken");
    }

    #[test]
    fn guest_that_stands_still_is_not_silent() {
        let (start, mut signs) = (Instant::now(), Signs::default());
        signs.begin(start);
        signs.rest();
        assert_eq!((signs.deadline(), signs.due(start + SILENCE)), (None, (None, false)));
        signs.begin(start + SILENCE);
        assert_eq!(signs.deadline(), Some(start + 2 * SILENCE));
    }

    #[test]
    fn power_button_is_told_when_pressed_and_when_it_is_known_what_the_guest_makes_of_it() {
        let (start, mut signs) = (Instant::now(), Signs::default());
        assert_eq!(signs.notice(true), None, "nobody pressed it");
        assert_eq!(signs.press(start), Sign::PowerButton { noticed: None });
        assert_eq!(signs.notice(false), None, "it had no time yet");
        assert_eq!(signs.deadline(), Some(start + NOTICE));
        assert_eq!(signs.due(start + NOTICE), (None, true));
        let unnoticed = Sign::PowerButton { noticed: Some(false) };
        assert_eq!((signs.notice(false), signs.notice(false)), (Some(unnoticed), None));
        assert_eq!(signs.standing().next(), Some(unnoticed));
        assert_eq!(signs.notice(true), Some(Sign::PowerButton { noticed: Some(true) }));
    }
}
