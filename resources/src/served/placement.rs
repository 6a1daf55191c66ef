//! The specification itself: node, life cycle, names, probes.

use super::Support::{Harmless, Only, Partly, Refused, Served, Values};
use super::{Entry, both, each};

const ONE_NODE: &str = "there is one node";
const NO_POD: &str = "there is no Pod";
const NO_PROBES: &str = "guests are not probed";
const NO_EXEC: &str = "commands are not run in guests by probes yet: take httpGet or tcpSocket";
const NO_PING: &str = "the guest agent is not asked by probes yet: take httpGet or tcpSocket";
/// Pod Security's "baseline" forbids it, since kubelet would reach whatever the node can.
const OTHER_HOST: &str = "a probe goes to the guest itself: leave the host out";
const NO_MIGRATION: &str = "machines cannot migrate yet, so it is ended when its node is drained";

pub(super) const ENTRIES: &[Entry] = &[
    both(
        "spec.accessCredentials",
        Refused(
            "keys and passwords are not brought into guests; write them into cloud-init's user data",
        ),
    ),
    each("spec.affinity", Harmless(ONE_NODE), Served),
    both("spec.architecture", Only(&["amd64"])),
    both("spec.dnsConfig.nameservers", Served),
    each(
        "spec.dnsConfig.options",
        Harmless("a guest cannot be told of them with its address"),
        Partly("the Pod has them; a guest cannot be told of them with its address"),
    ),
    both("spec.dnsConfig.searches", Served),
    both("spec.dnsPolicy", Only(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    each(
        "spec.evictionStrategy",
        Harmless(ONE_NODE),
        Values { served: &["None"], warned: &["LiveMigrateIfPossible"], why: NO_MIGRATION },
    ),
    both("spec.hostname", Served),
    each("spec.livenessProbe", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.exec", Harmless(NO_PROBES), Refused(NO_EXEC)),
    each("spec.livenessProbe.failureThreshold", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.guestAgentPing", Harmless(NO_PROBES), Refused(NO_PING)),
    each("spec.livenessProbe.httpGet", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.httpGet.host", Harmless(NO_PROBES), Refused(OTHER_HOST)),
    each("spec.livenessProbe.httpGet.httpHeaders", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.httpGet.path", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.httpGet.port", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.httpGet.scheme", Harmless(NO_PROBES), Only(&["HTTP", "HTTPS"])),
    each("spec.livenessProbe.initialDelaySeconds", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.periodSeconds", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.successThreshold", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.tcpSocket", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.tcpSocket.host", Harmless(NO_PROBES), Refused(OTHER_HOST)),
    each("spec.livenessProbe.tcpSocket.port", Harmless(NO_PROBES), Served),
    each("spec.livenessProbe.timeoutSeconds", Harmless(NO_PROBES), Served),
    each("spec.nodeSelector", Harmless(ONE_NODE), Served),
    each("spec.priorityClassName", Harmless(NO_POD), Served),
    each("spec.readinessProbe", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.exec", Harmless(NO_PROBES), Refused(NO_EXEC)),
    each("spec.readinessProbe.failureThreshold", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.guestAgentPing", Harmless(NO_PROBES), Refused(NO_PING)),
    each("spec.readinessProbe.httpGet", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.httpGet.host", Harmless(NO_PROBES), Refused(OTHER_HOST)),
    each("spec.readinessProbe.httpGet.httpHeaders", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.httpGet.path", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.httpGet.port", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.httpGet.scheme", Harmless(NO_PROBES), Only(&["HTTP", "HTTPS"])),
    each("spec.readinessProbe.initialDelaySeconds", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.periodSeconds", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.successThreshold", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.tcpSocket", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.tcpSocket.host", Harmless(NO_PROBES), Refused(OTHER_HOST)),
    each("spec.readinessProbe.tcpSocket.port", Harmless(NO_PROBES), Served),
    each("spec.readinessProbe.timeoutSeconds", Harmless(NO_PROBES), Served),
    both("spec.resourceClaims", Refused("devices of the node are not given to guests")),
    each("spec.schedulerName", Harmless(ONE_NODE), Served),
    each("spec.serviceAccountName", Harmless(NO_POD), Served),
    both("spec.startStrategy", Only(&["Paused"])),
    both("spec.subdomain", Served),
    both("spec.terminationGracePeriodSeconds", Served),
    each("spec.tolerations.effect", Harmless(ONE_NODE), Served),
    each("spec.tolerations.key", Harmless(ONE_NODE), Served),
    each("spec.tolerations.operator", Harmless(ONE_NODE), Served),
    each("spec.tolerations.tolerationSeconds", Harmless(ONE_NODE), Served),
    each("spec.tolerations.value", Harmless(ONE_NODE), Served),
    each("spec.topologySpreadConstraints", Harmless(ONE_NODE), Served),
    both("spec.utilityVolumes", Refused("there are no backups and memory dumps")),
];
