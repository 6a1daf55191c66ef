//! Network interfaces, and the networks they are on.

use super::Marker;
use super::fields::object;

object! {
    /// A network interface. Its network has the same name.
    pub struct Interface {
        /// Its number in the guest's tables; Linux names it by that.
        pub acpi_index: Option<i32>,
        /// A plug-in connects it.
        pub binding: Option<PluginBinding>,
        /// Its place among what is tried for a system to boot, from 1.
        pub boot_order: Option<i32>,
        /// A bridge connects it: the guest has the Pod's address.
        pub bridge: Option<Marker>,
        /// What the guest is told with its address.
        pub dhcp_options: Option<DhcpOptions>,
        /// Its hardware address.
        pub mac_address: Option<String>,
        /// A macvtap device connects it. KubeVirt has removed it.
        pub macvtap: Option<Marker>,
        /// Address translation connects it: the guest has an address of its own.
        pub masquerade: Option<Marker>,
        /// What the guest sees: `virtio`, `e1000` and others.
        pub model: Option<String>,
        /// Its name, and that of its network.
        pub name: String,
        /// passt connects it. KubeVirt has removed this spelling.
        pub passt: Option<Marker>,
        /// passt connects it.
        pub passt_binding: Option<Marker>,
        /// Its address on the PCI bus.
        pub pci_address: Option<String>,
        /// Ranges of ports that are forwarded to the guest.
        pub port_ranges: Vec<PortRange>,
        /// Ports that are forwarded to the guest; all if none is named.
        pub ports: Vec<Port>,
        /// slirp connects it. KubeVirt has removed it.
        pub slirp: Option<Marker>,
        /// A virtual function of the node's interface is given to the guest.
        pub sriov: Option<Marker>,
        /// `up`, `down` or `absent`.
        pub state: Option<String>,
        /// A word that cloud-init passes on with its address.
        pub tag: Option<String>,
    }

    /// A plug-in that connects an interface.
    pub struct PluginBinding {
        /// Its name, as the cluster's configuration has it.
        pub name: String,
    }

    /// What a guest is told with its address.
    pub struct DhcpOptions {
        /// File to boot from (option 67).
        pub boot_file_name: Option<String>,
        /// Time servers (option 42).
        pub ntp_servers: Vec<String>,
        /// Options of the user's own.
        pub private_options: Vec<DhcpPrivateOption>,
        /// Server that has the file (option 66).
        pub tftp_server_name: Option<String>,
    }

    /// An option of the user's own.
    pub struct DhcpPrivateOption {
        /// Its number, from 224 to 254.
        pub option: i32,
        /// Its value.
        pub value: String,
    }

    /// A port that is forwarded to the guest.
    pub struct Port {
        /// Its name.
        pub name: Option<String>,
        /// Its number.
        pub port: i32,
        /// `TCP` or `UDP`; TCP if not given.
        pub protocol: Option<String>,
    }

    /// Ports that are forwarded to the guest.
    pub struct PortRange {
        /// The last.
        pub end: i32,
        /// `TCP` or `UDP`.
        pub protocol: String,
        /// The first.
        pub start: i32,
    }

    /// A network: one of these.
    pub struct Network {
        /// One that Multus connects.
        pub multus: Option<MultusNetwork>,
        /// Its name, and that of its interface.
        pub name: String,
        /// The Pod's own.
        pub pod: Option<PodNetwork>,
        /// One that comes with a claimed device.
        pub resource_claim: Option<ClaimRequest>,
    }

    /// A network that Multus connects.
    pub struct MultusNetwork {
        /// It takes the place of the Pod's own.
        pub default: Option<bool>,
        /// The NetworkAttachmentDefinition: `name`, or `namespace/name`.
        pub network_name: String,
    }

    /// The Pod's network.
    pub struct PodNetwork {
        /// Addresses of version 6 behind masquerade; fd10:0:2::/120 if not given.
        #[serde(rename = "vmIPv6NetworkCIDR")]
        pub vm_ipv6_network_cidr: Option<String>,
        /// Addresses behind masquerade; 10.0.2.0/24 if not given.
        #[serde(rename = "vmNetworkCIDR")]
        pub vm_network_cidr: Option<String>,
    }

    /// A device out of a claim.
    pub struct ClaimRequest {
        /// The claim.
        pub claim_name: Option<String>,
        /// Which of its requests.
        pub request_name: Option<String>,
    }
}
