//! QEMU, with as little in its machine as the guest can do with.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::devices::{GUEST_CID, MAC, STREAM};
use super::{Control, Devices, Guest, Peer, Started, Vmm, VmmProcess};

/// Which of QEMU's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The machine that libvirt chooses, with SeaBIOS.
    Q35,
    /// The small one, with qboot, and without the devices that its own documentation leaves out.
    Microvm,
}

impl Machine {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Q35 => &["-M", "q35"],
            Self::Microvm => &[
                "-M",
                "microvm,x-option-roms=off,pit=off,pic=off,rtc=off,isa-serial=on,auto-kernel-cmdline=off",
                "-bios",
                "qboot.rom",
            ],
        }
    }
}

impl Machine {
    /// How names of its virtio devices end.
    fn bus(self) -> &'static str {
        match self {
            Self::Q35 => "pci",
            Self::Microvm => "device",
        }
    }
}

fn on_or_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// QEMU's monitor, by QMP.
#[derive(Debug)]
struct Monitor {
    stream: BufReader<UnixStream>,
    memory: u64,
    greeted: bool,
}

impl Monitor {
    fn execute(&mut self, command: &str) -> Result<()> {
        self.stream.get_mut().write_all(command.as_bytes())?;
        loop {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line)? > 0, "QEMU closed its monitor");
            ensure!(!line.contains("\"error\""), "{command}: {line}");
            // Before it comes the greeting, and events may.
            if line.contains("\"return\"") {
                return Ok(());
            }
        }
    }
}

impl Control for Monitor {
    fn set_balloon(&mut self, bytes: u64) -> Result<()> {
        if !self.greeted {
            self.execute(r#"{"execute":"qmp_capabilities"}"#)?;
            self.greeted = true;
        }
        // It wants to know what is left.
        let left = self.memory - bytes;
        self.execute(&format!(r#"{{"execute":"balloon","arguments":{{"value":{left}}}}}"#))
    }

    fn huge_bytes(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// What both machines have: nothing that was not asked for.
const OPTIONS: &[&str] = &[
    "-accel",
    "kvm",
    "-cpu",
    "host",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-serial",
    "stdio",
];

/// QEMU with one of its machines.
#[derive(Clone, Debug)]
pub struct Qemu {
    name: String,
    program: PathBuf,
    machine: Machine,
}

impl Qemu {
    /// The emulator `program`.
    pub fn new(name: &str, program: &Path, machine: Machine) -> Self {
        Self { name: name.into(), program: program.into(), machine }
    }

    /// Options for all devices, the descriptors they name, and the host's side of them.
    fn equip(&self, devices: &Devices, memory: u64) -> Result<(Vec<String>, Vec<OwnedFd>, Peer)> {
        let bus = self.machine.bus();
        let mut options = Vec::new();
        let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);
        for (number, disk) in devices.disks.iter().enumerate() {
            let (file, read_only) = (disk.file.display(), on_or_off(disk.read_only));
            option(
                "-drive",
                format!(
                    "if=none,id=disk{number},file={file},format=raw,cache=writeback,aio=io_uring,read-only={read_only}"
                ),
            );
            option("-device", format!("virtio-blk-{bus},drive=disk{number},num-queues=1"));
        }
        let tap = devices.tap.try_clone()?;
        let vhost = on_or_off(devices.vhost);
        option("-netdev", format!("tap,id=net,fd={},vhost={vhost}", tap.as_raw_fd()));
        let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
        option("-device", format!("virtio-net-{bus},netdev=net,mac={mac}"));
        let (stream, theirs) = UnixStream::pair()?;
        option("-chardev", format!("socket,id=stream,fd={}", theirs.as_raw_fd()));
        option("-chardev", "null,id=terminal".into());
        option("-device", format!("virtio-serial-{bus}"));
        option("-device", "virtconsole,chardev=terminal".into());
        option("-device", format!("virtserialport,chardev=stream,name={STREAM}"));
        option("-device", format!("virtio-rng-{bus}"));
        option("-device", format!("virtio-balloon-{bus},id=balloon"));
        option("-device", format!("vhost-vsock-{bus},guest-cid={GUEST_CID}"));
        let (monitor, monitored) = UnixStream::pair()?;
        option("-chardev", format!("socket,id=monitor,fd={}", monitored.as_raw_fd()));
        option("-mon", "chardev=monitor,mode=control".into());
        let control = Monitor { stream: BufReader::new(monitor), memory, greeted: false };
        let descriptors = vec![tap, theirs.into(), monitored.into()];
        Ok((options, descriptors, Peer { stream, control: Box::new(control) }))
    }
}

impl Vmm for Qemu {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Result<String> {
        let program = self.program.display();
        let output = Command::new(&self.program).arg("--version").stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot start {program}"))?;
        ensure!(output.status.success(), "{program} --version failed: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().into())
    }

    fn settings(&self) -> String {
        [self.machine.options(), OPTIONS].concat().join(" ")
    }

    fn start(&self, guest: &Guest) -> Result<Started> {
        let (console, writer) = std::io::pipe()?;
        let mut command = Command::new(&self.program);
        command.args(self.machine.options()).args(OPTIONS);
        command.args(["-smp", &guest.cpus.to_string()]);
        command.args(["-m", &format!("{}M", guest.memory >> 20)]);
        command.arg("-kernel").arg(&guest.kernel);
        if let Some(initrd) = &guest.initrd {
            command.arg("-initrd").arg(initrd);
        }
        command.args(["-append", &guest.command_line]);
        command.stdout(writer);
        let (mut inherited, mut peer) = (Vec::new(), None);
        if let Some(devices) = &guest.devices {
            let (options, descriptors, theirs) = self.equip(devices, guest.memory)?;
            command.args(options);
            (inherited, peer) = (descriptors, Some(theirs));
        }
        Ok(Started { process: VmmProcess::spawn(command, inherited)?, console, peer })
    }
}
