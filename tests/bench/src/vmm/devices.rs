//! The devices of a whole machine: the same set for every VMM.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;

/// What the console device's stream is called in the guest.
pub(super) const STREAM: &str = "bench";
/// The guest's Ethernet address.
pub(super) const MAC: [u8; 6] = [2, 0xc0, 0x47, 0xe4, 0, 0];
/// The guest's address for sockets.
pub(super) const GUEST_CID: u32 = 77;

/// Disks and a network interface, as told here; and a console with a terminal and a stream, random numbers, a balloon and
/// a socket device.
#[derive(Clone, Debug)]
pub struct Devices {
    /// In the order in which the guest finds them.
    pub disks: Vec<Disk>,
    /// The queue of the TAP behind the network interface.
    pub tap: Arc<OwnedFd>,
    /// Whether the kernel moves the packets.
    pub vhost: bool,
    /// Whether the VMM is to make huge pages of guest memory, where it can.
    pub huge_pages: bool,
}

/// A raw disk, through the page cache and by io_uring.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Where it is.
    pub file: PathBuf,
    /// Refuses to be written.
    pub read_only: bool,
}

/// The host's side of a machine with devices.
#[derive(Debug)]
pub struct Peer {
    /// The other end of the console device's stream.
    pub stream: UnixStream,
    /// How the VMM is told things.
    pub control: Box<dyn Control>,
}

/// How a VMM is told things.
pub trait Control: std::fmt::Debug {
    /// Has the guest give up this much of its memory.
    fn set_balloon(&mut self, bytes: u64) -> Result<()>;

    /// Bytes of guest memory in huge pages that were made of small ones, where the VMM counts them.
    fn huge_bytes(&mut self) -> Result<Option<u64>>;
}
