//! What the agent writes on VMIs of its node: that the guest runs, and what it and its launcher tell.
//!
//! ```text
//!  session --told--> Facts --+
//!  object, as the watch has it --> wanted (pure) --differs--> writer --merge patch with resourceVersion--> API server
//!  Pod, with its addresses --+
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `facts` | what is known of one VM by its launcher; of what is not known nothing is written |
//! | `wanted` | facts -> the status that the object should have |
//! | `phase`, `conditions`, `guest`, `interfaces`, `machine` | its parts; each changes a status in memory |
//! | `writer` | one for each VMI: the latest facts, one write at a time |
//! | `pace` | how soon after a write the next one may follow |
//!
//! Who else writes what is in `docs/operator.md`. Conditions and volumes are lists that the operator writes to, too: its
//! entries stay as they are, and the version makes sure that none is lost.

mod conditions;
mod facts;
mod guest;
mod interfaces;
mod machine;
mod pace;
mod phase;
#[cfg(test)]
mod tests;
mod wanted;
mod writer;

pub use conditions::{AGENT_CONNECTED, AGENT_UNSUPPORTED, Claim, PAUSED, RESTART_REQUIRED};
pub use facts::{Connected, Facts, Heeds, Run};
pub use phase::Times;
pub use wanted::patch;
pub use writer::{Report, Reports};
