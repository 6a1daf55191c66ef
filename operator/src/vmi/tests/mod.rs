//! The life of a VirtualMachineInstance, step by step, as its plans make it.

mod causes;
mod deletions;
mod diagnosis;
mod life;
mod lost_nodes;

use super::notice::{Notice, Severity};
use super::observe::Observed;
use super::plan::{Plan, plan};
use super::status;
use super::testing::{container, minimal_vmi, node, now, pod, settings};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::Phase;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

/// The plan with this Pod on a node that is well.
fn planned(vmi: &VirtualMachineInstance, pod: Option<Pod>, at: i64) -> Plan {
    planned_on(vmi, pod, Some(node("node1", |_| ())), at)
}

/// The plan with this Pod on this node, which is there or not.
fn planned_on(vmi: &VirtualMachineInstance, pod: Option<Pod>, node: Option<Node>, at: i64) -> Plan {
    plan(vmi, &observed(pod, node), &settings(), now(at))
}

fn observed(pod: Option<Pod>, node: Option<Node>) -> Observed {
    let nodes = node.map(|node| ("node1".to_owned(), Arc::new(node)));
    Observed { pod: pod.map(Arc::new), nodes: nodes.into_iter().collect(), ..Observed::default() }
}

/// The object after the plan.
fn after(plan: &Plan) -> &VirtualMachineInstance {
    plan.vmi.as_deref().expect("the object is changed")
}

/// One that the operator has accepted, with `change` made to it.
fn accepted(change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let vmi = minimal_vmi(|_| ());
    let mut vmi = serde_json::to_value(after(&planned(&vmi, None, 0))).unwrap();
    change(&mut vmi);
    serde_json::from_value(vmi).unwrap()
}

/// One whose Pod has a node.
fn bound() -> VirtualMachineInstance {
    let vmi = accepted(|_| ());
    after(&planned(&vmi, Some(bound_pod(&vmi, |_| ())), 1)).clone()
}

fn bound_pod(vmi: &VirtualMachineInstance, change: impl FnOnce(&mut Value)) -> Pod {
    pod(vmi, 0, |pod| {
        pod["spec"]["nodeName"] = json!("node1");
        change(pod);
    })
}

/// One whose node agent has written Running.
fn running() -> VirtualMachineInstance {
    let mut vmi = bound();
    status::enter(&mut vmi, Phase::Running, now(2));
    vmi
}

fn deleted(vmi: &VirtualMachineInstance) -> VirtualMachineInstance {
    let mut vmi = serde_json::to_value(vmi).unwrap();
    vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    serde_json::from_value(vmi).unwrap()
}

fn running_pod(vmi: &VirtualMachineInstance) -> Pod {
    bound_pod(vmi, |pod| {
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        pod["status"]["containerStatuses"] = container(&json!({ "running": {} }));
    })
}

fn ended_pod(vmi: &VirtualMachineInstance, status: i32) -> Pod {
    bound_pod(vmi, |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["containerStatuses"] = container(
            &json!({ "terminated": { "exitCode": status, "reason": "Error",
            "message": json!({ "reason": "panicked", "text": "the guest's kernel panicked", "detail": null }).to_string() } }),
        );
    })
}

/// The same Pod with its deletion asked for.
fn going(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now(0)));
    pod
}

fn condition(vmi: &VirtualMachineInstance, kind: &str) -> (String, String, String) {
    let condition = vmi.status.condition(kind).unwrap_or_else(|| panic!("{kind} is not there"));
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (format!("{:?}", condition.status), text(&condition.reason), text(&condition.message))
}
