//! Corten's VM process, driven by a test as its control peer.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_link::{
    Counters, DiskDescription, DiskHost, Event, Grant, Link, MachineDescription, Message, Reply,
    Request, Restoration, Role,
};
use corten_vmm::arch::x86_64::boot::BootSource;
use corten_vmm::machine::Hosts;

use crate::caller::{Answer, Caller};
use crate::host;
use crate::snapshot_files::SnapshotFiles;

/// The environment variable with the VM process's program.
pub const VMM: &str = "CORTEN_VMM";

/// What guests read as their UUID.
pub const UUID: [u8; 16] = *b"\xc0\x47\xe4\x00\x12\x34\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67";
/// What guests read as their serial number.
pub const SERIAL: &str = "corten-test-1";

/// What the VM process calls guest memory among its mappings.
const GUEST_MEMORY: &str = "/memfd:guest";

/// A running VM process.
pub struct VmProcess {
    child: Child,
    link: Arc<Link>,
    messages: Receiver<(Message, Grant)>,
    events: Vec<Event>,
    console: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    /// Held while it listens.
    ears: Arc<Mutex<()>>,
    /// Who answers events, if not the test, and by what.
    answer: Arc<Mutex<Option<Answer>>>,
    caller: Caller,
    next_id: u64,
}

impl VmProcess {
    /// Boots `source` on a machine of this size.
    pub fn boot(cpus: u16, memory: u64, source: BootSource) -> Result<Self> {
        Self::boot_machine(machine(cpus, memory), source, &[])
    }

    /// Boots `source` on this machine, with these files as its disks.
    pub fn boot_machine(
        machine: MachineDescription,
        source: BootSource,
        disks: &[(&str, &File)],
    ) -> Result<Self> {
        Self::boot_granted(machine, source, grants_of(disks)?)
    }

    /// Boots `source` on this machine, with whatever its devices are made of.
    pub fn boot_granted(
        machine: MachineDescription,
        source: BootSource,
        devices: Vec<(Role, OwnedFd)>,
    ) -> Result<Self> {
        Self::boot_with_arguments(&[], machine, source, devices)
    }

    /// Does the same in a process with arguments.
    pub fn boot_with_arguments(
        arguments: &[&str],
        machine: MachineDescription,
        source: BootSource,
        devices: Vec<(Role, OwnedFd)>,
    ) -> Result<Self> {
        let mut grant = vec![(Role::kernel(), OwnedFd::from(source.kernel))];
        grant.extend(source.initrd.map(|initrd| (Role::initrd(), initrd.into())));
        grant.extend(devices);
        let machine = MachineDescription { command_line: source.command_line, ..machine };
        Self::start(arguments, grant, Request::Boot { machine, paused: false })
    }

    /// Boots this machine, to which no kernel is granted, with whatever its devices are made of.
    pub fn boot_disks(machine: MachineDescription, devices: Vec<(Role, OwnedFd)>) -> Result<Self> {
        Self::start(&[], devices, Request::Boot { machine, paused: false })
    }

    /// Goes on with a snapshot of such a machine. It is paused.
    pub fn restore_disks(
        files: &SnapshotFiles,
        devices: Vec<(Role, OwnedFd)>,
        how: Restoration,
    ) -> Result<Self> {
        let grant = files.grant()?.into_iter().chain(devices).collect();
        Self::start(&[], grant, Request::Restore { how })
    }

    /// Goes on with a machine that another process saved, with whatever its devices are made of. It is paused.
    pub fn load_granted(saved: Grant, devices: Vec<(Role, OwnedFd)>, hosts: Hosts) -> Result<Self> {
        let grant = saved.into_iter().chain(devices).collect();
        let Hosts { disks, networks, entropy } = hosts;
        Self::start(&[], grant, Request::Load { disks, networks, entropy })
    }

    /// Goes on with a machine that another process saved. It is paused.
    pub fn load(saved: Grant) -> Result<Self> {
        Self::load_with_disks(saved, &[])
    }

    /// Goes on with a machine that another process saved, with these files as its disks. It is paused.
    pub fn load_with_disks(saved: Grant, disks: &[(&str, &File)]) -> Result<Self> {
        Self::load_granted(saved, grants_of(disks)?, Hosts::default())
    }

    /// Goes on with a snapshot, with these files as its disks. It is paused.
    pub fn restore(
        files: &SnapshotFiles,
        source: BootSource,
        disks: &[(&str, &File)],
        userfaultfd: bool,
        how: Restoration,
    ) -> Result<Self> {
        let mut devices = grants_of(disks)?;
        if userfaultfd {
            devices.push((Role::userfaultfd(), host::userfaultfd()?));
        }
        Self::restore_granted(files, source, devices, how)
    }

    /// Goes on with a snapshot, with whatever its devices are made of. It is paused.
    pub fn restore_granted(
        files: &SnapshotFiles,
        source: BootSource,
        devices: Vec<(Role, OwnedFd)>,
        how: Restoration,
    ) -> Result<Self> {
        let mut grant = files.grant()?;
        grant.push((Role::kernel(), source.kernel.into()));
        grant.extend(source.initrd.map(|initrd| (Role::initrd(), initrd.into())));
        grant.extend(devices);
        Self::start(&[], grant, Request::Restore { how })
    }

    fn start(arguments: &[&str], mut grant: Vec<(Role, OwnedFd)>, first: Request) -> Result<Self> {
        let program = std::env::var_os(VMM)
            .with_context(|| format!("{VMM} is not set: run this by `scripts/test`"))?;
        let (ours, theirs) = Link::pair()?;
        let (mut reader, writer) = std::io::pipe()?;
        grant.push((Role::kvm(), host::kvm_descriptor()?));
        grant.push((Role::console(), writer.into()));
        let theirs = theirs.into_fd();
        let raw = theirs.as_raw_fd();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped()).env_clear();
        let pass_link = move || {
            match raw {
                3 => nix::fcntl::fcntl(&theirs, nix::fcntl::F_SETFD(nix::fcntl::FdFlag::empty()))
                    .map(drop),
                _ => {
                    // SAFETY: whatever 3 is in the child, it is ours to replace: nothing runs there but this and exec.
                    let mut three = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(3) };
                    let outcome = nix::unistd::dup2(&theirs, &mut three);
                    std::mem::forget(three);
                    outcome
                }
            }
            .map_err(Into::into)
        };
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe { command.pre_exec(pass_link) };
        let child = command.spawn().context("cannot start the VM process")?;
        drop(command);
        let granted: Vec<_> = grant.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        ours.send_grant(&granted)?;
        drop(grant);
        let console = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&console);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..length]);
            }
        });
        let link = Arc::new(ours);
        let receiver = Arc::clone(&link);
        let (sender, messages) = channel();
        let (ears, answer) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(None)));
        let (open_ears, answers) = (Arc::clone(&ears), Arc::clone(&answer));
        let caller = Caller::new(Arc::clone(&link));
        let answers_by = caller.clone();
        std::thread::spawn(move || {
            loop {
                drop(open_ears.lock());
                let Ok(message) = receiver.receive() else { return };
                let answer = answers.lock().unwrap_or_else(PoisonError::into_inner);
                if is_answered(&message.0, &answers_by, answer.as_ref()) {
                    continue;
                }
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (events, reader) = (Vec::new(), Some(reader));
        let mut process = Self {
            child,
            link,
            messages,
            events,
            console,
            reader,
            ears,
            answer,
            caller,
            next_id: 0,
        };
        process.ask(first)?;
        Ok(process)
    }

    /// Asks for something and gives back what came with the reply.
    pub fn ask(&mut self, request: Request) -> Result<(Reply, Grant)> {
        let id = self.send(request)?;
        self.reply_to(id)
    }

    /// Asks for something that takes these descriptors and has to be done.
    pub fn must_with(
        &mut self,
        request: Request,
        descriptors: &[(Role, BorrowedFd<'_>)],
    ) -> Result<()> {
        self.next_id += 1;
        self.link.send_request(self.next_id, request, descriptors)?;
        self.must_reply(self.next_id)
    }

    /// Asks for something without waiting for the reply.
    pub fn send(&mut self, request: Request) -> Result<u64> {
        self.send_with(request, &[])
    }

    fn send_with(&mut self, request: Request, given: &[(Role, OwnedFd)]) -> Result<u64> {
        self.next_id += 1;
        let given: Vec<_> = given.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        self.link.send_request(self.next_id, request, &given)?;
        Ok(self.next_id)
    }

    /// Asks for a snapshot in these files.
    pub fn snapshot(&mut self, files: &SnapshotFiles) -> Result<Reply> {
        let id = self.send_with(Request::Snapshot, &files.grant()?)?;
        Ok(self.reply_to(id)?.0)
    }

    /// Asks for a snapshot in new files.
    pub fn must_snapshot(&mut self) -> Result<SnapshotFiles> {
        self.must_snapshot_in(SnapshotFiles::new()?)
    }

    /// Asks for a snapshot in these files, which has to be done.
    pub fn must_snapshot_in(&mut self, files: SnapshotFiles) -> Result<SnapshotFiles> {
        match self.snapshot(&files)? {
            Reply::Done => Ok(files),
            other => bail!("no snapshot: {other:?}"),
        }
    }

    /// What it counted.
    pub fn counters(&mut self) -> Result<Counters> {
        match self.ask(Request::Counters)? {
            (Reply::Counters { counters }, _) => Ok(counters),
            (other, _) => bail!("{other:?}"),
        }
    }

    /// For requests beside those of the test, as long as the process lives.
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Has everything that it tells by itself answered by `answer`, also what it told already.
    pub fn answer_by(&mut self, answer: Answer) {
        let mut place = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.messages.try_iter().filter_map(|(message, _)| match message {
            Message::Event { event } => Some(event),
            _ => None,
        });
        self.events.extend(told);
        self.events.retain(|event| !answer(&self.caller, event));
        *place = Some(answer);
    }

    /// Sends whatever text.
    pub fn send_text(&self, text: &str) -> Result<()> {
        let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL;
        nix::sys::socket::send(self.link.as_raw_fd(), text.as_bytes(), flags)?;
        Ok(())
    }

    /// Calls `meanwhile` while nobody reads what the process says.
    pub fn deaf<T>(&mut self, meanwhile: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let ears = Arc::clone(&self.ears);
        let _closed = ears.lock().unwrap_or_else(PoisonError::into_inner);
        meanwhile(self)
    }

    /// Waits for the reply to what was sent; the next one that comes.
    pub fn reply_to(&mut self, wanted: u64) -> Result<(Reply, Grant)> {
        loop {
            let message = self.messages.recv_timeout(Duration::from_secs(60));
            match message.with_context(|| self.last_words())? {
                (Message::Reply { id, reply, .. }, grant) if id == wanted => {
                    return Ok((reply, grant));
                }
                (Message::Event { event }, _) => self.events.push(event),
                (other, _) => bail!("{other:?} is no reply"),
            }
        }
    }

    /// Asks for something that has to be done.
    pub fn must(&mut self, request: Request) -> Result<Grant> {
        let asked = format!("{request:?}");
        match self.ask(request)? {
            (Reply::Done, grant) => Ok(grant),
            (other, _) => bail!("{asked}: {other:?}"),
        }
    }

    /// Waits until what was sent is done.
    pub fn must_reply(&mut self, id: u64) -> Result<()> {
        match self.reply_to(id)? {
            (Reply::Done, _) => Ok(()),
            (other, _) => bail!("{other:?}"),
        }
    }

    /// The next thing that it tells by itself.
    pub fn next_event(&mut self, limit: Duration) -> Result<Event> {
        if !self.events.is_empty() {
            return Ok(self.events.remove(0));
        }
        match self.messages.recv_timeout(limit) {
            Ok((Message::Event { event }, _)) => Ok(event),
            Ok((other, _)) => bail!("{other:?} is no event"),
            Err(RecvTimeoutError::Timeout) => bail!("no event; console:\n{}", self.console()),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the VM process is gone:\n{}", self.console())
            }
        }
    }

    /// What the guest wrote to its serial port so far.
    pub fn console(&self) -> String {
        let bytes = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the guest has written `text`, `count` times.
    pub fn wait_for(&self, text: &str, count: usize, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.console().matches(text).count() < count {
            ensure!(Instant::now() < deadline, "no {text:?} on the console:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits for its end: exit status, and what it said on standard error.
    pub fn end(mut self, limit: Duration) -> Result<(i32, String)> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                let mut text = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    stderr.read_to_string(&mut text)?;
                }
                return Ok((status.code().unwrap_or(-1), text));
            }
            ensure!(Instant::now() < deadline, "it does not end:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads no more of what it says on standard error, as a log that is gone.
    pub fn close_errors(&mut self) {
        self.child.stderr = None;
    }

    /// What it had to say when it did not answer.
    fn last_words(&mut self) -> String {
        let status = self.child.try_wait();
        let mut text = String::new();
        // One that goes on has more to say.
        let stderr = self.child.stderr.as_mut().filter(|_| matches!(status, Ok(Some(_))));
        if let Some(stderr) = stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        format!("no reply; {status:?}, {text:?}, events {:?}", self.events)
    }

    /// Kills it, and gives back all that its guest wrote to its serial port.
    pub fn end_now(mut self) -> Result<String> {
        self.child.kill()?;
        self.child.wait()?;
        // What the process wrote is in the pipe; the thread that reads it ends with the pipe.
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        Ok(self.console())
    }

    /// Closes the link, as a control peer that dies would.
    pub fn abandon(self) -> Result<Self> {
        nix::sys::socket::shutdown(self.link.as_raw_fd(), nix::sys::socket::Shutdown::Both)?;
        Ok(self)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Memory that it has for itself, its guest's left out, in KiB.
    pub fn own_memory(&self) -> Result<u64> {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.id()))?;
        own_memory(&smaps).context("smaps is not as proc(5) says")
    }

    /// How many descriptors it has open.
    pub fn open_descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }
}

/// Whether nobody waits for a message: it is a reply to whoever answers, or was answered.
fn is_answered(message: &Message, caller: &Caller, answer: Option<&Answer>) -> bool {
    match message {
        Message::Event { event } => answer.is_some_and(|answer| answer(caller, event)),
        Message::Reply { id, .. } => Caller::asked(*id),
        _ => false,
    }
}

/// The proportional set size of all mappings but that of the memfd with guest memory.
fn own_memory(smaps: &str) -> Option<u64> {
    let (mut is_guest, mut sum) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next()? {
            "Pss:" if !is_guest => sum += words.next()?.parse::<u64>().ok()?,
            first if !first.ends_with(':') => is_guest = words.nth(4) == Some(GUEST_MEMORY),
            _ => {}
        }
    }
    Some(sum)
}

/// A machine of this size without disks, that tests can tell from others.
pub fn machine(cpus: u16, memory: u64) -> MachineDescription {
    MachineDescription {
        memory,
        sockets: 1,
        cores: cpus,
        threads: 1,
        command_line: String::new(),
        uuid: UUID,
        serial: SERIAL.into(),
        ..MachineDescription::default()
    }
}

/// A disk of this name, as VMs get them by default.
pub fn disk(name: &str) -> DiskDescription {
    DiskDescription {
        name: name.into(),
        serial: name.into(),
        read_only: false,
        queues: 1,
        block_size: None,
        host: DiskHost::default(),
    }
}

/// What disks are granted as.
pub fn grants_of(disks: &[(&str, &File)]) -> Result<Vec<(Role, OwnedFd)>> {
    let grant = |(name, file): &(&str, &File)| Ok((Role::disk(name)?, file.try_clone()?.into()));
    disks.iter().map(grant).collect()
}

impl Drop for VmProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of the environment's asset `variable`.
pub fn asset(variable: &str, file: &str) -> Result<File> {
    let directory = std::env::var(variable).with_context(|| format!("no {variable}"))?;
    File::open(format!("{directory}/{file}")).with_context(|| format!("{directory}/{file}"))
}
