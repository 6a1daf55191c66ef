//! A link between a host and its guest, each in a network namespace of its own: two TAPs, and a thread that moves frames from one
//! to the other.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use corten_lab::cage::address_sockets;
use corten_link::Grant;
use corten_net::Tap;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};

/// What the guest calls its interface.
pub(crate) const GUEST: &str = "eth0";

/// Both ends. The calling thread is the guest from now on.
pub(super) struct GuestLink {
    /// Those of the host.
    pub(super) sockets: Grant,
    /// The guest's Ethernet address.
    pub(super) mac: [u8; 6],
    /// The number of the guest's interface.
    pub(super) index: u32,
    is_over: Arc<AtomicBool>,
    pump: Option<JoinHandle<()>>,
}

impl GuestLink {
    pub(super) fn new(host: Ipv4Addr) -> Result<Self> {
        let (sockets, theirs) = host_side(host)?;
        unshare(CloneFlags::CLONE_NEWNET).context("this test wants to be root")?;
        let tap = Tap::create(GUEST, 1)?;
        let mac = mac_of(GUEST)?;
        let index = if_nametoindex(GUEST)?;
        let ours = tap.into_queues().pop().context("a TAP has a queue")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let pump = std::thread::spawn(move || pump(File::from(ours), File::from(theirs), &until));
        Ok(Self { sockets, mac, index, is_over, pump: Some(pump) })
    }
}

impl Drop for GuestLink {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

/// A host's TAP with the sockets on it, in a namespace that lives as long as they do.
pub(crate) fn host_side(address: Ipv4Addr) -> Result<(Grant, OwnedFd)> {
    let make = move || -> Result<(Grant, OwnedFd)> {
        unshare(CloneFlags::CLONE_NEWNET).context("this test wants to be root")?;
        let tap = Tap::create("tap0", 1)?;
        corten_net::set_ipv4(tap.name(), address, 24)?;
        let sockets = address_sockets("net1", tap.name())?.into_iter().collect();
        Ok((sockets, tap.into_queues().pop().context("a TAP has a queue")?))
    };
    std::thread::spawn(make).join().map_err(|_| anyhow!("no host"))?
}

fn mac_of(interface: &str) -> Result<[u8; 6]> {
    let mut links = getifaddrs()?.filter(|link| link.interface_name == interface);
    let address =
        links.find_map(|link| link.address.and_then(|found| found.as_link_addr()?.addr()));
    address.context("it has no Ethernet address")
}

/// Frames go with the headers before them, which both TAPs understand alike.
fn pump(mut left: File, mut right: File, is_over: &AtomicBool) {
    let mut frame = vec![0; 64 << 10];
    while !is_over.load(Ordering::Acquire) {
        let mut fds = [
            PollFd::new(left.as_fd(), PollFlags::POLLIN),
            PollFd::new(right.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut fds, PollTimeout::from(50_u8));
        for _ in 0..2 {
            while let Ok(length) = left.read(&mut frame) {
                let _ = right.write(&frame[..length]);
            }
            std::mem::swap(&mut left, &mut right);
        }
    }
}
