//! The launcher's loop.
//!
//! It waits on what `Source` lists. What each says is handled at once; nothing that is done then can block.
//!
//! * `agent`: the node agent that came last, what it asks, and what it is told
//! * `start`: from the VMI that was handed over to a VM process, also by way of disks that the launcher may not open
//! * `vm`: what the VM process says, and how the guest is
//! * `apply`: changes of the VMI
//! * `guest`: the guest's own agent
//! * `signs`: what is seen of a guest that does not speak, or not power off
//! * `ending`: signals, power button, kill, and how it ended

mod agent;
mod apply;
mod ending;
mod guest;
mod network;
mod pace;
mod signs;
mod start;
mod vm;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use corten_link::launcher::{State, ToAgent};
use corten_link::{EndReason, StartFault};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use thiserror::Error;

use self::agent::Agent;
use self::apply::Heeded;
use self::pace::Pace;
use self::start::Closing;
use self::vm::Running;
use crate::door::{Door, DoorError};
use crate::log::{never_wait, say};
use crate::options::Options;
use crate::stop::Stop;
use crate::termination::End;

const NAME: &str = concat!("corten-launcher ", env!("CARGO_PKG_VERSION"));

/// How long the guest's last words may take into the log.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a launcher cannot even wait for an agent.
#[derive(Debug, Error)]
pub enum LauncherError {
    /// Its socket.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// Its signals.
    #[error("cannot receive signals")]
    Signals(#[source] Errno),
    /// Its log.
    #[error("cannot prepare the log")]
    Log(#[source] Errno),
}

impl LauncherError {
    /// Whether another launcher is there, whose VM goes on.
    pub fn is_second(&self) -> bool {
        matches!(self, Self::Door(DoorError::Taken(_)))
    }
}

/// How a launcher ended, and what was to be seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// What exactly kept it from starting, where that is known.
    pub fault: Option<StartFault>,
    /// The last lines of the guest's console.
    pub console: String,
}

/// The launcher.
#[derive(Debug)]
pub struct Launcher {
    options: Options,
    signals: SignalFd,
    door: Door,
    namespace: network::Namespace,
    /// Where the guest's console goes.
    log: io::Stdout,
    agent: Option<Agent>,
    /// What it was started with, and has heeded since.
    heeded: Option<Heeded>,
    /// A start that waits for disks.
    closing: Option<Closing>,
    running: Option<Running>,
    state: State,
    stop: Stop,
    /// Of what the guest can have it tell.
    pace: Pace,
    /// What kept the VM from starting.
    fault: Option<StartFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Door,
    Agent,
    Vmm,
    Guest,
    Console,
    Log,
}

impl Launcher {
    /// Blocks signals, so that none is lost, and opens the door.
    pub fn new(options: Options) -> Result<Self, LauncherError> {
        never_wait().map_err(LauncherError::Log)?;
        let mask: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect();
        mask.thread_block().map_err(LauncherError::Signals)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).map_err(LauncherError::Signals)?;
        let door = Door::open(&options.door)?;
        say(&format!("{NAME} waits for the node agent in {}", options.door.display()));
        Ok(Self {
            options,
            signals,
            door,
            namespace: network::Namespace::own(),
            log: io::stdout(),
            agent: None,
            heeded: None,
            closing: None,
            running: None,
            state: State::Waiting,
            stop: Stop::new(Duration::ZERO),
            pace: Pace::new(Instant::now()),
            fault: None,
        })
    }

    /// Serves until the VM has ended, or nothing can be served.
    pub fn run(mut self) -> Ended {
        loop {
            if let Some(end) = self.due(Instant::now()) {
                return self.ended(end);
            }
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    let detail = format!("cannot wait for descriptors: {error}");
                    return self.ended(End { reason: EndReason::InternalError, detail });
                }
            };
            let served = ready.into_iter().find_map(|(source, flags)| self.serve(source, flags));
            if let Some(end) = served {
                return self.ended(end);
            }
        }
    }

    fn serve(&mut self, source: Source, ready: PollFlags) -> Option<End> {
        match source {
            Source::Signals => return self.on_signals(),
            Source::Door => self.on_door(),
            Source::Agent => return self.on_agent(),
            Source::Vmm => drop(self.on_vmm()),
            Source::Guest => self.on_guest(ready),
            Source::Console | Source::Log => self.on_console(source),
        }
        None
    }

    fn sources(&self) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let read = PollFlags::POLLIN;
        let mut sources = vec![
            (Source::Signals, self.signals.as_fd(), read),
            (Source::Door, self.door.as_fd(), read),
        ];
        sources.extend(self.agent.as_ref().map(|agent| (Source::Agent, agent.link(), read)));
        let Some(running) = &self.running else { return sources };
        // A closed link would be ready for ever; SIGCHLD says the rest.
        if !running.silent {
            sources.push((Source::Vmm, running.vmm.link(), read));
            let guest = running.guest.as_ref();
            let socket = guest.and_then(|guest| Some((guest.fd()?, guest.interest())));
            sources.extend(socket.map(|(fd, interest)| (Source::Guest, fd, interest)));
        }
        if let Some(console) = &running.console {
            sources.extend(console.source().map(|fd| (Source::Console, fd, read)));
            if console.has_waiting() {
                sources.push((Source::Log, self.log.as_fd(), PollFlags::POLLOUT));
            }
        }
        sources
    }

    /// Waits until something is ready or due.
    fn wait(&self) -> Result<Vec<(Source, PollFlags)>, Errno> {
        let sources = self.sources();
        let mut list: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        match poll(&mut list, self.timeout()) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        // Flags that nix does not know are of a descriptor that is in trouble, as an error is.
        let flags = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::POLLERR);
        let ready = sources.iter().zip(&list).map(|((source, ..), fd)| (*source, flags(fd)));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn timeout(&self) -> PollTimeout {
        let running = self.running.as_ref();
        let deadlines = [
            self.stop.deadline(),
            self.closing.as_ref().map(Closing::deadline),
            running.and_then(|running| Some(running.metrics.as_ref()?.due)),
            running.and_then(|running| running.news.due()),
            running.and_then(|running| running.signs.deadline()),
            self.guest_deadline(),
        ];
        let Some(deadline) = deadlines.into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        // One more, so that it is due when the wait is over.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }

    /// Does what is due by the clock.
    fn due(&mut self, now: Instant) -> Option<End> {
        let step = self.stop.due(now);
        self.take(step);
        self.write_metrics(now);
        // What is due of it is done in its turn, also when nothing was to be read.
        self.on_guest(PollFlags::empty());
        self.report_guest(now);
        self.look_for_signs(now);
        self.give_up(now)
    }

    fn on_console(&mut self, source: Source) {
        let console = self.running.as_mut().and_then(|running| running.console.as_mut());
        let Some(console) = console else { return };
        if source == Source::Console {
            console.read();
        }
        console.write_to(self.log.as_fd());
        if source == Source::Console && console.has_spoken() {
            self.console_spoke();
        }
    }

    fn ended(mut self, end: End) -> Ended {
        self.state = State::Ended;
        let mut last = String::new();
        if let Some(console) = self.running.as_mut().and_then(|running| running.console.as_mut()) {
            console.finish(self.log.as_fd(), LAST_WORDS);
            last = console.last_lines();
        }
        let (reason, detail) = (end.reason, end.detail.clone());
        self.tell(&ToAgent::Ended { reason, detail, console: last.clone() });
        let fault = self.fault.filter(|_| end.reason == EndReason::NotStarted);
        Ended { end, fault, console: last }
    }
}
