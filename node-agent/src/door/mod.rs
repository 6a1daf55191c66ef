//! One launcher: how it is reached, what is said, and the actor that keeps in touch.

mod connect;
mod keeper;
mod session;

pub use connect::{ConnectError, connect};
pub use keeper::{Keeper, Surroundings};
pub use session::{Greeting, Session, SessionError};
