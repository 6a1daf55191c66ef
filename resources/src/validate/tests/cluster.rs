//! What clusters serve.

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
            "autoattachMemBalloon": true, "autoattachSerialConsole": true, "logSerialConsole": true, "rng": {},
            "disks": [{ "name": "root", "bootOrder": 1, "cache": "none", "disk": { "bus": "virtio" } }, { "name": "seed", "cdrom": {} }] });
        spec["volumes"] = json!([
            { "name": "root", "containerDisk": { "image": "i", "imagePullSecret": "s" } },
            { "name": "seed", "cloudInitNoCloud": { "secretRef": { "name": "s" } } },
            { "name": "drive", "cloudInitConfigDrive": { "userData": "u" } },
            { "name": "claim", "persistentVolumeClaim": { "claimName": "c" } },
            { "name": "data", "dataVolume": { "name": "d" } },
            { "name": "over", "ephemeral": { "persistentVolumeClaim": { "claimName": "c" } } },
            { "name": "empty", "emptyDisk": { "capacity": "1Gi" } },
            { "name": "map", "configMap": { "name": "m", "optional": true } },
            { "name": "secret", "secret": { "secretName": "s" } },
            { "name": "account", "serviceAccount": { "serviceAccountName": "a" } },
            { "name": "downward", "downwardAPI": { "fields": [{ "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
            { "name": "metrics", "downwardMetrics": {} },
        ]);
        spec["affinity"] = json!({ "nodeAffinity": {} });
        spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1 }]);
        spec["hostname"] = json!("h");
        spec["subdomain"] = json!("s");
        spec["dnsPolicy"] = json!("None");
        spec["dnsConfig"] = json!({ "nameservers": ["10.0.0.1"], "searches": ["a.b"], "options": [{ "name": "ndots", "value": "2" }] });
        spec["serviceAccountName"] = json!("a");
        spec["readinessProbe"] = json!({ "httpGet": { "path": "/", "port": 80, "scheme": "HTTP", "httpHeaders": [] },
            "initialDelaySeconds": 1, "periodSeconds": 2, "timeoutSeconds": 3, "successThreshold": 1, "failureThreshold": 5 });
        spec["livenessProbe"] = json!({ "tcpSocket": { "port": "ssh" } });
    });
    assert_eq!(all, [""; 0]);
}

#[test]
fn what_is_not_served_is_refused_by_its_path() {
    let table = [
        ("/domain/devices/disks", json!([{ "name": "d" }]), "spec.domain.devices.disks[0].name"),
        (
            "/domain/cpu",
            json!({ "dedicatedCpuPlacement": true }),
            "spec.domain.cpu.dedicatedCpuPlacement",
        ),
        ("/domain/cpu", json!({ "model": "Haswell" }), "spec.domain.cpu.model"),
        (
            "/domain/firmware/bootloader",
            json!({ "efi": { "secureBoot": true } }),
            "spec.domain.firmware.bootloader.efi.secureBoot",
        ),
        (
            "/domain/resources",
            json!({ "limits": { "example.com/gpu": 1 } }),
            "spec.domain.resources.limits.example.com/gpu",
        ),
        ("/volumes", json!([{ "name": "v" }]), "spec.volumes[0]"),
        (
            "/volumes",
            json!([{ "name": "v", "hostDisk": { "path": "/etc/shadow", "type": "Disk" } }]),
            "spec.volumes[0].hostDisk",
        ),
        ("/networks", json!([{ "name": "n", "pod": {} }]), "spec.networks[0].name"),
        ("/startStrategy", json!("Later"), "spec.startStrategy"),
        ("/livenessProbe", json!({ "exec": { "command": ["true"] } }), "spec.livenessProbe.exec"),
        ("/readinessProbe", json!({ "guestAgentPing": {} }), "spec.readinessProbe.guestAgentPing"),
        (
            "/readinessProbe",
            json!({ "httpGet": { "port": 80, "host": "10.0.0.1" } }),
            "spec.readinessProbe.httpGet.host",
        ),
        (
            "/livenessProbe",
            json!({ "tcpSocket": { "port": 22, "host": "10.0.0.1" } }),
            "spec.livenessProbe.tcpSocket.host",
        ),
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
fn networks_are_served_and_each_is_one_of_its_kind() {
    let with = |networks: Value| {
        let name = |network: &Value| json!({ "name": network["name"], "bridge": {} });
        let interfaces: Vec<Value> = networks.as_array().unwrap().iter().map(name).collect();
        findings(|spec| {
            spec["domain"]["devices"]["interfaces"] = json!(interfaces);
            spec["domain"]["devices"]["networkInterfaceMultiqueue"] = json!(true);
            spec["networks"] = networks;
        })
    };
    let multus =
        |name: &str, network: &str| json!({ "name": name, "multus": { "networkName": network } });
    let pod = json!({ "name": "p", "pod": {} });
    let default = json!({ "name": "d", "multus": { "networkName": "lan", "default": true } });
    assert_eq!(with(json!([pod, multus("a", "lan"), multus("b", "other/lan.x")])), [""; 0]);
    assert_eq!(with(json!([default, multus("a", "lan")])), [""; 0]);
    let refused = [
        (json!([pod, default]), "spec.networks[1].multus.default: there is another network"),
        (json!([default, pod]), "spec.networks[1].pod: there is one network of this kind"),
        (
            json!([multus("a", "a/b/c")]),
            "spec.networks[0].multus.networkName: \"a/b/c\" is neither",
        ),
        (json!([multus("a", "A b")]), "spec.networks[0].multus.networkName: "),
    ];
    for (networks, text) in refused {
        let found = with(networks);
        assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}");
    }
}

#[test]
fn a_machine_may_have_nothing_to_boot() {
    assert_eq!(findings(|spec| spec["domain"]["firmware"] = json!({})), [""; 0]);
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
