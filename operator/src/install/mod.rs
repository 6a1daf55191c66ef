//! The KubeVirt object: what it says is installed and kept so; how that stands is told in its status.
//!
//! ```text
//!             nothing of it is missing, agents run on every node
//!   Deploying ---------------------------------------------------> Deployed
//!       |  ^                                                          |
//!       |  +------------------- something is missing -----------------+
//!       |                                                             |
//!       +--------- deleted, and no VirtualMachineInstance left -------+--> Deleting --> gone
//! ```
//!
//! Installed are the node agents, the policies and the webhooks. Each is compared with what there is, at every change and
//! once a minute, and applied if it differs; what carries our label and is no longer wanted is removed. The oldest object
//! that is not being deleted counts; others say that they do not.
//!
//! | file | holds |
//! |---|---|
//! | `follow` | the objects as they change, and the settings that follow from them; in every replica |
//! | `objects`, `webhooks` | what is installed; pure |
//! | `plan`, `status` | what is to be done, and what is told; pure |
//! | `controller` | joins them; in the leader only |

mod controller;
mod follow;
mod kinds;
mod objects;
mod plan;
mod status;
mod webhooks;

pub use controller::{Installer, run};
pub use follow::{Followed, follow};
pub use kinds::{ObjectKind, kind_of};
pub(crate) use plan::elected;

/// The Service that API servers reach webhooks by.
pub const SERVICE: &str = "corten-operator";

/// Names that the webhooks are reached by, for the certificate. The second Service is the one that KubeVirt's tools know.
pub fn served_names(namespace: &str) -> Vec<String> {
    [SERVICE, "virt-api"]
        .iter()
        .flat_map(|service| {
            ["svc", "svc.cluster.local"].map(|domain| format!("{service}.{namespace}.{domain}"))
        })
        .collect()
}
