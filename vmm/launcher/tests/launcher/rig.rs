//! The launcher that is built, and a test in the place of its agent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_link::launcher::{AgentEnd, Answer, SOCKET, State, ToAgent, ToLauncher, VERSION};
use corten_link::{Grant, Link, LinkError, Role, RunState};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};

/// Long, for a machine under load.
pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const MEMORY: &str = "32Mi";

/// A VMI that boots the microguest with these commands.
pub(crate) fn vmi(uid: &str, commands: &str) -> Map<String, Value> {
    let container = json!({"image": "microguest", "kernelPath": "/boot/kernel"});
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"namespace": "default", "name": "first", "uid": uid},
        "spec": {"domain": {
            "memory": {"guest": MEMORY},
            "firmware": {"kernelBoot": {"kernelArgs": commands, "container": container}},
        }},
    });
    vmi.as_object().cloned().unwrap_or_default()
}

type Text = Arc<Mutex<Vec<u8>>>;

/// A running launcher.
pub(crate) struct Launcher {
    directory: tempfile::TempDir,
    child: Child,
    console: Text,
    log: Text,
    readers: Vec<JoinHandle<()>>,
}

/// How a launcher ended.
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) termination: Value,
    pub(crate) console: String,
    pub(crate) log: String,
}

impl Launcher {
    pub(crate) fn start() -> Result<Self> {
        let vmm = std::env::var_os("CORTEN_VMM")
            .context("CORTEN_VMM does not name the program of the VM process")?;
        Self::start_with(Path::new(&vmm))
    }

    pub(crate) fn start_with(vmm: &Path) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("door"))?;
        fs::create_dir_all(path("image/boot"))?;
        fs::create_dir(path("scratch"))?;
        fs::write(path("image/boot/kernel"), corten_microguest::ELF)?;
        File::create(path("termination-log"))?;
        let mut child = command(directory.path(), vmm).spawn()?;
        let (console, log) = (Text::default(), Text::default());
        let readers = vec![
            collect(child.stdout.take().context("no standard output")?, &console),
            collect(child.stderr.take().context("no standard error")?, &log),
        ];
        Ok(Self { directory, child, console, log, readers })
    }

    /// Runs another launcher in the same container, to its end.
    pub(crate) fn second(&self) -> Result<Output> {
        let vmm = Path::new("/nonexistent/corten-vmm");
        let mut child = command(self.directory.path(), vmm).spawn()?;
        let ended = wait_until(|| matches!(child.try_wait(), Ok(Some(_))));
        child.kill()?;
        let output = child.wait_with_output()?;
        ended.with_context(|| format!("it stays: {}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(output)
    }

    /// A file of the image volume.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.directory.path().join("image").join(name)
    }

    /// A file of a volume.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.directory.path().join("volumes").join(name)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }

    /// Connects as an agent does, without a word yet.
    pub(crate) fn connect(&self) -> Result<Agent> {
        let path = self.directory.path().join("door").join(SOCKET);
        let address = UnixAddr::new(&path)?;
        let deadline = Instant::now() + SOON;
        loop {
            let link =
                socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
            match connect(link.as_raw_fd(), &address) {
                Ok(()) => return Ok(Agent { link: AgentEnd::from_fd(link)?, last_id: 0 }),
                Err(error) => ensure!(Instant::now() < deadline, "{error}: {}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Connects and says hello; also what the launcher said.
    pub(crate) fn agent(&self) -> Result<(Agent, ToAgent)> {
        let agent = self.connect()?;
        agent.send(&ToLauncher::Hello { version: VERSION, agent: "a test".into() })?;
        let hello = agent.next()?;
        Ok((agent, hello))
    }

    /// Starts the microguest with these commands and waits until it runs.
    pub(crate) fn running(&self, commands: &str, grace_seconds: u32) -> Result<Agent> {
        let (mut agent, _) = self.agent()?;
        agent.begin(vmi(UID, commands), grace_seconds)?;
        let running = agent.next()?;
        ensure!(running == ToAgent::State { state: State::Running }, "{running:?}: {}", self.log());
        ensure!(agent.next()? == ToAgent::Vm { state: RunState::Running, cause: String::new() });
        ensure!(matches!(agent.next()?, ToAgent::Applied { .. }));
        Ok(agent)
    }

    /// Connects as the next agent of a guest that runs.
    pub(crate) fn next_agent(&self) -> Result<Agent> {
        let (agent, _) = self.agent()?;
        ensure!(agent.next()? == ToAgent::Vm { state: RunState::Running, cause: String::new() });
        Ok(agent)
    }

    pub(crate) fn terminate(&self) -> Result<()> {
        Ok(kill(self.pid()?, Signal::SIGTERM)?)
    }

    pub(crate) fn console(&self) -> String {
        text(&self.console)
    }

    pub(crate) fn log(&self) -> String {
        text(&self.log)
    }

    /// The process id of its VM process, from its log.
    pub(crate) fn vmm(&self) -> Result<Pid> {
        const BEFORE: &str = "the VM process is ";
        wait_until(|| self.log().lines().any(|line| line.contains(BEFORE)))
            .with_context(|| format!("no VM process in the log: {}", self.log()))?;
        let log = self.log();
        let (_, rest) = log.split_once(BEFORE).context("it was there a moment ago")?;
        Ok(Pid::from_raw(rest.lines().next().unwrap_or_default().parse()?))
    }

    pub(crate) fn wait_for_console(&self, wanted: &str) -> Result<()> {
        wait_until(|| self.console().contains(wanted))
            .with_context(|| format!("no {wanted:?} in {:?}", self.console()))
    }

    pub(crate) fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Ended> {
        let deadline = Instant::now() + SOON;
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status.code(),
                None => ensure!(Instant::now() < deadline, "it does not end: {}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let message = fs::read(self.directory.path().join("termination-log"))?;
        let termination = serde_json::from_slice(&message)
            .with_context(|| format!("termination message {message:?}"))?;
        Ok(Ended { status, termination, console: self.console(), log: self.log() })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A launcher in the container of this directory.
fn command(directory: &Path, vmm: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corten-launcher"));
    command
        .arg("--door")
        .arg(directory.join("door"))
        .arg("--kernel-boot")
        .arg(directory.join("image"))
        .arg("--volumes")
        .arg(directory.join("volumes"))
        .arg("--scratch")
        .arg(directory.join("scratch"))
        .arg("--termination-log")
        .arg(directory.join("termination-log"))
        .arg("--vmm")
        .arg(vmm)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec only system calls are made, which is allowed there.
    unsafe { command.pre_exec(without_override) };
    command
}

/// A launcher may not open what is not its own; root has to be told so. Others cannot be, and need not.
fn without_override() -> std::io::Result<()> {
    /// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`.
    const OVERRIDE: [libc::c_int; 2] = [1, 2];
    for capability in OVERRIDE {
        // SAFETY: it takes two integers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability) };
    }
    Ok(())
}

/// What is read from pipes comes a little later than what is said over the link.
fn wait_until(mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        ensure!(Instant::now() < deadline, "it did not come in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn collect(mut from: impl Read + Send + 'static, into: &Text) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            into.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..length]);
        }
    })
}

fn text(of: &Text) -> String {
    let bytes = of.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A start with descriptors of these roles, on a node that has a name.
pub(crate) fn start(
    id: u64,
    vmi: Map<String, Value>,
    grace_seconds: u32,
    roles: Vec<Role>,
) -> ToLauncher {
    let (interfaces, capacities) = (BTreeMap::new(), BTreeMap::new());
    let node = Some("node-1".into());
    ToLauncher::Start { id, vmi, grace_seconds, interfaces, capacities, node, roles }
}

/// A test in the place of an agent.
pub(crate) struct Agent {
    link: AgentEnd,
    last_id: u64,
}

impl Agent {
    pub(crate) fn send(&self, message: &ToLauncher) -> Result<()> {
        Ok(self.link.send(message, &[])?)
    }

    /// Sends a start with /dev/kvm; its number.
    pub(crate) fn start(&mut self, vmi: Map<String, Value>, grace_seconds: u32) -> Result<u64> {
        let kvm = kvm()?;
        self.last_id += 1;
        let start = start(self.last_id, vmi, grace_seconds, vec![Role::kvm()]);
        self.link.send(&start, &[kvm.as_fd()])?;
        Ok(self.last_id)
    }

    /// The same, and waits until it is being prepared.
    pub(crate) fn begin(&mut self, vmi: Map<String, Value>, grace_seconds: u32) -> Result<()> {
        let id = self.start(vmi, grace_seconds)?;
        ensure!(self.next()? == ToAgent::Reply { id, reply: Answer::Done });
        ensure!(self.next()? == ToAgent::State { state: State::Preparing });
        Ok(())
    }

    /// Asks for something and waits for the answer; there must be nothing before it.
    pub(crate) fn ask(&mut self, request: impl FnOnce(u64) -> ToLauncher) -> Result<Answer> {
        self.last_id += 1;
        self.send(&request(self.last_id))?;
        match self.next()? {
            ToAgent::Reply { id, reply } if id == self.last_id => Ok(reply),
            other => bail!("{other:?} is no reply to {}", self.last_id),
        }
    }

    /// The next message.
    pub(crate) fn next(&self) -> Result<ToAgent> {
        Ok(self.next_with()?.0)
    }

    /// The next message and what came with it.
    pub(crate) fn next_with(&self) -> Result<(ToAgent, Grant)> {
        let received = self.receive()?;
        received.context("the launcher closed the link")
    }

    /// Whether the launcher has closed the link, once everything before it was read.
    pub(crate) fn is_closed(&self) -> Result<bool> {
        Ok(self.receive()?.is_none())
    }

    /// Waits until there is something to be read.
    pub(crate) fn wait(&self) -> Result<()> {
        let limit = PollTimeout::try_from(SOON)?;
        let mut fds = [PollFd::new(self.link.as_fd(), PollFlags::POLLIN)];
        ensure!(poll(&mut fds, limit)? == 1, "the launcher says nothing");
        Ok(())
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    fn receive(&self) -> Result<Option<(ToAgent, Grant)>> {
        self.wait()?;
        match self.link.receive() {
            Ok(received) => Ok(Some(received.context("nothing there")?)),
            Err(LinkError::Closed) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// An open /dev/kvm. In the cage of a launcher there is no such node: it came over the link that the environment names.
pub(crate) fn kvm() -> Result<OwnedFd> {
    static GRANTED: OnceLock<Option<Grant>> = OnceLock::new();
    let granted = GRANTED.get_or_init(|| {
        let number = std::env::var("CORTEN_LINK_FD").ok()?.parse().ok()?;
        // SAFETY: whoever set the variable left this descriptor to us, and only this closure, which runs once, takes it.
        let link = Link::from_fd(unsafe { OwnedFd::from_raw_fd(number) }).ok()?;
        let grant = link.receive_grant().ok();
        // To the cage, the end of the link is the end of the test.
        std::mem::forget(link);
        grant
    });
    match granted {
        Some(granted) => {
            Ok(granted.get(&Role::kvm()).context("no kvm was granted")?.try_clone()?)
        }
        None => Ok(File::options().read(true).write(true).open("/dev/kvm")?.into()),
    }
}
