//! Packets moved by the kernel (vhost-net): one open /dev/vhost-net for each pair of queues, given by whoever makes the
//! interface.
//!
//! ```text
//!   driver ── doorbell's eventfd ──▶ vhost ◀──▶ queue of the TAP         no thread of ours is woken
//!   driver ◀── vector's eventfd ──── vhost ── its own eventfd for errors ──▶ task, which has the driver reset
//! ```
//!
//! **Who does what.** The kernel takes chains and gives them back by itself. Commands, the TAP's offloads and which pairs
//! are active stay with this process. A vector that the guest masks is not connected to KVM, and the count of its eventfd
//! is its pending bit; a queue that gets another vector has it told to vhost by its task.
//!
//! **When.** All pairs of an interface, or none. The offer to the driver does not depend on it, so a machine can be saved with
//! vhost and loaded without, or the other way round. An interface has none if it has rate limits, which the kernel does not
//! know of, or if this kernel's vhost lacks a feature of rings that drivers are offered. A driver has none if it is
//! without MSI-X, as only this process can fill the interrupt status register, or if it took no MRG_RXBUF or no checksums,
//! as the kernel hands on header fields that such a driver must not see as they are (5.1.6.4.1); nor where a ring of its
//! lies over the border of two mappings.
//!
//! **What is other than without.** Frames for addresses that the driver does not listen to arrive all the same: the filter
//! is a matter of best effort (5.1.6.5.1), and drivers check for themselves. Frames are counted by the TAP only. A chain
//! that is no frame has the device reset, where this process would give it back.
//!
//! **Failures.** A ring that vhost finds broken has the driver reset the device. So has a TAP that is gone, of which vhost
//! says no more. After a call that failed, the next driver is served by this process.
//!
//! **Pause** takes the TAP from both rings, which waits for what the kernel is at, some packets at most, and asks for the
//! rings' positions. Nothing is in flight then: each chain taken was given back. Those of which vhost
//! made nothing, as the ring is broken or the TAP gone, are taken again. Frames that vhost had taken from the TAP go back
//! there. (With `experimental_zcopytx`, which is off unless an administrator of the host turns it on, a pause waits until
//! packets have left the host.) A task that starts again sets the positions and gives the TAP.
//!
//! **Memory.** The kernel writes through this process's mapping, past the marks of [`GuestRam`](crate::virtio::GuestRam): who
//! sends memory while the machine runs has to ask vhost for its own log (VHOST_F_LOG_ALL, not used here) or have the
//! packets moved by this process meanwhile.
//!
//! **System calls.** When made, before lock-in: eventfd2, ioctl (VHOST_SET_OWNER, which ties the descriptor to this
//! process's memory and starts the kernel's thread, one of this process's own since Linux 6.4; VHOST_GET_FEATURES). The
//! owner, to start: ioctl (VHOST_SET_FEATURES, VHOST_SET_MEM_TABLE, VHOST_SET_VRING_NUM, _ADDR, _ERR), readv. A worker: ioctl
//! (VHOST_SET_VRING_BASE, _KICK, _CALL, VHOST_GET_VRING_BASE, VHOST_NET_SET_BACKEND), read.
//!
//! The calls are our own. The `vhost` crate opens the device by its path, and with its traits on a type of ours it still could
//! not take an eventfd back from a ring: a doorbell would wake the kernel's thread in a pause, and beside the process.

mod kernel;
mod pair;
mod refusal;
mod table;
mod task;

pub(super) use self::kernel::VhostDevice;
pub(super) use self::pair::VhostPair;
pub use self::refusal::VhostRefusal;
pub use self::task::VhostTask;

#[cfg(test)]
mod tests;
