//! The specification itself: node, life cycle, names, probes.

use super::Support::{Harmless, Later, Only, Refused, Served};
use super::{Entry, alone, both, each};

const ONE_NODE: &str = "there is one node";
const NO_POD: &str = "there is no Pod";
const NO_PROBES: &str = "guests are not probed";

pub(super) const ENTRIES: &[Entry] = &[
    both(
        "spec.accessCredentials",
        Refused(
            "keys and passwords are not brought into guests; write them into cloud-init's user data",
        ),
    ),
    each("spec.affinity", Harmless(ONE_NODE), Later),
    both("spec.architecture", Only(&["amd64"])),
    alone("spec.dnsConfig.nameservers", Served),
    alone("spec.dnsConfig.options", Harmless("a guest cannot be told of them with its address")),
    alone("spec.dnsConfig.searches", Served),
    alone("spec.dnsPolicy", Only(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    each("spec.evictionStrategy", Harmless(ONE_NODE), Only(&["None"])),
    alone("spec.hostname", Served),
    alone("spec.livenessProbe", Harmless(NO_PROBES)),
    each("spec.nodeSelector", Harmless(ONE_NODE), Served),
    each("spec.priorityClassName", Harmless(NO_POD), Served),
    alone("spec.readinessProbe", Harmless(NO_PROBES)),
    both("spec.resourceClaims", Refused("devices of the node are not given to guests")),
    each("spec.schedulerName", Harmless(ONE_NODE), Served),
    alone("spec.serviceAccountName", Harmless(NO_POD)),
    alone("spec.startStrategy", Only(&["Paused"])),
    alone("spec.subdomain", Served),
    both("spec.terminationGracePeriodSeconds", Served),
    each("spec.tolerations.effect", Harmless(ONE_NODE), Served),
    each("spec.tolerations.key", Harmless(ONE_NODE), Served),
    each("spec.tolerations.operator", Harmless(ONE_NODE), Served),
    each("spec.tolerations.tolerationSeconds", Harmless(ONE_NODE), Served),
    each("spec.tolerations.value", Harmless(ONE_NODE), Served),
    each("spec.topologySpreadConstraints", Harmless(ONE_NODE), Later),
    both("spec.utilityVolumes", Refused("there are no backups and memory dumps")),
];
