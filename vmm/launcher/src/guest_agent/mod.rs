//! The QEMU guest agent, as a client of it.
//!
//! qemu-ga speaks lines of JSON over the stream `org.qemu.guest_agent.0` of the console device. The launcher looks every
//! few seconds whether a program of the guest has that stream open ([`corten_link::Info::open_ports`]); when one has, it
//! attaches a socket and is in conversation:
//!
//! ```text
//!            port open: Attach          answer to the sync           nothing to do
//!   away ------------------> syncing -----------------------> idle <-----------------+
//!    ^                        ^   |                            |  next of: order,     |
//!    |   port closed, hang-up |   | no answer in 10 s          |  thaw, time, poll    |
//!    +------------------------|---+                            v                      |
//!    |                        +-- resting <--- garbage ------ asked --- answer -------+
//!    |                        |     1 s                        |
//!    |                        +--------- no answer in time ----+
//!    +---------------- port closed, hang-up, reset ------------+
//! ```
//!
//! * [`protocol`]: commands to bytes, bytes to answers; pure.
//! * `answers`: from the agent's JSON to that, with all its bounds.
//! * `schedule`: what is asked how often.
//! * `freeze`: what is known of a freeze, and when it ends.
//! * `stream`: the socket, with what waits to be written and what was read of a line.
//! * [`orders`]: what people can have it do, and what the owner is told.
//! * [`client`]: [`GuestAgent`], the state machine. It does no more than read and write its socket, never blocks, and is told
//!   what time it is: the launcher's loop waits on [`GuestAgent::fd`] for [`GuestAgent::interest`] until
//!   [`GuestAgent::deadline`] and calls [`GuestAgent::turn`].
//! * [`kept`]: [`KeptAgent`], the same with what whoever keeps a VM knows around it, and a report for status.
//!
//! **Hostile guests.** Whatever comes is bounded: a line's length, what is skipped in search of a beginning, lists, strings.
//! All that can be learned fits into one message of the link (checked by a test). A guest that sends what was not asked for
//! is not read: the bytes stay in the socket and then in its own queue. One that sends garbage is left alone for a second
//! before it is tried again, so that it costs no more than a wake-up for each second. What it says is believed of itself only.
//!
//! **Time.** After a resume or a restore the guest's clock stands where it stood. [`GuestAgent::resumed`] and
//! [`GuestAgent::restored`] have it set to the host's, once the agent answers; the time is read when the command is written.
//!
//! **Freeze.** A freeze always ends: by a thaw, by its limit (5 minutes if none is given), by a reset. Whether one came about
//! whose answer was not seen is asked as soon as the agent answers again, and it is then undone, as whoever ordered it was
//! told that it failed. A freeze lives in the guest: it goes along with a snapshot or a migration, and who continues the guest
//! finds it and gives it the same limit; a restored copy is thawed at once. Before the power button is pressed
//! ([`GuestAgent::stopping`]) file systems are thawed, as a guest cannot shut down on frozen ones. While frozen, an agent
//! takes hardly any command, so polls and the clock wait.

mod answers;
pub mod client;
mod freeze;
pub mod kept;
pub mod orders;
pub mod protocol;
mod schedule;
mod stream;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::client::GuestAgent;
pub use self::freeze::DEFAULT_LIMIT;
pub use self::kept::{KeptAgent, port_of};
pub use self::orders::{AgentError, LostReason, Notice, Order, Outcome};
pub use self::protocol::{Answer, Command, Inbox, ProtocolError};

/// Name of the stream, by which the guest's agent finds its port.
pub const STREAM: &str = "org.qemu.guest_agent.0";
