//! Network interfaces of a Pod, as the node agent makes them.
//!
//! Everything here acts on the network namespace of the calling thread. The agent enters a Pod's namespace on a thread
//! that does nothing else afterwards; what was opened there stays in that namespace.

mod link;
mod tap;

pub use link::{InterfaceError, set_ipv4, set_up};
pub use tap::{MAX_QUEUES, Tap, TapError};
