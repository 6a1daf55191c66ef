//! The table of served fields against what becomes of them: a field that is said to be served changes the machine, and one
//! that is said to have no effect does not.
//!
//! Not every field is the planner's. Those that others read are listed with who does, so that a field which is new in the
//! table, or is said to be served from now on, has to be put somewhere.

use std::collections::BTreeSet;

use corten_resources::served::{INSTANCE, Scope, Support};
use serde_json::{Value, json};

use super::tests::{planned, shown};

/// A machine that has one of everything.
fn base() -> Value {
    json!({
        "domain": {
            "memory": {"guest": "64Mi"},
            "firmware": {"kernelBoot": {"container": {"image": "i", "kernelPath": "/k"}}},
            "devices": {"disks": [{"name": "d"}], "interfaces": [{"name": "n", "masquerade": {}}]},
        },
        "networks": [{"name": "n", "pod": {}}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
    })
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in members {
        match value {
            Value::Null => {
                target.as_object_mut().map(|target| target.remove(name));
            }
            value => merge(&mut target[name], value),
        }
    }
}

fn machine(patches: &[&Value]) -> Value {
    let mut spec = base();
    patches.iter().for_each(|patch| merge(&mut spec, patch));
    match planned(spec) {
        Ok(plan) => shown(&plan),
        Err(error) => json!(error.to_string()),
    }
}

fn disk(more: &Value) -> Value {
    let mut disk = json!({"name": "d"});
    merge(&mut disk, more);
    json!({"domain": {"devices": {"disks": [disk]}}})
}

/// Fields that change the machine: the path, what else has to be said for it to matter, and a value.
fn planned_fields() -> Vec<(&'static str, Value, Value)> {
    let none = || json!({});
    let domain = |value: Value| json!({"domain": value});
    let devices = |value: Value| json!({"domain": {"devices": value}});
    let boot = |value: Value| json!({"domain": {"firmware": {"kernelBoot": value}}});
    let two = || json!({"domain": {"cpu": {"cores": 2}}});
    let no_memory =
        || json!({"domain": {"memory": null, "resources": {"limits": {"memory": "1Gi"}}}});
    let no_kernel = || json!({"domain": {"firmware": null}});
    vec![
        ("spec.domain.cpu.cores", none(), domain(json!({"cpu": {"cores": 2}}))),
        ("spec.domain.cpu.sockets", none(), domain(json!({"cpu": {"sockets": 2}}))),
        ("spec.domain.cpu.threads", none(), domain(json!({"cpu": {"threads": 2}}))),
        (
            "spec.domain.devices.autoattachMemBalloon",
            none(),
            devices(json!({"autoattachMemBalloon": false})),
        ),
        ("spec.domain.devices.autoattachVSOCK", none(), devices(json!({"autoattachVSOCK": true}))),
        ("spec.domain.devices.blockMultiQueue", two(), devices(json!({"blockMultiQueue": true}))),
        (
            "spec.domain.devices.disks.blockSize.custom.logical",
            none(),
            disk(&json!({"blockSize": {"custom": {"logical": 4096}}})),
        ),
        (
            "spec.domain.devices.disks.bootOrder",
            no_kernel(),
            json!({"domain": {"devices": {"disks": [{"name": "d"}, {"name": "e", "bootOrder": 1}]}},
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "persistentVolumeClaim": {"claimName": "e"}}]}),
        ),
        ("spec.domain.devices.disks.cache", none(), disk(&json!({"cache": "writeback"}))),
        (
            "spec.domain.devices.disks.disk.readonly",
            none(),
            disk(&json!({"disk": {"readonly": true}})),
        ),
        ("spec.domain.devices.disks.errorPolicy", none(), disk(&json!({"errorPolicy": "report"}))),
        ("spec.domain.devices.disks.io", none(), disk(&json!({"io": "threads"}))),
        ("spec.domain.devices.disks.name", none(), disk(&json!({"name": "e"}))),
        ("spec.domain.devices.disks.serial", none(), disk(&json!({"serial": "s"}))),
        ("spec.domain.devices.disks.shareable", none(), disk(&json!({"shareable": true}))),
        (
            "spec.domain.devices.interfaces.name",
            none(),
            devices(json!({"interfaces": [{"name": "m", "masquerade": {}}]})),
        ),
        (
            "spec.domain.devices.logSerialConsole",
            none(),
            devices(json!({"logSerialConsole": false})),
        ),
        (
            "spec.domain.devices.autoattachSerialConsole",
            none(),
            devices(json!({"autoattachSerialConsole": false})),
        ),
        (
            "spec.domain.devices.networkInterfaceMultiqueue",
            two(),
            devices(json!({"networkInterfaceMultiqueue": true})),
        ),
        ("spec.domain.devices.rng", none(), devices(json!({"rng": {}}))),
        (
            "spec.domain.firmware.kernelBoot.container.initrdPath",
            none(),
            boot(json!({"container": {"initrdPath": "/i"}})),
        ),
        (
            "spec.domain.firmware.kernelBoot.container.kernelPath",
            none(),
            boot(json!({"container": {"kernelPath": "/other"}})),
        ),
        (
            "spec.domain.firmware.kernelBoot.kernelArgs",
            none(),
            boot(json!({"kernelArgs": "quiet"})),
        ),
        ("spec.domain.firmware.serial", none(), domain(json!({"firmware": {"serial": "s"}}))),
        (
            "spec.domain.firmware.uuid",
            none(),
            domain(json!({"firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}})),
        ),
        ("spec.domain.memory.guest", none(), domain(json!({"memory": {"guest": "128Mi"}}))),
        (
            "spec.domain.resources.limits.cpu",
            none(),
            domain(json!({"resources": {"limits": {"cpu": 2}}})),
        ),
        (
            "spec.domain.resources.limits.memory",
            no_memory(),
            domain(json!({"resources": {"limits": {"memory": "2Gi"}}})),
        ),
        (
            "spec.domain.resources.requests.cpu",
            none(),
            domain(json!({"resources": {"requests": {"cpu": 2}}})),
        ),
        (
            "spec.domain.resources.requests.memory",
            no_memory(),
            domain(json!({"resources": {"requests": {"memory": "128Mi"}}})),
        ),
        ("spec.startStrategy", none(), json!({"startStrategy": "Paused"})),
        ("spec.terminationGracePeriodSeconds", none(), json!({"terminationGracePeriodSeconds": 5})),
    ]
}

/// Fields that are served and are not the planner's, or whose values all mean the same. The path may be that of what they lie in.
const ELSEWHERE: [(&str, &str); 30] = [
    ("spec.architecture", "there is one"),
    ("spec.dnsConfig", "name servers: names, and in a Pod kubelet"),
    ("spec.dnsPolicy", "name servers: names, and in a Pod kubelet"),
    ("spec.domain.clock", "values that are served are what the machine has"),
    ("spec.domain.cpu.features", "a rule judges them"),
    ("spec.domain.cpu.model", "both models are what the host has"),
    ("spec.domain.devices.autoattachGraphicsDevice", "there is no screen"),
    ("spec.domain.devices.autoattachPodInterface", "defaults: whether an interface is filled in"),
    ("spec.domain.devices.disableHotplug", "nothing is plugged in while the machine runs"),
    (
        "spec.domain.devices.disks.blockSize.matchVolume",
        "blocks of the volume are what a disk has in any case, unless custom ones are asked for",
    ),
    (
        "spec.domain.devices.disks.cdrom",
        "the planner reads that it is there; its values are what each has",
    ),
    ("spec.domain.devices.disks.disk.bus", "virtio is what each has"),
    ("spec.domain.devices.interfaces", "corten-net: addresses, ports, binding"),
    ("spec.domain.devices.panicDevices", "it is always there"),
    ("spec.domain.features", "they are always on"),
    ("spec.domain.firmware.kernelBoot.container.image", "images are found, and opened, by prepare"),
    (
        "spec.domain.firmware.kernelBoot.container.imagePullPolicy",
        "images are found by the CLI's store",
    ),
    ("spec.domain.machine.type", "there is one"),
    ("spec.domain.rebootPolicy", "only what the machine does is served"),
    ("spec.hostname", "seeds and DHCP: prepare::hostname"),
    ("spec.networks.multus", "the CLI's networks and the agent's"),
    ("spec.networks.name", "it matches an interface"),
    ("spec.networks.pod", "corten-net: addresses of the guest"),
    ("spec.subdomain", "names"),
    ("spec.volumes.cloudInitConfigDrive", "seeds: prepare/served.rs"),
    ("spec.volumes.cloudInitNoCloud", "seeds: prepare/served.rs"),
    ("spec.volumes.containerDisk", "images are found, and opened, by prepare"),
    ("spec.volumes.name", "it matches a disk"),
    ("spec.volumes", "prepare/served.rs: what is opened or made"),
    ("spec.domain.memory.reservedOverhead", "of a Pod"),
];

fn lies_in(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn fields_that_are_served_change_the_machine() {
    for (path, also, change) in planned_fields() {
        assert_ne!(machine(&[&also]), machine(&[&also, &change]), "{path} makes no difference");
    }
}

#[test]
fn each_served_field_is_somebodys() {
    let planned: BTreeSet<&str> = planned_fields().into_iter().map(|(path, ..)| path).collect();
    for entry in INSTANCE.entries() {
        let support = entry.support(Scope::Standalone);
        let is_served = !support.is_refused() && !matches!(support, Support::Harmless(_));
        let known = planned.contains(entry.path)
            || ELSEWHERE.iter().any(|(outer, _)| lies_in(entry.path, outer));
        assert!(known || !is_served, "{} is said to be served, and nobody reads it", entry.path);
        let is_wrong = planned.contains(entry.path) && !is_served;
        assert!(!is_wrong, "{} is read, and the table says {support:?}", entry.path);
    }
}

#[test]
fn fields_that_have_no_effect_leave_the_machine_as_it_is() {
    let cases = [
        json!({"affinity": {"nodeAffinity": {}}, "nodeSelector": {"a": "b"}, "schedulerName": "s"}),
        json!({"tolerations": [{"key": "k"}], "topologySpreadConstraints": [{}], "evictionStrategy": "None"}),
        json!({"livenessProbe": {"tcpSocket": {"port": 1}}, "readinessProbe": {"tcpSocket": {"port": 1}}}),
        json!({"domain": {"clock": {"timer": {"hpet": {"present": true}, "pit": {}, "rtc": {}}}}}),
        json!({"domain": {"ioThreads": {"supplementalPoolThreadCount": 2}, "ioThreadsPolicy": "auto"}}),
        json!({"domain": {"machine": {"type": "pc-q35-9.0"}, "features": {"pvspinlock": {"enabled": true}}}}),
        json!({"domain": {"firmware": {"bootloader": {"efi": {}}}, "memory": {"maxGuest": "1Gi"}, "cpu": {"maxSockets": 4}}}),
        json!({"domain": {"devices": {"autoattachInputDevice": true, "inputs": [{"name": "i", "type": "tablet"}]}}}),
        disk(&json!({"dedicatedIOThread": true, "tag": "t", "disk": {"bus": "sata"}})),
        json!({"domain": {"devices": {"interfaces": [{"name": "n", "masquerade": {}, "tag": "t", "acpiIndex": 1, "bootOrder": 1, "model": "e1000"}]}}}),
    ];
    for change in cases {
        assert_eq!(machine(&[]), machine(&[&change]), "{change}");
    }
}
