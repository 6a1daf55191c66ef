//! Any object that can be read can be judged, and is judged in bounds.

use crate::Kind;
use crate::defaults::{Identity, with_defaults};
use crate::served::Scope;
use crate::types::VirtualMachineInstance;
use crate::validate::{MOST_FINDINGS, admit, validate};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Names that objects have, so that values get to where they are looked at.
const NAMES: [&str; 48] = [
    "spec",
    "template",
    "domain",
    "devices",
    "disks",
    "interfaces",
    "volumes",
    "networks",
    "cpu",
    "memory",
    "guest",
    "firmware",
    "kernelBoot",
    "container",
    "image",
    "kernelPath",
    "uuid",
    "serial",
    "name",
    "bus",
    "disk",
    "cdrom",
    "bootOrder",
    "blockSize",
    "custom",
    "logical",
    "physical",
    "macAddress",
    "masquerade",
    "bridge",
    "ports",
    "port",
    "protocol",
    "pod",
    "vmNetworkCIDR",
    "emptyDisk",
    "capacity",
    "cloudInitNoCloud",
    "userData",
    "userDataBase64",
    "hostDisk",
    "path",
    "resources",
    "limits",
    "requests",
    "features",
    "policy",
    "other",
];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2i32..600).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-z0-9:/.+=-]{0,24}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("10.0.2.0/24")),
        Just(json!("02:00:00:00:00:01")),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let name = prop_oneof![8 => prop::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn judge(spec: &Value) {
    let identity = Identity { namespace: "n", name: "m", uid: "" };
    let object = json!({ "metadata": {}, "spec": spec });
    if let Ok(mut vmi) = serde_json::from_value::<VirtualMachineInstance>(object.clone()) {
        for scope in [Scope::Standalone, Scope::Cluster] {
            assert!(validate(&vmi.spec, scope).len() <= 2 * MOST_FINDINGS + 2);
        }
        let written = serde_json::to_value(&vmi).unwrap();
        assert_eq!(serde_json::from_value::<VirtualMachineInstance>(written).unwrap(), vmi);
        with_defaults(&mut vmi.spec, identity, Scope::Standalone);
        validate(&vmi.spec, Scope::Standalone);
    }
    for kind in Kind::ALL {
        for scope in [Scope::Standalone, Scope::Cluster] {
            assert!(admit(kind, None, &object, scope).len() <= 2 * MOST_FINDINGS + 2);
            admit(kind, Some(&json!({ "spec": {} })), &object, scope);
        }
    }
}

proptest! {
    #[test]
    fn any_specification_is_judged(spec in json()) {
        judge(&spec);
    }

    #[test]
    fn any_devices_are_judged(disks in json(), interfaces in json(), volumes in json()) {
        judge(&json!({ "volumes": [volumes], "domain": { "devices": { "disks": [disks], "interfaces": [interfaces] } } }));
    }
}

#[test]
fn a_flood_of_mistakes_is_told_in_bounds() {
    let wrong: Vec<_> = (0..20_000).map(|_| json!({ "name": "-", "colour": 1 })).collect();
    let object = json!({ "metadata": {}, "spec": { "volumes": wrong, "domain": { "devices": { "disks": wrong } } } });
    let vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
    let found = validate(&vmi.spec, Scope::Standalone);
    assert_eq!(found.len(), MOST_FINDINGS + 1);
    // Each has a field that nobody knows, and rules speak of those that the table let pass: all are counted.
    let more: usize = found[MOST_FINDINGS].message.split(' ').next().unwrap().parse().unwrap();
    assert!(more >= 39_900, "{more}");
}
