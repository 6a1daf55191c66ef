//! What a VM needs: its machine's description, and open descriptors by role. Made in a thread of its own, as images can
//! take a while; the process itself is started by the supervisor's one other thread, with whose death it dies.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use corten_launcher::guest_agent::port_of;
use corten_launcher::log::chain;
use corten_launcher::machine::{self, PlanError, Resolved};
use corten_launcher::prepare::{self as volumes, PrepareError as VolumeError, SourceError};
use corten_launcher::volumes::disk_image::{MadeFiles, Scratch};
use corten_launcher::volumes::downward_metrics::MetricsDisk;
use corten_link::{ConsoleDescription, MachineDescription, Request, Restoration, Role};
use corten_net::standalone::Held;
use corten_resources::served::Scope;
use corten_resources::types::{VirtualMachineInstance, Volume};
use thiserror::Error;

use super::exit_stream;
use super::images::Images;
use super::networks::{self, NetworkError};
use super::sources::HostSources;
use crate::job::{Job, Restore};
use crate::oci::ImageError;
use crate::phase::Phase;
use crate::place::Runtime;
use crate::{regular, sparse};

/// Names in the directory of a saved VM.
pub(crate) const SAVED_MEMORY: &str = "memory";
pub(crate) const SAVED_RECORDS: &str = "records";
pub(crate) const SAVED_JOB: &str = "job.json";

/// A guest's address on the socket device. Each VM process has a device of its own, so all may have the same.
const GUEST_CID: u32 = 3;

/// Why a VM lacks something.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// The object gives no machine.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A volume, or the kernel.
    #[error(transparent)]
    Volumes(#[from] VolumeError),
    /// An image.
    #[error("an image that the command line names is none")]
    Image(#[source] SourceError),
    /// An image is not to be had, or of no use. The cause, which names it, comes first: what to do stands behind it.
    #[error("{path}: {}{}", chain(&**.cause), advice(.cause))]
    Fetch {
        /// The field.
        path: String,
        /// Why.
        cause: SourceError,
    },
    /// A network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A file.
    #[error("cannot open {path}")]
    Open {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The thread or a socket.
    #[error("cannot prepare the VM")]
    System(#[from] io::Error),
}

/// What to do about an image that is nowhere.
fn advice(cause: &SourceError) -> &'static str {
    match cause.downcast_ref() {
        Some(ImageError::Pull { .. } | ImageError::NotCached { .. }) => {
            "; say by --image NAME=PATH where it is on this machine, or by --images DIR where to look"
        }
        _ => "",
    }
}

/// All of it.
pub(super) struct Prepared {
    /// The first thing to ask of the VM process.
    pub(super) first: Request,
    /// It waits to be told to go.
    pub(super) paused: bool,
    /// What it is granted, the console apart.
    pub(super) grant: Vec<(Role, OwnedFd)>,
    /// The program of the VM process.
    pub(super) program: File,
    /// Where the guest's exit status comes from, and what it told already.
    pub(super) exit: Option<(UnixStream, Option<u8>)>,
    /// The port of the guest's agent.
    pub(super) agent_port: Option<u32>,
    /// To be written anew from time to time.
    pub(super) metrics: Option<MetricsDisk>,
    /// Files that only this VM has, which go with it when it is saved.
    pub(super) own: Vec<(Role, OwnedFd)>,
    /// Has to stay open.
    pub(super) network: Held,
    /// Disks that were made for it, and go again if it does not come to run.
    pub(super) made: MadeFiles,
    /// Processors and bytes of memory.
    pub(super) size: (u64, u64),
}

/// What the thread tells.
pub(super) enum Progress {
    /// A phase is over.
    Reached(Phase, String),
    /// Something that its user should know.
    Note(String),
    /// All of it is there, or cannot be had.
    Done(Box<Result<Prepared, PrepareError>>),
}

/// A thread that prepares.
pub(super) struct Preparation {
    /// Readable when there is something in `progress`.
    pub(super) bell: io::PipeReader,
    pub(super) progress: Receiver<Progress>,
}

struct Teller {
    bell: io::PipeWriter,
    progress: Sender<Progress>,
}

impl Teller {
    fn tell(&mut self, progress: Progress) {
        // Nobody listens any more: the supervisor is about to end, and this thread with it.
        let _ = self.progress.send(progress);
        let _ = self.bell.write_all(&[0]);
    }

    fn reached(&mut self, phase: Phase, detail: impl Into<String>) {
        self.tell(Progress::Reached(phase, detail.into()));
    }
}

impl Preparation {
    /// Starts it.
    pub(super) fn start(job: Job, runtime: Runtime) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let (sender, progress) = channel();
        let mut teller = Teller { bell: writer, progress: sender };
        std::thread::Builder::new().name("prepare".into()).spawn(move || {
            let prepared = prepare(&job, &runtime, &mut teller);
            teller.tell(Progress::Done(Box::new(prepared)));
        })?;
        Ok(Self { bell: reader, progress })
    }
}

fn prepare(job: &Job, runtime: &Runtime, teller: &mut Teller) -> Result<Prepared, PrepareError> {
    let vmi = &job.vmi;
    machine::check(vmi, Scope::Standalone)?;
    let mut images = Images::new(job).map_err(PrepareError::Image)?;
    images.fetch(vmi).map_err(|(path, cause)| PrepareError::Fetch { path, cause })?;
    teller.reached(Phase::Images, "");
    let sources = HostSources { job, images: images.into(), runtime };
    let scratch = Scratch::Nameless(job.scratch.clone());
    let disks = volumes::prepare(vmi, &sources, &scratch)?;
    disks.warnings.iter().for_each(|warning| teller.tell(Progress::Note(warning.clone())));
    teller.reached(Phase::Disks, "");

    let connected = networks::connect(vmi, &job.network)?;
    connected.notes.iter().for_each(|note| teller.tell(Progress::Note(note.clone())));
    teller.reached(Phase::Network, connected.summary.as_str());

    let resolved =
        Resolved { disks: disks.disks, interfaces: connected.places, guest_cid: Some(GUEST_CID) };
    let plan = machine::plan(&without_interfaces(job), &resolved)?;
    let mut machine = plan.machine;
    let mut grant = vec![(Role::kvm(), OwnedFd::from(open_device("/dev/kvm")?))];
    grant.extend(disks.descriptors);
    grant.extend(connected.grant);
    let own = own_files(vmi, &grant)?;
    let exit = job.exit_status.then(|| add_exit_stream(&mut machine, &mut grant)).transpose()?;
    let exit = exit.map(|stream| (stream, job.guest_status));
    let agent_port = port_of(&machine);
    let topology = u64::from(machine.sockets) * u64::from(machine.cores);
    let size = (topology * u64::from(machine.threads), machine.memory);
    let (first, paused) = match &job.restore {
        None => {
            let paused = plan.start_paused;
            (Request::Boot { machine, paused }, paused)
        }
        Some(restore) => {
            bring_back(restore, &own)?;
            let how = restoration(vmi, restore, &machine, &mut grant)?;
            (Request::Restore { how }, restore.paused)
        }
    };
    let program = open(&job.vmm)?;
    let (metrics, network, made) = (disks.metrics, connected.held, disks.made);
    Ok(Prepared {
        first,
        paused,
        grant,
        program,
        exit,
        agent_port,
        metrics,
        own,
        network,
        made,
        size,
    })
}

/// Without a network the guest has no interface, whatever the object says.
fn without_interfaces(job: &Job) -> VirtualMachineInstance {
    let mut vmi = job.vmi.clone();
    if job.network == crate::job::Network::None {
        vmi.spec.domain.devices.interfaces.clear();
        vmi.spec.networks.clear();
    }
    vmi
}

/// One more stream of the console device; the host's end of it.
fn add_exit_stream(
    machine: &mut MachineDescription,
    grant: &mut Vec<(Role, OwnedFd)>,
) -> io::Result<UnixStream> {
    let console = machine.console.get_or_insert_with(ConsoleDescription::default);
    console.streams.push(exit_stream::NAME.into());
    let (ours, theirs) = UnixStream::pair()?;
    grant.push((Role::port(console.streams.len()), theirs.into()));
    Ok(ours)
}

/// Whether a disk is made for this run, of what the job has or of nothing: there is no file that others could change.
fn is_made(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_none()
        && volume.data_volume.is_none()
        && volume.host_disk.is_none()
}

/// What the guest wrote and nobody else has: overlays, and empty disks.
fn own_files(
    vmi: &VirtualMachineInstance,
    grant: &[(Role, OwnedFd)],
) -> io::Result<Vec<(Role, OwnedFd)>> {
    let empty: BTreeSet<String> = vmi
        .spec
        .volumes
        .iter()
        .filter(|volume| volume.empty_disk.is_some())
        .map(|volume| Role::segment(&volume.name))
        .collect();
    let is_own = |role: &Role| {
        role.as_str().starts_with("overlay/")
            || role.disk_name().is_some_and(|name| empty.contains(name))
    };
    let own = grant.iter().filter(|(role, _)| is_own(role));
    own.map(|(role, fd)| Ok((role.clone(), fd.try_clone()?))).collect()
}

/// Name of such a file beside a saved VM.
pub(crate) fn saved_name(role: &Role) -> String {
    role.as_str().replace('/', "-")
}

fn bring_back(restore: &Restore, own: &[(Role, OwnedFd)]) -> Result<(), PrepareError> {
    for (role, fd) in own {
        let path = restore.directory.join(saved_name(role));
        let (saved, file) = (open(&path)?, File::from(fd.try_clone()?));
        sparse::copy(&saved, &file).map_err(|source| PrepareError::Open { path, source })?;
    }
    Ok(())
}

fn restoration(
    vmi: &VirtualMachineInstance,
    restore: &Restore,
    machine: &MachineDescription,
    grant: &mut Vec<(Role, OwnedFd)>,
) -> Result<Restoration, PrepareError> {
    let file = |name| open(&restore.directory.join(name));
    grant.push((Role::snapshot_memory(), file(SAVED_MEMORY)?.into()));
    grant.push((Role::snapshot_records(), file(SAVED_RECORDS)?.into()));
    // Without it all memory is read first: slower, and the same in all else.
    if let Ok(device) = open_device("/dev/userfaultfd") {
        grant.push((Role::userfaultfd(), device.into()));
    }
    let made = vmi.spec.volumes.iter().filter(|volume| is_made(volume)).map(|volume| &volume.name);
    let force_disks = made.chain(&restore.force_disks).map(|name| Role::segment(name)).collect();
    let disks = machine.disks.iter().map(|disk| (disk.name.clone(), disk.host.clone()));
    let networks = machine.networks.iter();
    let networks = networks.map(|network| (network.name.clone(), network.host.clone()));
    Ok(Restoration {
        disks: disks.collect(),
        networks: networks.collect(),
        force_disks,
        ..Restoration::default()
    })
}

fn open(path: &Path) -> Result<File, PrepareError> {
    regular::open(path).map_err(|source| PrepareError::Open { path: path.into(), source })
}

fn open_device(path: &str) -> Result<File, PrepareError> {
    let opened = File::options().read(true).write(true).open(path);
    opened.map_err(|source| PrepareError::Open { path: path.into(), source })
}
