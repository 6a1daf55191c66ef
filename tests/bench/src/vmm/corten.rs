//! Corten's VM process, started as a launcher starts it: everything it uses goes over the link on descriptor 3.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use corten_link::{Link, MachineDescription, Request, Role};

use super::{Guest, Started, Vmm, VmmProcess};

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
        let mut command = Command::new(&self.program);
        command.env_clear().stdout(Stdio::null());
        let granted: Vec<_> = grant.iter().map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
        // They wait in the socket for the process that is to read them.
        ours.send_grant(&granted)?;
        ours.send_request(1, boot(guest), &[])?;
        let process = VmmProcess::spawn_linked(command, theirs.into_fd(), ours)?;
        Ok(Started { process, console })
    }
}

fn boot(guest: &Guest) -> Request {
    let machine = MachineDescription {
        memory: guest.memory,
        sockets: 1,
        cores: guest.cpus,
        threads: 1,
        command_line: guest.command_line.clone(),
        ..MachineDescription::default()
    };
    Request::Boot { machine }
}

fn open(path: &Path, writable: bool) -> Result<OwnedFd> {
    let file = File::options().read(true).write(writable).open(path);
    Ok(file.with_context(|| format!("cannot open {}", path.display()))?.into())
}
