//! What the agent says of its node: whether VMs can be put on it, which processors they would have, and that somebody looks
//! after it.
//!
//! Launcher Pods select nodes by the first label. It is "true" only once launchers' system-call profile is installed and while
//! KVM can be used, so a Pod never comes to a node where it could not start. Those of processors are KubeVirt's, which its
//! tools and users' node selectors look for; what no longer holds is taken away.

mod cpu;
mod features;
mod labels;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

pub use cpu::GuestCpu;

use self::labels::{Labels, ours, patch, wanted};

/// How often it is said that the agent is there.
const BEAT: Duration = Duration::from_secs(60);
/// How soon it is tried again when the API server did not take it, or the node is not as it was told.
const AGAIN: Duration = Duration::from_secs(5);
/// How long an answer of the API server is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Keeps labels and heartbeat of the node up to date, without end.
pub async fn tell(client: Client, name: String, kvm: PathBuf, mut usable: watch::Receiver<bool>) {
    let nodes: Api<Node> = Api::all(client);
    let mut told = None;
    let mut seen: Option<Labels> = None;
    loop {
        let schedulable = *usable.borrow_and_update();
        let wanted = wanted(schedulable, cpu(&kvm, schedulable).as_ref());
        let patch = Patch::Merge(patch(seen.as_ref(), &wanted, Timestamp::now()));
        let parameters = PatchParams::default();
        let patched = nodes.patch_metadata(&name, &parameters, &patch);
        let pause = match timeout(ANSWER_WITHIN, patched).await {
            Ok(Ok(node)) => {
                if told.replace(schedulable) != Some(schedulable) {
                    info!(node = name, schedulable, "told whether VMs can be put on the node");
                }
                let labels = ours(&node.metadata.labels.unwrap_or_default());
                let is_as_told = labels == wanted;
                seen = Some(labels);
                if is_as_told { BEAT } else { AGAIN }
            }
            Ok(Err(error)) => {
                warn!(node = name, "cannot label the node: {:#}", anyhow::Error::from(error));
                AGAIN
            }
            Err(_) => {
                warn!(node = name, "cannot label the node: no answer");
                AGAIN
            }
        };
        // A change is told at once. The other end is never gone before this one.
        let _ = timeout(pause, usable.changed()).await;
    }
}

fn cpu(kvm: &Path, usable: bool) -> Option<GuestCpu> {
    usable.then(|| GuestCpu::offered_by(kvm)).flatten()
}
