//! Parts that a Pod takes as they are, against Kubernetes' own types: what they cannot read, no Pod can be made of.

use super::{Finding, Findings, decode};
use crate::types::{Embedded, KubeVirtSpec, Probe, VirtualMachineInstanceSpec};
use k8s_openapi::api::core::v1::{
    Affinity, HTTPGetAction, TCPSocketAction, TopologySpreadConstraint,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Refuses what does not fit into the Pod of an instance.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    findings.extend(part::<Affinity>("spec.affinity", spec.affinity.as_ref()));
    for (index, constraint) in spec.topology_spread_constraints.iter().enumerate() {
        let path = format!("spec.topologySpreadConstraints[{index}]");
        findings.extend(part::<TopologySpreadConstraint>(&path, Some(constraint)));
    }
    probe("spec.livenessProbe", spec.liveness_probe.as_ref(), findings);
    probe("spec.readinessProbe", spec.readiness_probe.as_ref(), findings);
}

/// The same of the Pods of an installation.
pub(super) fn check_installation(spec: &KubeVirtSpec, findings: &mut Findings) {
    let placement = spec.workloads.as_ref().and_then(|it| it.node_placement.as_ref());
    let affinity = placement.and_then(|it| it.affinity.as_ref());
    findings.extend(part::<Affinity>("spec.workloads.nodePlacement.affinity", affinity));
}

fn probe(path: &str, probe: Option<&Probe>, findings: &mut Findings) {
    let Some(probe) = probe else { return };
    findings.extend(part::<HTTPGetAction>(&format!("{path}.httpGet"), probe.http_get.as_ref()));
    let tcp = probe.tcp_socket.as_ref();
    findings.extend(part::<TCPSocketAction>(&format!("{path}.tcpSocket"), tcp));
}

fn part<T: DeserializeOwned>(path: &str, part: Option<&Embedded>) -> Vec<Finding> {
    part.map(|part| decode::misfits::<T>(path, Value::Object(part.clone()))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::served::Scope;
    use crate::validate::admit;
    use serde_json::json;

    fn told(kind: Kind, spec: &Value) -> Vec<String> {
        let object = json!({ "metadata": { "name": "a" }, "spec": spec });
        let found = admit(kind, None, &object, Scope::Cluster);
        found.iter().filter(|it| it.is_refusal()).map(ToString::to_string).collect()
    }

    #[test]
    fn what_no_pod_can_have_is_refused_by_its_path() {
        let spec = json!({
            "domain": { "memory": { "guest": "64Mi" } },
            "affinity": {
                "nodeAffinity": 7,
                "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                    { "topologyKey": "zone", "labelSelector": { "matchLabels": { "a": 1 } } }] },
            },
            "topologySpreadConstraints": [{ "maxSkew": 1 }, { "maxSkew": "x" }],
            "livenessProbe": { "httpGet": { "port": { "a": 1 } } },
            "readinessProbe": { "tcpSocket": { "port": [] } },
        });
        let text = "is not a text; a number or a word such as yes needs quotes to be one";
        let wanted = [
            "affinity.nodeAffinity: 7 is not an object".to_owned(),
            format!(
                "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels.a: 1 {text}"
            ),
            "topologySpreadConstraints[1].maxSkew: \"x\" is not a whole number".to_owned(),
            "livenessProbe.httpGet.port: an object is not a number or a text".to_owned(),
            "readinessProbe.tcpSocket.port: a list is not a number or a text".to_owned(),
        ];
        let inside = |path: &str| wanted.clone().map(|it| format!("{path}.{it}"));
        assert_eq!(told(Kind::Instance, &spec), inside("spec"));
        let machine = json!({ "runStrategy": "Halted", "template": { "spec": spec } });
        assert_eq!(told(Kind::Machine, &machine), inside("spec.template.spec"));
    }

    #[test]
    fn what_pods_have_is_taken() {
        let spec = json!({
            "domain": { "memory": { "guest": "64Mi" } },
            "affinity": { "nodeAffinity": null, "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "a": "b" } } } }] } },
            "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }],
            "livenessProbe": { "httpGet": { "port": 80, "httpHeaders": [{ "name": "a", "value": "b" }] } },
            "readinessProbe": { "tcpSocket": { "port": "ssh" } },
        });
        assert_eq!(told(Kind::Instance, &spec), [""; 0]);
    }

    #[test]
    fn agents_are_placed_by_what_pods_have() {
        let spec =
            json!({ "workloads": { "nodePlacement": { "affinity": { "podAffinity": "x" } } } });
        assert_eq!(
            told(Kind::KubeVirt, &spec),
            ["spec.workloads.nodePlacement.affinity.podAffinity: \"x\" is not an object"]
        );
    }
}
