//! The VM process: what it is asked, what it says, and how the guest is by that.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use corten_link::launcher::{Answer, State, ToAgent};
use corten_link::{Event, Info, LinkError, Message, Reply, Request, Role, RunState};

use super::Launcher;
use super::guest::News;
use super::signs::Signs;
use crate::console::Console;
use crate::guest_agent::KeptAgent;
use crate::log::{chain, say};
use crate::termination::End;
use crate::vmm::Vmm;
use crate::volumes::downward_metrics::{self, Collector, MetricsDisk};

/// Why the VM process was asked something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its first sign of life.
    First,
    /// Whether the guest's agent has its port open.
    Look,
    /// The agent waits for the answer, under this number.
    Agent(u64),
    /// A pause; the agent may wait for it.
    Pause(Option<u64>),
    /// The end of one; the agent may wait for it.
    Resume(Option<u64>),
    /// Nobody waits for it.
    Own,
}

impl Asked {
    /// Under which number the agent waits for it.
    pub(super) fn agents_number(self) -> Option<u64> {
        match self {
            Self::Agent(id) => Some(id),
            Self::Pause(id) | Self::Resume(id) => id,
            Self::First | Self::Look | Self::Own => None,
        }
    }

    fn without_agent(self) -> Self {
        match self {
            Self::Agent(_) => Self::Own,
            Self::Pause(_) => Self::Pause(None),
            Self::Resume(_) => Self::Resume(None),
            other => other,
        }
    }
}

/// A disk with metrics that is written from time to time.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) disk: MetricsDisk,
    pub(super) collector: Collector,
    pub(super) due: Instant,
}

/// A VM process with what it is for.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) vmm: Vmm,
    asked: BTreeMap<u64, Asked>,
    /// Number of the last question.
    last: u64,
    /// Number of the question that pressed the power button for the end.
    pub(super) button: Option<u64>,
    /// How it said that it ended.
    pub(super) told: Option<End>,
    /// Nothing more will come over its link.
    pub(super) silent: bool,
    /// What the guest reads of its host.
    pub(super) metrics: Option<Metrics>,
    /// The agent in the guest.
    pub(super) guest: Option<KeptAgent>,
    /// What is to be told of it.
    pub(super) news: News,
    /// What is seen of it.
    pub(super) signs: Signs,
    /// Where the guest speaks, if that is to be heard.
    pub(super) console: Option<Console>,
    /// How the guest is, once that is known.
    pub(super) state: Option<RunState>,
    /// Why it stands still, where nobody asked for that.
    cause: String,
    /// Answers to this question and those before it are older than what is known.
    known_since: u64,
}

impl Running {
    pub(super) fn new(
        vmm: Vmm,
        guest: Option<KeptAgent>,
        metrics: Option<Metrics>,
        console: Option<Console>,
    ) -> Self {
        Self {
            vmm,
            asked: BTreeMap::new(),
            last: 0,
            button: None,
            told: None,
            silent: false,
            metrics,
            guest,
            news: News::default(),
            signs: Signs::default(),
            console,
            state: None,
            cause: String::new(),
            known_since: 0,
        }
    }

    /// Asks for something; its number.
    pub(super) fn ask(&mut self, request: Request, asked: Asked) -> Result<u64, LinkError> {
        self.ask_with(request, &[], asked)
    }

    /// Asks for something with descriptors, which stay open here.
    pub(super) fn ask_with(
        &mut self,
        request: Request,
        given: &[(Role, OwnedFd)],
        asked: Asked,
    ) -> Result<u64, LinkError> {
        let given: Vec<(Role, BorrowedFd<'_>)> =
            given.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        let number = self.vmm.ask_with(request, &given)?;
        self.asked.insert(number, asked);
        self.last = number;
        Ok(number)
    }

    /// Nobody waits for what the agent has asked.
    pub(super) fn forget_agent(&mut self) {
        for asked in self.asked.values_mut() {
            *asked = asked.without_agent();
        }
    }
}

impl Launcher {
    /// Reads one message of the VM process; whether there may be more.
    pub(super) fn on_vmm(&mut self) -> bool {
        let Some(running) = self.running.as_mut().filter(|running| !running.silent) else {
            return false;
        };
        match running.vmm.receive() {
            Ok(Some(Message::Reply { id, reply, .. })) => self.on_reply(id, &reply),
            Ok(Some(Message::Event { event })) => self.on_event(event),
            Ok(Some(other)) => say(&format!("the VM process sent {other:?}, which is passed over")),
            Ok(None) => return false,
            Err(error) => {
                running.silent = true;
                if !matches!(error, LinkError::Closed) {
                    say(&format!("the link to the VM process failed: {}", chain(&error)));
                }
                self.stop.link_closed(Instant::now());
                return false;
            }
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        match &event {
            Event::Ended { reason, detail, fault } => {
                self.fault = fault.map(Into::into);
                if let Some(running) = &mut self.running {
                    running.told = Some(End { reason: *reason, detail: detail.clone() });
                }
                return;
            }
            // Nobody in a Pod serves guests by vsock.
            Event::Connecting { ticket, .. } => {
                return self.ask_own(Request::RefuseConnection { ticket: *ticket });
            }
            Event::DiskFailed { disk, operation, error, paused: true } => {
                let cause = format!("disk {disk}: {operation} failed: {error}");
                self.learn(RunState::Paused, cause);
            }
            Event::Reset => self.guest_was_reset(),
            Event::DiskFailed { .. } | Event::Booting { .. } | Event::CrashLoaded => {}
        }
        if let Some(withheld) = self.pace.take(Instant::now()) {
            if withheld > 0 {
                say(&format!("{withheld} events of the VM process came too fast to be told"));
            }
            say(&format!("the VM process tells: {event:?}"));
            self.tell(&ToAgent::Event { event });
        }
    }

    fn on_reply(&mut self, number: u64, reply: &Reply) {
        let Some(running) = &mut self.running else { return };
        let Some(asked) = running.asked.remove(&number) else { return };
        if let Some(id) = asked.agents_number() {
            self.answer(id, answer_of(reply.clone()));
        }
        match (asked, reply) {
            (_, Reply::Info { info }) => self.on_info(number, asked, info),
            (Asked::Pause(_), Reply::Done) => self.learn(RunState::Paused, String::new()),
            // A disk may have failed again since, which came another way.
            (Asked::Resume(_), Reply::Done) => self.ask_own(Request::Info),
            (Asked::Own, Reply::Refused { reason }) => {
                say(&format!("the VM process refused a request: {reason}"));
            }
            _ => {}
        }
    }

    fn on_info(&mut self, number: u64, asked: Asked, info: &Info) {
        let Some(running) = &mut self.running else { return };
        let is_news = number > running.known_since;
        let cause = match info.state {
            RunState::Paused => running.cause.clone(),
            RunState::Running => String::new(),
        };
        let says_of_button = running.button.is_some_and(|button| number > button);
        match asked {
            Asked::First => {
                // Nobody was told before, whatever was known.
                running.state = None;
                self.enter(State::Running);
                self.learn(info.state, cause);
                self.tell_applied();
            }
            _ if is_news => self.learn(info.state, cause),
            _ => {}
        }
        if says_of_button {
            self.stop.notice(!info.button_waits);
            self.button_noticed(!info.button_waits);
        }
        if asked == Asked::Look {
            self.on_look(info);
        }
    }

    /// The guest runs, or stands still.
    fn learn(&mut self, state: RunState, cause: String) {
        let Some(running) = &mut self.running else { return };
        running.known_since = running.last;
        if running.state == Some(state) && running.cause == cause {
            return;
        }
        let is_paused = state == RunState::Paused;
        if let Some(guest) = &mut running.guest {
            guest.set_paused(is_paused, Instant::now());
        }
        if running.state.is_some() || is_paused {
            let why = if cause.is_empty() { String::new() } else { format!(": {cause}") };
            say(&format!("the guest {}{why}", if is_paused { "stands still" } else { "goes on" }));
        }
        (running.state, running.cause) = (Some(state), cause);
        self.watch_console(!is_paused, Instant::now());
        self.tell_vm();
    }

    /// Tells how the guest is, once commands can be served.
    pub(super) fn tell_vm(&mut self) {
        let Some(running) = self.running.as_ref().filter(|_| self.state == State::Running) else {
            return;
        };
        if let Some(state) = running.state {
            let cause = running.cause.clone();
            self.tell(&ToAgent::Vm { state, cause });
        }
    }

    /// Asks for something that nobody waits for.
    pub(super) fn ask_own(&mut self, request: Request) {
        let Some(running) = &mut self.running else { return };
        if let Err(error) = running.ask(request, Asked::Own) {
            say(&format!("the VM process does not take it: {}", chain(&error)));
        }
    }

    /// Tells the guest of its host, if it wants to know and the time has come.
    pub(super) fn write_metrics(&mut self, now: Instant) {
        let metrics = self.running.as_mut().and_then(|running| running.metrics.as_mut());
        let Some(metrics) = metrics.filter(|metrics| metrics.due <= now) else { return };
        metrics.due = now + downward_metrics::PERIOD;
        if let Err(error) = metrics.disk.write(&metrics.collector.collect()) {
            say(&format!("cannot write the downward metrics: {error}"));
        }
    }
}

fn answer_of(reply: Reply) -> Answer {
    match reply {
        Reply::Done => Answer::Done,
        Reply::Refused { reason } => Answer::Refused { reason },
        Reply::Info { info } => Answer::Info { info },
        Reply::Counters { counters } => Answer::Counters { counters: Box::new(counters) },
        Reply::Memory { memory } => Answer::Memory { memory },
    }
}
