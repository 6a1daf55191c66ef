//! What the agent of a node may do. Policies bind what it writes to its own node.

use super::{cluster_role, rule, service_account};
use crate::Kind;
use crate::cluster::GROUP;
use crate::cluster::manifests::NODE_AGENT;
use serde_json::{Value, json};

pub(super) fn objects(namespace: &str) -> Vec<Value> {
    let rules = json!([
        rule(&[GROUP], &[Kind::Instance.plural()], &["list", "watch", "patch"]),
        rule(&[""], &["pods"], &["list", "watch"]),
        // What keeps a VM from getting on.
        rule(&["events.k8s.io"], &["events"], &["create"]),
        // Whether machines can be put on its node, and that it is there.
        rule(&[""], &["nodes"], &["patch"]),
    ]);
    let mut objects = vec![service_account(NODE_AGENT, namespace)];
    objects.extend(cluster_role(NODE_AGENT, namespace, &rules));
    objects
}
