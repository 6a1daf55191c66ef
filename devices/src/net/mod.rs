//! Virtio network device (virtio 1.2, section 5.1) on the queues of a TAP that was opened for it.
//!
//! ```text
//!   TAP queue ── readv ──▶ receive: offloads, filter ──▶ the driver's buffers, one or several
//!       ▲    (front and what does not fit: own memory)
//!       └───── writev ◀── transmit ◀── chains                       one task for each pair
//!
//!   control queue ──▶ command ──▶ filter, address, active pairs, announced          one task
//! ```
//!
//! **Packets** go straight between the TAP and guest memory, each behind the header that both know. A received packet's
//! header and Ethernet header come by memory of our own, to be judged there; so does what the buffers do not hold, which
//! waits for more of them. Without MRG_RXBUF, and where no more can come, it is dropped and counted.
//!
//! **Offloads.** The TAP is told what the driver takes unfinished when the device starts, and to finish everything when
//! the driver leaves. Checksums and segmentation of TCP are always offered, segmentation of UDP where the TAP has it: what
//! a machine was planned with is pinned. Not offered: UFO, VLAN filters, RSS, coalescing, changes of offloads at work.
//!
//! **Fairness.** A task moves at most 64 packets or 1 MiB in a direction, then others of its worker have their turn. What
//! wakes it for its TAP is a set of its own that is empty while the guest has no buffers, a rate limit is reached or
//! the pair is not active: a TAP with frames that nobody takes wakes nobody. The kernel drops what is too much for its
//! queue.
//!
//! **Pairs.** The TAP sends frames to attached queues only, so those of pairs that are not active are detached.
//!
//! **vhost.** Where the kernel's vhost-net was handed in ([`Net::use_vhost`]) the kernel moves the packets of drivers that it can
//! serve, and nothing here is woken for them. What follows from that is in `vhost`. The offer to drivers and the saved
//! state are the same.
//!
//! **Failures of the host.** What the TAP refuses, being down or gone, is lost as on a cable that is not plugged in. A TAP
//! that cannot be read is asked again once a second.
//!
//! **System calls.** When made, before lock-in: fcntl, eventfd2, timerfd_create, epoll_create1, ioctl (TUNGETIFF,
//! TUNSETOFFLOAD). At work: readv, writev, read, write, epoll_ctl, timerfd_settime, and
//! ioctl (TUNSETQUEUE) when the driver changes the number of pairs. The owner, to start and stop: ioctl (TUNSETVNETHDRSZ,
//! TUNSETOFFLOAD, TUNSETQUEUE). A vCPU makes none.
//!
//! **Pause** waits for nothing but vhost: no packet is under way between two calls of a task. What the TAP has stays there, and a
//! packet that waits for buffers stays here. **Saved** are what the guest was promised (checked when loading), what the
//! driver wants to receive, its address, the number of active pairs, and whether it is to announce itself. Not saved: a
//! packet that waits for buffers, the levels of rate limits, counters.

mod buffers;
mod config;
mod control;
mod device;
mod filter;
#[cfg(feature = "fuzz")]
mod fuzzing;
mod mac;
mod metrics;
mod offload;
mod receive;
mod state;
mod tap;
mod transmit;
mod vhost;
mod worker;

pub use self::config::{NetConfig, NetError};
pub use self::control::ControlTask;
pub use self::device::Net;
pub use self::filter::{MacTable, ReceiveFilter};
#[cfg(feature = "fuzz")]
pub use self::fuzzing::look_at_chain;
pub use self::mac::{MacAddress, MacAddressError};
pub use self::metrics::NetCounters;
pub use self::state::NetState;
pub use self::tap::TapFault;
pub use self::vhost::{VhostRefusal, VhostTask};
pub use self::worker::{NetTask, PairTask};

#[cfg(test)]
mod tests;
