//! What those who make the machine would refuse is refused before, by the field's path.

use super::standalone::{judged, refusals, set};
use crate::Kind;
use crate::served::Scope;
use crate::validate::admit;
use serde_json::{Value, json};

const FIELDS: &str = "spec.volumes[1].downwardAPI.fields";

/// Paths that are refused if this value is set.
fn refused(pointer: &str, value: Value) -> Vec<String> {
    let found = judged(|spec| set(spec, pointer, value));
    refusals(&found).into_iter().map(str::to_owned).collect()
}

/// The same of files with these paths, and of this field in the first of them.
fn refused_files(paths: &[&str], field: &str) -> Vec<String> {
    let reference = json!({ "fieldPath": field });
    let files: Vec<_> =
        paths.iter().map(|path| json!({ "path": path, "fieldRef": reference })).collect();
    refused("/volumes/1", json!({ "name": "seed", "downwardAPI": { "fields": files } }))
}

#[test]
fn texts_of_the_firmware_have_limits() {
    let boot = |args: &str| json!({ "kernelBoot": { "kernelArgs": args, "container": { "image": "i", "kernelPath": "/k" } } });
    let args = ["spec.domain.firmware.kernelBoot.kernelArgs"];
    let serial = |text: String| refused("/domain/firmware", json!({ "serial": text }));
    assert_eq!(serial("x".repeat(1024)), [""; 0]);
    assert_eq!(serial("x".repeat(1025)), ["spec.domain.firmware.serial"]);
    assert_eq!(refused("/domain/firmware", boot(&"x".repeat(2047))), [""; 0]);
    assert_eq!(refused("/domain/firmware", boot(&"x".repeat(2048))), args);
    assert_eq!(refused("/domain/firmware", boot("quiet\0")), args);
}

#[test]
fn search_domains_are_names() {
    for domain in ["a.b", "A_b.c.", ".", ""] {
        assert_eq!(refused("/dnsConfig", json!({ "searches": [domain] })), [""; 0], "{domain}");
    }
    for domain in ["a b", "a..b", "ä.de", &"x".repeat(64)] {
        let found = refused("/dnsConfig", json!({ "searches": ["a.b", domain] }));
        assert_eq!(found, ["spec.dnsConfig.searches[1]"], "{domain}");
    }
}

#[test]
fn time_servers_are_counted() {
    let servers = |count| json!({ "ntpServers": vec!["10.0.0.1"; count] });
    let pointer = "/domain/devices/interfaces/0/dhcpOptions";
    assert_eq!(refused(pointer, servers(16)), [""; 0]);
    let path = "spec.domain.devices.interfaces[0].dhcpOptions.ntpServers";
    assert_eq!(refused(pointer, servers(17)), [path]);
}

#[test]
fn networks_have_ordinary_addresses_and_a_size() {
    let table = [
        ("vmNetworkCIDR", vec!["10.0.0.0/8", "192.168.1.0/30", "223.0.0.0/24"]),
        ("vmIPv6NetworkCIDR", vec!["fd10:0:2::/120", "2001:db8::/64", "fc00::/8"]),
    ];
    for (field, networks) in table {
        for network in networks {
            assert_eq!(refused("/networks/0/pod", json!({ field: network })), [""; 0], "{network}");
        }
    }
    let table = [
        ("vmNetworkCIDR", vec!["0.0.0.0/0", "0.0.0.0/8", "127.0.0.0/24", "224.0.0.0/24"]),
        ("vmNetworkCIDR", vec!["10.0.0.0/7", "10.0.2.0/31", "fd10::/64"]),
        ("vmIPv6NetworkCIDR", vec!["fe80::/64", "::/64", "fd10::/4", "fd10::/127", "ff02::/64"]),
    ];
    for (field, networks) in table {
        for network in networks {
            let found = refused("/networks/0/pod", json!({ field: network }));
            assert_eq!(found, [format!("spec.networks[0].pod.{field}")], "{network}");
        }
    }
}

#[test]
fn labels_are_short_and_ascii() {
    for source in ["configMap", "secret", "downwardAPI"] {
        for (label, is_one) in
            [("", true), (&*"x".repeat(32), true), (&*"x".repeat(33), false), ("Prüfung", false)]
        {
            let mut volume = json!({ "name": "seed" });
            volume[source] = json!({ "volumeLabel": label, "name": "n", "secretName": "n" });
            let found = refused("/volumes/1", volume);
            let path = format!("spec.volumes[1].{source}.volumeLabel");
            assert_eq!(!found.contains(&path), is_one, "{source} {label:?}: {found:?}");
        }
    }
}

#[test]
fn files_hold_fields_that_kubelet_writes() {
    for field in ["metadata.name", "metadata.labels", "metadata.annotations['a/b']"] {
        assert_eq!(refused_files(&["f"], field), [""; 0], "{field}");
    }
    for field in ["", "status.podIP", "spec.nodeName", "metadata.labels['a", "metadata.colour"] {
        let found = refused_files(&["f"], field);
        assert_eq!(found, [format!("{FIELDS}[0].fieldRef.fieldPath")], "{field}");
    }
}

#[test]
fn paths_of_files_can_all_be_on_one_disk() {
    let (deep, long) = (["a"; 8].join("/"), "x".repeat(253));
    assert_eq!(
        refused_files(&["a", "b/c", "b/d", &deep.replace('a', "e"), &long], "metadata.name"),
        [""; 0]
    );
    let table = [
        vec![""],
        vec!["/a"],
        vec!["a/./b"],
        vec!["a//b"],
        vec!["a/../b"],
        vec!["a/"],
        vec!["a\0"],
        vec![&*["a"; 9].join("/").leak()],
        vec![&*"x".repeat(254).leak()],
        vec!["a", "a"],
        vec!["a/b", "a"],
        vec!["a", "a/b"],
    ];
    for paths in table {
        let last = paths.len() - 1;
        let found = refused_files(&paths, "metadata.name");
        assert_eq!(found, [format!("{FIELDS}[{last}].path")], "{paths:?}");
    }
}

#[test]
fn what_is_wrong_is_told_once_and_where_it_stands() {
    let table = [
        (
            "/domain/resources",
            json!({ "requests": { "cpu": -1 } }),
            "spec.domain.resources.requests.cpu",
        ),
        (
            "/domain/resources",
            json!({ "requests": { "cpu": 300 } }),
            "spec.domain.resources.requests.cpu",
        ),
        ("/domain/cpu", json!({ "cores": 255 }), "spec.domain.cpu.cores"),
        ("/domain/devices/disks/2", json!({ "disk": {} }), "spec.domain.devices.disks[2].name"),
        ("/networks/1", json!({ "multus": { "networkName": "m" } }), "spec.networks[1].name"),
    ];
    for (pointer, value, path) in table {
        let found = judged(|spec| {
            for list in ["/domain/devices/disks", "/networks"] {
                spec.pointer_mut(list).unwrap().as_array_mut().unwrap().push(Value::Null);
            }
            set(spec, pointer, value);
            for list in ["/domain/devices/disks", "/networks"] {
                spec.pointer_mut(list).unwrap().as_array_mut().unwrap().retain(|it| !it.is_null());
            }
        });
        assert_eq!(refusals(&found), [path], "{found:?}");
    }
}

#[test]
fn values_that_are_warned_of_are_named_to_whoever_gives_another() {
    let found = judged(|spec| set(spec, "/domain/devices/disks/0/disk/bus", json!("ide")));
    let told = "ide is not served; only virtio is, and sata or scsi or usb with a warning";
    assert_eq!(found[0].message, told);
}

#[test]
fn messages_are_short_whatever_they_repeat() {
    let long = "x ".repeat(50_000);
    let object = json!({
        "metadata": { "name": long },
        "spec": { "hostname": long, long.clone(): 1, "dnsPolicy": long, "domain": {
            "memory": { "guest": long }, "cpu": { "cores": long, "model": long } } },
    });
    let found = admit(Kind::Instance, None, &object, Scope::Standalone);
    assert!(found.len() >= 4, "{found:?}");
    for finding in found {
        assert!(finding.to_string().len() < 2600, "{finding}");
    }
}

#[test]
fn metadata_is_what_an_api_server_takes() {
    let spec = json!({ "domain": { "memory": { "guest": "1Mi" } } });
    let refused = |metadata: Value| {
        let object = json!({ "metadata": metadata, "spec": spec });
        let found = admit(Kind::Instance, None, &object, Scope::Standalone);
        found.into_iter().map(|finding| finding.path).collect::<Vec<_>>()
    };
    let good = json!({ "name": "a", "namespace": "shop", "annotations": { "a.b/c": "any thing", "Example.COM/Key": "" },
        "labels": { "app.kubernetes.io/Name_1": "", "b": "v1.2" } });
    assert_eq!(refused(good), [""; 0]);
    let table = [
        (json!({ "name": "a", "namespace": "../.." }), "metadata.namespace"),
        (json!({ "name": "a", "labels": { "a b": "c" } }), "metadata.labels[a b]"),
        (json!({ "name": "a", "labels": { "-": "c" } }), "metadata.labels[-]"),
        (json!({ "name": "a", "labels": { "a": "b c" } }), "metadata.labels[a]"),
        (json!({ "name": "a", "annotations": { "A/b/c": "d" } }), "metadata.annotations[A/b/c]"),
    ];
    for (metadata, path) in table {
        assert_eq!(refused(metadata), [path]);
    }
}

#[test]
fn a_network_of_multus_is_named() {
    let found = judged(|spec| {
        set(spec, "/networks/0", json!({ "name": "net", "multus": {} }));
        set(spec, "/domain/devices/interfaces/0", json!({ "name": "net", "bridge": {} }));
    });
    assert_eq!(refusals(&found), ["spec.networks[0].multus.networkName"]);
}
