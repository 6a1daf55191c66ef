//! What is known of one VM, and the conditions that follow. Pure.

use std::time::{Duration, Instant};

use corten_link::launcher::Sign;
use corten_link::{BootOrigin, Event};
use corten_resources::names::{CONSOLE_SILENT, GUEST_STOPPING, NODE_SYNCHRONIZED, NOTHING_TO_BOOT};
use corten_resources::types::ConditionStatus;

/// What passes by itself sooner is not told: a link that is lost is found again at the next visit.
const PATIENCE: Duration = Duration::from_secs(3);
/// Of reasons why disks cannot be booted, no more are told.
const REASONS: usize = 8;
/// Nor are more letters of a message that others have a say in.
const LETTERS: usize = 1024;

/// What keeps a launcher from being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// What is known of one VM.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What keeps its launcher from being served, and since when.
    trouble: Option<(Trouble, Instant)>,
    /// For how many seconds its serial console said nothing.
    silent: Option<u32>,
    /// Its power button was pressed, and whether the guest has taken notice, as far as that is known.
    button: Option<Option<bool>>,
    /// There is nothing to boot, and why.
    nothing_to_boot: Option<String>,
}

/// A condition that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: ConditionStatus,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether it is a failure.
    pub(super) fails: bool,
}

impl Facts {
    /// Something keeps its launcher from being served.
    pub fn meet(&mut self, trouble: Trouble, now: Instant) {
        // What follows upon another is the same time of trouble.
        let since = self.trouble.take().map_or(now, |(_, since)| since);
        self.trouble = Some((trouble, since));
    }

    /// Its launcher is served.
    pub fn is_served(&mut self) {
        self.trouble = None;
    }

    /// Its launcher has seen something of the guest.
    pub fn see(&mut self, sign: Sign) {
        match sign {
            Sign::ConsoleSilent { seconds } => self.silent = Some(seconds),
            Sign::ConsoleHeard => self.silent = None,
            Sign::PowerButton { noticed } => self.button = Some(noticed),
            Sign::Unknown => {}
        }
    }

    /// Its VM process has told something.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Booting { from: BootOrigin::Nothing { reasons } } => {
                let reasons: Vec<_> = reasons.iter().take(REASONS).map(|it| plain(it)).collect();
                self.nothing_to_boot = Some(plain(&reasons.join("; ")));
            }
            Event::Booting { .. } => self.nothing_to_boot = None,
            // It begins anew, also to be silent.
            Event::Reset => self.silent = None,
            _ => {}
        }
    }

    /// When there may be more to tell although nothing changes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.trouble.as_ref().map(|(_, since)| *since + PATIENCE)
    }

    /// Each condition that follows from the facts, or is not to be there by them.
    pub(super) fn conditions(&self, now: Instant) -> [(&'static str, Option<Said>); 4] {
        let lasts = |since: Instant| now.saturating_duration_since(since) >= PATIENCE;
        let trouble =
            self.trouble.as_ref().filter(|(_, since)| lasts(*since)).map(|(it, _)| Said {
                status: ConditionStatus::False,
                reason: it.reason,
                message: plain(&it.message),
                fails: true,
            });
        let stopping = self.button.map(|noticed| {
            let (reason, message) = match noticed {
                Some(true) => (
                    "PowerButtonNoticed",
                    "its power button was pressed, and the guest has taken notice of it",
                ),
                Some(false) => (
                    "PowerButtonUnnoticed",
                    "its power button was pressed, and nothing in the guest has taken notice of it: it takes the kernel's ACPI \
                     button driver and a program that acts on it, as systemd-logind or acpid",
                ),
                None => ("PowerButtonPressed", "its power button was pressed"),
            };
            Said { status: ConditionStatus::True, reason, message: message.into(), fails: false }
        });
        let silent = self.silent.filter(|_| self.nothing_to_boot.is_none()).map(|seconds| Said {
            status: ConditionStatus::True,
            reason: "NoOutput",
            message: format!(
                "the guest runs, and its serial console has said nothing for {seconds} s: its kernel does not start, or was not \
                 told to use it by console=ttyS0"
            ),
            fails: false,
        });
        let nothing = self.nothing_to_boot.as_ref().map(|why| Said {
            status: ConditionStatus::True,
            reason: "NoBootEntry",
            message: format!("the VM runs, but there is nothing to boot on its disks: {why}"),
            fails: true,
        });
        [
            (NODE_SYNCHRONIZED, trouble),
            (GUEST_STOPPING, stopping),
            (CONSOLE_SILENT, silent),
            (NOTHING_TO_BOOT, nothing),
        ]
    }
}

/// The beginning of a text that others have a say in, on one line and without what would move a cursor.
pub(super) fn plain(text: &str) -> String {
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(LETTERS).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(facts: &Facts, now: Instant) -> Vec<(&'static str, &'static str)> {
        let there = facts.conditions(now).into_iter();
        there.filter_map(|(kind, said)| Some((kind, said?.reason))).collect()
    }

    fn trouble(reason: &'static str) -> Trouble {
        Trouble { reason, message: "why".into() }
    }

    #[test]
    fn trouble_is_told_when_it_lasts_and_until_the_launcher_is_served() {
        let (start, mut facts) = (Instant::now(), Facts::default());
        facts.meet(trouble("LinkFailed"), start);
        assert!(told(&facts, start).is_empty());
        assert_eq!(facts.due(), Some(start + PATIENCE));
        facts.meet(trouble("LauncherSilent"), start + PATIENCE);
        assert_eq!(told(&facts, start + PATIENCE), [("NodeSynchronized", "LauncherSilent")]);
        facts.is_served();
        assert!(told(&facts, start + PATIENCE).is_empty() && facts.due().is_none());
    }

    #[test]
    fn what_a_launcher_sees_of_its_guest_is_told_while_it_is_so() {
        let now = Instant::now();
        let table = [
            (Sign::ConsoleSilent { seconds: 60 }, vec![("ConsoleSilent", "NoOutput")]),
            (
                Sign::PowerButton { noticed: None },
                vec![("GuestStopping", "PowerButtonPressed"), ("ConsoleSilent", "NoOutput")],
            ),
            (Sign::ConsoleHeard, vec![("GuestStopping", "PowerButtonPressed")]),
            (
                Sign::PowerButton { noticed: Some(false) },
                vec![("GuestStopping", "PowerButtonUnnoticed")],
            ),
            (
                Sign::PowerButton { noticed: Some(true) },
                vec![("GuestStopping", "PowerButtonNoticed")],
            ),
            (Sign::Unknown, vec![("GuestStopping", "PowerButtonNoticed")]),
        ];
        let mut facts = Facts::default();
        for (sign, expected) in table {
            facts.see(sign);
            assert_eq!(told(&facts, now), expected, "{sign:?}");
        }
    }

    #[test]
    fn nothing_to_boot_says_why_and_explains_the_silence() {
        let (now, mut facts) = (Instant::now(), Facts::default());
        facts.see(Sign::ConsoleSilent { seconds: 60 });
        let reasons = vec!["vda: no partition\u{1b}[2J table".to_owned(); 100];
        facts.hear(&Event::Booting { from: BootOrigin::Nothing { reasons } });
        assert_eq!(told(&facts, now), [("NothingToBoot", "NoBootEntry")]);
        let [_, _, _, (_, said)] = facts.conditions(now);
        let message = said.unwrap().message;
        assert!(message.contains("vda: no partition [2J table; vda"), "{message}");
        assert!(message.len() < 400, "{message}");
        facts.hear(&Event::Reset);
        facts.hear(&Event::Booting { from: BootOrigin::Kernel });
        assert!(told(&facts, now).is_empty());
    }
}
