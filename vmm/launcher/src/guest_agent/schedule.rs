//! What is asked how often.

use std::time::{Duration, Instant};

use super::protocol::Command;

/// Each subject with its period. Order is rank: what a status shows first is asked first after a connect.
///
/// * Who is logged in changes at any moment and is cheap to ask (one file is read). It also is the sign of life: an agent
///   that died is noticed within this and the time-out.
/// * Addresses come a few seconds after the agent, by DHCP, and a VMI without address is of no use to people who wait.
/// * A file system fills up slowly, and asking goes through every one.
/// * The rest changes by an upgrade of the guest or its administrator.
const PERIODS: [(Command, Duration); 7] = [
    (Command::OsInfo, Duration::from_secs(300)),
    (Command::Interfaces, Duration::from_secs(30)),
    (Command::HostName, Duration::from_secs(120)),
    (Command::Timezone, Duration::from_secs(300)),
    (Command::FileSystems, Duration::from_secs(60)),
    (Command::Users, Duration::from_secs(10)),
    (Command::Info, Duration::from_secs(300)),
];

/// For an agent without `guest-get-users`, so that its death is noticed all the same.
const PING: Duration = Duration::from_secs(10);

/// Interfaces are looked at more often in the beginning.
const EARLY: Duration = Duration::from_secs(60);
const EARLY_PERIOD: Duration = Duration::from_secs(5);

/// When each subject is due.
#[derive(Debug)]
pub(super) struct Schedule {
    begun: Instant,
    due: Vec<(Command, Duration, Instant)>,
}

impl Schedule {
    /// All is due that the agent knows; `Info` was just asked.
    pub(super) fn new(now: Instant, knows: impl Fn(Command) -> bool) -> Self {
        let mut due: Vec<_> = PERIODS
            .into_iter()
            .filter(|(command, _)| knows(*command))
            .map(|(command, period)| (command, period, now))
            .collect();
        if !knows(Command::Users) && knows(Command::Ping) {
            due.push((Command::Ping, PING, now));
        }
        let mut schedule = Self { begun: now, due };
        schedule.asked(Command::Info, now);
        schedule
    }

    /// What is due.
    pub(super) fn next(&self, now: Instant) -> Option<Command> {
        self.due.iter().find(|(_, _, at)| *at <= now).map(|(command, _, _)| *command)
    }

    /// It is being asked now.
    pub(super) fn asked(&mut self, asked: Command, now: Instant) {
        let early =
            asked == Command::Interfaces && now.saturating_duration_since(self.begun) < EARLY;
        for (command, period, at) in &mut self.due {
            if *command == asked {
                *at = now + if early { EARLY_PERIOD } else { *period };
            }
        }
    }

    /// When the next is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.iter().map(|(_, _, at)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn asked_at_once(schedule: &mut Schedule, now: Instant) -> Vec<Command> {
        let next = || {
            let command = schedule.next(now)?;
            schedule.asked(command, now);
            Some(command)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn all_is_asked_once_and_then_by_its_period() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, |_| true);
        let first = asked_at_once(&mut schedule, start);
        assert_eq!(first.len(), 6, "{first:?}");
        assert_eq!(first[0], Command::OsInfo);
        assert_eq!(schedule.deadline(), Some(start + EARLY_PERIOD));
        assert_eq!(asked_at_once(&mut schedule, start + 5 * SECOND), [Command::Interfaces]);
        let later = asked_at_once(&mut schedule, start + 70 * SECOND);
        assert_eq!(later, [Command::Interfaces, Command::FileSystems, Command::Users]);
        // No longer early.
        assert_eq!(asked_at_once(&mut schedule, start + 75 * SECOND), []);
    }

    #[test]
    fn agent_without_users_is_pinged() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, |command| command == Command::Ping);
        assert_eq!(asked_at_once(&mut schedule, start), [Command::Ping]);
        assert_eq!(schedule.deadline(), Some(start + PING));
    }
}
