//! What makes one of many restored nodes itself: name, addresses, clock, entropy, host directories.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use nix::unistd::sethostname;

use crate::wire::{Setup, Share};

// RNDRESEEDCRNG of linux/random.h.
nix::ioctl_none!(reseed, b'R', 0x07);

/// Makes this node number `setup.index`.
pub(super) fn assume(setup: &Setup) -> Result<()> {
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(setup.clock))
        .context("cannot set the clock")?;
    renew_entropy(&setup.seed)?;
    let name = format!("node{}", setup.index);
    sethostname(&name).context("cannot set the host name")?;
    fs::write("/etc/hostname", format!("{name}\n"))?;
    let hosts = (1..=8).map(|n| format!("10.99.0.{n} node{n}\nfd99::{n} node{n}\n"));
    fs::write(
        "/etc/hosts",
        format!("127.0.0.1 localhost\n::1 localhost\n{}", hosts.collect::<String>()),
    )?;
    if setup.networked { address_network(setup.index) } else { Ok(()) }
}

/// What is written is only mixed in: the kernel would go on with what the saved node had for up to a minute.
fn renew_entropy(seed: &[u8]) -> Result<()> {
    let mut random = fs::File::options().write(true).open("/dev/urandom")?;
    random.write_all(seed)?;
    // SAFETY: the call has no argument, and changes nothing but the kernel's own generator.
    match unsafe { reseed(random.as_raw_fd()) } {
        // Not seeded at all yet: what was written will be part of its first seed.
        Ok(_) | Err(Errno::ENODATA) => Ok(()),
        Err(error) => Err(error).context("cannot seed the random number generator"),
    }
}

/// The first virtio NIC becomes eth0 with 10.99.0.N and fd99::N.
fn address_network(index: u8) -> Result<()> {
    let Some(interface) = first_virtio_interface()? else { return Ok(()) };
    let commands = format!(
        "link set {interface} down\nlink set {interface} name eth0\n\
         link set eth0 address 52:54:00:99:00:{index:02x}\n\
         address replace 10.99.0.{index}/24 dev eth0\nlink set eth0 up\n\
         address replace fd99::{index:x}/64 dev eth0 nodad\n"
    );
    ip(&commands)
}

fn first_virtio_interface() -> Result<Option<String>> {
    let mut names: Vec<String> = fs::read_dir("/sys/class/net")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            fs::read_link(format!("/sys/class/net/{name}/device"))
                .is_ok_and(|target| target.to_string_lossy().contains("virtio"))
        })
        .collect();
    names.sort();
    Ok(names.into_iter().next())
}

/// Also in a fresh network namespace.
pub(super) fn bring_loopback_up() -> Result<()> {
    ip("link set lo up\n")
}

fn ip(commands: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .context("cannot run ip")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(commands.as_bytes())?;
    }
    let status = child.wait().context("ip")?;
    if !status.success() {
        bail!("ip failed on: {commands}");
    }
    Ok(())
}

/// Mounts the host's directories at their own paths, where that is not done yet.
pub(super) fn mount_shares(shares: &[Share], mounted: &mut Vec<String>) -> Result<()> {
    for share in shares {
        if mounted.contains(&share.path) {
            continue;
        }
        fs::create_dir_all(&share.path)?;
        // Read-only ones do not change under us, so the node may cache; a writable one goes straight through, except
        // that programs can be mapped from it.
        let (flags, cache) =
            if share.writable { (MsFlags::empty(), "mmap") } else { (MsFlags::MS_RDONLY, "loose") };
        let options = format!("trans=virtio,version=9p2000.L,msize=512000,cache={cache}");
        mount(Some(&*share.tag), &*share.path, Some("9p"), flags, Some(&*options))
            .with_context(|| format!("cannot mount the host's {}", share.path))?;
        mounted.push(share.path.clone());
    }
    Ok(())
}

/// Unmounts them, last first: QEMU does not save a node with a 9p mount.
pub(super) fn leave_shares(mounted: &mut Vec<String>) -> Result<()> {
    while let Some(path) = mounted.last() {
        match umount2(path.as_str(), MntFlags::empty()) {
            Ok(()) => drop(mounted.pop()),
            Err(Errno::EBUSY) => {
                bail!("{path} is in use in the node (a process was started from it)")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot unmount {path}")),
        }
    }
    Ok(())
}
