//! One node: a VM with KVM in it, or the machine itself.

mod mux;
mod run;
mod snapshot;

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::agent::{FAILED, READY};
use crate::cache::Cache;
use crate::qemu::{self, Configuration, Files, Link, Memory, Process, Qmp, SHARE_TAGS, Wiring};
use crate::wire::{Kind, Setup, Share};

pub use mux::{Channel, ChannelSender, Mux, Window};
pub use run::command;
pub use snapshot::{Preparation, Snapshot};

/// A cold boot takes 5 s on a quiet machine, 30 on a busy one.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// From the loss of its port to the end of its process.
const DYING: Duration = Duration::from_secs(3);
const SETUP_LIMIT: Duration = Duration::from_secs(60);

/// A running node.
#[derive(Debug)]
pub struct Node {
    /// Its number, from 1.
    pub index: u8,
    /// Runs commands in it.
    pub mux: Mux,
    machine: Machine,
    run: RunDirectory,
}

#[derive(Debug)]
enum Machine {
    Vm { qmp: Qmp, process: Process, disks: usize },
    Direct { process: Process },
}

/// Where one node's files lie.
#[derive(Clone, Debug)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Files directly in `directory`.
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    fn log(&self) -> PathBuf {
        self.0.join("qemu.log")
    }
}

impl Node {
    /// The machine itself, in namespaces of its own.
    pub fn direct(agent: &Path, run: &RunDirectory, shares: &[Share]) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let mut arguments = vec!["direct".into(), theirs.as_raw_fd().to_string().into()];
        arguments.extend(shares.iter().map(|share| (&share.path).into()));
        let process = Process::start(agent, &arguments, &[&theirs], &run.log())?;
        let machine = Machine::Direct { process };
        Ok(Self { index: 1, mux: Mux::new(ours)?, machine, run: run.clone() })
    }

    /// Boots a VM from its kernel, which takes seconds.
    pub fn boot(
        files: &Files,
        configuration: &Configuration,
        (memory, disk): (Memory<'_>, Option<&Path>),
        run: &RunDirectory,
    ) -> Result<Self> {
        let alone = Outside { disk, ..Outside::default() };
        let mut node = Self::spawn(files, configuration, memory, run, (&alone, false))?;
        node.wait_for_boot()?;
        Ok(node)
    }

    /// Restores a saved VM as node `index`.
    pub fn restore(
        files: &Files,
        configuration: &Configuration,
        snapshot: &Snapshot,
        run: &RunDirectory,
        (index, outside): (u8, &Outside<'_>),
    ) -> Result<Self> {
        let file = snapshot.memory();
        let memory = file.as_deref().map_or(Memory::Anonymous, Memory::Private);
        let mut node = Self::spawn(files, configuration, memory, run, (outside, true))?;
        let Machine::Vm { qmp, .. } = &mut node.machine else { bail!("not a VM") };
        qmp.load(&snapshot.state().to_string_lossy(), snapshot.memory_in_file())
            .with_context(|| format!("cannot restore the node\n{}", tail(&run.log())))?;
        node.index = index;
        Ok(node)
    }

    /// Starts QEMU, which boots or waits for a state to load.
    fn spawn(
        files: &Files,
        configuration: &Configuration,
        memory: Memory<'_>,
        run: &RunDirectory,
        (outside, waits): (&Outside<'_>, bool),
    ) -> Result<Self> {
        fs::create_dir_all(&run.0)?;
        let empty = run.0.join("empty");
        fs::create_dir_all(&empty)?;
        let (qmp, qmp_theirs) = UnixStream::pair()?;
        let (port, port_theirs) = UnixStream::pair()?;
        let (qmp_theirs, port_theirs) = (OwnedFd::from(qmp_theirs), OwnedFd::from(port_theirs));
        let given = outside.shares.iter();
        let mut shares: Vec<(PathBuf, bool)> =
            given.map(|share| ((&share.path).into(), share.writable)).collect();
        shares.resize(SHARE_TAGS.len(), (empty, false));
        let console = run.console();
        let wiring = Wiring {
            qmp: qmp_theirs.as_raw_fd(),
            port: port_theirs.as_raw_fd(),
            network: outside.network,
            console: &console,
            shares: &shares,
            disk: outside.disk,
        };
        let (program, mut arguments) = qemu::command_line(files, configuration, memory, &wiring);
        if waits {
            arguments.extend(["-incoming", "defer", "-S"].map(Into::into));
        }
        let mut descriptors = vec![&qmp_theirs, &port_theirs];
        descriptors.extend(outside.network.map(Link::descriptor));
        let process = Process::start(&program, &arguments, &descriptors, &run.log())?;
        // Ours must go, or the end of QEMU would not be seen.
        drop((qmp_theirs, port_theirs));
        let qmp =
            Qmp::new(qmp).with_context(|| format!("QEMU did not start\n{}", tail(&run.log())))?;
        let machine = Machine::Vm { qmp, process, disks: 0 };
        Ok(Self { index: 1, mux: Mux::new(port)?, machine, run: run.clone() })
    }

    fn wait_for_boot(&mut self) -> Result<()> {
        let deadline = Instant::now() + BOOT_LIMIT;
        loop {
            let console = fs::read(self.run.console()).unwrap_or_default();
            let console = String::from_utf8_lossy(&console);
            if console.contains(READY) {
                return Ok(());
            }
            let late = Instant::now() > deadline;
            if console.contains(FAILED) || late || !self.is_running() {
                bail!("the node did not come up\n{}", self.console_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Gives it its identity and its host directories; says why its KVM is unusable, if it is.
    pub fn set_up(&self, shares: &[Share], networked: bool) -> Result<Option<String>> {
        let mut seed = vec![0; 64];
        fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let setup = Setup {
            index: self.index,
            clock: SystemTime::UNIX_EPOCH.elapsed()?,
            seed,
            shares: shares.to_vec(),
            networked,
        };
        let done = self.mux.call(Kind::Setup, &setup, SETUP_LIMIT).with_context(|| {
            format!("node {} does not answer\n{}", self.index, self.console_tail())
        })?;
        Ok(done.kvm)
    }

    /// Attaches a disk: the first becomes /dev/sda.
    pub fn add_disk(&mut self, path: &Path, writable: bool) -> Result<()> {
        let Machine::Vm { qmp, disks, .. } = &mut self.machine else {
            bail!("a disk can be attached to a VM node only");
        };
        let name = format!("disk{disks}");
        *disks += 1;
        let file = json!({
            "node-name": name,
            "driver": "raw",
            "read-only": !writable,
            "file": { "driver": "file", "filename": path, "locking": "off" },
        });
        qmp.command("blockdev-add", &file)
            .with_context(|| format!("cannot open the disk {}", path.display()))?;
        // Two nodes may have one disk; who writes when is the test's business.
        let device = json!({
            "driver": "scsi-hd", "id": name, "drive": name, "bus": "scsi.0", "share-rw": true,
        });
        qmp.command("device_add", &device)?;
        Ok(())
    }

    /// Saves it under a name. It stays stopped.
    pub fn save_as(
        &mut self,
        name: &str,
        cache: &Cache,
        files: &Files,
        configuration: &Configuration,
    ) -> Result<()> {
        self.mux.call(Kind::Detach, &json!({}), SETUP_LIMIT).context("the node cannot be saved")?;
        snapshot::save_as(self, name, cache, (files, configuration))
    }

    fn write_state(&mut self, path: &Path, memory_in_file: bool) -> Result<()> {
        let Machine::Vm { qmp, .. } = &mut self.machine else {
            bail!("only a VM node can be saved; this lab runs on the machine itself");
        };
        let saved = qmp.save(&path.to_string_lossy(), memory_in_file);
        if saved.is_err() {
            qmp.command("cont", &json!({}))?;
        }
        saved
    }

    /// Whether it has not ended or crashed.
    pub fn is_running(&mut self) -> bool {
        match &mut self.machine {
            Machine::Vm { process, .. } | Machine::Direct { process } => process.is_running(),
        }
    }

    /// Why it gives no answer, with the end of its console.
    pub fn post_mortem(&mut self) -> String {
        let ended = match &mut self.machine {
            Machine::Vm { process, .. } | Machine::Direct { process } => process.wait(DYING),
        };
        let how = if ended { "ended unexpectedly" } else { "hangs" };
        let status = match &mut self.machine {
            Machine::Vm { process, .. } | Machine::Direct { process } => process.status(),
        };
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        let log = tail(&self.run.log());
        format!("node {} {how}{status}; {}{log}", self.index, self.console_tail())
    }

    /// Process that stands for it on the machine.
    pub fn process_id(&self) -> u32 {
        match &self.machine {
            Machine::Vm { process, .. } | Machine::Direct { process } => process.id(),
        }
    }

    /// The end of its console, for a human who wonders.
    pub fn console_tail(&self) -> String {
        match &self.machine {
            Machine::Vm { .. } => {
                format!("console of node {}:\n{}", self.index, tail(&self.run.console()))
            }
            Machine::Direct { .. } => tail(&self.run.log()),
        }
    }
}

/// What a restored node is connected to, and a saved one must not be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside<'a> {
    /// Its link to other nodes.
    pub network: Option<Link<'a>>,
    /// Host directories.
    pub shares: &'a [Share],
    /// Its own disk, if its saved state has one.
    pub disk: Option<&'a Path>,
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(80)..];
    last.iter().map(|line| format!("  | {line}\n")).collect()
}
