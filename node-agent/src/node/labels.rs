//! Labels of the node, and the patch that brings them there. Pure.

use std::collections::BTreeMap;

use corten_resources::names::{
    CPU_FEATURE_PREFIX, CPU_VENDOR_PREFIX, HEARTBEAT_ANNOTATION, HOST_MODEL_PREFIX,
    SCHEDULABLE_LABEL,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use serde_json::{Map, Value, json};

use super::cpu::GuestCpu;

/// Labels by name.
pub(super) type Labels = BTreeMap<String, String>;

/// What the agent says of its node.
pub(super) fn wanted(schedulable: bool, cpu: Option<&GuestCpu>) -> Labels {
    let mut labels: Labels = [(SCHEDULABLE_LABEL.to_owned(), schedulable.to_string())].into();
    let Some(cpu) = cpu else { return labels };
    let named = [(CPU_VENDOR_PREFIX, cpu.vendor), (HOST_MODEL_PREFIX, cpu.model)];
    let named = named.into_iter().filter_map(|(prefix, name)| Some((prefix, name?)));
    let features = cpu.features.iter().map(|feature| (CPU_FEATURE_PREFIX, *feature));
    for (prefix, name) in named.chain(features) {
        labels.insert(format!("{prefix}{name}"), true.to_string());
    }
    labels
}

/// Those of a node's labels that the agent answers for.
pub(super) fn ours(all: &Labels) -> Labels {
    let prefixes = [CPU_VENDOR_PREFIX, HOST_MODEL_PREFIX, CPU_FEATURE_PREFIX];
    let is_ours = |name: &String| {
        name == SCHEDULABLE_LABEL || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let ours = all.iter().filter(|(name, _)| is_ours(name));
    ours.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The merge patch that says that the agent is there, and makes the labels that the node had last into those wanted. Of a node that
/// was not seen yet all are written; what it has too many is seen in the answer.
pub(super) fn patch(seen: Option<&Labels>, wanted: &Labels, now: Timestamp) -> Value {
    let nothing = Labels::new();
    let seen = seen.unwrap_or(&nothing);
    let gone = seen.keys().filter(|name| !wanted.contains_key(*name));
    let gone = gone.map(|name| (name.clone(), Value::Null));
    let new = wanted.iter().filter(|(name, value)| seen.get(*name) != Some(value));
    let new = new.map(|(name, value)| (name.clone(), value.clone().into()));
    let labels: Map<String, Value> = gone.chain(new).collect();
    let beat = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut metadata = json!({ "annotations": { HEARTBEAT_ANNOTATION: beat } });
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    json!({
        "apiVersion": Node::api_version(&()),
        "kind": Node::kind(&()),
        "metadata": metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-16T10:00:01.9Z";

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn patched(seen: Option<&Labels>, wanted: &Labels) -> Value {
        patch(seen, wanted, NOW.parse().unwrap())["metadata"].clone()
    }

    #[test]
    fn heartbeat_alone_is_written_while_nothing_changes() {
        let wanted = labels(&[("kubevirt.io/schedulable", "true")]);
        let beat = json!({ "kubevirt.io/heartbeat": "2026-11-16T10:00:01Z" });
        assert_eq!(
            patched(None, &wanted),
            json!({ "labels": { "kubevirt.io/schedulable": "true" }, "annotations": beat })
        );
        assert_eq!(patched(Some(&wanted), &wanted), json!({ "annotations": beat }));
    }

    #[test]
    fn what_no_longer_holds_is_taken_away_and_others_labels_are_left_alone() {
        let cpu = GuestCpu {
            vendor: Some("AMD"),
            model: Some("EPYC"),
            features: ["avx2", "sse4.1"].into(),
        };
        let wanted = wanted(false, Some(&cpu));
        let node = labels(&[
            ("kubernetes.io/os", "linux"),
            ("cpu-feature.node.kubevirt.io/avx2", "true"),
            ("cpu-feature.node.kubevirt.io/avx512f", "true"),
            ("cpu-vendor.node.kubevirt.io/Intel", "true"),
            ("cpu-model.node.kubevirt.io/EPYC", "true"),
            ("kubevirt.io/schedulable", "true"),
        ]);
        let expected = json!({
            "kubevirt.io/schedulable": "false",
            "cpu-feature.node.kubevirt.io/avx512f": null,
            "cpu-feature.node.kubevirt.io/sse4.1": "true",
            "cpu-vendor.node.kubevirt.io/Intel": null,
            "cpu-vendor.node.kubevirt.io/AMD": "true",
            "host-model-cpu.node.kubevirt.io/EPYC": "true",
        });
        assert_eq!(patched(Some(&ours(&node)), &wanted)["labels"], expected);
    }

    #[test]
    fn node_without_kvm_has_no_processors_for_guests() {
        assert_eq!(wanted(false, None), labels(&[("kubevirt.io/schedulable", "false")]));
    }
}
