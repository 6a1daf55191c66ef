//! Every field that KubeVirt has is one of ours, by the same name, and comes back as it was.

use crate::list::{Chance, List};
use corten_resources::types::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstanceReplicaSet,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;

fn again<T: DeserializeOwned + Serialize + Debug>(written: &Value) -> (Value, String) {
    let object: T = serde_json::from_value(written.clone()).unwrap();
    (serde_json::to_value(&object).unwrap(), format!("{object:?}"))
}

/// What has a place in `other` only, below `object`. Types of Kubernetes' own are filled with the member `deep`.
fn strays(debug: &str) -> Vec<&str> {
    debug
        .split("other: {\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .filter(|name| *name != "deep")
        .collect()
}

/// A kind: its name in the list, and how an object of it comes back.
type Kind = (&'static str, fn(&Value) -> (Value, String));

const KINDS: [Kind; 5] = [
    ("v1.VirtualMachineInstance", again::<VirtualMachineInstance>),
    ("v1.VirtualMachine", again::<VirtualMachine>),
    ("v1.VirtualMachineInstanceMigration", again::<VirtualMachineInstanceMigration>),
    ("v1.VirtualMachineInstanceReplicaSet", again::<VirtualMachineInstanceReplicaSet>),
    ("v1.KubeVirt", again::<KubeVirt>),
];

#[test]
fn an_object_with_every_field_comes_back_and_each_field_has_a_member() {
    for (kind, again) in KINDS {
        let written = List::read().whole(kind);
        let (read, debug) = again(&written);
        assert_eq!(read, written, "{kind}");
        assert_eq!(strays(&debug), [""; 0], "{kind}");
    }
}

#[test]
fn a_field_without_a_member_would_be_seen() {
    let mut written = List::read().whole("v1.VirtualMachineInstance");
    written["spec"]["domain"]["devices"]["disks"][0]["colour"] = json!("red");
    let (read, debug) = again::<VirtualMachineInstance>(&written);
    assert_eq!(read, written);
    assert_eq!(strays(&debug), ["colour"]);
}

#[test]
fn every_type_comes_back_with_each_object_in_it_empty() {
    let list = List::read();
    for (kind, again) in KINDS {
        let mut written = list.whole(kind);
        empty_innermost(&mut written);
        let read = again(&written).0;
        // What is written that was not there are required numbers and switches.
        assert!(covers(&read, &written), "{kind}: {read} has not all of {written}");
    }
}

/// Takes the members out of every object that holds no other.
fn empty_innermost(value: &mut Value) {
    match value {
        Value::Object(members) if members.values().any(|it| it.is_object() || it.is_array()) => {
            members.values_mut().for_each(empty_innermost);
        }
        Value::Object(members) => members.clear(),
        Value::Array(members) => members.iter_mut().for_each(empty_innermost),
        _ => {}
    }
}

/// All of `part` is in `whole`, and beside it only numbers, switches and words that KubeVirt requires, with nothing in them.
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            let is_kept = |(name, value): (&String, &Value)| {
                whole.get(name).is_some_and(|found| covers(found, value))
            };
            let is_added = |(name, value): (&String, &Value)| {
                part.contains_key(name)
                    || [json!(0), json!(0.0), json!(false), json!("Unknown")].contains(value)
            };
            part.iter().all(is_kept) && whole.iter().all(is_added)
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(a, b)| covers(a, b))
        }
        _ => whole == part,
    }
}

#[test]
fn null_in_every_field_is_as_good_as_a_missing_field() {
    let mut written = List::read().whole("v1.VirtualMachineInstance");
    for part in ["spec", "status"] {
        for member in written[part].as_object_mut().unwrap().values_mut() {
            *member = Value::Null;
        }
    }
    let object: VirtualMachineInstance = serde_json::from_value(written).unwrap();
    let nothing: VirtualMachineInstance = serde_json::from_value(json!({ "metadata": {
        "deep": { "in": ["it", null, {}] } }, "apiVersion": "text", "kind": "text" }))
    .unwrap();
    assert_eq!(object, nothing);
}

#[test]
fn any_object_comes_back() {
    let list = List::read();
    for (kind, again) in KINDS {
        for seed in 0..200 {
            let mut written = list.any(kind, &mut Chance::new(seed));
            for (name, value) in [("apiVersion", "text"), ("kind", "text")] {
                written[name] = json!(value);
            }
            written["metadata"] = json!({ "name": "", "labels": {}, "later": null });
            let read = again(&written).0;
            assert!(covers(&read, &written), "{kind}: {read} is not {written}");
        }
    }
}

#[test]
fn an_object_that_has_nothing_but_what_says_nothing_comes_back() {
    let written = json!({ "apiVersion": "a", "kind": "b", "metadata": { "name": "a" }, "spec": {
        "volumes": [], "nodeSelector": {}, "hostname": "", "domain": { "devices": { "interfaces": [] }, "memory": null } } });
    let (read, _) = again::<VirtualMachineInstance>(&written);
    assert_eq!(read, written);
}
