//! What the agent says of its node: whether VMs can be put on it, and that somebody looks after it.
//!
//! Launcher Pods select nodes by the label. It is "true" only once launchers' system-call profile is installed and while
//! KVM can be used, so a Pod never comes to a node where it could not start.

use std::time::Duration;

use corten_resources::names::{HEARTBEAT_ANNOTATION, SCHEDULABLE_LABEL};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

/// How often it is said that the agent is there.
const BEAT: Duration = Duration::from_secs(60);
/// How soon it is tried again when the API server did not take it.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps label and heartbeat of the node up to date, without end.
pub async fn tell(client: Client, name: String, mut usable: watch::Receiver<bool>) {
    let nodes: Api<Node> = Api::all(client);
    let mut told = None;
    loop {
        let schedulable = *usable.borrow_and_update();
        let patch = Patch::Merge(state(schedulable, Timestamp::now()));
        let pause = match nodes.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Ok(_) => {
                if told.replace(schedulable) != Some(schedulable) {
                    info!(node = name, schedulable, "told whether VMs can be put on the node");
                }
                BEAT
            }
            Err(error) => {
                warn!(node = name, "cannot label the node: {:#}", anyhow::Error::from(error));
                AGAIN
            }
        };
        // A change is told at once. The other end is never gone before this one.
        let _ = timeout(pause, usable.changed()).await;
    }
}

/// The merge patch that says it. Nothing else of the node is in it.
fn state(schedulable: bool, now: Timestamp) -> Value {
    json!({
        "apiVersion": Node::api_version(&()),
        "kind": Node::kind(&()),
        "metadata": {
            "labels": { SCHEDULABLE_LABEL: schedulable.to_string() },
            "annotations": { HEARTBEAT_ANNOTATION: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_and_time_are_all_that_is_written() {
        let patch = state(true, "2026-11-16T10:00:01.9Z".parse().unwrap());
        assert_eq!(
            patch["metadata"],
            json!({
                "labels": { "kubevirt.io/schedulable": "true" },
                "annotations": { "kubevirt.io/heartbeat": "2026-11-16T10:00:01Z" },
            })
        );
        assert_eq!(
            state(false, Timestamp::now())["metadata"]["labels"][SCHEDULABLE_LABEL],
            "false"
        );
        assert!(patch.get("spec").is_none() && patch.get("status").is_none());
    }
}
