//! What the command sees of file systems: the node's own, read-only and without devices, and over it what a container
//! has of its own.
//!
//! The calling process must be alone in its mount namespace. Options and lists are those of containerd 2.3
//! (pkg/oci/mounts.go, pkg/oci/spec.go).

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use nix::unistd::mkdir;

use super::{DEVICE_DIRECTORY, LAUNCHER_ID};

const NOTHING_SPECIAL: MsFlags =
    MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// Name, major and minor number; all are open to everybody.
const NODES: [(&str, u64, u64); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Cuts the mount namespace off from the node's, so that nothing below reaches the node.
pub(super) fn detach() -> Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .context("cannot cut the mounts off from the node's")
}

/// Makes everything read-only and mounts what a container has of its own.
pub(super) fn arrange() -> Result<()> {
    let mask = umask(Mode::empty());
    let everything = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    set_attributes("/", everything, libc::AT_RECURSIVE)?;
    devices()?;
    add("proc", "/proc", NOTHING_SPECIAL, "")?;
    add("sysfs", "/sys", NOTHING_SPECIAL | MsFlags::MS_RDONLY, "")?;
    add("cgroup2", "/sys/fs/cgroup", NOTHING_SPECIAL | MsFlags::MS_RDONLY, "")?;
    MASKED.into_iter().try_for_each(hide)?;
    READ_ONLY.into_iter().try_for_each(protect)?;
    device_directory()?;
    umask(mask);
    Ok(())
}

fn devices() -> Result<()> {
    let dev = Path::new("/dev");
    add("tmpfs", "/dev", MsFlags::MS_NOSUID | MsFlags::MS_STRICTATIME, "mode=755,size=65536k")?;
    for (name, major, minor) in NODES {
        let everybody = Mode::from_bits_truncate(0o666);
        mknod(&dev.join(name), SFlag::S_IFCHR, everybody, makedev(major, minor))
            .with_context(|| format!("cannot make /dev/{name}"))?;
    }
    for (name, target) in LINKS {
        symlink(target, dev.join(name)).with_context(|| format!("cannot link /dev/{name}"))?;
    }
    for name in ["pts", "shm", "mqueue"] {
        make_directory(&dev.join(name), 0o755)?;
    }
    let no_program = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    add("devpts", "/dev/pts", no_program, "newinstance,ptmxmode=0666,mode=0620,gid=5")?;
    add("tmpfs", "/dev/shm", NOTHING_SPECIAL, "mode=1777,size=65536k")?;
    add("mqueue", "/dev/mqueue", NOTHING_SPECIAL, "")
}

/// /run becomes empty and read-only, so the node needs no directory of ours to mount upon.
fn device_directory() -> Result<()> {
    let run = Path::new(DEVICE_DIRECTORY).parent().context("the device directory has no parent")?;
    let run = run.to_str().context("the device directory is no text")?;
    add("tmpfs", run, NOTHING_SPECIAL, "mode=755,size=64k")?;
    make_directory(Path::new(DEVICE_DIRECTORY), 0o755)?;
    set_attributes(run, libc::MOUNT_ATTR_RDONLY, 0)?;
    let options = format!("mode=700,uid={LAUNCHER_ID},gid={LAUNCHER_ID},size=65536k");
    add("tmpfs", DEVICE_DIRECTORY, NOTHING_SPECIAL, &options)
}

/// Mounts nothing of use over `path`, if it is there.
fn hide(path: &str) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if metadata.is_dir() {
        return add("tmpfs", path, NOTHING_SPECIAL | MsFlags::MS_RDONLY, "size=0k");
    }
    bind("/dev/null", path, 0)
}

/// Makes `path` read-only, if it is there.
fn protect(path: &str) -> Result<()> {
    if !Path::new(path).exists() {
        return Ok(());
    }
    bind(path, path, libc::AT_RECURSIVE)?;
    set_attributes(path, libc::MOUNT_ATTR_RDONLY, libc::AT_RECURSIVE)
}

fn bind(from: &str, to: &str, recursive: libc::c_int) -> Result<()> {
    let rec = if recursive == 0 { MsFlags::empty() } else { MsFlags::MS_REC };
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | rec, None::<&str>)
        .with_context(|| format!("cannot mount {from} on {to}"))
}

fn add(kind: &str, on: &str, flags: MsFlags, options: &str) -> Result<()> {
    mount(Some(kind), on, Some(kind), flags, Some(options))
        .with_context(|| format!("cannot mount {kind} on {on}"))
}

fn make_directory(path: &Path, mode: u32) -> Result<()> {
    mkdir(path, Mode::from_bits_truncate(mode))
        .with_context(|| format!("cannot make directory {}", path.display()))
}

/// Adds MOUNT_ATTR_* to the mount at `path`, with AT_RECURSIVE also to those below it. There is no wrapper in glibc 2.35.
fn set_attributes(path: &str, attributes: u64, flags: libc::c_int) -> Result<()> {
    let doing = || format!("cannot set mount attributes {attributes:#x} at {path}");
    let path = CString::new(path).with_context(doing)?;
    let attributes =
        libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path ends with NUL and the structure has the size given; the kernel only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    Errno::result(result).with_context(|| format!("{} (Linux 5.12 or later)", doing()))?;
    Ok(())
}
