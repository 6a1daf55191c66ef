//! The conversation with an agent, as a state machine in a loop of somebody else's.

mod work;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corten_link::GuestInformation;
use nix::poll::PollFlags;

use super::freeze::Freeze;
use super::orders::{AgentError, LostReason, MAX_ORDERS, Notice, Order, Outcome};
use super::protocol::{Command, Inbox, ProtocolError};
use super::schedule::Schedule;
use super::stream::Stream;

/// How often it is looked whether the port is open, which is a question to the VM process: an agent that ends is noticed by this.
const LOOK: Duration = Duration::from_secs(5);

/// An agent answers within milliseconds. One that does not in this time has a guest that is stuck or overloaded.
const ANSWER: Duration = Duration::from_secs(10);

/// Asking for file systems goes through all of them, also slow ones of a network. Setting the clock also sets the
/// hardware's, at a full second.
const SLOW_ANSWER: Duration = Duration::from_secs(30);

/// A freeze writes back all that is dirty; a thaw lets all writers go on.
const FREEZE_ANSWER: Duration = Duration::from_secs(60);

/// After garbage, before the next word.
const REST: Duration = Duration::from_secs(1);

/// After a sync that was not answered, before the next socket.
const AWAY: Duration = Duration::from_secs(10);

/// A clock that stood for less is left to the guest: setting it by the agent is not more exact than that.
const NEGLIGIBLE: Duration = Duration::from_millis(100);

/// For whom something was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Poll,
    Thaw,
    Time,
    Order(u64, Order),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No socket, and none before then.
    Away {
        until: Instant,
    },
    /// A socket, but not a word before then.
    Resting {
        until: Instant,
    },
    Syncing {
        id: u64,
        deadline: Instant,
    },
    Idle,
    Asked {
        command: Command,
        purpose: Purpose,
        deadline: Instant,
    },
}

/// The agent of one guest.
#[derive(Debug)]
pub struct GuestAgent {
    phase: Phase,
    stream: Option<Stream>,
    next_id: u64,
    look_at: Instant,
    connected: bool,
    paused: bool,
    /// There is one once it is known which commands there are.
    schedule: Option<Schedule>,
    /// When the next sign of life is due while frozen.
    status_at: Instant,
    freeze: Freeze,
    time_is_due: bool,
    orders: VecDeque<(u64, Order)>,
    information: GuestInformation,
    notices: Vec<Notice>,
}

impl GuestAgent {
    /// Of a guest that runs, of whose agent nothing is known.
    pub fn new(now: Instant) -> Self {
        // No number of a launcher before this one is ours; JSON numbers are exact up to 2^53.
        let nanoseconds = since_epoch() & ((1 << 52) - 1);
        Self {
            phase: Phase::Away { until: now },
            stream: None,
            next_id: nanoseconds,
            look_at: now,
            connected: false,
            paused: false,
            schedule: None,
            status_at: now,
            freeze: Freeze::Unknown { thaw_at: None },
            time_is_due: false,
            orders: VecDeque::new(),
            information: GuestInformation::default(),
            notices: Vec::new(),
        }
    }

    /// Whether it answers.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// What was learned so far; also that of an agent that is not connected any more.
    pub fn information(&self) -> &GuestInformation {
        &self.information
    }

    /// What to wait on.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(Stream::fd)
    }

    /// What to wait for there. A guest is read only when it was asked something.
    pub fn interest(&self) -> PollFlags {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::POLLIN, self.listens());
        let waits = self.stream.as_ref().is_some_and(Stream::has_outgoing);
        interest.set(PollFlags::POLLOUT, waits && !self.paused);
        interest
    }

    fn listens(&self) -> bool {
        !self.paused && matches!(self.phase, Phase::Syncing { .. } | Phase::Asked { .. })
    }

    /// When to call [`Self::turn`] even if nothing is ready.
    pub fn deadline(&self) -> Option<Instant> {
        if self.paused {
            return None;
        }
        let work = match self.phase {
            Phase::Away { .. } => None,
            Phase::Resting { until } => Some(until),
            Phase::Syncing { deadline, .. } | Phase::Asked { deadline, .. } => Some(deadline),
            Phase::Idle if self.freeze.is_frozen() => {
                self.freeze.thaw_at().map(|at| at.min(self.status_at))
            }
            Phase::Idle => self.schedule.as_ref().and_then(|schedule| schedule.deadline()),
        };
        Some(work.map_or(self.look_at, |at| at.min(self.look_at)))
    }

    /// Does what is ready and due. To be called before each wait; `ready` is what the last one said of [`Self::fd`].
    pub fn turn(&mut self, now: Instant, ready: PollFlags) -> Vec<Notice> {
        if !self.paused {
            self.transfer(now, ready);
            self.time_out(now);
            self.go_on(now);
            if now >= self.look_at {
                self.look_at = now + LOOK;
                self.notices.push(Notice::LookAtPort);
            }
        }
        std::mem::take(&mut self.notices)
    }

    /// Whether a program of the guest has the port open.
    pub fn port(&mut self, open: bool, now: Instant) {
        match (open, self.phase) {
            (true, Phase::Away { until }) if now >= until && !self.paused => self.attach(now),
            (true, _) | (false, Phase::Away { .. }) => {}
            (false, _) => self.leave(now, &LostReason::PortClosed),
        }
    }

    /// Takes an order; a notice with its ticket tells what came of it.
    pub fn order(&mut self, ticket: u64, order: Order) {
        let refusal = if self.paused {
            AgentError::Paused
        } else if !self.connected {
            AgentError::NotConnected
        } else if self.orders.len() >= MAX_ORDERS {
            AgentError::Busy
        } else {
            self.orders.push_back((ticket, order));
            return;
        };
        self.done(ticket, Err(refusal));
    }

    /// The guest does not run from now on: its agent is not expected to answer.
    pub fn paused(&mut self) {
        self.paused = true;
    }

    /// The guest runs again, after its clock `stood` for so long.
    pub fn resumed(&mut self, stood: Duration, now: Instant) {
        self.time_is_due |= stood >= NEGLIGIBLE;
        self.paused = false;
        match &mut self.phase {
            Phase::Syncing { deadline, .. } => *deadline = now + ANSWER,
            Phase::Asked { command, deadline, .. } => *deadline = now + time_for(*command),
            Phase::Away { .. } | Phase::Resting { .. } | Phase::Idle => {}
        }
    }

    /// The guest goes on from a snapshot, and runs: whatever was frozen for it is thawed, and the clock is set.
    pub fn restored(&mut self, now: Instant) {
        self.leave(now, &LostReason::Restored);
        self.phase = Phase::Away { until: now };
        self.freeze.doubt(now);
        self.time_is_due = true;
        self.paused = false;
    }

    /// The guest was reset: nothing of it is left.
    pub fn reset(&mut self, now: Instant) {
        self.leave(now, &LostReason::Reset);
        self.phase = Phase::Away { until: now };
        self.freeze = Freeze::Unknown { thaw_at: None };
        self.time_is_due = false;
        if self.information != GuestInformation::default() {
            self.information = GuestInformation::default();
            self.notices.push(Notice::Learned);
        }
    }

    /// The power button is about to be pressed: a guest with frozen file systems could not heed it.
    pub fn stopping(&mut self, now: Instant) {
        self.freeze.end(now);
    }

    fn attach(&mut self, now: Instant) {
        match Stream::pair() {
            Ok((stream, theirs)) => {
                self.stream = Some(stream);
                self.notices.push(Notice::Attach(theirs));
                self.sync(now);
            }
            Err(error) => self.leave(now, &LostReason::NoSocket(error.kind())),
        }
    }

    fn sync(&mut self, now: Instant) {
        self.next_id += 1;
        let id = self.next_id;
        self.phase = Phase::Syncing { id, deadline: now + ANSWER };
        if let Some(stream) = &mut self.stream {
            stream.inbox.begin_sync();
        }
        self.send(Command::Sync(id), now);
    }

    fn send(&mut self, command: Command, now: Instant) {
        if let Some(Err(_)) = self.stream.as_mut().map(|stream| stream.send(command)) {
            self.leave(now, &LostReason::HungUp);
        }
    }

    /// Reads and writes.
    fn transfer(&mut self, now: Instant, ready: PollFlags) {
        let listens = self.listens();
        let Some(stream) = &mut self.stream else { return };
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let sent = stream.flush();
        let open = match listens {
            // There may be an answer before the end.
            true => stream.fill().unwrap_or(false),
            false => !ready.intersects(gone),
        };
        if listens {
            self.receive(now);
        }
        if (sent.is_err() || !open) && self.stream.is_some() {
            self.leave(now, &LostReason::HungUp);
        }
    }

    fn receive(&mut self, now: Instant) {
        let Some(stream) = &mut self.stream else { return };
        match self.phase {
            Phase::Syncing { id, .. } => loop {
                match stream.inbox.sync() {
                    Ok(Some(told)) if told == id && stream.inbox.is_empty() => {
                        return self.connect(now);
                    }
                    // The answer to a sync of before.
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(error) => return self.garbage(now, &error),
                }
            },
            Phase::Asked { command, purpose, .. } => {
                let line = match stream.inbox.line() {
                    Ok(Some(line)) => line,
                    Ok(None) => return,
                    Err(error) => return self.garbage(now, &error),
                };
                match command.decode(&line) {
                    Err(error) if error.is_garbage() => self.garbage(now, &error),
                    outcome => {
                        self.phase = Phase::Idle;
                        self.answered(command, purpose, outcome, now);
                    }
                }
            }
            Phase::Away { .. } | Phase::Resting { .. } | Phase::Idle => {}
        }
    }

    fn connect(&mut self, now: Instant) {
        self.phase = Phase::Idle;
        self.status_at = now;
        if !self.connected {
            self.connected = true;
            self.notices.push(Notice::Connected);
        }
    }

    fn time_out(&mut self, now: Instant) {
        match self.phase {
            Phase::Syncing { deadline, .. } if now >= deadline => {
                let command = Command::Sync(0).name();
                self.leave(now, &LostReason::Silent { command, within: ANSWER });
            }
            Phase::Asked { command, deadline, .. } if now >= deadline => {
                let within = time_for(command);
                self.lose(now, &LostReason::Silent { command: command.name(), within });
                self.sync(now);
            }
            Phase::Resting { until } if now >= until => self.sync(now),
            _ => {}
        }
    }

    /// Starts what is next, if nothing is under way.
    fn go_on(&mut self, now: Instant) {
        while self.phase == Phase::Idle {
            let Some((command, purpose)) = self.next(now) else { return };
            self.phase = Phase::Asked { command, purpose, deadline: now + time_for(command) };
            self.send(command, now);
        }
    }

    fn done(&mut self, ticket: u64, outcome: Result<Outcome, AgentError>) {
        self.notices.push(Notice::Done { ticket, outcome });
    }

    fn garbage(&mut self, now: Instant, error: &ProtocolError) {
        self.lose(now, &LostReason::Garbage(error.to_string()));
        if let Some(stream) = &mut self.stream {
            stream.inbox = Inbox::default();
        }
        self.phase = Phase::Resting { until: now + REST };
    }

    /// It does not answer any more, and the socket is given up.
    fn leave(&mut self, now: Instant, reason: &LostReason) {
        self.lose(now, reason);
        self.stream = None;
        let until = match reason {
            LostReason::Silent { .. } | LostReason::NoSocket(_) => now + AWAY,
            _ => now + REST,
        };
        self.phase = Phase::Away { until };
    }

    /// It does not answer any more.
    fn lose(&mut self, now: Instant, reason: &LostReason) {
        self.freeze.lost();
        self.schedule = None;
        if let Phase::Asked { purpose, .. } = self.phase {
            let error = || AgentError::Lost(reason.clone());
            match purpose {
                Purpose::Poll => {}
                Purpose::Thaw => self.notices.push(Notice::Thawed(Err(error()))),
                // An agent that falls silent by it would do so again; any other is asked again, as a clock can be set twice.
                Purpose::Time if matches!(reason, LostReason::Silent { .. }) => {
                    self.notices.push(Notice::TimeSet(Err(error())));
                }
                Purpose::Time => self.time_is_due = true,
                Purpose::Order(ticket, order) => {
                    if matches!(order, Order::Freeze { .. }) {
                        self.freeze.doubt(now);
                    }
                    self.done(ticket, Err(error()));
                }
            }
            self.phase = Phase::Idle;
        }
        while let Some((ticket, _)) = self.orders.pop_front() {
            self.done(ticket, Err(AgentError::NotConnected));
        }
        if std::mem::take(&mut self.connected) {
            self.notices.push(Notice::Lost(reason.clone()));
        }
    }
}

fn time_for(command: Command) -> Duration {
    match command {
        Command::Freeze | Command::Thaw => FREEZE_ANSWER,
        Command::FileSystems | Command::SetTime(_) => SLOW_ANSWER,
        _ => ANSWER,
    }
}

/// Nanoseconds since the epoch, by the host's clock.
fn since_epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
