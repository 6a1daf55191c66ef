//! What is asked next, and what is made of its answer.

use std::time::{Duration, Instant};

use super::{GuestAgent, Purpose, since_epoch};
use crate::guest_agent::freeze::{Freeze, limit};
use crate::guest_agent::orders::{AgentError, Notice, Order, Outcome};
use crate::guest_agent::protocol::{Answer, Command, ProtocolError};
use crate::guest_agent::schedule::Schedule;
use corten_link::FreezeStatus;

/// While frozen, this is the sign of life.
const STATUS: Duration = Duration::from_secs(5);

impl GuestAgent {
    pub(super) fn next(&mut self, now: Instant) -> Option<(Command, Purpose)> {
        if self.freeze.is_unknown() {
            return Some((Command::FreezeStatus, Purpose::Poll));
        }
        if self.freeze.thaw_at().is_some_and(|at| now >= at) {
            return Some((Command::Thaw, Purpose::Thaw));
        }
        let frozen = self.freeze.is_frozen();
        if self.schedule.is_none() && !frozen {
            return Some((Command::Info, Purpose::Poll));
        }
        while let Some((ticket, order)) = self.orders.pop_front() {
            match self.command_of(order, now) {
                Ok(Some(command)) => return Some((command, Purpose::Order(ticket, order))),
                Ok(None) => self.done(ticket, Ok(Outcome::Frozen { file_systems: 0 })),
                Err(error) => self.done(ticket, Err(error)),
            }
        }
        if frozen {
            return (now >= self.status_at).then_some((Command::FreezeStatus, Purpose::Poll));
        }
        if std::mem::take(&mut self.time_is_due) {
            let command = Command::SetTime(since_epoch());
            if self.offers(command) {
                return Some((command, Purpose::Time));
            }
            let error = AgentError::Unsupported(command.name());
            self.notices.push(Notice::TimeSet(Err(error)));
        }
        let schedule = self.schedule.as_mut()?;
        let command = schedule.next(now)?;
        schedule.asked(command, now);
        Some((command, Purpose::Poll))
    }

    /// What an order asks of the agent; nothing if it is fulfilled already.
    fn command_of(&mut self, order: Order, now: Instant) -> Result<Option<Command>, AgentError> {
        let command = match order {
            Order::Ping => Command::Ping,
            Order::Freeze { .. } => Command::Freeze,
            Order::Thaw => Command::Thaw,
            Order::SetTime => Command::SetTime(since_epoch()),
        };
        match order {
            Order::Freeze { limit: ordered } if self.freeze.is_frozen() => {
                self.freeze = Freeze::Frozen { thaw_at: now + limit(ordered) };
                Ok(None)
            }
            Order::SetTime if self.freeze.is_frozen() => Err(AgentError::Frozen),
            // While frozen an agent says of nearly all commands that they are disabled; a thaw is tried in any case.
            Order::Thaw | Order::Ping => Ok(Some(command)),
            _ if self.offers(command) => Ok(Some(command)),
            _ => Err(AgentError::Unsupported(command.name())),
        }
    }

    pub(super) fn answered(
        &mut self,
        command: Command,
        purpose: Purpose,
        outcome: Result<Answer, ProtocolError>,
        now: Instant,
    ) {
        let failed = |source| AgentError::Failed { command: command.name(), source };
        match purpose {
            Purpose::Poll => match outcome {
                Ok(answer) => self.learn(command, answer, now),
                // One that does not know of freezing freezes nothing.
                Err(_) if command == Command::FreezeStatus => {
                    self.frozen(FreezeStatus::Thawed, now);
                }
                Err(_) if command == Command::Info => {
                    self.schedule = Some(Schedule::new(now, |_| true));
                }
                // It may be offered and fail; it is asked again when it is due.
                Err(_) => {}
            },
            Purpose::Thaw => {
                match &outcome {
                    Ok(_) => self.frozen(FreezeStatus::Thawed, now),
                    Err(_) => self.freeze.postpone(now),
                }
                self.notices.push(Notice::Thawed(outcome.map(drop).map_err(failed)));
            }
            Purpose::Time => {
                self.notices.push(Notice::TimeSet(outcome.map(drop).map_err(failed)));
            }
            Purpose::Order(ticket, order) => {
                let count = |answer| match answer {
                    Answer::Number(count) => count,
                    _ => 0,
                };
                let outcome = match (order, outcome) {
                    (Order::Ping, Ok(_)) => Ok(Outcome::Pong),
                    (Order::SetTime, Ok(_)) => Ok(Outcome::TimeSet),
                    (Order::Freeze { limit: ordered }, Ok(answer)) => {
                        self.freeze = Freeze::Frozen { thaw_at: now + limit(ordered) };
                        self.frozen(FreezeStatus::Frozen, now);
                        Ok(Outcome::Frozen { file_systems: count(answer) })
                    }
                    (Order::Thaw, Ok(answer)) => {
                        self.frozen(FreezeStatus::Thawed, now);
                        Ok(Outcome::Thawed { file_systems: count(answer) })
                    }
                    (Order::Freeze { .. }, Err(error)) => {
                        // Some may be frozen and some not.
                        self.freeze.doubt(now);
                        Err(failed(error))
                    }
                    (Order::Ping | Order::Thaw | Order::SetTime, Err(error)) => Err(failed(error)),
                };
                self.done(ticket, outcome);
            }
        }
    }

    /// Takes note of what a poll said.
    fn learn(&mut self, command: Command, answer: Answer, now: Instant) {
        let before = self.information.clone();
        let information = &mut self.information;
        match answer {
            Answer::Info { version, commands } => {
                information.agent_version = version;
                information.supported_commands = commands;
            }
            Answer::OperatingSystem(os) => information.os = os,
            Answer::HostName(name) => information.host_name = name,
            Answer::Timezone(zone) => information.timezone = zone,
            Answer::Users(users) => information.users = users,
            Answer::FileSystems(list) => information.file_systems = list,
            Answer::Interfaces(list) => information.interfaces = list,
            Answer::FreezeStatus(status) => return self.frozen(status, now),
            Answer::Done | Answer::Number(_) => {}
        }
        if self.information != before {
            self.notices.push(Notice::Learned);
        }
        if command == Command::Info && self.schedule.is_none() {
            self.schedule = Some(Schedule::new(now, |command| self.offers(command)));
        }
    }

    fn frozen(&mut self, status: FreezeStatus, now: Instant) {
        self.freeze.told(status, now);
        self.status_at = now + STATUS;
        if status == FreezeStatus::Thawed && self.information.freeze == Some(FreezeStatus::Frozen) {
            // An agent that was asked while frozen said that most of its commands are disabled.
            self.schedule = None;
        }
        if self.information.freeze.replace(status) != Some(status) {
            self.notices.push(Notice::Learned);
        }
    }

    /// Whether the agent knows a command and may do it. Of one that does not say, all is expected.
    fn offers(&self, command: Command) -> bool {
        let commands = &self.information.supported_commands;
        let named = |name| commands.iter().any(|command| command.name == name && command.enabled);
        commands.is_empty() || named(command.name())
    }
}
