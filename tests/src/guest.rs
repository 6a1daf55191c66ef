//! Linux guests for tests that run in a node, where `--asset` says by the environment where things are.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use corten_link::{
    Addressing, DiskDescription, DiskHost, Grant, ImageFormat, MachineDescription,
    NetworkDescription, NetworkHost, Request, Restoration, Role,
};
use corten_vmm::arch::x86_64::boot::BootSource;
use corten_vmm::machine::Hosts;

use crate::host;
use crate::process::{VmProcess, asset, disk, grants_of, machine};
use crate::snapshot_files::SnapshotFiles;

/// The 6.12 kernel with an initramfs that does what the command line says; see tests/lab/guest/init.
pub fn source(command_line: &str) -> Result<BootSource> {
    Ok(BootSource {
        kernel: asset("CORTEN_ASSET_KERNEL_6_12", "vmlinux")?,
        initrd: Some(asset("CORTEN_ASSET_GUEST_INITRD_6_12", "initrd")?),
        command_line: format!("console=ttyS0 mitigations=off {command_line}"),
    })
}

/// A disk with a script for the guest to run, padded: Linux looks for partition tables in the first sectors, and
/// complains if they are not there.
pub fn script_disk(script: &str) -> Result<File> {
    let mut bytes = script.as_bytes().to_vec();
    bytes.resize(64 << 10, 0);
    let mut file = tempfile::tempfile()?;
    file.write_all(&bytes)?;
    Ok(file)
}

/// Makes the tools' disk, which is /dev/vdb if `$tools` does not say otherwise, the root of `tool`, and has `up` for
/// interfaces and `echoes` for what is sent to an address. That one moves a page at a time: a pipe is ready for so much at
/// least, and socat, which reads it as well as writes to it, waits forever in a write of more.
pub const TOOLS: &str = r#"set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -o ro "${tools:-/dev/vdb}" /mnt
mount -t devtmpfs dev /mnt/dev
mount -t proc proc /mnt/proc
mount -t sysfs sys /mnt/sys
tool() { chroot /mnt "$@"; }
up() { ip link set "$1" up && ip address add "$2/24" dev "$1"; }
echoes() { tool socat -b 4096 "$1,fork" PIPE; }
"#;

/// Makes the tools' disk on /mnt a place where the QEMU guest agent runs, started by `AGENT`: a disk is mounted (which
/// one `$scratch` says), somebody is logged in, by utmp(5), /etc can be written to, as hwclock(8) wants it by which the
/// agent sets the hardware's clock, and the clock is wrong.
pub const PLACE_FOR_AGENT: &str = r#"
chroot /mnt /sbin/mke2fs -q -F -t ext4 "$scratch"
mount "$scratch" /mnt/home
mount -t tmpfs run /mnt/var/run
cp -a /mnt/etc /run/etc
mount -t tmpfs etc /mnt/etc
cp -a /run/etc/. /mnt/etc/
pad() { printf '%s' "$1"; head -c $(($2 - ${#1})) /dev/zero; }
{
printf '\007\0\0\0\0\0\0\0'; pad tty1 32; pad 1 4; pad person 32; pad '' 264; printf '\0\312\232\073'; pad '' 40
} >/mnt/var/run/utmp
date -s @1000000000 >/dev/null
"#;

/// Starts the agent in that place, on the first stream behind the terminal.
pub const AGENT: &str = r#"
chroot /mnt qemu-ga --method=virtio-serial --path="$(echo /dev/vport*p1)" --statedir=/dev --pidfile=/dev/agent.pid --daemonize
"#;

/// A guest that runs a script, with the programs of the tools' disk at hand as `tool NAME`: they are /dev/vda and
/// /dev/vdb, further disks come behind them.
pub struct ScriptedGuest {
    /// What it runs on; more can be added.
    pub machine: MachineDescription,
    /// What that is made of.
    pub devices: Vec<(Role, OwnedFd)>,
    modules: String,
    vhost_processes: u16,
    vhost_process: Cell<u16>,
}

impl ScriptedGuest {
    /// One with this many processors and mebibytes that loads these modules first.
    pub fn new(cpus: u16, mebibytes: u64, modules: &str, script: &str) -> Result<Self> {
        let script = script_disk(&format!("{TOOLS}{script}"))?;
        let tools = asset("CORTEN_ASSET_GUEST_TOOLS_DISK", "disk.raw")?;
        let mut machine = machine(cpus, mebibytes << 20);
        let read_only = |name| DiskDescription { read_only: true, ..disk(name) };
        machine.disks = vec![read_only("script"), read_only("tools")];
        let devices = grants_of(&[("script", &script), ("tools", &tools)])?;
        Ok(Self {
            machine,
            devices,
            modules: format!("ext4,{modules}"),
            vhost_processes: 0,
            vhost_process: Cell::default(),
        })
    }

    /// The same with one more disk.
    pub fn disk(mut self, name: &str, file: &File) -> Result<Self> {
        self.machine.disks.push(disk(name));
        self.devices.extend(grants_of(&[(name, file)])?);
        Ok(self)
    }

    /// The same with one more disk, which is a qcow2 image that is only read and a file for what is written.
    pub fn image_disk(mut self, name: &str, image: File, overlay: &File) -> Result<Self> {
        let host = DiskHost { images: vec![ImageFormat::Qcow2], ..DiskHost::default() };
        self.machine.disks.push(DiskDescription { host, ..disk(name) });
        self.devices.push((Role::image(name, 0)?, image.into()));
        self.devices.push((Role::overlay(name)?, overlay.try_clone()?.into()));
        Ok(self)
    }

    /// The same with an interface on the granted TAP of this name.
    pub fn network(mut self, name: &str, pairs: u16) -> Result<Self> {
        let number = u8::try_from(self.machine.networks.len())?;
        self.machine.networks.push(NetworkDescription {
            name: name.into(),
            mac: [2, 0xc0, 0x47, 0xe4, 0, number],
            mtu: None,
            pairs,
            host: NetworkHost::default(),
        });
        for pair in 0..pairs {
            let role = Role::tap(name, pair)?;
            let queue = host::granted_as(&role)?;
            self.devices.push((role, queue));
        }
        Ok(self)
    }

    /// The same, with its last interface telling the guest its addresses, on the sockets that were granted with the TAP.
    pub fn addressing(mut self, addressing: Addressing) -> Result<Self> {
        let network = self.machine.networks.last_mut().context("there is no interface yet")?;
        let name = &network.name;
        for role in [Role::dhcp4(name)?, Role::dhcp6(name)?, Role::router(name)?] {
            let socket = host::granted_as(&role)?;
            self.devices.push((role, socket));
        }
        network.host.addressing = Some(addressing);
        Ok(self)
    }

    /// The same with vhost-net for all of its interfaces, in this many processes one after the other.
    pub fn vhost(mut self, processes: u16) -> Self {
        self.vhost_processes = processes;
        self
    }

    /// Boots it.
    pub fn boot(&self) -> Result<VmProcess> {
        VmProcess::boot_granted(self.machine.clone(), self.source()?, self.grant()?)
    }

    /// Goes on with it in a new process.
    pub fn load(&self, saved: Grant) -> Result<VmProcess> {
        VmProcess::load_granted(saved, self.grant()?, Hosts::of(&self.machine))
    }

    /// Goes on with a snapshot of it in a new process, as a copy whose memory is filled in while it runs.
    pub fn restore(&self, files: &SnapshotFiles) -> Result<VmProcess> {
        let mut devices = self.grant()?;
        devices.push((Role::userfaultfd(), host::userfaultfd()?));
        let Hosts { disks, networks, entropy } = Hosts::of(&self.machine);
        let how = Restoration { disks, networks, entropy, ..Restoration::default() };
        VmProcess::restore_granted(files, self.source()?, devices, how)
    }

    fn source(&self) -> Result<BootSource> {
        source(&format!("quiet corten.script=/dev/vda corten.modules={}", self.modules))
    }

    /// Saves it, and has it go on in a new process at once.
    pub fn reborn(&self, mut process: VmProcess) -> Result<VmProcess> {
        process.must(Request::Pause)?;
        let saved = process.must(Request::Save)?;
        drop(process);
        let mut process = self.load(saved)?;
        process.must(Request::Resume)?;
        Ok(process)
    }

    fn grant(&self) -> Result<Vec<(Role, OwnedFd)>> {
        let clone = |(role, fd): &(Role, OwnedFd)| Ok((role.clone(), fd.try_clone()?));
        let mut grant: Vec<_> = self.devices.iter().map(clone).collect::<Result<_>>()?;
        let process = self.vhost_process.replace(self.vhost_process.get() + 1);
        for network in self.machine.networks.iter().filter(|_| process < self.vhost_processes) {
            for pair in 0..network.pairs {
                let fresh = Role::vhost(&network.name, process * network.pairs + pair)?;
                let role = Role::vhost(&network.name, pair)?;
                grant.push((role, host::granted_as(&fresh)?));
            }
        }
        Ok(grant)
    }
}
