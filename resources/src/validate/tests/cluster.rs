//! What clusters serve: machines that boot a kernel, without disks and networks.

use crate::served::Scope;
use crate::validate::validate;
use serde_json::{Value, json};

/// What keeps a machine that can be run from it, with `change` made to its JSON.
fn findings(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut spec = json!({ "domain": {
        "devices": {},
        "memory": { "guest": "256Mi" },
        "firmware": { "kernelBoot": { "container": { "image": "i", "kernelPath": "/k" } } },
    } });
    change(&mut spec);
    let found = validate(&serde_json::from_value(spec).unwrap(), Scope::Cluster);
    found.iter().filter(|it| it.is_refusal()).map(ToString::to_string).collect()
}

#[test]
fn a_machine_with_a_kernel_and_memory_can_be_run() {
    assert_eq!(findings(|_| ()), [""; 0]);
}

#[test]
fn everything_that_is_served_can_be_given_at_once() {
    let all = findings(|spec| {
        spec["architecture"] = json!("amd64");
        spec["evictionStrategy"] = json!("None");
        spec["nodeSelector"] = json!({ "a.b/c": "d" });
        spec["priorityClassName"] = json!("high");
        spec["schedulerName"] = json!("other");
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["tolerations"] = json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 }]);
        spec["domain"]["cpu"] =
            json!({ "cores": 2, "sockets": 1, "threads": 1, "model": "host-model" });
        spec["domain"]["machine"] = json!({ "type": "q35" });
        spec["domain"]["resources"] = json!({ "requests": { "memory": "256Mi", "cpu": 1 }, "limits": { "memory": "512Mi", "cpu": "2" } });
        spec["domain"]["firmware"]["uuid"] = json!("5d307ca9-b3ef-428c-8861-06e72d69f223");
        spec["domain"]["firmware"]["serial"] = json!("1");
        spec["domain"]["firmware"]["kernelBoot"]["kernelArgs"] = json!("console=ttyS0");
        spec["domain"]["firmware"]["kernelBoot"]["container"]["initrdPath"] = json!("/i");
        spec["domain"]["firmware"]["kernelBoot"]["container"]["imagePullPolicy"] = json!("Always");
        spec["domain"]["firmware"]["kernelBoot"]["container"]["imagePullSecret"] = json!("s");
        spec["domain"]["devices"] = json!({ "autoattachPodInterface": false, "autoattachGraphicsDevice": false,
            "autoattachMemBalloon": false, "autoattachSerialConsole": true, "logSerialConsole": true });
    });
    assert_eq!(all, [""; 0]);
}

#[test]
fn what_is_not_served_is_refused_by_its_path() {
    let table = [
        ("/domain/devices/disks", json!([{ "name": "d" }]), "spec.domain.devices.disks"),
        ("/domain/devices/interfaces", json!([{ "name": "n" }]), "spec.domain.devices.interfaces"),
        (
            "/domain/devices/autoattachPodInterface",
            json!(true),
            "spec.domain.devices.autoattachPodInterface",
        ),
        (
            "/domain/cpu",
            json!({ "dedicatedCpuPlacement": true }),
            "spec.domain.cpu.dedicatedCpuPlacement",
        ),
        ("/domain/cpu", json!({ "model": "Haswell" }), "spec.domain.cpu.model"),
        (
            "/domain/firmware/bootloader",
            json!({ "efi": { "secureBoot": true } }),
            "spec.domain.firmware.bootloader",
        ),
        (
            "/domain/resources",
            json!({ "limits": { "example.com/gpu": 1 } }),
            "spec.domain.resources.limits.example.com/gpu",
        ),
        ("/volumes", json!([{ "name": "v" }]), "spec.volumes"),
        ("/architecture", json!("arm64"), "spec.architecture"),
        ("/evictionStrategy", json!("LiveMigrate"), "spec.evictionStrategy"),
        ("/tolerations", json!([{ "key": "k" }, { "later": 1 }]), "spec.tolerations[1].later"),
        ("/thisIsNoField", json!(0), "spec.thisIsNoField"),
    ];
    for (pointer, value, path) in table {
        let found = findings(|spec| {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[name] = value;
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}: ")), "{found:?}");
    }
}

#[test]
fn a_field_that_is_there_but_empty_asks_for_nothing() {
    let empty = findings(|spec| {
        spec["volumes"] = json!([]);
        spec["hostname"] = json!("");
        spec["domain"]["features"] = json!({});
        spec["domain"]["clock"] = json!(null);
    });
    assert_eq!(empty, [""; 0]);
}

#[test]
fn every_finding_is_told_not_only_the_first() {
    let found = findings(|spec| {
        spec["domain"]["memory"]["guest"] = json!("x");
        spec["domain"]["cpu"] = json!({ "cores": -2 });
        spec["terminationGracePeriodSeconds"] = json!(-1);
    });
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn a_request_over_its_limit_and_a_guest_over_the_limit_are_refused() {
    let found = findings(|spec| {
        spec["domain"]["resources"] = json!({ "requests": { "cpu": 2, "memory": "64Mi" }, "limits": { "cpu": 1, "memory": "128Mi" } });
    });
    assert_eq!(
        found,
        [
            "spec.domain.resources.requests.cpu: 2 is more than the limit of 1",
            "spec.domain.memory.guest: the guest has more memory than the limit of 128Mi",
        ]
    );
}
