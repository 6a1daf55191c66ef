//! Devices of the machine: PCI, the virtio transport, one folder for each device, serial and other small ones.
//!
//! A device never sees KVM, a path or another device. What it needs is handed to it: guest memory, interrupts,
//! doorbells, the descriptor of its backend. What it does to the machine it says by an [`Effect`]. Its state goes into
//! [`Records`] and comes out of them again, from its first version on.

pub mod balloon;
pub mod block;
mod bus;
pub mod console;
mod host_end;
mod interrupt;
pub mod legacy;
mod limits;
pub mod net;
pub mod pci;
mod record;
mod registers;
pub mod rng;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod virtio;
pub mod vsock;

pub use bus::{Bus, BusError, Range};
pub use interrupt::Interrupt;
pub use limits::{RateLimit, RateLimits};
pub use record::{Record, RecordError, RecordName, Records, State};
pub use registers::{Effect, Registers, read_nothing};
