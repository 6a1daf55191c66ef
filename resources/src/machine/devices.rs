//! What is plugged into a machine, with its defaults.

use crate::finding::Finding;
use crate::machine::limits::NETWORK_QUEUE_PAIRS;
use crate::types::{Disk, Interface, Network, VirtualMachineInstanceSpec, Volume};
use std::borrow::Cow;

/// How much of a disk's serial number a guest reads (virtio 1.2, section 5.2.6.1).
pub const DISK_SERIAL_LENGTH: usize = 20;

/// How an interface is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The guest has the address of the Pod.
    Bridge,
    /// The guest has an address of its own, which is translated.
    Masquerade,
}

impl VirtualMachineInstanceSpec {
    /// Disks in the order in which the guest finds them, each with the path of what asks for it: those that are listed, then one
    /// for each volume that neither a disk nor a file system names.
    pub fn guest_disks(&self) -> Vec<(String, Cow<'_, Disk>)> {
        let devices = &self.domain.devices;
        let path = |number| format!("spec.domain.devices.disks[{number}]");
        let listed = devices.disks.iter().enumerate();
        let mut disks: Vec<(String, Cow<'_, Disk>)> =
            listed.map(|(number, disk)| (path(number), Cow::Borrowed(disk))).collect();
        for (number, volume) in self.volumes.iter().enumerate() {
            let is_shared = devices.filesystems.iter().any(|shared| shared.name == volume.name);
            let is_listed = devices.disks.iter().any(|disk| disk.name == volume.name);
            if !is_shared && !is_listed && volume.memory_dump.is_none() {
                let disk = Disk { name: volume.name.clone(), ..Disk::default() };
                disks.push((format!("spec.volumes[{number}]"), Cow::Owned(disk)));
            }
        }
        disks
    }

    /// Names of disks on which a system is looked for, in turn: those with a place in the order, or else all.
    pub fn boot_order(&self) -> Vec<&str> {
        let disks = &self.domain.devices.disks;
        let mut placed: Vec<_> =
            disks.iter().filter_map(|disk| Some((disk.boot_order?, disk.name.as_str()))).collect();
        if placed.is_empty() {
            return disks.iter().map(|disk| disk.name.as_str()).collect();
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, name)| name).collect()
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The network of this name.
    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.name == name)
    }

    /// Its processors wait to be told to go.
    pub fn starts_paused(&self) -> bool {
        self.start_strategy.as_deref() == Some("Paused")
    }

    /// It has a serial console, unless its user says no.
    pub fn has_serial_console(&self) -> bool {
        self.domain.devices.autoattach_serial_console != Some(false)
    }

    /// What its serial console prints goes into the log, unless its user says no.
    pub fn log_serial_console(&self) -> bool {
        self.has_serial_console() && self.domain.devices.log_serial_console != Some(false)
    }

    /// It has a balloon, unless its user says no.
    pub fn wants_balloon(&self) -> bool {
        self.domain.devices.autoattach_mem_balloon != Some(false)
    }

    /// It has a source of random numbers, if its user asks for one.
    pub fn wants_entropy(&self) -> bool {
        self.domain.devices.rng.is_some()
    }

    /// It has a socket to its host, if its user asks for one.
    pub fn wants_vsock(&self) -> bool {
        self.domain.devices.autoattach_vsock == Some(true)
    }

    /// It gets an interface on the Pod's network when its user names none, unless its user says no.
    pub fn wants_pod_interface(&self) -> bool {
        self.domain.devices.autoattach_pod_interface != Some(false)
    }

    /// How many pairs of queues each interface is to have: one, or one for each vCPU.
    pub fn network_queue_pairs(&self) -> Result<u16, Finding> {
        let vcpus = self.topology()?.vcpus();
        let is_multiple = self.domain.devices.network_interface_multiqueue == Some(true);
        let pairs = if is_multiple { vcpus.min(NETWORK_QUEUE_PAIRS) } else { 1 };
        Ok(u16::try_from(pairs).unwrap_or(1))
    }

    /// Host name of the guest: the one its user wants, or else the object's name as far as it makes a host name.
    pub fn guest_hostname(&self, object_name: &str) -> String {
        if let Some(name) = self.hostname.as_deref().filter(|name| !name.is_empty()) {
            return name.to_owned();
        }
        let name = object_name.replace('.', "-");
        name.get(..63).unwrap_or(&name).trim_end_matches('-').to_owned()
    }
}

/// What Linux calls the guest's disk of this number: `vda`, after `vdz` `vdaa`.
pub fn guest_disk_name(number: usize) -> String {
    let mut letters = Vec::new();
    let mut left = number;
    loop {
        letters.push(b'a' + u8::try_from(left % 26).unwrap_or_default());
        match left / 26 {
            0 => break,
            more => left = more - 1,
        }
    }
    let letters = letters.iter().rev().map(|letter| char::from(*letter));
    "vd".chars().chain(letters).collect()
}

impl Disk {
    /// The guest cannot write to it.
    pub fn is_read_only(&self) -> bool {
        self.cdrom.is_some() || self.disk.as_ref().is_some_and(|disk| disk.readonly == Some(true))
    }

    /// Whether the host's page cache is to be bypassed; nothing if its user leaves it open.
    pub fn bypasses_page_cache(&self) -> Option<bool> {
        match self.cache.as_deref() {
            Some("none" | "writethrough") => Some(true),
            Some("writeback") => Some(false),
            _ => None,
        }
    }

    /// The machine is paused when the host fails a request; else the guest gets an error.
    pub fn pauses_on_error(&self) -> bool {
        self.error_policy.as_deref() != Some("report")
    }

    /// As much of its serial number as a guest can read.
    pub fn guest_serial(&self) -> &str {
        let serial = self.serial.as_deref().unwrap_or_default();
        serial.get(..DISK_SERIAL_LENGTH).unwrap_or(serial)
    }

    /// Bytes of its blocks, if its user wants other than its volume has.
    pub fn logical_block_size(&self) -> Option<u32> {
        let custom = self.block_size.as_ref()?.custom.as_ref()?;
        u32::try_from(custom.logical?).ok()
    }
}

impl Interface {
    /// How it is connected, if in one of the ways that are served.
    pub fn connection(&self) -> Option<Binding> {
        match (&self.bridge, &self.masquerade) {
            (Some(_), None) => Some(Binding::Bridge),
            (None, Some(_)) => Some(Binding::Masquerade),
            _ => None,
        }
    }

    /// Its hardware address, if its user gives one that can be read.
    pub fn mac(&self) -> Option<[u8; 6]> {
        crate::validate::mac_address(self.mac_address.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(value: Value) -> VirtualMachineInstanceSpec {
        serde_json::from_value(value).unwrap()
    }

    fn disk(value: Value) -> Disk {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn systems_are_looked_for_on_disks_with_a_place_or_else_on_all() {
        let disks = |disks: Value| spec(json!({ "domain": { "devices": { "disks": disks } } }));
        let placed = disks(
            json!([{ "name": "a" }, { "name": "b", "bootOrder": 2 }, { "name": "c", "bootOrder": 1 }]),
        );
        assert_eq!(placed.boot_order(), ["c", "b"]);
        let open = disks(json!([{ "name": "a" }, { "name": "b" }]));
        assert_eq!(open.boot_order(), ["a", "b"]);
    }

    #[test]
    fn disks_come_first_then_volumes_that_nothing_names() {
        let spec = spec(json!({
            "domain": { "devices": {
                "disks": [{ "name": "b" }], "filesystems": [{ "name": "shared", "virtiofs": {} }] } },
            "volumes": [
                { "name": "a", "emptyDisk": { "capacity": "1Mi" } }, { "name": "b" }, { "name": "shared" },
                { "name": "dump", "memoryDump": { "claimName": "c" } }],
        }));
        let disks = spec.guest_disks();
        let named: Vec<_> =
            disks.iter().map(|(path, disk)| (path.as_str(), disk.name.as_str())).collect();
        assert_eq!(named, [("spec.domain.devices.disks[0]", "b"), ("spec.volumes[0]", "a")]);
    }

    #[test]
    fn disks_are_called_as_linux_calls_them() {
        let names = [0, 1, 25, 26, 51, 52, 701, 702].map(guest_disk_name);
        assert_eq!(names, ["vda", "vdb", "vdz", "vdaa", "vdaz", "vdba", "vdzz", "vdaaa"]);
    }

    #[test]
    fn switches_have_kubevirts_defaults() {
        let nothing = spec(json!({}));
        assert!(nothing.has_serial_console() && nothing.log_serial_console());
        assert!(nothing.wants_balloon() && nothing.wants_pod_interface());
        assert!(!nothing.wants_entropy() && !nothing.wants_vsock() && !nothing.starts_paused());
        let turned = spec(json!({ "startStrategy": "Paused", "domain": { "devices": {
            "autoattachSerialConsole": false, "autoattachMemBalloon": false,
            "autoattachPodInterface": false, "rng": {}, "autoattachVSOCK": true } } }));
        assert!(!turned.has_serial_console() && !turned.log_serial_console());
        assert!(!turned.wants_balloon() && !turned.wants_pod_interface());
        assert!(turned.wants_entropy() && turned.wants_vsock() && turned.starts_paused());
    }

    #[test]
    fn the_host_name_is_given_or_made_from_the_objects_name() {
        assert_eq!(spec(json!({ "hostname": "web" })).guest_hostname("x"), "web");
        assert_eq!(spec(json!({})).guest_hostname("a.b"), "a-b");
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(10));
        assert_eq!(spec(json!({})).guest_hostname(&long), "a".repeat(62));
    }

    #[test]
    fn disks_are_read_with_their_defaults() {
        let plain = disk(json!({ "name": "d" }));
        assert!(!plain.is_read_only() && plain.pauses_on_error());
        assert_eq!((plain.bypasses_page_cache(), plain.logical_block_size()), (None, None));
        let table =
            [("none", Some(true)), ("writethrough", Some(true)), ("writeback", Some(false))];
        for (cache, direct) in table {
            assert_eq!(disk(json!({ "cache": cache })).bypasses_page_cache(), direct);
        }
        assert!(disk(json!({ "cdrom": {} })).is_read_only());
        assert!(disk(json!({ "disk": { "readonly": true } })).is_read_only());
        assert!(!disk(json!({ "errorPolicy": "report" })).pauses_on_error());
        let sized = disk(json!({ "blockSize": { "custom": { "logical": 4096 } } }));
        assert_eq!(sized.logical_block_size(), Some(4096));
        let long = disk(json!({ "serial": "0123456789012345678901" }));
        assert_eq!(long.guest_serial(), "01234567890123456789");
    }

    #[test]
    fn interfaces_are_bridged_or_masqueraded() {
        let interface = |value| serde_json::from_value::<Interface>(value).unwrap();
        assert_eq!(interface(json!({ "bridge": {} })).connection(), Some(Binding::Bridge));
        let masqueraded = interface(json!({ "masquerade": {}, "macAddress": "02:00:00:00:00:01" }));
        assert_eq!(masqueraded.connection(), Some(Binding::Masquerade));
        assert_eq!(masqueraded.mac(), Some([2, 0, 0, 0, 0, 1]));
        assert_eq!(interface(json!({ "bridge": {}, "masquerade": {} })).connection(), None);
        assert_eq!(interface(json!({ "sriov": {} })).connection(), None);
    }
}
