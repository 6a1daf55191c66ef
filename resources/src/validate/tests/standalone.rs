//! What `corten run` serves.

use crate::served::Scope;
use crate::validate::{Finding, validate};
use serde_json::{Value, json};

/// What there is to say of a machine that can be run, with `change` made to its JSON.
pub(super) fn judged(change: impl FnOnce(&mut Value)) -> Vec<Finding> {
    let mut spec = json!({
        "domain": {
            "memory": { "guest": "1Mi" },
            "devices": {
                "disks": [{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "seed", "disk": {} }],
                "interfaces": [{ "name": "net", "masquerade": {} }],
            },
        },
        "networks": [{ "name": "net", "pod": {} }],
        "volumes": [
            { "name": "root", "containerDisk": { "image": "i" } },
            { "name": "seed", "cloudInitNoCloud": { "userData": "#cloud-config" } },
        ],
    });
    change(&mut spec);
    validate(&serde_json::from_value(spec).unwrap(), Scope::Standalone)
}

/// Sets what is at a pointer, and whatever leads there.
pub(super) fn set(spec: &mut Value, pointer: &str, value: Value) {
    let mut at = spec;
    for name in pointer.split('/').skip(1) {
        at = match name.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[name],
        };
    }
    *at = value;
}

pub(super) fn refusals(findings: &[Finding]) -> Vec<&str> {
    findings.iter().filter(|it| it.is_refusal()).map(|it| it.path.as_str()).collect()
}

pub(super) fn warnings(findings: &[Finding]) -> Vec<&str> {
    findings.iter().filter(|it| !it.is_refusal()).map(|it| it.path.as_str()).collect()
}

#[test]
fn a_machine_with_disks_and_a_network_can_be_run_without_a_word() {
    assert_eq!(judged(|_| ()), []);
}

#[test]
fn a_machine_with_nothing_to_boot_can_be_run() {
    let bare = json!({ "domain": { "memory": { "guest": "1Mi" } } });
    assert_eq!(validate(&serde_json::from_value(bare).unwrap(), Scope::Standalone), []);
}

#[test]
fn everything_that_is_served_can_be_given_at_once() {
    let found = judged(|spec| {
        let more = json!({
            "hostname": "web", "subdomain": "a.b", "dnsPolicy": "None",
            "dnsConfig": { "nameservers": ["10.0.0.1", "fd00::1"], "searches": ["a.b"] },
            "startStrategy": "Paused", "terminationGracePeriodSeconds": 0,
        });
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec["domain"]["clock"] = json!({ "utc": {}, "timer": { "kvm": { "present": true } } });
        spec["domain"]["cpu"] =
            json!({ "sockets": 1, "cores": 2, "threads": 1, "model": "host-passthrough" });
        spec["domain"]["features"] = json!({ "acpi": {}, "apic": { "enabled": true } });
        spec["domain"]["firmware"] =
            json!({ "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "1" });
        spec["domain"]["devices"]["rng"] = json!({});
        spec["domain"]["devices"]["autoattachVSOCK"] = json!(true);
        spec["domain"]["devices"]["autoattachMemBalloon"] = json!(true);
        spec["domain"]["devices"]["disks"][0] = json!({ "name": "root", "disk": { "bus": "virtio", "readonly": false },
            "bootOrder": 1, "serial": "abc", "cache": "none", "io": "native", "errorPolicy": "stop", "shareable": true,
            "blockSize": { "custom": { "logical": 4096 } } });
        spec["domain"]["devices"]["interfaces"][0] = json!({ "name": "net", "masquerade": {}, "model": "virtio",
            "macAddress": "02:00:00:00:00:01", "state": "up",
            "ports": [{ "name": "http", "port": 80 }, { "port": 53, "protocol": "UDP" }, { "port": 53 }],
            "dhcpOptions": { "bootFileName": "f", "tftpServerName": "s", "ntpServers": ["10.0.0.1"],
                "privateOptions": [{ "option": 240, "value": "v" }] } });
        spec["networks"][0]["pod"] =
            json!({ "vmNetworkCIDR": "10.1.0.0/16", "vmIPv6NetworkCIDR": "fd01::/64" });
        let volumes = json!([
            { "name": "root", "containerDisk": { "image": "i", "imagePullPolicy": "Never", "path": "/disk/a.img" } },
            { "name": "seed", "cloudInitConfigDrive": { "secretRef": { "name": "s" }, "networkDataBase64": "YQ==" } },
            { "name": "a", "configMap": { "name": "c", "optional": true, "volumeLabel": "l" } },
            { "name": "b", "secret": { "secretName": "s" } },
            { "name": "c", "serviceAccount": { "serviceAccountName": "s" } },
            { "name": "d", "downwardAPI": { "fields": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
            { "name": "e", "emptyDisk": { "capacity": "1Gi" } },
            { "name": "f", "hostDisk": { "path": "/d", "type": "DiskOrCreate", "capacity": "1Gi" } },
            { "name": "g", "ephemeral": { "persistentVolumeClaim": { "claimName": "p", "readOnly": true } } },
            { "name": "h", "persistentVolumeClaim": { "claimName": "p", "hotpluggable": false } },
            { "name": "i", "dataVolume": { "name": "d" } },
            { "name": "j", "downwardMetrics": {} },
        ]);
        spec["volumes"] = volumes;
    });
    assert_eq!(found, []);
}

#[test]
fn what_makes_no_difference_is_warned_of() {
    let disk = "/domain/devices/disks/0";
    let interface = "/domain/devices/interfaces/0";
    let table = [
        (format!("{disk}/disk/bus"), json!("sata"), "spec.domain.devices.disks[0].disk.bus"),
        (format!("{disk}/cache"), json!("writethrough"), "spec.domain.devices.disks[0].cache"),
        (
            format!("{disk}/dedicatedIOThread"),
            json!(true),
            "spec.domain.devices.disks[0].dedicatedIOThread",
        ),
        (
            format!("{disk}/serial"),
            json!("012345678901234567890"),
            "spec.domain.devices.disks[0].serial",
        ),
        (format!("{interface}/model"), json!("e1000"), "spec.domain.devices.interfaces[0].model"),
        (format!("{interface}/bootOrder"), json!(3), "spec.domain.devices.interfaces[0].bootOrder"),
        ("/domain/machine".into(), json!({ "type": "pc-q35-8.2" }), "spec.domain.machine.type"),
        (
            "/domain/firmware".into(),
            json!({ "bootloader": { "efi": {} } }),
            "spec.domain.firmware.bootloader.efi",
        ),
        (
            "/domain/firmware".into(),
            json!({ "bootloader": { "efi": { "secureBoot": false } } }),
            "spec.domain.firmware.bootloader.efi",
        ),
        (
            "/domain/firmware".into(),
            json!({ "bootloader": { "bios": { "useSerial": true } } }),
            "spec.domain.firmware.bootloader.bios",
        ),
        (
            "/domain/features".into(),
            json!({ "acpi": { "enabled": false } }),
            "spec.domain.features.acpi.enabled",
        ),
        (
            "/domain/clock".into(),
            json!({ "timer": { "rtc": { "tickPolicy": "catchup" } } }),
            "spec.domain.clock.timer.rtc",
        ),
        ("/domain/cpu".into(), json!({ "maxSockets": 4 }), "spec.domain.cpu.maxSockets"),
        (
            "/domain/cpu".into(),
            json!({ "features": [{ "name": "avx2", "policy": "optional" }] }),
            "spec.domain.cpu.features[0].policy",
        ),
        (
            "/domain/devices/inputs".into(),
            json!([{ "name": "t", "type": "tablet", "bus": "usb" }]),
            "spec.domain.devices.inputs",
        ),
        (
            "/domain/devices/autoattachGraphicsDevice".into(),
            json!(true),
            "spec.domain.devices.autoattachGraphicsDevice",
        ),
        ("/nodeSelector".into(), json!({ "a": "b" }), "spec.nodeSelector"),
        ("/evictionStrategy".into(), json!("LiveMigrate"), "spec.evictionStrategy"),
        ("/readinessProbe".into(), json!({ "guestAgentPing": {} }), "spec.readinessProbe"),
        ("/tolerations".into(), json!([{ "key": "k" }]), "spec.tolerations[0].key"),
    ];
    for (pointer, value, path) in table {
        let found = judged(|spec| set(spec, &pointer, value));
        assert_eq!((refusals(&found), warnings(&found)), (vec![], vec![path]), "{pointer}");
    }
}

#[test]
fn what_is_switched_off_asks_for_nothing() {
    let table = [
        ("/domain/features", json!({ "smm": { "enabled": false } })),
        ("/domain/cpu", json!({ "dedicatedCpuPlacement": false, "isolateEmulatorThread": false })),
        ("/domain/devices/tpm", json!({ "enabled": false })),
        ("/domain/devices/useVirtioTransitional", json!(false)),
        ("/domain/clock", json!({ "timer": { "hpet": { "present": false } } })),
        ("/domain/features", json!({})),
        ("/domain/devices/filesystems", json!([])),
        ("/hostname", json!("")),
    ];
    for (pointer, value) in table {
        assert_eq!(judged(|spec| set(spec, pointer, value)), [], "{pointer}");
    }
}

#[test]
fn what_is_not_served_is_refused_by_its_path() {
    let devices = "/domain/devices";
    let table = [
        (
            format!("{devices}/disks/0"),
            json!({ "name": "root", "lun": {} }),
            "spec.domain.devices.disks[0].lun",
        ),
        (
            format!("{devices}/disks/0/disk/bus"),
            json!("ide"),
            "spec.domain.devices.disks[0].disk.bus",
        ),
        (
            format!("{devices}/disks/0/floppy"),
            json!({ "tray": "open" }),
            "spec.domain.devices.disks[0].floppy",
        ),
        (
            format!("{devices}/disks/0/errorPolicy"),
            json!("ignore"),
            "spec.domain.devices.disks[0].errorPolicy",
        ),
        (
            format!("{devices}/interfaces/0"),
            json!({ "name": "net", "sriov": {} }),
            "spec.domain.devices.interfaces[0].sriov",
        ),
        (
            format!("{devices}/interfaces/0"),
            json!({ "name": "net", "slirp": {} }),
            "spec.domain.devices.interfaces[0].slirp",
        ),
        (
            format!("{devices}/interfaces/0"),
            json!({ "name": "net", "binding": { "name": "x" } }),
            "spec.domain.devices.interfaces[0].binding",
        ),
        (
            format!("{devices}/interfaces/0/model"),
            json!("x"),
            "spec.domain.devices.interfaces[0].model",
        ),
        (
            format!("{devices}/filesystems"),
            json!([{ "name": "f", "virtiofs": {} }]),
            "spec.domain.devices.filesystems",
        ),
        (format!("{devices}/gpus"), json!([{ "name": "g" }]), "spec.domain.devices.gpus"),
        (
            format!("{devices}/hostDevices"),
            json!([{ "name": "g" }]),
            "spec.domain.devices.hostDevices",
        ),
        (format!("{devices}/tpm"), json!({}), "spec.domain.devices.tpm"),
        (
            format!("{devices}/watchdog"),
            json!({ "name": "w", "i6300esb": {} }),
            "spec.domain.devices.watchdog",
        ),
        (format!("{devices}/sound"), json!({ "name": "s" }), "spec.domain.devices.sound"),
        (format!("{devices}/video"), json!({ "type": "vga" }), "spec.domain.devices.video"),
        ("/domain/cpu".into(), json!({ "model": "Haswell" }), "spec.domain.cpu.model"),
        (
            "/domain/cpu".into(),
            json!({ "features": [{ "name": "avx2" }] }),
            "spec.domain.cpu.features[0].policy",
        ),
        ("/domain/features".into(), json!({ "smm": {} }), "spec.domain.features.smm"),
        (
            "/domain/features".into(),
            json!({ "hyperv": { "relaxed": {} } }),
            "spec.domain.features.hyperv",
        ),
        (
            "/domain/memory/hugepages".into(),
            json!({ "pageSize": "2Mi" }),
            "spec.domain.memory.hugepages",
        ),
        (
            "/domain/firmware".into(),
            json!({ "bootloader": { "efi": { "secureBoot": true } } }),
            "spec.domain.firmware.bootloader.efi.secureBoot",
        ),
        (
            "/domain/clock".into(),
            json!({ "timezone": "Europe/Berlin" }),
            "spec.domain.clock.timezone",
        ),
        (
            "/domain/clock".into(),
            json!({ "utc": { "offsetSeconds": 3600 } }),
            "spec.domain.clock.utc.offsetSeconds",
        ),
        ("/domain/launchSecurity".into(), json!({ "snp": {} }), "spec.domain.launchSecurity"),
        ("/volumes/0".into(), json!({ "name": "root", "sysprep": {} }), "spec.volumes[0].sysprep"),
        (
            "/volumes/0".into(),
            json!({ "name": "root", "memoryDump": { "claimName": "c" } }),
            "spec.volumes[0].memoryDump",
        ),
        (
            "/volumes/0".into(),
            json!({ "name": "root", "dataVolume": { "name": "d", "hotpluggable": true } }),
            "spec.volumes[0].dataVolume.hotpluggable",
        ),
        (
            "/volumes/0/containerDisk/colour".into(),
            json!("red"),
            "spec.volumes[0].containerDisk.colour",
        ),
        ("/networks/0/pod/colour".into(), json!("red"), "spec.networks[0].pod.colour"),
        ("/accessCredentials".into(), json!([{}]), "spec.accessCredentials"),
    ];
    for (pointer, value, path) in table {
        let found = judged(|spec| set(spec, &pointer, value));
        assert_eq!(refusals(&found), [path], "{pointer}: {found:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_path() {
    let disk = "spec.domain.devices.disks";
    let interface = "spec.domain.devices.interfaces";
    let table = [
        ("/domain/devices/disks/1/name", json!("root"), format!("{disk}[1].name")),
        ("/domain/devices/disks/1/name", json!("other"), format!("{disk}[1].name")),
        ("/domain/devices/disks/1/bootOrder", json!(0), format!("{disk}[1].bootOrder")),
        ("/domain/devices/disks/1/serial", json!("a b"), format!("{disk}[1].serial")),
        ("/domain/devices/disks/1/serial", json!("a".repeat(257)), format!("{disk}[1].serial")),
        ("/domain/devices/disks/1/cdrom", json!({}), format!("{disk}[1]")),
        (
            "/domain/devices/disks/1/blockSize",
            json!({ "custom": { "logical": 1000 } }),
            format!("{disk}[1].blockSize.custom.logical"),
        ),
        (
            "/domain/devices/disks/1/blockSize",
            json!({ "custom": { "logical": i32::MIN } }),
            format!("{disk}[1].blockSize.custom.logical"),
        ),
        (
            "/domain/devices/disks/1/blockSize",
            json!({ "custom": {} }),
            format!("{disk}[1].blockSize.custom.logical"),
        ),
        ("/domain/devices/interfaces/0/bridge", json!({}), format!("{interface}[0]")),
        (
            "/domain/devices/interfaces/0/macAddress",
            json!("01:00:00:00:00:00"),
            format!("{interface}[0].macAddress"),
        ),
        (
            "/domain/devices/interfaces/0/macAddress",
            json!("02:00:00:00:00:00"),
            format!("{interface}[0].macAddress"),
        ),
        (
            "/domain/devices/interfaces/0/macAddress",
            json!("x"),
            format!("{interface}[0].macAddress"),
        ),
        (
            "/domain/devices/interfaces/0/ports",
            json!([{ "port": 0 }]),
            format!("{interface}[0].ports[0].port"),
        ),
        (
            "/domain/devices/interfaces/0/ports",
            json!([{ "port": 1 }, { "port": 1, "protocol": "TCP" }]),
            format!("{interface}[0].ports[1].port"),
        ),
        (
            "/domain/devices/interfaces/0/ports",
            (1..=1025).map(|port| json!({ "port": port })).collect(),
            format!("{interface}[0].ports"),
        ),
        (
            "/domain/devices/interfaces/0/ports",
            json!([{ "port": 1, "name": "a" }, { "port": 2, "name": "a" }]),
            format!("{interface}[0].ports[1].name"),
        ),
        (
            "/domain/devices/interfaces/0/ports",
            json!([{ "port": 1, "protocol": "SCTP" }]),
            format!("{interface}[0].ports[0].protocol"),
        ),
        (
            "/domain/devices/interfaces/0/dhcpOptions",
            json!({ "ntpServers": ["a"] }),
            format!("{interface}[0].dhcpOptions.ntpServers[0]"),
        ),
        (
            "/domain/devices/interfaces/0/dhcpOptions",
            json!({ "privateOptions": [{ "option": 3, "value": "v" }] }),
            format!("{interface}[0].dhcpOptions.privateOptions[0].option"),
        ),
        (
            "/networks/0/pod",
            json!({ "vmNetworkCIDR": "10.0.0.0/31" }),
            "spec.networks[0].pod.vmNetworkCIDR".into(),
        ),
        (
            "/networks/0/pod",
            json!({ "vmIPv6NetworkCIDR": "10.0.0.0/24" }),
            "spec.networks[0].pod.vmIPv6NetworkCIDR".into(),
        ),
        ("/volumes/0/emptyDisk", json!({ "capacity": "1Gi" }), "spec.volumes[0]".into()),
        ("/volumes/0", json!({ "name": "root" }), "spec.volumes[0]".into()),
        (
            "/volumes/0",
            json!({ "name": "root", "containerDisk": {} }),
            "spec.volumes[0].containerDisk.image".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "containerDisk": { "image": "i", "path": "../x" } }),
            "spec.volumes[0].containerDisk.path".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "emptyDisk": {} }),
            "spec.volumes[0].emptyDisk.capacity".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "emptyDisk": { "capacity": "-1Gi" } }),
            "spec.volumes[0].emptyDisk.capacity".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "emptyDisk": { "capacity": 0 } }),
            "spec.volumes[0].emptyDisk.capacity".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "hostDisk": { "path": "x", "type": "Disk" } }),
            "spec.volumes[0].hostDisk.path".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "hostDisk": { "path": "/x", "type": "Folder" } }),
            "spec.volumes[0].hostDisk.type".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "hostDisk": { "path": "/x", "type": "DiskOrCreate" } }),
            "spec.volumes[0].hostDisk.capacity".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "persistentVolumeClaim": {} }),
            "spec.volumes[0].persistentVolumeClaim.claimName".into(),
        ),
        (
            "/volumes/0",
            json!({ "name": "root", "downwardAPI": { "fields": [{ "path": "/x", "fieldRef": { "fieldPath": "metadata.name" } }] } }),
            "spec.volumes[0].downwardAPI.fields[0].path".into(),
        ),
        (
            "/volumes/1/cloudInitNoCloud/secretRef",
            json!({ "name": "s" }),
            "spec.volumes[1].cloudInitNoCloud".into(),
        ),
        ("/volumes/1/cloudInitNoCloud", json!({}), "spec.volumes[1].cloudInitNoCloud".into()),
        (
            "/volumes/1/cloudInitNoCloud",
            json!({ "userData": "x".repeat(2049) }),
            "spec.volumes[1].cloudInitNoCloud.userData".into(),
        ),
        (
            "/volumes/1/cloudInitNoCloud",
            json!({ "userDataBase64": "#" }),
            "spec.volumes[1].cloudInitNoCloud.userDataBase64".into(),
        ),
        (
            "/volumes/1/cloudInitNoCloud",
            json!({ "secretRef": {} }),
            "spec.volumes[1].cloudInitNoCloud.secretRef.name".into(),
        ),
        ("/domain/firmware", json!({ "uuid": "x" }), "spec.domain.firmware.uuid".into()),
        (
            "/domain/firmware",
            json!({ "bootloader": { "bios": {}, "efi": {} } }),
            "spec.domain.firmware.bootloader".into(),
        ),
        (
            "/domain/firmware",
            json!({ "kernelBoot": { "kernelArgs": "a" } }),
            "spec.domain.firmware.kernelBoot.container".into(),
        ),
        ("/domain/cpu", json!({ "sockets": 4, "maxSockets": 2 }), "spec.domain.cpu.sockets".into()),
        (
            "/domain/memory",
            json!({ "guest": "2Gi", "maxGuest": "1Gi" }),
            "spec.domain.memory.maxGuest".into(),
        ),
        ("/hostname", json!("Web"), "spec.hostname".into()),
        ("/subdomain", json!("a..b"), "spec.subdomain".into()),
        ("/dnsPolicy", json!("None"), "spec.dnsConfig.nameservers".into()),
        ("/dnsConfig", json!({ "nameservers": ["x"] }), "spec.dnsConfig.nameservers[0]".into()),
        ("/readinessProbe", json!({}), "spec.readinessProbe".into()),
        ("/terminationGracePeriodSeconds", json!(-1), "spec.terminationGracePeriodSeconds".into()),
    ];
    for (pointer, value, path) in table {
        let found = judged(|spec| set(spec, pointer, value));
        assert_eq!(refusals(&found), [path], "{pointer}: {found:?}");
    }
}

#[test]
fn names_are_unique_and_match() {
    let found = judged(|spec| {
        spec["volumes"][1]["name"] = json!("root");
        spec["networks"][0]["name"] = json!("Other");
        spec["domain"]["devices"]["disks"][0]["bootOrder"] = json!(1);
        spec["domain"]["devices"]["disks"][1]["bootOrder"] = json!(1);
    });
    assert_eq!(
        refusals(&found),
        [
            "spec.domain.devices.disks[1].name",
            "spec.domain.devices.disks[1].bootOrder",
            "spec.volumes[1].name",
            "spec.domain.devices.interfaces[0].name",
            "spec.networks[0].name",
            "spec.networks[0].name",
        ]
    );
}

#[test]
fn two_interfaces_cannot_have_one_address_and_there_is_one_pod_network() {
    let found = judged(|spec| {
        let interface =
            |name| json!({ "name": name, "bridge": {}, "macAddress": "02:00:00:00:00:09" });
        spec["domain"]["devices"]["interfaces"] = json!([interface("a"), interface("b")]);
        spec["networks"] = json!([{ "name": "a", "pod": {} }, { "name": "b", "pod": {} }]);
    });
    assert_eq!(
        refusals(&found),
        ["spec.domain.devices.interfaces[1].macAddress", "spec.networks[1].pod"]
    );
}

#[test]
fn networks_of_multus_are_bridged_and_masquerade_does_not_go_with_them() {
    let found = judged(|spec| {
        set(spec, "/networks/0", json!({ "name": "net", "multus": { "networkName": "m" } }));
    });
    assert_eq!(refusals(&found), ["spec.domain.devices.interfaces[0].masquerade"]);
    let found = judged(|spec| {
        set(spec, "/networks/0", json!({ "name": "net", "multus": { "networkName": "m" } }));
        set(spec, "/domain/devices/interfaces/0", json!({ "name": "net", "bridge": {} }));
    });
    assert_eq!(refusals(&found), [""; 0]);
}

#[test]
fn machine_types_are_those_that_kubevirt_accepts() {
    let found = |name: &str| judged(|spec| set(spec, "/domain/machine", json!({ "type": name })));
    for name in ["", "q35"] {
        assert_eq!(found(name), [], "{name}");
    }
    for name in ["pc-q35-rhel9.4.0", "q35-9.1", "pc-q35"] {
        assert_eq!(warnings(&found(name)), ["spec.domain.machine.type"], "{name}");
        assert_eq!(refusals(&found(name)), [""; 0], "{name}");
    }
    for name in ["garbage", "pc", "pc-i440fx-9.0", "virt", "s390-ccw-virtio", "Q35"] {
        assert_eq!(refusals(&found(name)), ["spec.domain.machine.type"], "{name}");
    }
}

#[test]
fn a_claim_has_one_disk_that_is_written_to() {
    let found = |one: Value, two: Value, share: Value| {
        judged(|spec| {
            spec["volumes"] = json!([one, two]);
            spec["volumes"][0]["name"] = json!("root");
            spec["volumes"][1]["name"] = json!("seed");
            for index in 0..2 {
                spec["domain"]["devices"]["disks"][index]["shareable"] = share.clone();
            }
        })
    };
    let claim =
        |read: bool| json!({ "persistentVolumeClaim": { "claimName": "c", "readOnly": read } });
    let data = json!({ "dataVolume": { "name": "c" } });
    let file = json!({ "hostDisk": { "path": "/a", "type": "Disk" } });
    let no = Value::Null;
    let table = [
        (claim(false), claim(false), no.clone(), "spec.volumes[1].persistentVolumeClaim.claimName"),
        (claim(true), claim(false), no.clone(), "spec.volumes[1].persistentVolumeClaim.claimName"),
        (claim(false), data.clone(), no.clone(), "spec.volumes[1].dataVolume.name"),
        (file.clone(), file.clone(), no.clone(), "spec.volumes[1].hostDisk.path"),
    ];
    for (one, two, share, path) in table {
        assert_eq!(refusals(&found(one, two, share)), [path]);
    }
    assert_eq!(refusals(&found(claim(true), claim(true), no)), [""; 0]);
    assert_eq!(refusals(&found(claim(false), data, json!(true))), [""; 0]);
}

#[test]
fn an_unknown_field_is_refused_whatever_it_holds() {
    for nothing in [json!({}), json!([]), json!(""), json!(null), json!(0), json!(false)] {
        for pointer in ["/colour", "/domain/devices/colour", "/domain/devices/disks/0/colour"] {
            let found = judged(|spec| set(spec, pointer, nothing.clone()));
            assert_eq!(refusals(&found).len(), 1, "{pointer} {nothing}");
        }
    }
}

#[test]
fn an_unknown_field_in_what_is_served_whole_is_refused() {
    let (devices, features) = ("/domain/devices", "spec.domain.cpu.features[0]");
    let interface = format!("{devices}/interfaces/0");
    let interface_path = "spec.domain.devices.interfaces[0]";
    let bios = json!({ "bootloader": { "bios": { "x": 1 } } });
    let table = [
        (
            format!("{interface}/masquerade"),
            json!({ "ports": [{ "port": 80 }] }),
            format!("{interface_path}.masquerade.ports"),
        ),
        (
            interface,
            json!({ "name": "net", "bridge": { "x": {} } }),
            format!("{interface_path}.bridge.x"),
        ),
        (format!("{devices}/rng"), json!({ "x": null }), "spec.domain.devices.rng.x".into()),
        (
            format!("{devices}/inputs"),
            json!([{ "name": "i", "type": "tablet", "x": 1 }]),
            "spec.domain.devices.inputs[0].x".into(),
        ),
        (
            "/volumes/1".into(),
            json!({ "name": "seed", "downwardMetrics": { "x": 1 } }),
            "spec.volumes[1].downwardMetrics.x".into(),
        ),
        (
            "/domain/cpu".into(),
            json!({ "features": [{ "name": "f", "policy": "optional", "x": 1 }] }),
            format!("{features}.x"),
        ),
        ("/domain/ioThreads".into(), json!({ "x": 1 }), "spec.domain.ioThreads.x".into()),
        (
            "/domain/clock".into(),
            json!({ "timer": { "hpet": { "x": 1 } } }),
            "spec.domain.clock.timer.hpet.x".into(),
        ),
        (
            "/domain/features".into(),
            json!({ "pvspinlock": { "x": 1 } }),
            "spec.domain.features.pvspinlock.x".into(),
        ),
        ("/domain/firmware".into(), bios, "spec.domain.firmware.bootloader.bios.x".into()),
        (
            "/dnsConfig".into(),
            json!({ "options": [{ "name": "o", "x": 1 }] }),
            "spec.dnsConfig.options[0].x".into(),
        ),
        (
            "/readinessProbe".into(),
            json!({ "guestAgentPing": {}, "x": 1 }),
            "spec.readinessProbe.x".into(),
        ),
    ];
    for (pointer, value, path) in table {
        let found = judged(|spec| set(spec, &pointer, value));
        assert_eq!(refusals(&found), [path], "{pointer}: {found:?}");
    }
    let multus = json!({ "name": "net", "multus": { "networkName": "m", "x": 1 } });
    let found = judged(|spec| {
        set(spec, "/networks/0", multus);
        set(spec, "/domain/devices/interfaces/0", json!({ "name": "net", "bridge": {} }));
    });
    assert_eq!(refusals(&found), ["spec.networks[0].multus.x"]);
}

#[test]
fn names_of_the_users_own_are_not_unknown() {
    let selector = json!({ "kubernetes.io/hostname": "a", "b": "c" });
    let found = judged(|spec| {
        set(spec, "/nodeSelector", selector);
        set(spec, "/affinity", json!({ "nodeAffinity": { "x": [1] } }));
    });
    assert_eq!(refusals(&found), [""; 0]);
    assert_eq!(warnings(&found), ["spec.affinity", "spec.nodeSelector"]);
    let empty = judged(|spec| set(spec, "/nodeSelector", json!({})));
    assert_eq!(empty, []);
}

#[test]
fn base64_may_end_with_a_line() {
    let found = |text: &str| {
        let seed = json!({ "userDataBase64": text });
        judged(|spec| set(spec, "/volumes/1/cloudInitNoCloud", seed))
    };
    assert_eq!(found("I2Nsb3VkLWNvbmZpZw==\n"), []);
    let path = "spec.volumes[1].cloudInitNoCloud.userDataBase64";
    assert_eq!(refusals(&found("#cloud")), [path]);
}

#[test]
fn devices_without_a_place_are_refused_by_the_first_that_has_none() {
    let many = |spec: &mut Value, count: usize| {
        let name = |number: usize| format!("d{number}");
        let disks = (0..count).map(|number| json!({ "name": name(number), "disk": {} }));
        let volumes = (0..count)
            .map(|number| json!({ "name": name(number), "emptyDisk": { "capacity": "1Mi" } }));
        spec["domain"]["devices"]["disks"] = disks.collect();
        spec["volumes"] = volumes.collect();
    };
    // Console, balloon and one interface have places, too.
    assert_eq!(refusals(&judged(|spec| many(spec, 28))), [""; 0]);
    let found = judged(|spec| many(spec, 40));
    assert_eq!(refusals(&found), ["spec.domain.devices.disks[28]"]);
    let told = "the machine has places for 31 devices: 28 disks beside its 3 others, and this is one too many";
    assert_eq!(found[0].message, told);
    let found = judged(|spec| {
        many(spec, 30);
        spec["domain"]["devices"]["disks"] = json!([]);
        spec["domain"]["devices"]["rng"] = json!({});
    });
    assert_eq!(refusals(&found), ["spec.volumes[27]"]);
    let found = judged(|spec| {
        let names = || (0..40).map(|number| format!("n{number}"));
        let interfaces = names().map(|name| json!({ "name": name, "bridge": {} }));
        let networks =
            names().map(|name| json!({ "name": name, "multus": { "networkName": "m" } }));
        spec["domain"]["devices"]["interfaces"] = interfaces.collect();
        spec["networks"] = networks.collect();
    });
    assert_eq!(refusals(&found), ["spec.domain.devices.interfaces[29]"]);
}
