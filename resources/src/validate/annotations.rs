//! What KubeVirt's users ask for by annotations, and get in another way or not at all.

use crate::finding::Finding;
use crate::served::Scope;
use std::collections::BTreeMap;

/// Annotations that are refused, and what to do instead.
const REFUSED: [(&str, &str); 2] = [
    (
        "hooks.kubevirt.io/hookSidecars",
        "hooks change a libvirt domain, and there is none: leave the annotation out",
    ),
    (
        "kubevirt.io/ignitiondata",
        "there is no fw_cfg device; give it as userData of a cloudInitConfigDrive, to an image for KubeVirt or OpenStack",
    ),
];

/// Annotations by which a kubelet or a container runtime runs a Pod otherwise than its spec says: another AppArmor or seccomp
/// profile, other namespaces, devices of the node. A launcher Pod is run as the operator made it.
const RUNS_OTHERWISE: [&str; 16] = [
    "blockio.resources.beta.kubernetes.io/",
    "cdi.k8s.io/",
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "dev.gvisor.",
    "devices.nri.io/",
    "io.containerd.",
    "io.katacontainers.",
    // The runtimes' own: `io.kubernetes.cri.untrusted-workload`, `io.kubernetes.cri-o.userns-mode` and the like.
    "io.kubernetes.cri",
    // A Pod with `kubernetes.io/config.mirror` is one that its kubelet has from a file: it would never be run.
    "kubernetes.io/config.",
    "kubernetes.io/psp",
    "openshift.io/required-scc",
    "openshift.io/scc",
    "rdt.resources.beta.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "security.alpha.kubernetes.io/",
];

/// The Pod of a VirtualMachineInstance with this annotation would not be run as it was made: it does not get it.
pub fn runs_otherwise(key: &str) -> bool {
    RUNS_OTHERWISE.iter().any(|beginning| key.starts_with(beginning))
}

/// Tells of annotations that the Pod does not get. Without a cluster no annotation makes a difference.
pub(super) fn kept_back(
    path: &str,
    annotations: &BTreeMap<String, String>,
    scope: Scope,
) -> Vec<Finding> {
    let message =
        "its Pod does not get it: launchers are run under a profile and with devices of their own";
    let kept = annotations.keys().filter(|key| scope == Scope::Cluster && runs_otherwise(key));
    kept.map(|key| Finding::no_effect(format!("{path}[{key}]"), message)).collect()
}

/// Refuses annotations that ask for what cannot be had. `path` is that of the annotations.
pub fn check(path: &str, annotations: &BTreeMap<String, String>) -> Vec<Finding> {
    let given = |name: &str| annotations.get(name).is_some_and(|value| !value.is_empty());
    let refused = REFUSED.iter().filter(|(name, _)| given(name));
    refused.map(|(name, why)| Finding::not_served(format!("{path}[{name}]"), *why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_refused_by_its_name_and_other_annotations_are_not() {
        let annotations = [
            ("hooks.kubevirt.io/hookSidecars".to_owned(), "[{}]".to_owned()),
            ("kubevirt.io/ignitiondata".to_owned(), String::new()),
            ("example.com/a".to_owned(), "b".to_owned()),
        ];
        let found = check("metadata.annotations", &annotations.into());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "metadata.annotations[hooks.kubevirt.io/hookSidecars]");
    }

    #[test]
    fn what_would_run_the_pod_otherwise_is_told_in_clusters() {
        let keys = [
            "container.apparmor.security.beta.kubernetes.io/compute",
            "example.com/a",
            "io.kubernetes.cri-o.userns-mode",
            "k8s.v1.cni.cncf.io/networks",
            "kubernetes.io/egress-bandwidth",
        ];
        let annotations = keys.map(|key| (key.to_owned(), "unconfined".to_owned())).into();
        let found = kept_back("a", &annotations, Scope::Cluster);
        let paths: Vec<_> = found.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, [format!("a[{}]", keys[0]), format!("a[{}]", keys[2])]);
        assert!(!found.iter().any(Finding::is_refusal));
        assert_eq!(kept_back("a", &annotations, Scope::Standalone), []);
    }
}
