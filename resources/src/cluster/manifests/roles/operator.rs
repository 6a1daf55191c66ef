//! What the operator may do.

use super::{READ, cluster_role, own_role, rule, rule_for, service_account};
use crate::Kind;
use crate::cluster::GROUP;
use crate::cluster::manifests::{CERTIFICATES, DEFINITIONS_GUARD, OPERATOR, policy};
use serde_json::{Value, json};

pub(super) fn objects(namespace: &str) -> Vec<Value> {
    let mut objects = vec![service_account(OPERATOR, namespace)];
    objects.extend(cluster_role(OPERATOR, namespace, &everywhere()));
    objects.extend(own_role(OPERATOR, namespace, &at_home()));
    objects
}

fn everywhere() -> Value {
    let instances = Kind::Instance.plural();
    let others: Vec<_> = Kind::ALL
        .iter()
        .filter(|kind| **kind != Kind::Instance)
        .map(|kind| kind.plural())
        .collect();
    let of = |kinds: &[&str], part: &str| -> Vec<String> {
        kinds.iter().map(|plural| format!("{plural}/{part}")).collect()
    };
    let status = of(&others, "status");
    let finalizers = of(&[&[instances][..], &others].concat(), "finalizers");
    let admission = "admissionregistration.k8s.io";
    let webhooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    json!([
        // VirtualMachines and replica sets make them and take them away.
        rule(&[GROUP], &[instances], &["get", "list", "watch", "create", "patch", "delete"]),
        // Their finalizers and labels.
        rule(&[GROUP], &others, &["get", "list", "watch", "patch"]),
        rule(&[GROUP], &texts(&status), &["patch"]),
        // With OwnerReferencesPermissionEnforcement on, an owner reference that blocks deletion needs it.
        rule(&[GROUP], &texts(&finalizers), &["update"]),
        // Patched for their finalizer only.
        rule(&[""], &["pods"], &["get", "list", "watch", "create", "patch", "delete"]),
        // The condition of their readiness gate.
        rule(&[""], &["pods/status"], &["patch"]),
        // Whether a node is lost, and whether a claim is there.
        rule(&[""], &["nodes", "persistentvolumeclaims"], READ),
        // Why a Pod does not get on.
        rule(&[""], &["events"], &["list"]),
        rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
        // The specification that a VirtualMachine was started with.
        rule(&["apps"], &["controllerrevisions"], &["get", "list", "create", "delete"]),
        // Looked at one by one; they go with the VirtualMachine that owns them.
        rule(&["cdi.kubevirt.io"], &["datavolumes"], &["get", "create"]),
        // What is applied for the KubeVirt object. Making cannot be bound to names; changing and deleting is, so that
        // nobody else's guards can be taken down from here.
        rule(&[admission], &[&webhooks[..], &policies].concat(), &["list", "create"]),
        rule_for(&[admission], &webhooks, &[OPERATOR, DEFINITIONS_GUARD], &["patch", "delete"]),
        rule_for(&[admission], &policies, &policy::NAMES, &["patch", "delete"]),
        // Looked for where there are some.
        rule(&["security.openshift.io"], &["securitycontextconstraints"], &["list"]),
    ])
}

/// In the namespace of the installation.
fn at_home() -> Value {
    json!([
        rule(&["coordination.k8s.io"], &["leases"], &["create"]),
        rule_for(
            &["coordination.k8s.io"],
            &["leases"],
            &[OPERATOR],
            &["get", "list", "watch", "update"]
        ),
        // The certificates of the webhooks, and no other Secret.
        rule(&[""], &["secrets"], &["create"]),
        rule_for(&[""], &["secrets"], &[CERTIFICATES], &["get", "list", "watch", "update"]),
        rule(&["apps"], &["daemonsets"], &["list", "watch", "create", "patch", "delete"]),
    ])
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}
