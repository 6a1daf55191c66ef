//! Names that others rely on, and names derived from an object.

use sha2::{Digest, Sha256};

/// Namespace of Corten's own Pods.
pub const SYSTEM_NAMESPACE: &str = "kubevirt";

/// On Pods: what they are. On launcher Pods it is [`LAUNCHER`].
pub const APP_LABEL: &str = "kubevirt.io";
/// [`APP_LABEL`] of launcher Pods.
pub const LAUNCHER: &str = "virt-launcher";
/// On launcher Pods: uid of the VirtualMachineInstance.
pub const CREATED_BY_LABEL: &str = "kubevirt.io/created-by";
/// On launcher Pods: name of the VirtualMachineInstance, see [`label_value`].
pub const VM_NAME_LABEL: &str = "vm.kubevirt.io/name";
/// On launcher Pods: name of the VirtualMachineInstance too, see [`label_value`]. Services that tools make select by it.
pub const VMI_ID_LABEL: &str = "vmi.kubevirt.io/id";
/// On Pods and Services: there are metrics at the port of the name `metrics`. KubeVirt's dashboards and alerts find them by it.
pub const METRICS_LABEL: &str = "prometheus.kubevirt.io";
/// Where node agents serve metrics, on their nodes' network: the port that exporters of VMs have by custom.
pub const METRICS_PORT: u16 = 9177;

/// On VirtualMachineInstances: the node they are on. Node agents select by it.
pub const NODE_NAME_LABEL: &str = "kubevirt.io/nodeName";

/// On nodes: whether VMs can be put on them, "true" or "false". The node's agent writes it, launcher Pods select by it.
pub const SCHEDULABLE_LABEL: &str = "kubevirt.io/schedulable";
/// On nodes: when the node's agent last said that it is there.
pub const HEARTBEAT_ANNOTATION: &str = "kubevirt.io/heartbeat";
/// On nodes, before the name of who made their processors: `Intel`.
pub const CPU_VENDOR_PREFIX: &str = "cpu-vendor.node.kubevirt.io/";
/// On nodes, before what their processors are called: `Skylake-Server`.
pub const HOST_MODEL_PREFIX: &str = "host-model-cpu.node.kubevirt.io/";
/// On nodes, before each feature that their guests' processors can have: `avx2`.
pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";

/// Keeps a VirtualMachineInstance until its Pod has ended.
pub const VMI_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// What older releases of KubeVirt call it. Objects that were made there have it; it is released along with ours.
pub const VMI_FINALIZER_OLD: &str = "foregroundDeleteVirtualMachine";
/// Keeps a launcher Pod until it is proven that nothing of it runs any more, whoever deletes it and however.
pub const LAUNCHER_FINALIZER: &str = "kubevirt.io/launcher";

/// On launcher Pods, a readiness gate: the guest runs and is not paused. The operator writes the condition of that name.
pub const UNPAUSED_GATE: &str = "kubevirt.io/virtual-machine-unpaused";

/// Keeps a VirtualMachine until its VirtualMachineInstance is gone, or has been let go.
pub const VM_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On VirtualMachineInstances: the generation of the VirtualMachine that they were made from.
pub const VM_GENERATION_ANNOTATION: &str = "kubevirt.io/vm-generation";
/// On VirtualMachineInstanceMigrations: the VirtualMachineInstance, see [`label_value`]. virtctl selects by it.
pub const MIGRATED_VMI_LABEL: &str = "kubevirt.io/vmi-name";

/// On VirtualMachineInstances: how many Pods before the present one never came to run, because their node did not
/// admit them. Missing is 0. It is part of the Pod's name.
pub const LAUNCH_ATTEMPT_ANNOTATION: &str = "corten.kubevirt.io/launch-attempt";
/// On VirtualMachineInstances: the boot of its node in which the launcher was seen running, as the node's bootID. A node
/// with another one runs nothing of it any more. Only the operator writes it.
pub const BOOT_ID_ANNOTATION: &str = "corten.kubevirt.io/node-boot-id";
/// Labels on VirtualMachineInstances that the operator alone writes: they say where a VM is.
pub const REPORTED_LABELS: [&str; 1] = [NODE_NAME_LABEL];
/// Annotations on VirtualMachineInstances that the operator alone writes. By them it judges whether a VM is dead: whoever
/// wrote them could have a second one started beside the first.
pub const REPORTED_ANNOTATIONS: [&str; 2] = [LAUNCH_ATTEMPT_ANNOTATION, BOOT_ID_ANNOTATION];
/// Condition of VirtualMachineInstances, by the operator: it is over, and why. What led to it is kept here when its Pod is gone.
pub const ENDED: &str = "Ended";
/// Condition of VirtualMachineInstances, by the agent of the node: the node can do what the object says. It is there only
/// while it cannot, as the operator's Synchronized.
pub const NODE_SYNCHRONIZED: &str = "NodeSynchronized";
/// Condition of VirtualMachineInstances, by the agent of the node: the guest was told to power off, and how.
pub const GUEST_STOPPING: &str = "GuestStopping";
/// Condition of VirtualMachineInstances, by the agent of the node: the guest runs, and its serial console has said nothing yet.
pub const CONSOLE_SILENT: &str = "ConsoleSilent";
/// Condition of VirtualMachineInstances, by the agent of the node: on its disks there is nothing that could be booted.
pub const NOTHING_TO_BOOT: &str = "NothingToBoot";
/// Conditions of the agent's that are there only while something is to be told. When the VM has ended they mean nothing.
pub const AGENTS_CONDITIONS: [&str; 4] =
    [NODE_SYNCHRONIZED, GUEST_STOPPING, CONSOLE_SILENT, NOTHING_TO_BOOT];
/// On launcher Pods: name of the VirtualMachineInstance.
pub const DOMAIN_ANNOTATION: &str = "kubevirt.io/domain";
/// On Pods: the container that `kubectl logs` and `kubectl exec` take.
pub const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// On Pods: networks beside the Pod's own that Multus connects.
pub const NETWORKS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";
/// On Pods: the network that takes the place of the Pod's own.
pub const DEFAULT_NETWORK_ANNOTATION: &str = "v1.multus-cni.io/default-network";
/// On Pods: what Multus has connected.
pub const NETWORK_STATUS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

/// The container of a launcher Pod.
pub const LAUNCHER_CONTAINER: &str = "compute";
/// The resource a launcher Pod asks its node's device plugin for.
pub const KVM_RESOURCE: &str = "devices.kubevirt.io/kvm";
/// The resource for Pods that make network interfaces of their own, as tools of KubeVirt's do.
pub const TUN_RESOURCE: &str = "devices.kubevirt.io/tun";
/// The resource for Pods whose packets the kernel is to move.
pub const VHOST_NET_RESOURCE: &str = "devices.kubevirt.io/vhost-net";
/// The launcher's system-call profile, below kubelet's seccomp directory.
pub const LAUNCHER_SECCOMP_PROFILE: &str = "corten/launcher.json";
/// Where the image with kernel and initial RAM disk is in a launcher's container.
pub const KERNEL_BOOT_MOUNT: &str = "/var/run/corten/kernel-boot";
/// Where each volume is in a launcher's container, by its name: a claim's file system or block device, an image, files.
pub const VOLUMES_MOUNT: &str = "/var/run/corten/volumes";
/// Where Secrets for cloud-init and access credentials are in a launcher's container, each by its name.
pub const SECRETS_MOUNT: &str = "/var/run/corten/secrets";
/// Where a launcher keeps what lives no longer than its VM: overlays and empty disks.
pub const SCRATCH_MOUNT: &str = "/var/run/corten/scratch";
/// User and group of launchers. Images with disks and kernels are made for it.
pub const LAUNCHER_USER: i64 = 107;

/// What a name may have at most where it is a host name, as a Pod's is, or a label.
const LABEL_LENGTH: usize = 63;

/// Name of the Pod of a VirtualMachineInstance at its n-th attempt.
///
/// It follows from uid and attempt alone: whoever creates the Pod twice, in whatever state of its caches, gets the
/// answer that it exists.
pub fn launcher_pod_name(vmi_name: &str, vmi_uid: &str, attempt: u32) -> String {
    const PREFIX: &str = "virt-launcher-";
    let digest = short_digest(&format!("{vmi_uid}/{attempt}"));
    let room = LABEL_LENGTH - PREFIX.len() - 1 - digest.len();
    // A Pod's name is its host name, which has no dots; and what is left of a name that was cut may end with a dash.
    let name = vmi_name.replace('.', "-");
    let name = cut(&name, room).trim_end_matches('-');
    format!("{PREFIX}{name}-{digest}")
}

/// Name of the VirtualMachineInstance of a VirtualMachineInstanceReplicaSet at its n-th place.
///
/// It follows from uid and place alone, as a Pod's does: whoever fills a place twice gets the answer that it is taken.
pub fn replica_name(set_name: &str, set_uid: &str, place: u32) -> String {
    let digest = short_digest(&format!("{set_uid}/{place}"));
    let name = set_name.replace('.', "-");
    let name = cut(&name, LABEL_LENGTH - 1 - digest.len()).trim_end_matches('-');
    format!("{name}-{digest}")
}

/// How many letters [`generated_name`] puts behind what a name begins with, as Kubernetes does.
pub const GENERATED_LENGTH: usize = 5;

/// A name for an object that says only how it begins (`generateName`). Another `seed` gives another one.
pub fn generated_name(beginning: &str, seed: &str) -> String {
    let digest = short_digest(&format!("{beginning}/{seed}"));
    format!("{}{}", cut(beginning, LABEL_LENGTH - GENERATED_LENGTH), cut(&digest, GENERATED_LENGTH))
}

/// What the Pod's interface for a network of Multus' is called, which Multus is asked for. As in KubeVirt: `pod` and the
/// beginning of the network's digest.
pub fn pod_interface_name(network: &str) -> String {
    const DIGITS: usize = 11;
    let digest = Sha256::digest(network.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("pod{}", cut(&digits, DIGITS))
}

/// Namespace and name of the NetworkAttachmentDefinition that an object of `namespace` means by `network_name`.
pub fn attachment<'a>(network_name: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    network_name.split_once('/').unwrap_or((namespace, network_name))
}

/// A name of an object as the value of a label: cut, with a hash in place of what is left out, if it is too long.
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL_LENGTH {
        return name.to_owned();
    }
    let digest = short_digest(name);
    let kept = cut(name, LABEL_LENGTH - 1 - digest.len()).trim_end_matches(['-', '.']);
    format!("{kept}-{digest}")
}

/// The start of a name. Names of objects are ASCII.
fn cut(name: &str, length: usize) -> &str {
    name.get(..length).unwrap_or(name)
}

/// Ten characters that stand for a text: 47 bits of its SHA-256, in letters and digits that cannot be taken for each
/// other and make no words (Kubernetes takes them for names that it generates).
fn short_digest(text: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(10)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_name_is_fixed_for_uid_and_attempt() {
        let name = launcher_pod_name("first", "0b6c2f4e-2f1c-4c8e-9a40-6f0e8f5b7a11", 0);
        assert_eq!(name, launcher_pod_name("first", "0b6c2f4e-2f1c-4c8e-9a40-6f0e8f5b7a11", 0));
        assert_ne!(name, launcher_pod_name("first", "0b6c2f4e-2f1c-4c8e-9a40-6f0e8f5b7a11", 1));
        assert_ne!(name, launcher_pod_name("first", "0b6c2f4e-2f1c-4c8e-9a40-6f0e8f5b7a12", 0));
    }

    #[test]
    fn the_pod_name_does_not_change_between_releases() {
        // A release that named Pods otherwise would start every running VM a second time.
        assert_eq!(launcher_pod_name("first", "uid", 0), "virt-launcher-first-4s6g46v2g7");
    }

    #[test]
    fn the_name_of_a_replica_is_fixed_for_uid_and_place_and_does_not_change_between_releases() {
        assert_eq!(replica_name("web", "uid", 0), "web-4s6g46v2g7");
        assert_ne!(replica_name("web", "uid", 0), replica_name("web", "uid", 1));
        assert_ne!(replica_name("web", "uid", 0), replica_name("web", "other", 0));
        assert_eq!(replica_name(&"a.".repeat(60), "uid", 0).len(), 62);
    }

    #[test]
    fn the_pods_interface_of_a_network_is_called_as_in_kubevirt() {
        assert_eq!(pod_interface_name("red"), "podb1f51a511f1");
        assert_eq!(attachment("lan", "n"), ("n", "lan"));
        assert_eq!(attachment("other/lan", "n"), ("other", "lan"));
    }

    #[test]
    fn a_generated_name_begins_as_it_is_told_and_follows_from_its_seed() {
        let name = generated_name("web-", "1");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(name, generated_name("web-", "1"));
        assert_ne!(name, generated_name("web-", "2"));
        assert_eq!(generated_name(&"a".repeat(80), "1").len(), 63);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_a_label() {
        let long = format!("{}-.{}", "a".repeat(36), "b".repeat(200));
        let name = launcher_pod_name(&long, "uid", 0);
        assert!(
            name.len() <= 63 && name.starts_with(&format!("virt-launcher-{}-", "a".repeat(36))),
            "{name}"
        );
        assert!(!name.contains("--") && !name.contains('.'), "{name}");
    }

    #[test]
    fn a_label_value_of_63_characters_is_kept_and_a_longer_one_is_cut() {
        let fits = "a".repeat(63);
        assert_eq!(label_value(&fits), fits);
        let cut = label_value(&"a".repeat(64));
        assert_eq!(cut.len(), 63);
        assert_ne!(cut, label_value(&"a".repeat(65)));
    }
}
