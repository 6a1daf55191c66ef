//! The cage: runs a command as the container of a launcher Pod would run it.
//!
//! What a VM process will meet in a cluster under Pod Security "restricted" it meets in each test: uid 107, no
//! capability, no_new_privs, a read-only root, no device node of use, namespaces of its own, the system-call profile
//! the node agent installs ([`Profile::Launcher`]) or the container runtime's own ([`Profile::Default`]). What the
//! command may touch beyond that it is granted as the node agent would: over the link on descriptor 3.
//!
//! ```text
//! cage process (root, stays in the node's namespaces)         command (PID 1 of its namespace, uid 107)
//!   open /dev/kvm, /dev/userfaultfd
//!   clone into new namespaces ------------------------------> loopback, TAPs, the grant
//!                                                             mounts, descriptors
//!   wait for "it runs" or the reason why not                  privileges, system calls, exec
//!   pass on SIGTERM and SIGINT, keep the link open
//!   exit code  <--------------------------------------------- end
//! ```
//!
//! The command dies with the cage process, however that ends, and everything else with the command: namespaces, mounts
//! and TAPs have no other holder. The node itself is not changed, not even for a moment.
//!
//! Differences to a container: its root is the node's (read-only, without devices) and not an image; resource limits
//! are the caller's; system calls of the 32-bit ABI end the process where a container runtime would filter them.

mod arguments;
mod enter;
mod mounts;
mod network;
mod privileges;
mod profile;
mod sockets;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;

use corten_link::{Role, RoleError};

pub use arguments::main;
pub use profile::Profile;
pub use sockets::address_sockets;
pub use supervise::run;

/// User and group of every launcher.
pub const LAUNCHER_ID: u32 = 107;

/// How many VM processes can use a TAP by vhost-net, one after the other: each needs descriptors that none had before it.
pub const VM_PROCESSES: u16 = 3;

/// The one writable directory, in place of the device directory in which a launcher binds its socket.
pub const DEVICE_DIRECTORY: &str = "/run/corten";

/// A command and the container it runs in.
#[derive(Clone, Debug)]
pub struct Cage {
    /// Which system calls it may make.
    pub profile: Profile,
    /// Devices of the node it is granted.
    pub devices: Vec<Device>,
    /// TAPs it is granted.
    pub taps: Vec<TapRequest>,
    /// Program and arguments. A name without `/` is looked up in PATH of `env`.
    pub argv: Vec<OsString>,
    /// Environment, besides what the cage says of itself (CORTEN_CAGE, CORTEN_LINK_FD).
    pub env: Vec<(OsString, OsString)>,
    /// Directory it starts in.
    pub cwd: PathBuf,
}

/// A device of the node that is opened for the grant.
#[derive(Clone, Debug)]
pub struct Device {
    /// What the command gets it as.
    pub role: Role,
    /// Where the node has it.
    pub path: PathBuf,
    /// Whether a node without it is an error; otherwise the grant lacks it.
    pub required: bool,
}

impl Device {
    /// What the node agent opens for a launcher with these TAPs.
    pub fn of_a_launcher(taps: &[TapRequest]) -> Result<Vec<Self>, RoleError> {
        let mut devices = vec![
            Self { role: Role::kvm(), path: "/dev/kvm".into(), required: true },
            Self { role: Role::userfaultfd(), path: "/dev/userfaultfd".into(), required: false },
        ];
        for tap in taps {
            for number in 0..tap.queues.saturating_mul(VM_PROCESSES) {
                let role = Role::vhost(&tap.network, number)?;
                devices.push(Self { role, path: "/dev/vhost-net".into(), required: false });
            }
        }
        Ok(devices)
    }
}

/// A TAP to be granted, queue by queue, as `tap/NETWORK/QUEUE`, with the sockets on which its guest asks for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapRequest {
    /// Network it serves.
    pub network: String,
    /// How many queues it has.
    pub queues: u16,
}
