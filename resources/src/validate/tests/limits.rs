//! What those who make the machine would refuse is refused before, by the field's path.

use super::standalone::{judged, refusals, set};
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
