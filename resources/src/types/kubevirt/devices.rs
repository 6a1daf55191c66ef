//! Devices of nodes that VMs may have.

use crate::types::fields::object;
use std::collections::BTreeMap;

object! {
    /// Devices of nodes that VMs may have.
    pub struct PermittedHostDevices {
        /// Parts of devices that several VMs share.
        pub mediated_devices: Vec<MediatedHostDevice>,
        /// Devices on PCI.
        pub pci_host_devices: Vec<PciHostDevice>,
        /// Devices on USB.
        pub usb: Vec<UsbHostDevice>,
    }

    /// A part of a device that several VMs share.
    pub struct MediatedHostDevice {
        /// Somebody else's device plugin offers it.
        pub external_resource_provider: Option<bool>,
        /// Its type.
        pub mdev_name_selector: String,
        /// What VMs call it.
        pub resource_name: String,
    }

    /// A device on PCI.
    pub struct PciHostDevice {
        /// Somebody else's device plugin offers it.
        pub external_resource_provider: Option<bool>,
        /// Vendor and product, such as `10de:1eb8`.
        pub pci_vendor_selector: String,
        /// What VMs call it.
        pub resource_name: String,
    }

    /// Devices on USB that go together.
    pub struct UsbHostDevice {
        /// Somebody else's device plugin offers them.
        pub external_resource_provider: Option<bool>,
        /// What VMs call them.
        pub resource_name: String,
        /// These.
        pub selectors: Vec<UsbSelector>,
    }

    /// A device on USB.
    pub struct UsbSelector {
        /// Its product id.
        pub product: String,
        /// Its vendor id.
        pub vendor: String,
    }

    /// Devices that several VMs share, and the parts that nodes make of them.
    pub struct MediatedDevices {
        /// Nodes make parts.
        pub enabled: Option<bool>,
        /// Of these types.
        pub mediated_device_types: Vec<String>,
        /// Of these types; older name.
        pub mediated_devices_types: Vec<String>,
        /// Nodes for which something else holds.
        pub node_mediated_device_types: Vec<NodeMediatedDevices>,
    }

    /// Parts that some nodes make.
    pub struct NodeMediatedDevices {
        /// Of these types.
        pub mediated_device_types: Vec<String>,
        /// Of these types; older name.
        pub mediated_devices_types: Vec<String>,
        /// Labels of the nodes.
        pub node_selector: BTreeMap<String, String>,
    }
}
