//! QEMU as the lab uses it: the emulator in which a node has KVM, never a part of the product.

mod disk;
mod process;
mod qmp;

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::agent::PORT_NAME;
use crate::assets::{Assets, Kernel};
use crate::packages;

pub use disk::layer;
pub use process::Process;
pub use qmp::Qmp;

/// Debian's own QEMU: its libraries serve the newer one of the lab, too.
pub(crate) const PACKAGES: &[&str] = &["qemu-system-x86", "qemu-utils"];

/// Mount tags of host directories. A saved node has all of them, so each restored one can use any.
pub const SHARE_TAGS: [&str; 6] = ["share0", "share1", "share2", "share3", "share4", "share5"];

const COMMAND_LINE: &str = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr cryptomgr.notests \
     no_timer_check tsc=reliable random.trust_cpu=on";

/// What runs the node's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The machine's KVM, nested.
    Kvm,
    /// QEMU's emulator with SVM and nested paging.
    Emulation,
}

/// A kind of node: nodes of equal configuration are restored from one saved state.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// What runs it.
    pub accelerator: Accelerator,
    /// Debian kernel in it.
    pub kernel: Kernel,
    /// CPU model for QEMU's `-cpu`; none for the default.
    pub cpu: Option<String>,
    /// Memory in MiB.
    pub memory: u32,
    /// Number of CPUs.
    pub cpus: u8,
}

impl Configuration {
    /// CPU model for QEMU.
    ///
    /// EPYC: richer models make emulation slower and add nothing that KVM's tests need.
    fn cpu(&self) -> String {
        match (&self.cpu, self.accelerator) {
            (Some(cpu), Accelerator::Emulation) => format!("{cpu},+svm,+npt"),
            (Some(cpu), Accelerator::Kvm) => cpu.clone(),
            (None, Accelerator::Emulation) => "EPYC,+svm,+npt".into(),
            (None, Accelerator::Kvm) => "host".into(),
        }
    }
}

/// Files a node is made of.
#[derive(Clone, Debug)]
pub struct Files {
    program: PathBuf,
    data: Vec<PathBuf>,
    kernel: PathBuf,
    initrd: PathBuf,
    root: PathBuf,
}

impl Files {
    /// Finds or makes them.
    pub fn ensure(assets: &Assets, kernel: Kernel) -> Result<Self> {
        let qemu = assets.ensure("qemu")?;
        // The cache may have come from another machine: what it runs on has to be there too.
        if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
            packages::ensure(PACKAGES)?;
        }
        let (kernel, initrd) = kernel.assets();
        Ok(Self {
            program: qemu.join("usr/bin/qemu-system-x86_64"),
            data: ["qemu", "seabios"].map(|name| qemu.join("usr/share").join(name)).into(),
            kernel: assets.ensure(kernel)?.join("vmlinux"),
            initrd: assets.ensure(initrd)?.join("initrd.cpio"),
            root: assets.ensure("node-root")?.join("root.ext4"),
        })
    }
}

/// How the node's memory is backed.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    /// A file that the node's writes reach: to boot and save.
    Shared(&'a Path),
    /// A file the node reads from, writing to copies of its own: to restore.
    Private(&'a Path),
    /// No file: to restore from a state that has the memory in it.
    Anonymous,
}

/// What a node's network interface is connected to.
#[derive(Clone, Copy, Debug)]
pub enum Link<'a> {
    /// A datagram socket: a port of the lab's own switch.
    Socket(&'a OwnedFd),
    /// A queue of a TAP.
    Tap(&'a OwnedFd),
}

impl<'a> Link<'a> {
    /// The descriptor, which QEMU has to inherit.
    pub fn descriptor(self) -> &'a OwnedFd {
        match self {
            Self::Socket(descriptor) | Self::Tap(descriptor) => descriptor,
        }
    }

    fn backend(self) -> String {
        let number = self.descriptor().as_raw_fd();
        match self {
            Self::Socket(_) => format!("dgram,id=net,local.type=fd,local.str={number}"),
            Self::Tap(_) => format!("tap,id=net,fd={number},vhost=off"),
        }
    }
}

/// Descriptors and directories of one QEMU.
#[derive(Debug)]
pub struct Wiring<'a> {
    /// QMP socket.
    pub qmp: i32,
    /// Port of the agent.
    pub port: i32,
    /// Link to the other nodes.
    pub network: Option<Link<'a>>,
    /// The console goes here.
    pub console: &'a Path,
    /// A host directory for each of [`SHARE_TAGS`], and whether the node may write to it.
    pub shares: &'a [(PathBuf, bool)],
    /// A disk in QEMU's own format that is part of the node (/dev/vdb), and saved and restored with it.
    pub disk: Option<&'a Path>,
}

/// QEMU's program and arguments.
pub fn command_line(
    files: &Files,
    configuration: &Configuration,
    memory: Memory<'_>,
    wiring: &Wiring<'_>,
) -> (PathBuf, Vec<OsString>) {
    let mut line = Arguments(Vec::new());
    for data in &files.data {
        line.path("-L", data);
    }
    let accelerator = match configuration.accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Emulation => "tcg,thread=multi,tb-size=512",
    };
    let size = configuration.memory;
    line.add("-M", "q35,memory-backend=ram");
    line.add("-accel", accelerator);
    line.add("-cpu", configuration.cpu());
    line.add("-smp", configuration.cpus.to_string());
    line.add("-m", format!("{size}M"));
    line.add("-object", memory_backend(memory, size));
    for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        line.0.push(flag.into());
    }
    line.add("-display", "none");
    line.path("-kernel", &files.kernel);
    line.path("-initrd", &files.initrd);
    line.add("-append", COMMAND_LINE);
    let console = escape(wiring.console);
    line.add("-chardev", format!("file,id=console,path={console}"));
    line.add("-serial", "chardev:console");
    line.add("-chardev", format!("socket,id=qmp,fd={}", wiring.qmp));
    line.add("-mon", "chardev=qmp,mode=control");
    let root = escape(&files.root);
    line.add("-drive", format!("if=none,id=root,file={root},format=raw,readonly=on"));
    line.add("-device", "virtio-blk-pci,drive=root");
    for (tag, (path, writable)) in SHARE_TAGS.iter().zip(wiring.shares) {
        let (path, readonly) = (escape(path), if *writable { "off" } else { "on" });
        line.add(
            "-fsdev",
            format!(
                "local,id={tag},path={path},security_model=none,multidevs=remap,readonly={readonly}"
            ),
        );
        line.add("-device", format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
    }
    line.add("-device", "virtio-rng-pci");
    line.add("-device", "virtio-scsi-pci,id=scsi");
    line.add("-device", "virtio-serial-pci");
    line.add("-chardev", format!("socket,id=port,fd={}", wiring.port));
    line.add("-device", format!("virtserialport,chardev=port,name={PORT_NAME}"));
    let network = wiring.network.map_or_else(|| "hubport,id=net,hubid=0".into(), Link::backend);
    line.add("-netdev", network);
    line.add("-device", "virtio-net-pci,netdev=net,mac=52:54:00:99:00:00");
    if let Some(disk) = wiring.disk {
        let disk = escape(disk);
        // Nothing of a node has to survive the machine's power: what it flushes may stay in the page cache.
        line.add(
            "-drive",
            format!("if=none,id=own,file={disk},format=qcow2,cache=unsafe,discard=unmap"),
        );
        line.add("-device", "virtio-blk-pci,drive=own,id=own");
    }
    (files.program.clone(), line.0)
}

fn memory_backend(memory: Memory<'_>, size: u32) -> String {
    match memory {
        Memory::Shared(path) => {
            format!("memory-backend-file,id=ram,size={size}M,share=on,mem-path={}", escape(path))
        }
        Memory::Private(path) => {
            format!("memory-backend-file,id=ram,size={size}M,share=off,mem-path={}", escape(path))
        }
        Memory::Anonymous => format!("memory-backend-ram,id=ram,size={size}M"),
    }
}

/// A comma separates QEMU's options; doubled it stands for itself.
fn escape(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.0.push(option.into());
        self.0.push(value.into().into());
    }

    fn path(&mut self, option: &str, value: &Path) {
        self.0.push(option.into());
        self.0.push(value.into());
    }
}
