//! Virtio socket device (virtio 1.2, section 5.10): streams between processes of the guest and sockets of the host's.
//!
//! ```text
//!   guest                    task, on a worker                               owner
//!   connect ──▶ REQUEST ──▶ connection ── Ask ─────────────────────────────▶ whom it may reach
//!           ◀── RESPONSE ◀──    │    ◀── orders, bell ◀── HostSide::grant ── a socket
//!   bytes   ◀── packets ───▶    │    ◀──────────▶ the socket
//!   listen  ◀── REQUEST ◀── connection ◀── orders, bell ◀── HostSide::connect ── a socket
//! ```
//!
//! **Who may connect.** The device opens and connects nothing: both ways, the machine's owner hands in a connected stream
//! socket. A guest's wish is an [`Ask`], which the owner [grants](HostSide::grant) or [refuses](HostSide::refuse); without
//! an answer in time it is refused. A guest that gives up has still asked: until the owner answers, or the time is over.
//!
//! **Flow control.** The guest may send as much as the device keeps for a socket that does not take it: 64 KiB for each
//! connection. A guest that sends more is reset. A socket is read only when the guest has both credit and buffers; until
//! then it wakes nobody, as sockets are listened to edge-triggered. Connections take turns, a packet each.
//!
//! **Bounds**: 1024 connections, 64 of them waiting for the owner; 256 orders of the owner's; 256 answers to packets of no
//! connection, then packets of the guest's wait; 64 chains of each queue for one wake-up. Memory: 64 KiB, and as much for
//! each socket that does not take what it was sent.
//!
//! **Ends.** Each direction is closed by itself, from either side (SHUTDOWN). A guest that has closed both gets its RST at
//! once; what it sent before still goes to the socket, however long that takes.
//!
//! **System calls.** When made, before lock-in: epoll_create1, eventfd2, timerfd_create. At work: read and write (of
//! eventfds and the timer), epoll_wait, epoll_ctl, recvfrom, sendto, shutdown, close, timerfd_settime. The owner: write.
//!
//! **Pause** waits for nothing, and connections live through it; time does not pass for those that wait. **Saved** are the
//! guest's address (checked when loading) and whether its driver has to be told that all connections are gone, as they are
//! after a load (TRANSPORT_RESET on the event queue).
//!
//! Not offered: sequenced packets and datagrams, more than one guest address.

mod connection;
mod credit;
mod device;
mod host_side;
mod metrics;
mod packet;
mod state;
mod switchboard;
mod table;
mod worker;

pub use self::device::{Vsock, VsockConfig, VsockError};
pub use self::host_side::{Ask, AskReport, HostSide, OrderError};
pub use self::metrics::VsockCounters;
pub use self::state::VsockState;
pub use self::worker::VsockTask;

#[cfg(test)]
mod tests;
