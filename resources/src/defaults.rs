//! What the user of a VirtualMachineInstance left out, filled in as KubeVirt's admission does. Pure, and done twice it is
//! done once: what is there is never changed.

use crate::Quantity;
use crate::machine::parse_uuid;
use crate::served::Scope;
use crate::types::{
    Cpu, Disk, DiskTarget, Interface, Machine, Marker, Memory, Network, PodNetwork, Probe,
    VirtualMachineInstanceSpec,
};
use sha2::{Digest, Sha256};

/// Interface and network of a machine whose user names none.
const DEFAULT_NETWORK: &str = "default";
/// What KubeVirt calls the machine that is closest to Corten's.
const MACHINE_TYPE: &str = "q35";

/// Which object a machine belongs to. What is derived from it stays the same as long as the object does.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid. May be empty: then namespace and name stand for it.
    pub uid: &'a str,
}

impl Identity<'_> {
    /// Bytes that are this object's, for this purpose.
    fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        let parts = match self.uid {
            "" => ["name", self.namespace, self.name, purpose],
            uid => ["uid", uid, "", purpose],
        };
        for part in parts {
            // Lengths keep `a` + `bc` from `ab` + `c`.
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part.as_bytes());
        }
        digest.finalize().into()
    }

    /// Hardware address of the interface of this name: locally administered, of one interface.
    pub fn mac_address(&self, interface: &str) -> [u8; 6] {
        let bytes = self.derive(&format!("interface/{interface}"));
        [0x02, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]
    }

    /// UUID of the machine: the object's own if it is one, else one of version 8 (RFC 9562).
    pub fn uuid(&self) -> String {
        if parse_uuid(self.uid).is_some() {
            return self.uid.to_ascii_lowercase();
        }
        let bytes = self.derive("uuid");
        let mut number = [0; 16];
        number.copy_from_slice(&bytes[..16]);
        number[6] = number[6] & 0x0f | 0x80;
        number[8] = number[8] & 0x3f | 0x80;
        let hex: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        groups.join("-")
    }
}

/// Fills in what its user left out. What cannot be derived, because something else is wrong, stays open: validation tells.
///
/// In clusters an interface on a bridge gets no hardware address: its guest takes over that of the Pod's, as some networks let
/// through nothing of any other.
pub fn with_defaults(spec: &mut VirtualMachineInstanceSpec, identity: Identity<'_>, scope: Scope) {
    spec.architecture.get_or_insert_with(|| "amd64".to_owned());
    processors(spec);
    memory(spec);
    let machine = spec.domain.machine.get_or_insert_with(Machine::default);
    fill(&mut machine.machine_type, || MACHINE_TYPE.to_owned());
    let firmware = spec.domain.firmware.get_or_insert_with(Default::default);
    fill(&mut firmware.uuid, || identity.uuid());
    disks(spec);
    interfaces(spec, identity, scope);
    pull_policies(spec);
    for probe in [&mut spec.liveness_probe, &mut spec.readiness_probe].into_iter().flatten() {
        probe_numbers(probe);
    }
    let grace = i64::try_from(crate::machine::DEFAULT_GRACE_PERIOD.as_secs()).unwrap_or(i64::MAX);
    spec.termination_grace_period_seconds.get_or_insert(grace);
}

/// An empty text is as good as none.
fn fill(field: &mut Option<String>, value: impl FnOnce() -> String) {
    if field.as_deref().is_none_or(str::is_empty) {
        *field = Some(value());
    }
}

fn processors(spec: &mut VirtualMachineInstanceSpec) {
    let topology = spec.topology();
    let cpu = spec.domain.cpu.get_or_insert_with(Cpu::default);
    fill(&mut cpu.model, || "host-model".to_owned());
    let Ok(topology) = topology else { return };
    cpu.sockets = Some(topology.sockets.into());
    cpu.cores = Some(topology.cores.into());
    cpu.threads = Some(topology.threads.into());
}

fn memory(spec: &mut VirtualMachineInstanceSpec) {
    let bytes = spec.guest_memory();
    let memory = spec.domain.memory.get_or_insert_with(Memory::default);
    if let (None, Ok(bytes)) = (&memory.guest, bytes) {
        memory.guest = Some(Quantity::of_bytes(bytes));
    }
}

/// A disk for each volume without one; each is a disk unless it is something else, and a CD-ROM cannot be written to.
fn disks(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    for volume in spec.volumes.iter().filter(|volume| volume.belongs_on_a_disk()) {
        let shown = devices.disks.iter().any(|disk| disk.name == volume.name)
            || devices.filesystems.iter().any(|folder| folder.name == volume.name);
        if !shown {
            devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
        }
    }
    for disk in &mut devices.disks {
        if let Some(cdrom) = &mut disk.cdrom {
            cdrom.readonly.get_or_insert(true);
            fill(&mut cdrom.tray, || "closed".to_owned());
        } else if disk.lun.is_none() {
            disk.disk.get_or_insert_with(DiskTarget::default);
        }
    }
}

fn interfaces(spec: &mut VirtualMachineInstanceSpec, identity: Identity<'_>, scope: Scope) {
    let none_named = spec.domain.devices.interfaces.is_empty() && spec.networks.is_empty();
    if none_named && spec.wants_pod_interface() {
        spec.domain.devices.interfaces.push(Interface {
            name: DEFAULT_NETWORK.to_owned(),
            bridge: Some(Marker::default()),
            ..Interface::default()
        });
        spec.networks.push(Network {
            name: DEFAULT_NETWORK.to_owned(),
            pod: Some(PodNetwork::default()),
            ..Network::default()
        });
    }
    for interface in &mut spec.domain.devices.interfaces {
        fill(&mut interface.model, || "virtio".to_owned());
        if scope == Scope::Standalone || interface.masquerade.is_some() {
            let address = identity.mac_address(&interface.name);
            let text = || address.map(|byte| format!("{byte:02x}")).join(":");
            fill(&mut interface.mac_address, text);
        }
        for port in &mut interface.ports {
            fill(&mut port.protocol, || "TCP".to_owned());
        }
    }
}

/// An image whose tag may move is looked for again.
fn pull_policies(spec: &mut VirtualMachineInstanceSpec) {
    for disk in spec.volumes.iter_mut().filter_map(|volume| volume.container_disk.as_mut()) {
        let image = disk.image.as_str();
        fill(&mut disk.image_pull_policy, || {
            if may_move(image) { "Always" } else { "IfNotPresent" }.to_owned()
        });
    }
}

/// The image is named without a tag, or by `latest`.
fn may_move(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn probe_numbers(probe: &mut Probe) {
    let numbers = [
        (&mut probe.failure_threshold, 3),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.timeout_seconds, 1),
    ];
    for (number, default) in numbers {
        if number.is_none_or(|number| number == 0) {
            *number = Some(default);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::{can_run, validate};
    use serde_json::{Value, json};

    const IDENTITY: Identity<'_> = Identity {
        namespace: "default",
        name: "first",
        uid: "0b6c2f4e-2f1c-4c8e-9a40-6f0e8f5b7a11",
    };

    fn filled(value: Value) -> Value {
        let mut spec: VirtualMachineInstanceSpec = serde_json::from_value(value).unwrap();
        with_defaults(&mut spec, IDENTITY, Scope::Standalone);
        let once = spec.clone();
        with_defaults(&mut spec, IDENTITY, Scope::Standalone);
        assert_eq!(spec, once, "a second time changes something");
        serde_json::to_value(spec).unwrap()
    }

    #[test]
    fn the_least_machine_gets_all_of_these() {
        let written = filled(json!({ "domain": { "memory": { "guest": "1Gi" } } }));
        assert_eq!(
            written,
            json!({
                "architecture": "amd64",
                "terminationGracePeriodSeconds": 30,
                "networks": [{ "name": "default", "pod": {} }],
                "domain": {
                    "cpu": { "model": "host-model", "sockets": 1, "cores": 1, "threads": 1 },
                    "memory": { "guest": "1Gi" },
                    "machine": { "type": "q35" },
                    "firmware": { "uuid": IDENTITY.uid },
                    "devices": { "interfaces": [{ "name": "default", "bridge": {}, "model": "virtio",
                        "macAddress": written["domain"]["devices"]["interfaces"][0]["macAddress"] }] },
                },
            })
        );
    }

    #[test]
    fn what_defaults_make_can_be_run() {
        for scope in [Scope::Standalone, Scope::Cluster] {
            let mut spec: VirtualMachineInstanceSpec = serde_json::from_value(json!({
                "domain": { "resources": { "requests": { "memory": "1Gi", "cpu": 2 } } },
                "readinessProbe": { "tcpSocket": { "port": 22 } },
                "volumes": [{ "name": "root", "containerDisk": { "image": "i" } }] }))
            .unwrap();
            with_defaults(&mut spec, IDENTITY, scope);
            let findings = validate(&spec, scope);
            assert!(can_run(&findings), "{findings:?}");
            assert_eq!(spec.domain.cpu.unwrap().sockets, Some(2));
            assert_eq!(spec.domain.memory.unwrap().guest, Some(Quantity::new("1Gi")));
        }
    }

    #[test]
    fn bridged_interface_of_a_cluster_is_left_the_pods_address() {
        let mut spec: VirtualMachineInstanceSpec =
            serde_json::from_value(json!({ "domain": { "devices": {} } })).unwrap();
        with_defaults(&mut spec, IDENTITY, Scope::Cluster);
        let interface = &spec.domain.devices.interfaces[0];
        assert!(interface.bridge.is_some() && interface.mac_address.is_none());
        assert!(spec.networks[0].pod.is_some());

        let masqueraded = json!({ "networks": [{ "name": "n", "pod": {} }],
            "domain": { "devices": { "interfaces": [{ "name": "n", "masquerade": {} }] } } });
        let mut spec: VirtualMachineInstanceSpec = serde_json::from_value(masqueraded).unwrap();
        with_defaults(&mut spec, IDENTITY, Scope::Cluster);
        assert!(spec.domain.devices.interfaces[0].mac_address.is_some());
    }

    #[test]
    fn what_is_there_stays() {
        let written = json!({
            "architecture": "arm64",
            "terminationGracePeriodSeconds": 0,
            "networks": [{ "name": "n", "multus": { "networkName": "m" } }],
            "domain": {
                "cpu": { "model": "host-passthrough", "sockets": 1, "cores": 2, "threads": 1 },
                "memory": { "guest": "64Mi" },
                "machine": { "type": "pc" },
                "firmware": { "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223" },
                "devices": { "interfaces": [{ "name": "n", "masquerade": {}, "model": "e1000",
                    "macAddress": "02:00:00:00:00:07", "ports": [{ "port": 53, "protocol": "UDP" }] }] },
            },
        });
        assert_eq!(filled(written.clone()), written);
    }

    #[test]
    fn volumes_without_a_disk_get_one_and_disks_get_a_kind() {
        let written = filled(json!({
            "domain": { "devices": { "autoattachPodInterface": false,
                "disks": [{ "name": "b", "cdrom": { "bus": "sata" } }], "filesystems": [{ "name": "c", "virtiofs": {} }] } },
            "volumes": [{ "name": "a", "emptyDisk": { "capacity": "1Gi" } }, { "name": "b", "emptyDisk": {} },
                { "name": "c", "secret": {} }, { "name": "d", "memoryDump": { "claimName": "m" } }] }));
        assert_eq!(
            written["domain"]["devices"]["disks"],
            json!([{ "name": "b", "cdrom": { "bus": "sata", "readonly": true, "tray": "closed" } }, { "name": "a", "disk": {} }])
        );
        assert_eq!(written["networks"], Value::Null);
    }

    #[test]
    fn images_whose_tag_may_move_are_looked_for_again() {
        let table = [
            ("a", true),
            ("a:latest", true),
            ("host:5000/a", true),
            ("a:1", false),
            ("host:5000/a:1", false),
            ("a@sha256:00", false),
            ("a:latest@sha256:00", false),
        ];
        for (image, moves) in table {
            assert_eq!(may_move(image), moves, "{image}");
        }
    }

    #[test]
    fn addresses_follow_from_object_and_interface_and_are_local() {
        let address = IDENTITY.mac_address("default");
        assert_eq!(address[0], 0x02);
        assert_eq!(address, IDENTITY.mac_address("default"));
        assert_ne!(address, IDENTITY.mac_address("other"));
        assert_ne!(address, Identity { uid: "", ..IDENTITY }.mac_address("default"));
        let [one, two] = [("ab", "c"), ("a", "bc")]
            .map(|(namespace, name)| Identity { namespace, name, uid: "" }.mac_address("default"));
        assert_ne!(one, two);
    }

    #[test]
    fn addresses_do_not_change_between_releases() {
        // A guest whose address changed would take its interface for a new one.
        assert_eq!(IDENTITY.mac_address("default"), [2, 32, 132, 176, 21, 38]);
    }

    #[test]
    fn a_uuid_is_the_objects_or_made_from_its_name() {
        assert_eq!(IDENTITY.uuid(), IDENTITY.uid);
        let made = Identity { uid: "", ..IDENTITY }.uuid();
        assert!(parse_uuid(&made).is_some_and(|bytes| bytes[6] >> 4 == 8 && bytes[8] >> 6 == 2));
        assert_eq!(made, Identity { uid: "", ..IDENTITY }.uuid());
    }

    #[test]
    fn what_is_wrong_stays_as_it_is() {
        let written =
            filled(json!({ "domain": { "cpu": { "cores": -1 }, "memory": { "guest": "x" } } }));
        assert_eq!(written["domain"]["cpu"], json!({ "cores": -1, "model": "host-model" }));
        assert_eq!(written["domain"]["memory"], json!({ "guest": "x" }));
    }

    #[test]
    fn probes_get_kubernetes_numbers() {
        let written =
            filled(json!({ "readinessProbe": { "guestAgentPing": {}, "periodSeconds": 5 } }));
        assert_eq!(
            written["readinessProbe"],
            json!({ "guestAgentPing": {}, "failureThreshold": 3, "periodSeconds": 5,
                "successThreshold": 1, "timeoutSeconds": 1 })
        );
    }
}
