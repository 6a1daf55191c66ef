//! Virtio console device (virtio 1.2, section 5.3) with several ports: consoles, and streams by name, as that of the QEMU
//! guest agent (`org.qemu.guest_agent.0`).
//!
//! ```text
//!   guest                      task, on a worker                    host
//!   hvc0       ──▶ transmit ──▶ port 0 ──▶ output, and whoever is attached: nobody is waited for
//!              ◀── receive  ◀──        ◀── input, or whoever is attached
//!   vport0p1   ──▶ transmit ──▶ port 1 ──▶ the socket, which the guest waits for
//!              ◀── receive  ◀──        ◀── the socket                    ◀── HostSide::attach ── owner
//!   driver     ◀── control  ──▶ dialogue of each port
//! ```
//!
//! **Consoles.** Linux waits in a loop, with a lock held, until its console has taken what it was sent. So nothing is
//! waited for: what the output does not take at once is dropped and counted, as the serial port does. Input is read when
//! the guest has the console open and buffers for it. A socket that is attached shows the output beside the first one, and
//! takes over the input. A console is open as long as the device is there.
//!
//! **Streams.** What the host's end does not take stays in the guest's queue, so a program of the guest that writes waits;
//! nothing is kept here. When the host's end closes, or another takes its place, the guest is told (PORT_OPEN 0, then 1),
//! and what it sent to the first is dropped and counted: a new peer never gets the tail of another's answer. A peer that only
//! sends no more can still receive. What a peer sends to a port that no program of the guest has open waits in its socket, as
//! long as it stays connected.
//!
//! **Drivers without multiport** have port 0 and no control queues. The size of the terminal is in the configuration for
//! them; others get RESIZE. The register for emergencies shows a character on port 0's output, without any queue.
//!
//! **Bounds.** 16 ports. What a driver has yet to be told is kept as a few bits for each port, not as messages. A wake-up
//! takes 64 chains and 64 KiB of each queue at most. Host's ends are told of once for each change, and are in one
//! set of our own: one that is ready while the guest takes nothing, or that has hung up, does not wake the worker again.
//! Memory: 4 KiB.
//!
//! **Guests that break the rules.** Chains that cannot be, messages of no sense and of ports that are not there are counted
//! and given back. A chain of any length is taken in parts.
//!
//! **To put it into a machine**: [`Console::new`] before lock-in, with a [`PortEnd`] for each port; keep
//! [`Console::host_side`], by which the owner [attaches](HostSide::attach) a socket whenever a peer comes and sees whether
//! the guest [has a port open](HostSide::is_open). A machine that was loaded, or reset in another process, gets new sockets the
//! same way; one that is reset in the same process keeps those it has. [`Console::set_size`] is called by
//! [`VirtioPci::change_config`](crate::virtio::VirtioPci::change_config).
//!
//! **System calls.** When made, before lock-in: epoll_create1, eventfd2, fcntl, epoll_ctl. At work: read, write,
//! epoll_wait, epoll_ctl, recvfrom, sendto, close, and futex where the owner attaches at the same moment. The owner: write,
//! close, futex. A vCPU, by the register: write.
//!
//! **Pause** waits for nothing: no chain is held between two calls of the task. **Saved** are the ports (checked when
//! loading), the size, what the driver said and has yet to be told of each port, and how much of a console's next chain was
//! shown. Host's ends are not: after a load the guest is told that they are gone, and of those that are there then.

mod channel;
mod config;
mod device;
mod dialogue;
mod host_side;
mod lane;
mod message;
mod metrics;
mod port;
mod state;
mod worker;

pub use self::config::{
    ConsoleConfig, ConsoleError, MAX_NAME, MAX_PORTS, PortConfig, PortEnd, TerminalSize,
};
pub use self::device::Console;
pub use self::dialogue::{Dialogue, Owed};
pub use self::host_side::{AttachError, HostSide};
pub use self::metrics::ConsoleCounters;
pub use self::state::{ConsoleState, PortState};
pub use self::worker::ConsoleTask;

#[cfg(test)]
mod tests;
