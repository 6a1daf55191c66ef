//! The supervisor's loop.

mod machine;
mod questions;
mod stopping;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use corten_launcher::log::chain;
use corten_launcher::stop::Stop;
use corten_launcher::termination::End;
use corten_link::EndReason;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::clients::Clients;
use super::console::{History, Log};
use super::exit_stream::ExitStream;
use super::prepare::Preparation;
use super::viewers::{Part, Viewers};
use super::vm::Vm;
use super::{SupervisorError, say};
use crate::job::Job;
use crate::phase::{self, Phase, Reached};
use crate::place::{Place, Runtime};
use crate::protocol::{Ended, SOCKET, SupervisorEnd, ToClient};

/// Name of the console's file in the run directory.
pub(crate) const CONSOLE_LOG: &str = "console.log";
/// What whoever looks at a console is told that nobody can see.
const NO_CONSOLE: &str =
    "it has no serial console, as autoattachSerialConsole of its manifest says";
/// What is told of a VM process that was killed by SIGKILL, and not from here.
const FROM_OUTSIDE: &str = "its process was ended by SIGKILL from outside: by somebody on this machine, or by the kernel for want of memory";
/// How long viewers may take to see the end.
const SHOW_END: Duration = Duration::from_secs(3);

/// The supervisor.
pub(super) struct Keeper {
    job: Job,
    place: Place,
    signals: SignalFd,
    door: UnixListener,
    clients: Clients,
    preparation: Option<Preparation>,
    vm: Option<Vm>,
    history: History,
    log: Log,
    viewers: Viewers,
    /// The VM's end of the keyboard, until there is a VM.
    typing: Option<UnixStream>,
    stop: Stop,
    stopping: bool,
    phases: Vec<Reached>,
    started: Instant,
    timeout_at: Option<Instant>,
    timed_out: bool,
    /// It ends because it was saved.
    saved: bool,
    /// The client that it lives with said good-bye.
    left: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Door,
    Client(u64),
    Preparation,
    Vmm,
    Console,
    Words,
    Exit,
    Agent,
    Viewers(Part),
}

/// All that can be missing on this machine, made before anybody is told that there is a supervisor.
pub(super) struct Parts {
    job: Job,
    place: Place,
    signals: SignalFd,
    door: UnixListener,
    log: Log,
    keyboard: UnixStream,
    typing: UnixStream,
    preparation: Preparation,
}

impl Parts {
    /// Makes them, and begins to prepare.
    pub(super) fn make(
        job: Job,
        (runtime, place): (&Runtime, Place),
        signals: SignalFd,
    ) -> Result<Self, SupervisorError> {
        let make = |what| move |source: io::Error| SupervisorError::Make { what, source };
        let door = listening(&place.path().join(SOCKET))
            .map_err(|errno| make("the control socket")(errno.into()))?;
        let copy = job.log.as_ref().map(|path| {
            let copy = File::create(path);
            copy.map_err(|source| SupervisorError::Log { path: path.clone(), source })
        });
        let is_logged = job.vmi.spec.log_serial_console();
        let log = Log::open(place.path().join(CONSOLE_LOG), is_logged, copy.transpose()?);
        let log = log.map_err(make("the console's file"))?;
        let (keyboard, typing) = UnixStream::pair().map_err(make("a keyboard"))?;
        keyboard.set_nonblocking(true).map_err(make("a keyboard"))?;
        let preparation =
            Preparation::start(job.clone(), runtime.clone()).map_err(make("a thread"))?;
        Ok(Self { job, place, signals, door, log, keyboard, typing, preparation })
    }
}

impl Keeper {
    /// With the client that started it.
    pub(super) fn new(parts: Parts, owner: SupervisorEnd) -> Self {
        let Parts { job, place, signals, door, log, keyboard, typing, preparation } = parts;
        let clients = Clients::new(&job.name, owner);
        let stop = Stop::new(Duration::from_secs(job.grace.into()));
        let started = Instant::now();
        // It counts from when the command was given, not from here.
        let passed = Duration::from_nanos(phase::now().saturating_sub(job.begun));
        let timeout_at = job
            .timeout
            .map(|timeout| started + Duration::from_secs(timeout.into()).saturating_sub(passed));
        let phases = vec![reached(&job, Phase::Parsed, "")];
        Self {
            job,
            place,
            signals,
            door,
            clients,
            preparation: Some(preparation),
            vm: None,
            history: History::default(),
            log,
            viewers: Viewers::new(keyboard),
            typing: Some(typing),
            stop,
            stopping: false,
            phases,
            started,
            timeout_at,
            timed_out: false,
            saved: false,
            left: false,
        }
    }

    /// Keeps the VM to its end, then cleans up and tells everybody.
    pub(super) fn run(mut self) {
        let end = loop {
            if let Some(end) = self.due() {
                break end;
            }
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(errno) => {
                    let detail = format!("cannot wait for descriptors: {errno}");
                    break End { reason: EndReason::InternalError, detail };
                }
            };
            let served = ready.into_iter().find_map(|(source, ready)| self.serve(source, ready));
            if let Some(end) = served {
                break end;
            }
        };
        self.end(end);
    }

    fn serve(&mut self, source: Source, ready: PollFlags) -> Option<End> {
        match source {
            Source::Signals => return self.on_signals(),
            Source::Door => self.on_door(),
            Source::Client(number) => return self.on_client(number),
            Source::Preparation => return self.on_preparation(),
            Source::Vmm => drop(self.on_vmm()),
            Source::Console => drop(self.on_console()),
            Source::Words => drop(self.vm.as_mut().map(Vm::read_words)),
            Source::Exit => {
                if let Some(exit) = self.vm.as_mut().and_then(|vm| vm.exit.as_mut()) {
                    exit.read();
                }
            }
            Source::Agent => self.on_agent(ready),
            Source::Viewers(part) => self.viewers.serve(part, &self.history),
        }
        None
    }

    fn sources(&self) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let read = PollFlags::POLLIN;
        let mut sources = vec![
            (Source::Signals, self.signals.as_fd(), read),
            (Source::Door, self.door.as_fd(), read),
        ];
        sources.extend(self.clients.sources().map(|(n, fd)| (Source::Client(n), fd, read)));
        if let Some(preparation) = &self.preparation {
            sources.push((Source::Preparation, preparation.bell.as_fd(), read));
        }
        // A closed link would be ready for ever; SIGCHLD says the rest.
        if let Some(vm) = self.vm.as_ref().filter(|vm| !vm.silent) {
            sources.push((Source::Vmm, vm.vmm.link(), read));
            sources.push((Source::Console, vm.console.as_fd(), read));
            sources.push((Source::Words, vm.words.as_fd(), read));
            let exit = vm.exit.as_ref().and_then(ExitStream::ready);
            sources.extend(exit.map(|fd| (Source::Exit, fd, read)));
            if let Some(agent) = &vm.agent {
                let (fd, interest) = (agent.kept.fd(), agent.kept.interest());
                sources.extend(fd.map(|fd| (Source::Agent, fd, interest)));
            }
        }
        let viewers = self.viewers.sources(&self.history);
        sources
            .extend(viewers.into_iter().map(|(part, fd, what)| (Source::Viewers(part), fd, what)));
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
        let vm = self.vm.as_ref().filter(|vm| vm.running && !vm.silent);
        let deadlines = [
            self.stop.deadline(),
            self.timeout_at.filter(|_| !self.timed_out),
            vm.and_then(|vm| vm.agent.as_ref()?.kept.deadline()),
            vm.and_then(|vm| Some(vm.metrics.as_ref()?.due)),
        ];
        let Some(deadline) = deadlines.into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        // One more, so that it is due when the wait is over.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }

    /// Does what is due by the clock.
    fn due(&mut self) -> Option<End> {
        let now = Instant::now();
        let step = self.stop.due(now);
        self.take(step);
        if let Some(metrics) = self.vm.as_mut().and_then(|vm| vm.metrics.as_mut()) {
            metrics.write(now);
        }
        // What is due of it is done in its turn, also when nothing was to be read.
        self.on_agent(PollFlags::empty());
        if !self.timed_out && self.timeout_at.is_some_and(|deadline| now >= deadline) {
            self.timed_out = true;
            let seconds = self.job.timeout.unwrap_or_default();
            self.tell(format!("its time of {seconds} s is over"));
            let end = self.kill();
            // A VM process that is busy with its start does not listen, and its guest has nothing to lose yet.
            if let Some(vm) = self.vm.as_ref().filter(|vm| !vm.running) {
                vm.vmm.force();
            }
            return end;
        }
        None
    }

    fn on_signals(&mut self) -> Option<End> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if Signal::try_from(number) != Ok(Signal::SIGCHLD) {
                let end = self.terminate(None);
                if end.is_some() {
                    return end;
                }
            }
        }
        // Signals of one kind merge, so each time all children are looked at.
        self.reap()
    }

    fn reap(&mut self) -> Option<End> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(status) => status,
            };
            if status.pid() == self.vm.as_ref().map(|vm| vm.vmm.pid()) {
                return Some(self.end_of(status));
            }
        }
    }

    /// How the VM ended, by what it told and else by how its process ended.
    fn end_of(&mut self, status: WaitStatus) -> End {
        // Its last words may not have been read yet.
        while self.on_vmm() {}
        let killed = self.stop.is_killing();
        let Some(vm) = &mut self.vm else { return End::by_status(status, killed) };
        while vm.read_words() {}
        let mut end = vm.told.take().unwrap_or_else(|| {
            if matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)) && !killed {
                return End { reason: EndReason::Killed, detail: FROM_OUTSIDE.into() };
            }
            let (end, words) = (End::by_status(status, killed), vm.last_words());
            if words.is_empty() { end } else { End { detail: words, ..end } }
        });
        if end.reason == EndReason::Killed && end.detail.is_empty() {
            end.detail = self.stop.detail();
        }
        end
    }

    fn on_door(&mut self) {
        match self.door.accept() {
            Ok((socket, _)) => match SupervisorEnd::from_fd(OwnedFd::from(socket)) {
                Ok(link) => self.clients.add(link),
                Err(error) => say(&format!("a client was refused: {}", chain(&error))),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => say(&format!("cannot accept a client: {error}")),
        }
    }

    fn has_console(&self) -> bool {
        self.job.vmi.spec.has_serial_console()
    }

    fn reach(&mut self, phase: Phase, detail: impl Into<String>) {
        let reached = reached(&self.job, phase, detail);
        self.phases.push(reached.clone());
        self.clients.tell(&ToClient::Reached { reached });
    }

    fn tell(&self, text: String) {
        say(&text);
        self.clients.tell(&ToClient::Note { text });
    }

    /// Everything is taken down before anybody is told that it is.
    fn end(mut self, end: End) {
        while self.on_console() {}
        let status = self.vm.as_mut().and_then(|vm| vm.exit.as_mut()?.status());
        let deadline = Instant::now() + SHOW_END;
        while !self.viewers.show(&self.history) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Self { clients, place, vm, viewers, timed_out, saved, job, .. } = self;
        if let Some(vm) = vm {
            // Ended already, unless this process itself could not go on.
            vm.vmm.force();
            let _ = waitpid(vm.vmm.pid(), None);
        }
        drop(place);
        let detail = match timed_out {
            true => format!("its time of {} s was over", job.timeout.unwrap_or_default()),
            false => end.detail,
        };
        let guest_status = status;
        // One that ended by itself in the very moment did so all the same.
        let saved = saved && !timed_out && end.reason == EndReason::Killed;
        let end = Ended { reason: end.reason, detail, timed_out, saved, guest_status };
        if !clients.has_owner() {
            say(&end.text());
        }
        clients.tell_all(&ToClient::Ended { end });
        drop(viewers);
    }
}

fn reached(job: &Job, phase: Phase, detail: impl Into<String>) -> Reached {
    Reached { phase, at: phase::now().saturating_sub(job.begun) / 1000, detail: detail.into() }
}

fn listening(path: &Path) -> Result<UnixListener, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&listener, Backlog::new(8)?)?;
    // Only for its `accept`, which takes any Unix socket.
    Ok(listener.into())
}
