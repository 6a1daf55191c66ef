//! The agent in the guest: polled as long as the VM runs, and what it told is reported.

use std::time::{Duration, Instant};

use corten_link::launcher::{State, ToAgent};
use corten_link::{AgentReport, Info, LinkError, Request, Role};
use nix::poll::PollFlags;

use super::Launcher;
use super::vm::{Asked, Running};
use crate::guest_agent::Notice;
use crate::log::{chain, say};

/// Between two reports. A guest can have news as often as it likes.
const REPORT_EACH: Duration = Duration::from_secs(1);

/// What the agent in the guest told, and when that is to be reported.
#[derive(Debug, Default)]
pub(super) struct News {
    due: Option<Instant>,
    reported_at: Option<Instant>,
    reported: AgentReport,
}

impl News {
    /// When there is something to report.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn come(&mut self, now: Instant) {
        let earliest = self.reported_at.map_or(now, |at| now.max(at + REPORT_EACH));
        self.due.get_or_insert(earliest);
    }

    /// The report, if it is due and says something else than the last one.
    fn take(&mut self, now: Instant, report: impl FnOnce() -> AgentReport) -> Option<AgentReport> {
        self.due.take_if(|due| *due <= now)?;
        let report = report();
        if report == self.reported {
            return None;
        }
        (self.reported_at, self.reported) = (Some(now), report.clone());
        Some(report)
    }
}

impl Launcher {
    /// The VM, if its guest can have an agent that answers.
    fn with_guest(&mut self) -> Option<&mut Running> {
        let runs = self.state == State::Running;
        self.running.as_mut().filter(|running| runs && !running.silent)
    }

    pub(super) fn guest_deadline(&self) -> Option<Instant> {
        let running = self.running.as_ref().filter(|running| !running.silent)?;
        running.guest.as_ref().filter(|_| self.state == State::Running)?.deadline()
    }

    /// Lets the guest's agent do what it can, and does what it wants.
    pub(super) fn on_guest(&mut self, ready: PollFlags) {
        let Some(running) = self.with_guest() else { return };
        let Some(guest) = &mut running.guest else { return };
        let (port, now) = (guest.port(), Instant::now());
        let notices = guest.turn(now, ready);
        for notice in notices {
            match notice {
                Notice::LookAtPort => {
                    if let Err(error) = running.ask(Request::Info, Asked::Look) {
                        not_taken(&error);
                    }
                    continue;
                }
                Notice::Attach(socket) => {
                    let given = [(Role::connection(), socket)];
                    // If it is refused, the socket hangs up, and another one is tried later.
                    let asked = running.ask_with(Request::Attach { port }, &given, Asked::Own);
                    if let Err(error) = asked {
                        not_taken(&error);
                    }
                    continue;
                }
                Notice::Connected => say("the guest's agent answers"),
                Notice::Lost(reason) => say(&format!("the guest's agent is gone: {reason}")),
                Notice::TimeSet(Err(error)) => {
                    say(&format!("the guest's clock was not set: {}", chain(&error)));
                }
                Notice::Thawed(Err(error)) => {
                    say(&format!("file systems were not thawed: {}", chain(&error)));
                }
                Notice::TimeSet(Ok(())) | Notice::Thawed(Ok(())) => {}
                Notice::Learned | Notice::Done { .. } => {}
            }
            running.news.come(now);
        }
    }

    /// Reports what the guest's agent told, if that is due.
    pub(super) fn report_guest(&mut self, now: Instant) {
        let Some(running) = &mut self.running else { return };
        let Some(guest) = &running.guest else { return };
        if let Some(report) = running.news.take(now, || guest.report()) {
            self.tell(&ToAgent::Guest { report: Box::new(report) });
        }
    }

    /// Reports it to an agent that knows nothing, if there is something to know.
    pub(super) fn repeat_report(&mut self, now: Instant) {
        if let Some(running) = &mut self.running {
            running.news = News::default();
            running.news.come(now);
        }
        self.report_guest(now);
    }

    /// The answer to a look at the agent's port.
    pub(super) fn on_look(&mut self, info: &Info) {
        if let Some(guest) = self.running.as_mut().and_then(|running| running.guest.as_mut()) {
            guest.looked(&info.open_ports, Instant::now());
        }
    }

    /// Nothing of what the agent told is true any more.
    pub(super) fn guest_was_reset(&mut self) {
        if let Some(guest) = self.running.as_mut().and_then(|running| running.guest.as_mut()) {
            guest.reset(Instant::now());
        }
    }

    /// A guest with frozen file systems could not heed its power button.
    pub(super) fn thaw_guest(&mut self) {
        if let Some(guest) = self.running.as_mut().and_then(|running| running.guest.as_mut()) {
            guest.stopping(Instant::now());
        }
    }
}

fn not_taken(error: &LinkError) {
    say(&format!("the VM process does not take it: {}", chain(error)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(connected: bool) -> AgentReport {
        AgentReport { connected, ..AgentReport::default() }
    }

    #[test]
    fn news_are_reported_at_once_and_then_together() {
        let start = Instant::now();
        let mut news = News::default();
        assert_eq!(news.take(start, || report(true)), None);
        news.come(start);
        assert_eq!(news.take(start, || report(true)), Some(report(true)));
        let soon = start + REPORT_EACH / 2;
        news.come(soon);
        news.come(soon);
        assert_eq!(news.due(), Some(start + REPORT_EACH));
        assert_eq!(news.take(soon, || report(false)), None);
        assert_eq!(news.take(start + REPORT_EACH, || report(false)), Some(report(false)));
        assert_eq!(news.due(), None);
    }

    #[test]
    fn what_was_reported_is_not_reported_again() {
        let start = Instant::now();
        let mut news = News::default();
        news.come(start);
        assert_eq!(news.take(start, || report(false)), None, "it never answered");
        assert_eq!(news.due(), None);
    }
}
