//! Corten's VM process, started as a launcher starts it: everything it uses goes over the link on descriptor 3.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use corten_link::{
    BalloonDescription, ConsoleDescription, Counters, DiskDescription, DiskEngine, DiskHost,
    EntropyHost, Event, Link, MachineDescription, Message, NetworkDescription, NetworkHost, Reply,
    Request, Role, VsockDescription,
};

use super::{Control, Devices, Guest, Peer, Started, Vmm, VmmProcess};

/// Number of the first request.
const FIRST: u64 = 1;
/// What the network is called in roles.
const NETWORK: &str = "bench";

/// Corten, or another build of it.
#[derive(Clone, Debug)]
pub struct Corten {
    name: String,
    program: PathBuf,
}

impl Corten {
    /// The VM process `program`.
    pub fn new(name: &str, program: &Path) -> Self {
        Self { name: name.into(), program: program.into() }
    }
}

impl Vmm for Corten {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Result<String> {
        let program = std::fs::metadata(&self.program)
            .with_context(|| format!("cannot find {}", self.program.display()))?;
        // The VM process takes no argument, so nobody can ask it.
        Ok(format!("corten-vmm {} ({} KiB)", env!("CARGO_PKG_VERSION"), program.len() / 1024))
    }

    fn settings(&self) -> String {
        "descriptors and machine over the link; no firmware".into()
    }

    fn start(&self, guest: &Guest) -> Result<Started> {
        let (console, writer) = std::io::pipe()?;
        let (ours, theirs) = Link::pair()?;
        let mut grant: Vec<(Role, OwnedFd)> = vec![
            (Role::kvm(), open("/dev/kvm".as_ref(), true)?),
            (Role::kernel(), open(&guest.kernel, false)?),
            (Role::console(), writer.into()),
        ];
        if let Some(initrd) = &guest.initrd {
            grant.push((Role::initrd(), open(initrd, false)?));
        }
        let mut machine = machine(guest);
        let ours = Arc::new(ours);
        let peer = match &guest.devices {
            Some(devices) => {
                let stream = equip(&mut machine, &mut grant, devices)?;
                let control = LinkControl::new(Arc::clone(&ours));
                Some(Peer { stream, control: Box::new(control) })
            }
            None => None,
        };
        let process =
            start(&self.program, &grant, Request::Boot { machine, paused: false }, ours, theirs)?;
        Ok(Started { process, console, peer })
    }
}

fn machine(guest: &Guest) -> MachineDescription {
    MachineDescription {
        memory: guest.memory,
        sockets: 1,
        cores: guest.cpus,
        threads: 1,
        command_line: guest.command_line.clone(),
        ..MachineDescription::default()
    }
}

/// Starts `program` with a grant and the first request, which wait in the socket for the process that is to read them.
pub(crate) fn start(
    program: &Path,
    grant: &[(Role, OwnedFd)],
    first: Request,
    ours: Arc<Link>,
    theirs: Link,
) -> Result<VmmProcess> {
    let mut command = Command::new(program);
    command.env_clear().stdout(Stdio::null());
    let granted: Vec<_> = grant.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
    ours.send_grant(&granted)?;
    ours.send_request(FIRST, first, &[])?;
    VmmProcess::spawn_linked(command, theirs.into_fd(), ours)
}

/// Adds all devices, and gives back the host's end of the console device's stream.
fn equip(
    machine: &mut MachineDescription,
    grant: &mut Vec<(Role, OwnedFd)>,
    devices: &Devices,
) -> Result<UnixStream> {
    for (number, disk) in devices.disks.iter().enumerate() {
        let name = format!("disk{number}");
        grant.push((Role::disk(&name)?, open(&disk.file, !disk.read_only)?));
        machine.disks.push(DiskDescription {
            name,
            serial: String::new(),
            read_only: disk.read_only,
            queues: 1,
            block_size: None,
            host: DiskHost { engine: DiskEngine::Ring, ..DiskHost::default() },
        });
    }
    grant.push((Role::tap(NETWORK, 0)?, devices.tap.try_clone()?));
    if devices.vhost {
        grant.push((Role::vhost(NETWORK, 0)?, open("/dev/vhost-net".as_ref(), true)?));
    }
    machine.networks.push(NetworkDescription {
        name: NETWORK.into(),
        mac: super::devices::MAC,
        mtu: None,
        pairs: 1,
        host: NetworkHost::default(),
    });
    let (ours, theirs) = UnixStream::pair()?;
    grant.push((Role::port(1), theirs.into()));
    machine.console = Some(ConsoleDescription { streams: vec![super::devices::STREAM.into()] });
    machine.entropy = Some(EntropyHost::default());
    machine.balloon = Some(BalloonDescription::default());
    machine.vsock = Some(VsockDescription { guest_cid: super::devices::GUEST_CID });
    machine.huge_pages = devices.huge_pages;
    Ok(ours)
}

/// A VM process over its link.
#[derive(Debug)]
pub(crate) struct LinkControl {
    link: Arc<Link>,
    asked: u64,
}

impl LinkControl {
    /// Of a process that was told the first thing to do.
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, asked: FIRST }
    }

    pub(crate) fn ask(
        &mut self,
        request: Request,
        descriptors: &[(Role, OwnedFd)],
    ) -> Result<Reply> {
        self.asked += 1;
        let given: Vec<_> =
            descriptors.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        self.link.send_request(self.asked, request, &given)?;
        loop {
            match self.link.receive()?.0 {
                Message::Reply { id, reply, .. } if id == self.asked => return Ok(reply),
                Message::Event { event: Event::Ended { reason, detail, .. } } => {
                    bail!("the VM ended: {}: {detail}", reason.text())
                }
                // That to the first request, or something that it tells by itself.
                _ => {}
            }
        }
    }
}

impl LinkControl {
    /// Asks for something that has to be done.
    pub(crate) fn must(&mut self, request: Request, given: &[(Role, OwnedFd)]) -> Result<()> {
        let asked = format!("{request:?}");
        let reply = self.ask(request, given)?;
        ensure!(reply == Reply::Done, "{asked}: {reply:?}");
        Ok(())
    }

    pub(crate) fn counters(&mut self) -> Result<Counters> {
        match self.ask(Request::Counters, &[])? {
            Reply::Counters { counters } => Ok(counters),
            other => bail!("no counters: {other:?}"),
        }
    }
}

impl Control for LinkControl {
    fn set_balloon(&mut self, bytes: u64) -> Result<()> {
        self.must(Request::SetBalloon { bytes }, &[])
    }

    fn huge_bytes(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.counters()?.huge_bytes))
    }
}

pub(crate) fn open(path: &Path, writable: bool) -> Result<OwnedFd> {
    let file = File::options().read(true).write(writable).open(path);
    Ok(file.with_context(|| format!("cannot open {}", path.display()))?.into())
}
