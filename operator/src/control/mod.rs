//! What all controllers share, so that each is `observe` -> `plan` (pure) -> `apply` and a few lines.
//!
//! | file | holds |
//! |---|---|
//! | `watched`, `stores` | one watch of a kind for the whole process |
//! | `run` | the loop: objects that cannot be read, conflicts, failures |
//! | `failures` | how long to wait after a failure |
//! | `unreadable` | what is told of an object that cannot be read |
//! | `conditions`, `owner` | parts of objects that all kinds have |

pub(crate) mod conditions;
mod failures;
pub(crate) mod owner;
mod run;
mod stores;
mod unreadable;
mod watched;

pub use failures::Failures;
pub use run::{Reconcile, ReconcileError, run};
pub use stores::Stores;
pub use unreadable::ToldAs;
pub use watched::{Guarded, Kind, Watched};

use kube::ResourceExt;

/// An object as the log names it: `namespace/name`.
pub fn name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
