//! From the kernel's first process to the agent: modules, root file system, devices.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{chdir, chroot};

use super::job::read_line;

/// Said on the console once the node takes commands.
pub const READY: &str = "CORTEN-NODE-READY";
/// Said on the console if it never will.
pub const FAILED: &str = "CORTEN-NODE-FAILED";

/// Name of the virtio-serial port to the lab.
pub const PORT_NAME: &str = "corten.lab";

/// Where the agent's own program lies in the node, for the cage to be started from.
pub(super) const OWN_PATH: &str = "/usr/local/sbin/corten-lab-node";

/// Brings the machine up and returns the port to the lab.
pub fn boot() -> Result<OwnedFd> {
    mount_at("proc", "/proc", "proc", None)?;
    mount_at("sysfs", "/sys", "sysfs", None)?;
    mount_at("devtmpfs", "/dev", "devtmpfs", None)?;
    load_modules()?;
    enter_root()?;
    mount_rest()?;
    let port = open_port()?;
    say(READY);
    Ok(port)
}

/// One line on the console.
pub(super) fn say(text: &str) {
    let _ = fs::write("/dev/console", format!("{text}\n"));
}

/// Loads the modules of the initramfs in the order of its list.
///
/// Those of the other vendor's virtualization refuse to load, which is no error.
fn load_modules() -> Result<()> {
    for name in fs::read_to_string("/modules/order").context("no list of modules")?.lines() {
        let file = File::open(format!("/modules/{name}")).with_context(|| name.to_owned())?;
        match finit_module(&file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(_) if name.starts_with("kvm") => {}
            Err(error) => return Err(error).with_context(|| format!("cannot load {name}")),
        }
    }
    Ok(())
}

/// The root is the read-only disk with a tmpfs above: nodes share it and leave nothing in it.
fn enter_root() -> Result<()> {
    wait_for("/dev/vda")?;
    for directory in ["/disk", "/above", "/root"] {
        fs::create_dir_all(directory)?;
    }
    mount(Some("/dev/vda"), "/disk", Some("ext4"), MsFlags::MS_RDONLY, None::<&str>)
        .context("cannot mount the root disk")?;
    mount_at("tmpfs", "/above", "tmpfs", Some("size=80%,mode=755"))?;
    fs::create_dir("/above/upper")?;
    fs::create_dir("/above/work")?;
    mount_at(
        "overlay",
        "/root",
        "overlay",
        Some("lowerdir=/disk,upperdir=/above/upper,workdir=/above/work"),
    )?;
    fs::copy("/init", format!("/root{OWN_PATH}")).context("cannot install the agent")?;
    fs::set_permissions(format!("/root{OWN_PATH}"), fs::Permissions::from_mode(0o755))?;
    for directory in ["proc", "sys", "dev"] {
        let (from, to) = (format!("/{directory}"), format!("/root/{directory}"));
        mount(Some(&*from), &*to, None::<&str>, MsFlags::MS_MOVE, None::<&str>)
            .with_context(|| format!("cannot move {from}"))?;
    }
    // The initramfs is RAM: what was needed of it is loaded.
    fs::remove_dir_all("/modules")?;
    fs::remove_file("/init")?;
    chdir("/root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("cannot switch to the root")?;
    chroot(".")?;
    chdir("/")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SHARED | MsFlags::MS_REC, None::<&str>)
        .context("cannot share the mounts")
}

fn mount_rest() -> Result<()> {
    mount_at("tmpfs", "/run", "tmpfs", Some("mode=755"))?;
    mount_at("tmpfs", "/tmp", "tmpfs", Some("mode=1777"))?;
    mount_at("devpts", "/dev/pts", "devpts", Some("ptmxmode=666,mode=620,gid=5"))?;
    mount_at("tmpfs", "/dev/shm", "tmpfs", Some("mode=1777"))?;
    mount_at("mqueue", "/dev/mqueue", "mqueue", None)?;
    mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", None)?;
    mount_at("debugfs", "/sys/kernel/debug", "debugfs", None)?;
    mount_at("tracefs", "/sys/kernel/tracing", "tracefs", None)?;
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("fd/0", "/dev/stdin"),
        ("fd/1", "/dev/stdout"),
        ("fd/2", "/dev/stderr"),
    ] {
        symlink(target, link)?;
    }
    fs::create_dir_all("/run/lock")?;
    let tun = Path::new("/dev/net/tun");
    if !tun.exists() {
        fs::create_dir_all("/dev/net")?;
        mknod(tun, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(10, 200))?;
    }
    super::identity::bring_loopback_up()
}

fn open_port() -> Result<OwnedFd> {
    for entry in fs::read_dir("/sys/class/virtio-ports").context("no virtio-serial ports")? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        if read_line(&format!("/sys/class/virtio-ports/{name}/name")).ok().as_deref()
            == Some(PORT_NAME)
        {
            let file = File::options()
                .read(true)
                .write(true)
                .custom_flags(nix::libc::O_NONBLOCK)
                .open(format!("/dev/{name}"))?;
            return Ok(file.into());
        }
    }
    bail!("no virtio-serial port is named {PORT_NAME}")
}

fn wait_for(device: &str) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(30);
    while !Path::new(device).exists() {
        if Instant::now() > limit {
            bail!("{device} does not appear");
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(super) fn mount_at(from: &str, to: &str, kind: &str, options: Option<&str>) -> Result<()> {
    fs::create_dir_all(to)?;
    mount(Some(from), to, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("cannot mount {kind} at {to}"))
}

/// Ends the machine with its reason on the console.
pub fn fail(reason: &str) -> Result<std::process::ExitCode> {
    say(&format!("{FAILED} {reason}"));
    nix::sys::reboot::reboot(nix::sys::reboot::RebootMode::RB_POWER_OFF)?;
    Ok(std::process::ExitCode::FAILURE)
}
