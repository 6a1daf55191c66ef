//! The VM process, with what comes from it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use corten_launcher::guest_agent::KeptAgent;
use corten_launcher::termination::End;
use corten_launcher::vmm::{Vmm, VmmError};
use corten_launcher::volumes::disk_image::MadeFiles;
use corten_launcher::volumes::downward_metrics::{
    self, Collector, HostFacts, MetricsDisk, VmFacts,
};
use corten_link::{Link, LinkError, Request, Role};
use corten_net::standalone::Held;
use nix::errno::Errno;
use nix::fcntl::{F_GETFL, F_SETFL, F_SETPIPE_SZ, OFlag, fcntl};
use thiserror::Error;

use super::agent::Agent;
use super::exit_stream::ExitStream;
use super::prepare::Prepared;
use super::say;
use crate::jail::{self, Cell, JailError, Jailed};
use crate::protocol::Status;

/// How much of the VM process's own words is told when it ended without a word over its link.
const LAST_WORDS: usize = 1000;
/// Room for what a guest says while this process does not get to run.
const PIPE: i32 = 1 << 20;
/// What downward metrics name as the one that runs the VM.
const PRODUCT: &str = concat!("corten ", env!("CARGO_PKG_VERSION"));

/// A VM process that cannot be started.
#[derive(Debug, Error)]
pub(super) enum StartError {
    #[error("cannot make {0}")]
    Make(&'static str, #[source] io::Error),
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error(transparent)]
    Vmm(#[from] VmmError),
}

/// A question that waits for the VM process.
pub(super) enum Asked {
    /// It is passed on as it comes.
    Pass { client: u64, id: u64 },
    /// A pause, for a client or not; it may end with its client.
    Pause { by: Option<(u64, u64)>, hold: bool },
    /// The end of a pause, for a client or not.
    Resume { by: Option<(u64, u64)> },
    /// A status, with numbers or without.
    Status { client: u64, id: u64, details: bool },
    /// A status that lacks only numbers.
    Details { client: u64, id: u64, status: Box<Status> },
    /// Which streams the guest has open.
    Ports,
    /// Nobody waits for it.
    Own,
}

/// A disk with metrics that is written from time to time.
pub(super) struct Metrics {
    disk: MetricsDisk,
    collector: Collector,
    pub(super) due: Instant,
}

/// A VM process.
pub(super) struct Vm {
    pub(super) vmm: Vmm,
    pub(super) jail: Jailed,
    pub(super) console: io::PipeReader,
    pub(super) words: io::PipeReader,
    /// The last of them.
    last_words: Vec<u8>,
    pub(super) exit: Option<ExitStream>,
    pub(super) agent: Option<Agent>,
    pub(super) metrics: Option<Metrics>,
    /// Files that only this VM has.
    pub(super) own: Vec<(Role, OwnedFd)>,
    /// Its first sign of life has this number.
    pub(super) first_info: u64,
    /// Who waits for what, by the number that the VM process knows.
    pub(super) asked: BTreeMap<u64, Asked>,
    /// How it said that it ended.
    pub(super) told: Option<End>,
    /// Nothing more will come over its link.
    pub(super) silent: bool,
    pub(super) running: bool,
    /// It waits for `corten resume` from the first.
    pub(super) begins_paused: bool,
    /// Disks that were made for it, and go again if it does not come to run.
    pub(super) made: MadeFiles,
    /// The other end of a console that nobody writes to, which would be ready to be read for ever if it were closed.
    _unused: Option<io::PipeWriter>,
    /// Its networks, which stay as long as this is open.
    pub(super) network: Held,
}

impl Vm {
    /// Starts the VM process: from here on everything is a descriptor. `directory` is for its root.
    pub(super) fn start(
        prepared: Prepared,
        typing: Option<&UnixStream>,
        directory: &Path,
        seccomp_log: bool,
    ) -> Result<Self, StartError> {
        let make = |what| move |source: io::Error| StartError::Make(what, source);
        let (console, output) = io::pipe().map_err(make("the console"))?;
        // Where it cannot be had, it is as large as it is.
        let _ = fcntl(&console, F_SETPIPE_SZ(PIPE));
        let (words, stderr) = io::pipe().map_err(make("standard error"))?;
        for reader in [&console, &words] {
            nonblocking(reader.as_fd()).map_err(|errno| make("a pipe")(errno.into()))?;
        }
        let exit = prepared.exit.map(|(stream, told)| ExitStream::new(stream, told));
        let exit = exit.transpose().map_err(make("a stream"))?;
        let root = directory.join("root");
        std::fs::create_dir(&root).map_err(make("a root directory"))?;
        let (ours, theirs) = Link::pair().map_err(VmmError::from)?;
        let theirs = theirs.into_fd();
        let arguments: &[&str] = if seccomp_log { &["--seccomp", "log"] } else { &[] };
        let (link, stderr, program) = (theirs.as_fd(), stderr.as_fd(), &prepared.program);
        let jail = jail::start(&Cell { program, arguments, link, stderr, root: &root })?;
        let mut descriptors: Vec<(Role, BorrowedFd<'_>)> =
            prepared.grant.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        // Without a keyboard there is no console at all: what the guest writes to its port goes nowhere.
        descriptors.extend(typing.map(|_| (Role::console(), output.as_fd())));
        descriptors.extend(typing.map(|typing| (Role::console_input(), typing.as_fd())));
        let restored = matches!(prepared.first, Request::Restore { .. });
        let mut vmm = Vmm::begin(jail.pid, ours, &descriptors, prepared.first)?;
        let mut asked = BTreeMap::new();
        // A restored machine is paused until it is told to go; one that boots knows from its first request.
        if restored && !prepared.paused {
            asked.insert(ask(&mut vmm, Request::Resume)?, Asked::Resume { by: None });
        }
        // The first request is answered when it is accepted; this is answered when the vCPUs run, or wait for a resume.
        let first_info = ask(&mut vmm, Request::Info)?;
        let now = Instant::now();
        let agent = prepared.agent_port.map(|port| {
            let mut kept = KeptAgent::new(port, now);
            if restored {
                kept = KeptAgent::restored(port, prepared.paused, now);
            } else if prepared.paused {
                kept.set_paused(true, now);
            }
            Agent::new(kept)
        });
        let process = u32::try_from(vmm.pid().as_raw()).unwrap_or_default();
        let (vcpus, memory) = prepared.size;
        let metrics = prepared.metrics.map(|disk| {
            let vm = VmFacts { process, vcpus, memory, memory_limit: memory };
            Metrics { disk, collector: Collector::new(this_host(), vm), due: now }
        });
        Ok(Self {
            vmm,
            jail,
            console,
            words,
            last_words: Vec::new(),
            exit,
            agent,
            metrics,
            own: prepared.own,
            first_info,
            asked,
            told: None,
            silent: false,
            running: false,
            begins_paused: prepared.paused,
            _unused: typing.is_none().then_some(output),
            made: prepared.made,
            network: prepared.network,
        })
    }

    /// Asks for something; what comes of it is for `asked`.
    pub(super) fn ask(
        &mut self,
        request: Request,
        given: &[(Role, OwnedFd)],
        asked: Asked,
    ) -> Result<(), LinkError> {
        let given: Vec<_> = given.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        let number = self.vmm.ask_with(request, &given)?;
        self.asked.insert(number, asked);
        Ok(())
    }

    /// Reads what the VM process says on standard error; whether there may be more.
    pub(super) fn read_words(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let Ok(count @ 1..) = self.words.read(&mut bytes) else { return false };
        self.last_words.extend(&bytes[..count]);
        let excess = self.last_words.len().saturating_sub(LAST_WORDS);
        self.last_words.drain(..excess);
        say(String::from_utf8_lossy(&bytes[..count]).trim_end());
        true
    }

    /// The last of what it said, on one line.
    pub(super) fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.last_words).trim().replace('\n', "; ")
    }

    /// The guest stands still, or not any more.
    pub(super) fn set_paused(&mut self, paused: bool) {
        if let Some(agent) = &mut self.agent {
            agent.kept.set_paused(paused, Instant::now());
        }
    }
}

impl Metrics {
    /// Writes them, if it is time.
    pub(super) fn write(&mut self, now: Instant) {
        if self.due > now {
            return;
        }
        self.due = now + downward_metrics::PERIOD;
        if let Err(error) = self.disk.write(&self.collector.collect()) {
            say(&format!("cannot write the downward metrics: {error}"));
        }
    }
}

fn this_host() -> HostFacts {
    let name = nix::unistd::gethostname().unwrap_or_default();
    HostFacts { name: name.to_string_lossy().into_owned(), product: PRODUCT.into() }
}

fn ask(vmm: &mut Vmm, request: Request) -> Result<u64, VmmError> {
    Ok(vmm.ask(request)?)
}

fn nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlag::from_bits_retain(fcntl(fd, F_GETFL)?);
    fcntl(fd, F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}
