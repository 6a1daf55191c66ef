//! A KubeVirt object: what the installation is told.

use super::Support::{Harmless, Only, Partly, Refused, Served, Values};
use super::{Entry, both};

const AS_INSTALLED: &str = "the operator runs as its own Deployment says: change that";
const FEW_REQUESTS: &str = "so few requests are made that they are not limited";
const NO_CLUSTERS: &str = "machines do not move from cluster to cluster";
const NO_DEVICES: &str = "devices of the node are not given to guests";
const NO_FIRMWARE: &str = "there is no firmware";
const NO_HOTPLUG: &str = "nothing is plugged in while a machine runs";
const NO_MIGRATION: &str = "machines cannot migrate yet";
const NO_MONITOR: &str = "no ServiceMonitor is made: have /metrics scraped by the Pods' labels";
const NO_TRACKING: &str = "changed blocks are not remembered";
const ONE_MACHINE: &str = "there is one type of machine, and it has its own version";
const OTHER_NODES: &str = "nodes are amd64";
const OWN_LABELS: &str = "what is installed has labels of Corten's own";
const OWN_LOGS: &str = "what a program logs is told it by the variable RUST_LOG";
const PULL_POLICIES: super::Support = Only(&["Always", "IfNotPresent", "Never"]);

pub(super) const ENTRIES: &[Entry] = &[
    both("spec.certificateRotateStrategy.selfSigned.ca.duration", Served),
    both("spec.certificateRotateStrategy.selfSigned.ca.renewBefore", Served),
    both("spec.certificateRotateStrategy.selfSigned.caOverlapInterval", Served),
    both("spec.certificateRotateStrategy.selfSigned.caRotateInterval", Served),
    both("spec.certificateRotateStrategy.selfSigned.certRotateInterval", Served),
    both("spec.certificateRotateStrategy.selfSigned.server.duration", Served),
    both("spec.certificateRotateStrategy.selfSigned.server.renewBefore", Served),
    both(
        "spec.configuration.additionalGuestMemoryOverheadRatio",
        Refused("what a machine needs beyond its guest's memory is reckoned from the machine"),
    ),
    both("spec.configuration.apiConfiguration", Harmless(FEW_REQUESTS)),
    both("spec.configuration.architectureConfiguration.amd64", Harmless(ONE_MACHINE)),
    both("spec.configuration.architectureConfiguration.arm64", Harmless(OTHER_NODES)),
    both("spec.configuration.architectureConfiguration.defaultArchitecture", Only(&["amd64"])),
    both("spec.configuration.architectureConfiguration.ppc64le", Harmless(OTHER_NODES)),
    both("spec.configuration.architectureConfiguration.s390x", Harmless(OTHER_NODES)),
    both(
        "spec.configuration.autoCPULimitNamespaceLabelSelector",
        Refused("a limit is set where a machine asks for one"),
    ),
    both("spec.configuration.changedBlockTrackingLabelSelectors", Refused(NO_TRACKING)),
    both("spec.configuration.commonInstancetypesDeployment.enabled", Only(&["false"])),
    both("spec.configuration.confidentialCompute", Refused("the host can read the guest's memory")),
    both("spec.configuration.controllerConfiguration", Harmless(FEW_REQUESTS)),
    both("spec.configuration.cpuModel", Only(&["host-model", "host-passthrough"])),
    both(
        "spec.configuration.cpuRequest",
        Refused("it follows from developerConfiguration.cpuAllocationRatio"),
    ),
    both(
        "spec.configuration.defaultRuntimeClass",
        Refused("launchers run under the node's usual container runtime"),
    ),
    both(
        "spec.configuration.developerConfiguration.clusterProfiler",
        Refused("there is no profiler"),
    ),
    both("spec.configuration.developerConfiguration.cpuAllocationRatio", Served),
    both("spec.configuration.developerConfiguration.disabledFeatureGates", Served),
    both(
        "spec.configuration.developerConfiguration.diskVerification",
        Harmless("images are looked at where they are opened, in the launcher"),
    ),
    both(
        "spec.configuration.developerConfiguration.featureGates",
        Partly("gates that do nothing here are warned of"),
    ),
    both("spec.configuration.developerConfiguration.logVerbosity", Harmless(OWN_LOGS)),
    both("spec.configuration.developerConfiguration.memoryOvercommit", Only(&["100"])),
    both(
        "spec.configuration.developerConfiguration.minimumClusterTSCFrequency",
        Harmless(NO_MIGRATION),
    ),
    both(
        "spec.configuration.developerConfiguration.minimumReservePVCBytes",
        Harmless("a disk on a claim takes what the claim has"),
    ),
    both(
        "spec.configuration.developerConfiguration.nodeSelectors",
        Refused("write it into the machines' own nodeSelector"),
    ),
    both(
        "spec.configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent",
        Harmless("a disk on a claim takes what the claim has"),
    ),
    both(
        "spec.configuration.developerConfiguration.useEmulation",
        Refused("machines run on KVM only"),
    ),
    both("spec.configuration.emulatedMachines", Harmless(ONE_MACHINE)),
    both(
        "spec.configuration.evictionStrategy",
        Values { served: &["None"], warned: &["LiveMigrateIfPossible"], why: NO_MIGRATION },
    ),
    both("spec.configuration.handlerConfiguration", Harmless(FEW_REQUESTS)),
    both("spec.configuration.hypervisors.name", Only(&["kvm"])),
    both(
        "spec.configuration.imagePullPolicy",
        Harmless("spec.imagePullPolicy holds for launchers too"),
    ),
    both("spec.configuration.instancetype", Refused("instance types are not served")),
    both("spec.configuration.ksmConfiguration", Refused("pages of guests are not shared")),
    both("spec.configuration.liveUpdateConfiguration", Harmless(NO_HOTPLUG)),
    both("spec.configuration.machineType", Harmless(ONE_MACHINE)),
    both("spec.configuration.mediatedDevicesConfiguration", Refused(NO_DEVICES)),
    both(
        "spec.configuration.memBalloonStatsPeriod",
        Harmless("the guest is asked when its numbers are wanted"),
    ),
    both("spec.configuration.migrations", Harmless(NO_MIGRATION)),
    both("spec.configuration.minCPUModel", Harmless(NO_MIGRATION)),
    both(
        "spec.configuration.network.binding",
        Refused("plug-ins change a libvirt domain, and there is none"),
    ),
    both(
        "spec.configuration.network.defaultNetworkInterface",
        Values {
            served: &["bridge"],
            warned: &["masquerade"],
            why: "an interface that nobody names is connected by `bridge: {}`",
        },
    ),
    both(
        "spec.configuration.network.permitBridgeInterfaceOnPodNetwork",
        Values {
            served: &["true"],
            warned: &["false"],
            why: "`bridge: {}` is served on the Pod's network",
        },
    ),
    both(
        "spec.configuration.network.permitSlirpInterface",
        Harmless("KubeVirt has removed that binding"),
    ),
    both("spec.configuration.obsoleteCPUModels", Harmless("guests see the node's own processors")),
    both("spec.configuration.ovmfPath", Harmless(NO_FIRMWARE)),
    both("spec.configuration.permittedHostDevices", Refused(NO_DEVICES)),
    both(
        "spec.configuration.persistentReservationConfiguration",
        Refused("SCSI commands are not passed through"),
    ),
    both("spec.configuration.roleAggregationStrategy", Only(&["AggregateToDefault"])),
    both(
        "spec.configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile.localhostProfile",
        Refused(
            "launchers have a profile of their own, or the runtime's: say runtimeDefaultProfile",
        ),
    ),
    both(
        "spec.configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile.runtimeDefaultProfile",
        Served,
    ),
    both(
        "spec.configuration.selinuxLauncherType",
        Refused("launchers have the type of other containers"),
    ),
    both(
        "spec.configuration.smbios",
        Refused("the guest's tables are the machine's own, with each machine's uuid and serial"),
    ),
    both(
        "spec.configuration.supportContainerResources",
        Harmless("a launcher Pod has one container"),
    ),
    both(
        "spec.configuration.supportedGuestAgentVersions",
        Harmless("what an agent can do is asked of the agent"),
    ),
    both(
        "spec.configuration.tlsConfiguration.ciphers",
        Refused("servers speak TLS 1.2 and 1.3 with ciphers that are held to be safe"),
    ),
    both("spec.configuration.tlsConfiguration.minTLSVersion", Only(&["VersionTLS12"])),
    both("spec.configuration.virtTemplateDeployment.enabled", Only(&["false"])),
    both(
        "spec.configuration.virtualMachineInstancesPerNode",
        Refused("a node takes as many machines as its memory and processors allow"),
    ),
    both(
        "spec.configuration.virtualMachineOptions.disableFreePageReporting",
        Refused("a machine without it is one with autoattachMemBalloon: false"),
    ),
    both(
        "spec.configuration.virtualMachineOptions.disableSerialConsoleLog",
        Refused("the serial console is the launcher's log"),
    ),
    both(
        "spec.configuration.vmRolloutStrategy",
        Values {
            served: &["Stage"],
            warned: &["LiveUpdate"],
            why: "changes of a machine that runs come with its next start",
        },
    ),
    both("spec.configuration.vmStateStorageClass", Harmless(NO_FIRMWARE)),
    both("spec.configuration.webhookConfiguration", Harmless(FEW_REQUESTS)),
    both(
        "spec.customizeComponents.flags",
        Refused("programs are started with arguments of Corten's own"),
    ),
    both(
        "spec.customizeComponents.patches",
        Refused("what is installed is as Corten makes it; workloads.nodePlacement says where"),
    ),
    both("spec.imagePullPolicy", PULL_POLICIES),
    both("spec.imagePullSecrets.name", Served),
    both("spec.imageRegistry", Served),
    both("spec.imageTag", Served),
    both("spec.infra.nodePlacement", Refused(AS_INSTALLED)),
    both("spec.infra.replicas", Refused(AS_INSTALLED)),
    both("spec.monitorAccount", Harmless(NO_MONITOR)),
    both("spec.monitorNamespace", Harmless(NO_MONITOR)),
    both("spec.productComponent", Harmless(OWN_LABELS)),
    both("spec.productName", Harmless(OWN_LABELS)),
    both("spec.productVersion", Harmless(OWN_LABELS)),
    both("spec.serviceMonitorNamespace", Harmless(NO_MONITOR)),
    both("spec.synchronizationPort", Harmless(NO_CLUSTERS)),
    both("spec.uninstallStrategy", Only(&["BlockUninstallIfWorkloadsExist"])),
    both(
        "spec.workloadUpdateStrategy.batchEvictionInterval",
        Harmless("machines that run are not ended for a new release"),
    ),
    both(
        "spec.workloadUpdateStrategy.batchEvictionSize",
        Harmless("machines that run are not ended for a new release"),
    ),
    both(
        "spec.workloadUpdateStrategy.workloadUpdateMethods",
        Harmless("machines that run keep their release until they end"),
    ),
    both("spec.workloads.nodePlacement.affinity", Served),
    both("spec.workloads.nodePlacement.nodeSelector", Served),
    both("spec.workloads.nodePlacement.tolerations.effect", Served),
    both("spec.workloads.nodePlacement.tolerations.key", Served),
    both("spec.workloads.nodePlacement.tolerations.operator", Served),
    both("spec.workloads.nodePlacement.tolerations.tolerationSeconds", Served),
    both("spec.workloads.nodePlacement.tolerations.value", Served),
    both("spec.workloads.replicas", Harmless("there is one agent on each node")),
];
