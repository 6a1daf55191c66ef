//! The controller of VirtualMachineInstances: `observe` -> `plan` (pure) -> `apply`.
//!
//! ```text
//!            accepted                Pod has a node            container runs, guest does not yet
//!   (unset) ---------> Pending ----------------> Scheduling ----------------------> Scheduled
//!                         |                          |                                  |
//!                         |                          +---- the node agent ----+---------+
//!                         |                                                   v
//!                         |                                                Running
//!                         |     Pod ended: exit status, termination message   |
//!                         +-------------------------------------------------->+---> Succeeded, Failed
//! ```
//!
//! It owns the launcher Pod, whose name follows from uid and attempt: a Pod that came to nothing before its VM ran, for
//! reasons that are not the VM's, is no end but the reason for a next attempt. Writes are merge patches with a
//! resourceVersion: who loses observes again. Who writes which field, and which conditions there are, is in
//! `docs/operator.md`.
//!
//! | file | holds |
//! |---|---|
//! | `controller`, `streams` | watches, and what joins them with plan and writes |
//! | `observe`, `apply` | what is read, what is written |
//! | `plan` | what is to be done; `start` without a Pod, `live` with one, `deletion` |
//! | `status`, `conditions` | what is written on the object |
//! | `fate` | whether a launcher may still be running: proof of death only |
//! | `ending`, `last_words` | how a Pod ended, and whether that is the end; what its launcher wrote |
//! | `going` | a guest that takes its time to power off |
//! | `linking` | a container that runs while its VM does not: who is not there |
//! | `kvm` | which nodes offer KVM, where none is found for a Pod |
//! | `gate` | whether its Pod may be ready |
//! | `claims` | how the claims of volumes stand |
//! | `orphans` | Pods whose object is gone |
//! | `unreadable` | objects that our types cannot read |

mod apply;
mod claims;
mod conditions;
mod controller;
mod deletion;
mod ending;
mod fate;
mod gate;
mod going;
mod kvm;
mod last_words;
mod linking;
mod live;
mod notice;
mod observe;
mod orphans;
mod plan;
mod start;
mod status;
mod streams;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod unreadable;

pub use controller::run;
pub use ending::{Ending, Setback};
pub use fate::{Fate, Proof, fate, fate_on};
pub(crate) use gate::is_paused;
pub use notice::{Notice, Severity};
pub use observe::{Observed, Said};
pub use plan::{Plan, plan};
pub(crate) use status::accept;

/// Why nobody knows whether a VM runs, and why it ended if it is certain that it does not.
const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
/// Why a Pod cannot be made in a cluster that does not know image volumes.
const NO_IMAGES: (&str, &str) = (
    "ImageVolumesNotServed",
    "the cluster does not mount images as volumes: it takes Kubernetes 1.33 with the feature gate ImageVolume on API server and \
     kubelets, or a later one",
);
