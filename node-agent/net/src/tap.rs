//! TAP interfaces, one descriptor for each queue.
//!
//! Each queue carries Ethernet frames behind a virtio-net header (IFF_VNET_HDR) and does not block. Size of that header
//! and offloads are the VMM's to choose on the descriptors, which takes no privilege. A TAP lives as long as one of its
//! descriptors: nothing has to be taken down after a VM.
//!
//! tun-tap creates single-queue TAPs. It knows neither IFF_VNET_HDR nor IFF_MULTI_QUEUE. The first can be added by
//! attaching to the TAP anew, the second only at creation, so TAPs with several queues are created here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use thiserror::Error;
use tun_tap::{Iface, Mode};

use crate::link::{InterfaceError, request, set_up};

nix::ioctl_write_ptr_bad!(attach, libc::TUNSETIFF, libc::ifreq);
nix::ioctl_write_int_bad!(set_persistent, libc::TUNSETPERSIST);

/// What the kernel gives one TAP at most (MAX_TAP_QUEUES).
pub const MAX_QUEUES: u16 = 256;

/// A TAP that is up, and its queues.
#[derive(Debug)]
pub struct Tap {
    name: String,
    queues: Vec<OwnedFd>,
}

/// Why there is no TAP.
#[derive(Debug, Error)]
pub enum TapError {
    /// The kernel takes no such name.
    #[error("{0:?} is not the name of an interface")]
    Name(String),
    /// No such number of queues.
    #[error("TAP {name} cannot have {queues} queues, only 1 to {MAX_QUEUES}")]
    Queues {
        /// The TAP.
        name: String,
        /// How many were asked for.
        queues: u16,
    },
    /// There is an interface of that name; it is left alone.
    #[error("interface {0} exists already")]
    Exists(String),
    /// A step failed.
    #[error("TAP {name}: cannot {step}")]
    Io {
        /// The TAP.
        name: String,
        /// What was tried.
        step: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
    /// It could not be taken up.
    #[error("TAP {name} stays down")]
    Down {
        /// The TAP.
        name: String,
        /// Why.
        #[source]
        source: InterfaceError,
    },
}

impl Tap {
    /// Creates TAP `name` in the network namespace of the calling thread and takes it up.
    ///
    /// Needs CAP_NET_ADMIN there and /dev/net/tun.
    pub fn create(name: &str, queues: u16) -> Result<Self, TapError> {
        let tap = Self::create_down(name, queues)?;
        set_up(name).map_err(|source| TapError::Down { name: name.into(), source })?;
        Ok(tap)
    }

    /// Creates a TAP as above, but leaves it down: for whoever gives it addresses first.
    pub(crate) fn create_down(name: &str, queues: u16) -> Result<Self, TapError> {
        if request(name).is_none() {
            return Err(TapError::Name(name.into()));
        }
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Err(TapError::Queues { name: name.into(), queues });
        }
        // TUNSETIFF would attach to a TAP that is there, with whatever queues and owner it has.
        if if_nametoindex(name).is_ok() {
            return Err(TapError::Exists(name.into()));
        }
        let queues = match queues {
            1 => vec![create_single_queue(name)?],
            _ => create_multi_queue(name, queues)?,
        };
        Ok(Self { name: name.into(), queues })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queues in their order.
    pub fn queues(&self) -> &[OwnedFd] {
        &self.queues
    }

    /// The queues alone. The TAP goes away with the last of them.
    pub fn into_queues(self) -> Vec<OwnedFd> {
        self.queues
    }
}

fn create_single_queue(name: &str) -> Result<OwnedFd, TapError> {
    // Opened before there is anything to leave behind.
    let queue = open(name)?;
    let iface = Iface::without_packet_info(name, Mode::Tap)
        .map_err(|source| failed(name, "create it", source))?;
    // A single-queue TAP has one descriptor at a time; it must outlive the change from one to the other.
    // SAFETY: TUNSETPERSIST takes an integer.
    unsafe { set_persistent(iface.as_raw_fd(), 1) }
        .map_err(|source| failed(name, "keep it for a moment", source))?;
    drop(iface);
    set_interface(&queue, name, 0)?;
    // SAFETY: as above.
    unsafe { set_persistent(queue.as_raw_fd(), 0) }
        .map_err(|source| failed(name, "bind it to its descriptor", source))?;
    Ok(queue.into())
}

fn create_multi_queue(name: &str, queues: u16) -> Result<Vec<OwnedFd>, TapError> {
    let queue = |_| {
        let queue = open(name)?;
        set_interface(&queue, name, libc::IFF_MULTI_QUEUE)?;
        Ok(queue.into())
    };
    (0..queues).map(queue).collect()
}

fn open(name: &str) -> Result<File, TapError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|source| failed(name, "open /dev/net/tun", source))
}

/// Makes `queue` a queue of TAP `name`.
fn set_interface(queue: &File, name: &str, more_flags: libc::c_int) -> Result<(), TapError> {
    let mut request = request(name).ok_or_else(|| TapError::Name(name.into()))?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | more_flags;
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(flags).map_err(|_| failed(name, "set its flags", Errno::EINVAL))?;
    // SAFETY: the request is valid for reads and names its interface with a final NUL.
    unsafe { attach(queue.as_raw_fd(), &raw const request) }
        .map_err(|source| failed(name, "attach a queue", source))?;
    Ok(())
}

fn failed(name: &str, step: &'static str, source: impl Into<io::Error>) -> TapError {
    TapError::Io { name: name.into(), step, source: source.into() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::panic::resume_unwind;
    use std::thread;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    nix::ioctl_read_bad!(get_interface, libc::TUNGETIFF, libc::ifreq);

    /// Runs `test` on a thread with a network namespace of its own, which ends with it.
    fn in_new_network(test: impl FnOnce() + Send + 'static) {
        let thread = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("tests that make TAPs are run by root");
            test();
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }

    fn flags_of(queue: &OwnedFd) -> libc::c_int {
        let mut request = request("x").unwrap();
        // SAFETY: the request is valid for writes.
        unsafe { get_interface(queue.as_raw_fd(), &raw mut request) }.unwrap();
        // SAFETY: TUNGETIFF has just filled this member of the union.
        unsafe { request.ifr_ifru.ifru_flags }.into()
    }

    /// Packets the interface has received, from /proc of this thread's namespace.
    fn received(name: &str) -> u64 {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    #[test]
    fn single_queue_has_vnet_header_and_goes_with_its_descriptor() {
        in_new_network(|| {
            let tap = Tap::create("tap0", 1).unwrap();
            let flags = flags_of(&tap.queues()[0]);
            assert_eq!(flags & libc::IFF_VNET_HDR, libc::IFF_VNET_HDR);
            assert_eq!(flags & (libc::IFF_MULTI_QUEUE | libc::IFF_PERSIST), 0);
            assert_eq!(tap.name(), "tap0");

            drop(tap);
            assert_eq!(if_nametoindex("tap0"), Err(Errno::ENODEV));
        });
    }

    #[test]
    fn four_queues_belong_to_one_tap_and_it_goes_with_the_last() {
        in_new_network(|| {
            let mut queues = Tap::create("tap0", 4).unwrap().into_queues();
            let wanted = libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
            for queue in &queues {
                assert_eq!(flags_of(queue) & (wanted | libc::IFF_PERSIST), wanted);
            }
            assert_eq!(queues.len(), 4);

            queues.truncate(1);
            assert!(if_nametoindex("tap0").is_ok());
            queues.clear();
            assert_eq!(if_nametoindex("tap0"), Err(Errno::ENODEV));
        });
    }

    #[test]
    fn frame_behind_a_vnet_header_is_received() {
        in_new_network(|| {
            for queues in [1, 2] {
                let tap = Tap::create("tap0", queues).unwrap();
                let mut queue = File::from(tap.queues()[0].try_clone().unwrap());
                let mut frame = [0_u8; 10 + 60];
                frame[10..16].fill(0xff);
                frame[16..22].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
                frame[22..24].copy_from_slice(&[0x88, 0xb5]);
                assert_eq!(queue.write(&frame).unwrap(), frame.len());
                assert_eq!(received("tap0"), 1);
            }
        });
    }

    #[test]
    fn tap_that_exists_is_not_attached_to() {
        in_new_network(|| {
            let _first = Tap::create("tap0", 2).unwrap();
            assert!(matches!(Tap::create("tap0", 2), Err(TapError::Exists(_))));
        });
    }

    #[test]
    fn bad_names_and_queue_counts_are_refused_with_the_value() {
        let error = Tap::create("tap%d", 1).unwrap_err();
        assert_eq!(error.to_string(), r#""tap%d" is not the name of an interface"#);
        for queues in [0, MAX_QUEUES + 1] {
            let error = Tap::create("tap0", queues).unwrap_err();
            assert!(error.to_string().contains(&format!("{queues} queues")), "{error}");
        }
    }
}
