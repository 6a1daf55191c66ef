//! Network interfaces, and the networks they are on.

use super::Support::{Harmless, Only, Partly, Refused, Served, Values};
use super::{Entry, alone, both};

const GONE: &str = "KubeVirt has removed it; write `masquerade: {}` or `bridge: {}`";

pub(super) const ENTRIES: &[Entry] = &[
    alone(
        "spec.domain.devices.interfaces.acpiIndex",
        Harmless("the guest is not told of it, and names interfaces by their slots"),
    ),
    both(
        "spec.domain.devices.interfaces.binding",
        Refused("plug-ins change a libvirt domain, and there is none"),
    ),
    alone("spec.domain.devices.interfaces.bootOrder", Harmless("nothing is booted from a network")),
    alone("spec.domain.devices.interfaces.bridge", Served),
    alone("spec.domain.devices.interfaces.dhcpOptions.bootFileName", Served),
    alone("spec.domain.devices.interfaces.dhcpOptions.ntpServers", Served),
    alone("spec.domain.devices.interfaces.dhcpOptions.privateOptions.option", Served),
    alone("spec.domain.devices.interfaces.dhcpOptions.privateOptions.value", Served),
    alone("spec.domain.devices.interfaces.dhcpOptions.tftpServerName", Served),
    alone("spec.domain.devices.interfaces.macAddress", Served),
    both("spec.domain.devices.interfaces.macvtap", Refused(GONE)),
    alone("spec.domain.devices.interfaces.masquerade", Served),
    alone(
        "spec.domain.devices.interfaces.model",
        Values {
            served: &["virtio"],
            warned: &["e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"],
            why: "it is attached as virtio-net",
        },
    ),
    alone("spec.domain.devices.interfaces.name", Served),
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
    alone("spec.domain.devices.interfaces.ports.name", Served),
    alone("spec.domain.devices.interfaces.ports.port", Served),
    alone("spec.domain.devices.interfaces.ports.protocol", Only(&["TCP", "UDP"])),
    both("spec.domain.devices.interfaces.slirp", Refused(GONE)),
    both(
        "spec.domain.devices.interfaces.sriov",
        Refused("devices of the node are not given to guests"),
    ),
    alone("spec.domain.devices.interfaces.state", Only(&["up"])),
    alone("spec.domain.devices.interfaces.tag", Harmless("nothing tells the guest of it")),
    alone(
        "spec.networks.multus",
        Partly(
            "`corten run --bridge NAME=BRIDGE` names the bridge of the machine that takes its place",
        ),
    ),
    alone("spec.networks.name", Served),
    alone("spec.networks.pod", Served),
    alone("spec.networks.pod.vmIPv6NetworkCIDR", Served),
    alone("spec.networks.pod.vmNetworkCIDR", Served),
    both("spec.networks.resourceClaim", Refused("devices of the node are not given to guests")),
];
