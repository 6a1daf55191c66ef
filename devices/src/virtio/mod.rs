//! Virtio 1.2 over PCI: the modern interface only, split queues, MSI-X only.
//!
//! A device type implements [`Device`] and [`QueueTask`]; [`VirtioPci`] is the PCI function around it. The machine's
//! owner sees every function as a [`Transport`].
//!
//! ```text
//!        vCPU threads                     owner                            I/O workers
//!  registers ──▶ VirtioPci      Activate ─▶ activate() ── tasks, by value ─▶ on_event, rearm
//!                  │   ▲        Deactivate ┐                                   │
//!                  ▼   │        pause ─────┴ reclaim() ◀─ tasks, by value ── drain
//!               Device ┘        then deactivated(), or save()
//! ```
//!
//! **Who has a queue.** While a driver sets it up, the transport, as registers. From [`Transport::activate`] to
//! [`Transport::reclaim`], a task, which a worker owns: nobody else looks at it, so there is no lock. Pausing and
//! resuming are `reclaim` and `activate`, the same steps as saving and loading: a machine that was loaded goes on as
//! one that was paused. What the owner has to do with a function after either is what [`Transport::pending`] says.
//!
//! **What is saved**: the function's configuration, MSI-X, the transport's registers with the position in each queue,
//! and what the device type adds. Not saved: whether a doorbell rang and whether an interrupt is on its way. Both are
//! made good by [`QueueTask::rearm`] and [`Transport::resumed`] after every resume.
//!
//! **Guests that break the rules.** A register written wrongly keeps its value. A queue that cannot be is not enabled.
//! A ring that breaks while in use stops the device, which asks for a reset (DEVICE_NEEDS_RESET) by a configuration
//! interrupt. All of it is counted in [`Faults`].
//!
//! Not offered: packed rings, VIRTIO_F_RING_RESET (queues are reset with the device only), notification data,
//! ACCESS_PLATFORM, the interrupt line, legacy and transitional registers, shared memory regions, an administration
//! queue.

mod buffers;
mod device;
mod queue;
mod ram;
mod signals;
mod transport;

pub(crate) use buffers::{BadChain, Buffers, Direction};
pub use device::{ActivateError, Activation, Device, DrainError, QueueTask, Wakeup, read_config};
pub(crate) use queue::RingPlaces;
pub use queue::{Chain, VirtQueue};
pub use ram::{DiscardError, GuestRam};
pub use signals::Faults;
pub use transport::{
    BAR, BAR_SIZE, MAX_QUEUES, QueueState, ReclaimError, Transport, TransportState, VirtioPci,
    WindowState, Wiring, WiringError,
};
