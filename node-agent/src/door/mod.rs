//! One launcher: how it is reached, what is said, and the actor that keeps in touch.

mod allowance;
mod asker;
mod attendance;
mod connect;
mod handover;
mod keeper;
mod network;
mod open_up;
mod session;
mod visits;

pub use asker::{AskError, Asker, Launcher, Launchers, Question};
pub use connect::{ConnectError, connect};
pub use handover::{Handover, HandoverError};
pub use keeper::{Keeper, Surroundings};
pub use open_up::{OpenUp, OpenUpError};
pub use session::{Greeting, Session, SessionError, Told};
