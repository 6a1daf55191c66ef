//! Network interfaces, and the networks they are on.

use super::Support::{Harmless, Only, Partly, Refused, Served, Values};
use super::{Entry, both, each};

const GONE: &str = "KubeVirt has removed it; write `masquerade: {}` or `bridge: {}`";

pub(super) const ENTRIES: &[Entry] = &[
    both(
        "spec.domain.devices.interfaces.acpiIndex",
        Harmless("the guest is not told of it, and names interfaces by their slots"),
    ),
    both(
        "spec.domain.devices.interfaces.binding",
        Refused("plug-ins change a libvirt domain, and there is none"),
    ),
    both("spec.domain.devices.interfaces.bootOrder", Harmless("nothing is booted from a network")),
    both("spec.domain.devices.interfaces.bridge", Served),
    both("spec.domain.devices.interfaces.dhcpOptions.bootFileName", Served),
    both("spec.domain.devices.interfaces.dhcpOptions.ntpServers", Served),
    both("spec.domain.devices.interfaces.dhcpOptions.privateOptions.option", Served),
    both("spec.domain.devices.interfaces.dhcpOptions.privateOptions.value", Served),
    both("spec.domain.devices.interfaces.dhcpOptions.tftpServerName", Served),
    both("spec.domain.devices.interfaces.macAddress", Served),
    both("spec.domain.devices.interfaces.macvtap", Refused(GONE)),
    both("spec.domain.devices.interfaces.masquerade", Served),
    both(
        "spec.domain.devices.interfaces.model",
        Values {
            served: &["virtio"],
            warned: &["e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"],
            why: "it is attached as virtio-net",
        },
    ),
    both("spec.domain.devices.interfaces.name", Served),
    both("spec.domain.devices.interfaces.passt", Refused(GONE)),
    both(
        "spec.domain.devices.interfaces.passtBinding",
        Refused("passt is not started; `masquerade: {}` gives the guest an address of its own too"),
    ),
    both(
        "spec.domain.devices.interfaces.pciAddress",
        Refused("the machine chooses the slot, by the device's name"),
    ),
    both("spec.domain.devices.interfaces.portRanges", Refused("name each port in `ports`")),
    both("spec.domain.devices.interfaces.ports.name", Served),
    both("spec.domain.devices.interfaces.ports.port", Served),
    both("spec.domain.devices.interfaces.ports.protocol", Only(&["TCP", "UDP"])),
    both("spec.domain.devices.interfaces.slirp", Refused(GONE)),
    both(
        "spec.domain.devices.interfaces.sriov",
        Refused("devices of the node are not given to guests"),
    ),
    both("spec.domain.devices.interfaces.state", Only(&["up"])),
    both("spec.domain.devices.interfaces.tag", Harmless("nothing tells the guest of it")),
    each(
        "spec.networks.multus",
        Partly(
            "`corten run --bridge NAME=BRIDGE` names the bridge of the machine that takes its place",
        ),
        Served,
    ),
    both("spec.networks.name", Served),
    both("spec.networks.pod", Served),
    both("spec.networks.pod.vmIPv6NetworkCIDR", Served),
    both("spec.networks.pod.vmNetworkCIDR", Served),
    both("spec.networks.resourceClaim", Refused("devices of the node are not given to guests")),
];
