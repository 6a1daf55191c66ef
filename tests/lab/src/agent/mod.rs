//! The agent: first process of a node, which runs commands for the lab.
//!
//! One thread, one poll loop: the port to the lab, the pipes of each running command, SIGCHLD. In a VM node it is the
//! init of the machine ([`boot()`]); in direct mode the init of a PID namespace ([`enter_direct`]). Either way every
//! process of the node ends with it.
//!
//! Nothing it is asked to do may end it: a failed request is answered, a failed command has an exit status.

mod boot;
mod direct;
mod identity;
mod job;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::probe;
use crate::wire::{Decoder, Done, Frame, Kind, Setup, Start};

pub use boot::{FAILED, PORT_NAME, READY, boot, fail};
pub use direct::enter as enter_direct;
use job::Job;

/// What commands find in their environment.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LC_ALL", "C.UTF-8"),
    ("TERM", "xterm"),
];

/// While the lab is slow to take output, commands are no longer read: their pipes hold them back.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Serves the lab on `port` until it is closed (direct mode) or for ever (VM node).
pub fn serve(port: OwnedFd, machine: bool) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block().context("cannot block SIGCHLD")?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let children = SignalFd::with_flags(&signals, flags).context("cannot watch for SIGCHLD")?;
    // A machine's init has none; in direct mode the lab's own would leak into commands.
    for (name, _) in std::env::vars_os() {
        // SAFETY: the only thread; nobody else reads or writes the environment.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in ENVIRONMENT {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
    // The kernel started the machine's init from an initramfs that is gone.
    let own = if machine { boot::OWN_PATH.into() } else { std::env::current_exe()? };
    let mut agent = Agent {
        port,
        children,
        machine,
        own,
        decoder: Decoder::default(),
        output: VecDeque::new(),
        jobs: BTreeMap::new(),
        shares: Vec::new(),
    };
    while agent.turn()? {}
    Ok(())
}

struct Agent {
    port: OwnedFd,
    children: SignalFd,
    machine: bool,
    own: PathBuf,
    decoder: Decoder,
    output: VecDeque<u8>,
    jobs: BTreeMap<u32, Job>,
    shares: Vec<String>,
}

impl Agent {
    /// Waits for one round of events and deals with them; false once the lab is gone.
    fn turn(&mut self) -> Result<bool> {
        let (port, children, readable) = self.wait()?;
        if children {
            while let Ok(Some(_)) = self.children.read_signal() {}
        }
        if port.intersects(PollFlags::POLLIN | PollFlags::POLLHUP) && !self.read_port()? {
            return Ok(false);
        }
        for channel in readable {
            self.read_output(channel)?;
        }
        self.reap()?;
        self.enforce_time_limits();
        self.feed_stdin()?;
        self.write_port()?;
        Ok(true)
    }

    fn wait(&self) -> Result<(PollFlags, bool, Vec<u32>)> {
        let mut interest = PollFlags::POLLIN;
        if !self.output.is_empty() {
            interest |= PollFlags::POLLOUT;
        }
        let mut fds = vec![
            PollFd::new(self.port.as_fd(), interest),
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
        ];
        let mut channels = Vec::new();
        for (channel, job) in &self.jobs {
            if self.output.len() < OUTPUT_LIMIT {
                for pipe in job.readable() {
                    fds.push(PollFd::new(pipe, PollFlags::POLLIN));
                    channels.push(*channel);
                }
            }
            if let Some(pipe) = job.wants_to_write() {
                fds.push(PollFd::new(pipe, PollFlags::POLLOUT));
                channels.push(*channel);
            }
        }
        match poll(&mut fds, self.next_deadline()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("poll failed"),
        }
        let ready = |fd: &PollFd| fd.revents().unwrap_or(PollFlags::empty());
        let mut readable: Vec<u32> = fds[2..]
            .iter()
            .zip(channels)
            .filter(|(fd, _)| !ready(fd).is_empty())
            .map(|(_, channel)| channel)
            .collect();
        readable.dedup();
        Ok((ready(&fds[0]), !ready(&fds[1]).is_empty(), readable))
    }

    fn next_deadline(&self) -> PollTimeout {
        let now = Instant::now();
        let next = self.jobs.values().filter_map(|job| job.deadline).min();
        next.map_or(PollTimeout::NONE, |deadline| {
            let wait = deadline.saturating_duration_since(now).as_millis().saturating_add(1);
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
        })
    }

    fn read_port(&mut self) -> Result<bool> {
        let mut bytes = [0; 16 * 1024];
        match nix::unistd::read(&self.port, &mut bytes) {
            Ok(0) if self.machine => Ok(true),
            Ok(0) => Ok(false),
            Ok(length) => {
                self.decoder.push(&bytes[..length]);
                while let Some(frame) = self.decoder.next_frame()? {
                    self.handle(&frame)?;
                }
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(true),
            Err(error) => Err(error).context("the port to the lab failed"),
        }
    }

    fn handle(&mut self, frame: &Frame) -> Result<()> {
        let channel = frame.channel;
        match frame.kind {
            Kind::Setup => {
                let outcome = frame.parse().and_then(|setup: Setup| self.set_up(&setup));
                self.done(channel, outcome)
            }
            Kind::Detach => {
                let outcome = identity::leave_shares(&mut self.shares);
                self.done(channel, outcome)
            }
            Kind::Start => self.start(channel, frame),
            Kind::Stdin | Kind::Signal | Kind::Resize => {
                if let Some(job) = self.jobs.get_mut(&channel) {
                    job.control(frame);
                }
                Ok(())
            }
            other => anyhow::bail!("the lab sent {other:?}, which only a node sends"),
        }
    }

    fn set_up(&mut self, setup: &Setup) -> Result<()> {
        if self.machine {
            identity::assume(setup)?;
            identity::mount_shares(&setup.shares, &mut self.shares)?;
        }
        Ok(())
    }

    fn done(&mut self, channel: u32, outcome: Result<()>) -> Result<()> {
        let done = Done {
            error: outcome.err().map(|error| format!("{error:#}")),
            report: None,
            kvm: probe::try_kvm().err().map(|error| error.to_string()),
        };
        self.send(&Frame::json(channel, Kind::Done, &done)?)
    }

    fn start(&mut self, channel: u32, frame: &Frame) -> Result<()> {
        match frame.parse().and_then(|start: Start| Ok(Job::start(&start, &self.own)?)) {
            Ok(job) => {
                self.jobs.insert(channel, job);
                Ok(())
            }
            Err(error) => {
                let missing = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
                let status = match missing {
                    Some(std::io::ErrorKind::NotFound) => 127,
                    _ => 126,
                };
                self.send(&Frame::new(channel, Kind::Stderr, format!("lab: {error:#}\n")))?;
                self.send(&Frame::new(channel, Kind::Exit, i32::to_le_bytes(status)))
            }
        }
    }

    fn read_output(&mut self, channel: u32) -> Result<()> {
        let Some(job) = self.jobs.get_mut(&channel) else { return Ok(()) };
        for (kind, bytes) in job.read_once() {
            self.send(&Frame::new(channel, kind, bytes))?;
        }
        Ok(())
    }

    /// Takes every ended child, ours or an orphan, and reports the commands among them.
    fn reap(&mut self) -> Result<()> {
        loop {
            let status = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("waitpid failed"),
            };
            let (pid, code) = match status {
                WaitStatus::Exited(pid, code) => (pid, code),
                WaitStatus::Signaled(pid, signal, _) => (pid, 128 + signal as i32),
                _ => continue,
            };
            let ended = self.jobs.iter().find(|(_, job)| job.pid == pid).map(|(at, _)| *at);
            let Some(channel) = ended else { continue };
            // What it wrote before it ended is still in the pipes. A process it left behind may keep them open for
            // ever, so only what is there now is taken.
            while let Some(job) = self.jobs.get_mut(&channel) {
                let pieces = job.read_once();
                if pieces.is_empty() {
                    break;
                }
                for (kind, bytes) in pieces {
                    self.send(&Frame::new(channel, kind, bytes))?;
                }
            }
            let status = self.jobs.remove(&channel).map_or(code, |job| job.status(code));
            self.send(&Frame::new(channel, Kind::Exit, status.to_le_bytes()))?;
        }
    }

    fn enforce_time_limits(&mut self) {
        let now = Instant::now();
        self.jobs.values_mut().for_each(|job| job.enforce_time_limit(now));
    }

    fn feed_stdin(&mut self) -> Result<()> {
        let mut credits = Vec::new();
        for (channel, job) in &mut self.jobs {
            let written = job.feed_stdin();
            if written > 0 {
                credits.push((*channel, written));
            }
        }
        for (channel, written) in credits {
            let credit = u32::try_from(written)?;
            self.send(&Frame::new(channel, Kind::Credit, credit.to_le_bytes()))?;
        }
        Ok(())
    }

    fn send(&mut self, frame: &Frame) -> Result<()> {
        frame.encode(&mut self.output)
    }

    fn write_port(&mut self) -> Result<()> {
        while !self.output.is_empty() {
            let (front, _) = self.output.as_slices();
            match nix::unistd::write(&self.port, front) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("the port to the lab failed"),
            }
        }
        Ok(())
    }
}
