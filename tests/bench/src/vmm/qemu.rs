//! QEMU, with as little in its machine as the guest can do with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Guest, Started, Vmm, VmmProcess};

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
        Ok(Started { process: VmmProcess::spawn(command)?, console })
    }
}
