//! The kinds that only clusters have, and objects of any kind as they were sent.

use crate::Kind;
use crate::served::Scope;
use crate::validate::{admit, unchanged};
use serde_json::{Value, json};

/// Refusals of a new object of this kind with this specification.
fn refused(kind: Kind, spec: &Value) -> Vec<String> {
    let object = json!({ "metadata": { "name": "a" }, "spec": spec });
    let found = admit(kind, None, &object, Scope::Cluster);
    found.iter().filter(|it| it.is_refusal()).map(|it| it.path.clone()).collect()
}

fn set(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "replicas": 3,
        "selector": { "matchLabels": { "app": "a" } },
        "template": { "metadata": { "labels": { "app": "a" } }, "spec": { "domain": { "memory": { "guest": "64Mi" } } } },
    });
    change(&mut spec);
    spec
}

#[test]
fn a_replica_set_knows_its_own() {
    let table = [
        (set(|_| ()), vec![]),
        (set(|spec| spec["replicas"] = json!(0)), vec![]),
        (set(|spec| spec["replicas"] = json!(-1)), vec!["spec.replicas"]),
        (set(|spec| spec["selector"] = json!({})), vec!["spec.selector"]),
        (set(|spec| spec["selector"] = Value::Null), vec!["spec.selector"]),
        (
            set(|spec| spec["template"]["metadata"]["labels"] = json!({ "app": "b" })),
            vec!["spec.template.metadata.labels"],
        ),
        (
            set(|spec| {
                spec["selector"]["matchExpressions"] = json!([{ "key": "app", "operator": "Is" }]);
            }),
            vec!["spec.selector.matchExpressions[0].operator"],
        ),
        (
            set(|spec| spec["template"] = Value::Null),
            vec!["spec.template.metadata.labels", "spec.template.spec"],
        ),
        (
            set(|spec| spec["template"]["spec"]["domain"]["memory"]["guest"] = json!("x")),
            vec!["spec.template.spec.domain.memory.guest"],
        ),
    ];
    for (spec, wanted) in table {
        assert_eq!(refused(Kind::ReplicaSet, &spec), wanted, "{spec}");
    }
}

#[test]
fn a_migration_names_its_machine() {
    let table = [
        (json!({ "vmiName": "a" }), vec![]),
        (json!({}), vec!["spec.vmiName"]),
        (json!({ "vmiName": "A b" }), vec!["spec.vmiName"]),
        (
            json!({ "vmiName": "a", "sendTo": { "connectURL": "u", "migrationID": "i" } }),
            vec!["spec.sendTo"],
        ),
        (json!({ "vmiName": "a", "receive": { "migrationID": "i" } }), vec!["spec.receive"]),
    ];
    for (spec, wanted) in table {
        assert_eq!(refused(Kind::Migration, &spec), wanted, "{spec}");
    }
}

#[test]
fn an_installation_is_told_only_what_it_can_do() {
    let table = [
        // As KubeVirt's own example has it.
        (
            json!({ "certificateRotateStrategy": {}, "configuration": { "developerConfiguration": { "featureGates": [] } },
                "customizeComponents": {}, "imagePullPolicy": "IfNotPresent", "workloadUpdateStrategy": {} }),
            vec![],
        ),
        (
            json!({ "certificateRotateStrategy": { "selfSigned": { "ca": { "duration": "a week" }, "server": { "duration": "1h30m" } } } }),
            vec!["spec.certificateRotateStrategy.selfSigned.ca.duration"],
        ),
        (
            json!({ "customizeComponents": { "patches": [{ "patch": "{}", "resourceName": "r", "resourceType": "t", "type": "merge" }] } }),
            vec!["spec.customizeComponents"],
        ),
        (
            json!({ "configuration": { "developerConfiguration": { "useEmulation": true, "cpuAllocationRatio": 0 } } }),
            vec![
                "spec.configuration.developerConfiguration.useEmulation",
                "spec.configuration.developerConfiguration.cpuAllocationRatio",
            ],
        ),
        (
            json!({ "configuration": { "permittedHostDevices": { "pciHostDevices": [{ "pciVendorSelector": "1:2", "resourceName": "r" }] } } }),
            vec!["spec.configuration.permittedHostDevices"],
        ),
        (
            json!({ "configuration": { "seccompConfiguration": { "virtualMachineInstanceProfile": { "customProfile": { "runtimeDefaultProfile": true } } } } }),
            vec![],
        ),
        (json!({ "uninstallStrategy": "RemoveWorkloads" }), vec!["spec.uninstallStrategy"]),
        (
            json!({ "imageTag": "bad tag!!", "imageRegistry": "https://registry.example" }),
            vec!["spec.imageTag", "spec.imageRegistry"],
        ),
        (json!({ "imageTag": "v1", "imageRegistry": "registry.example:5000/corten" }), vec![]),
    ];
    for (spec, wanted) in table {
        assert_eq!(refused(Kind::KubeVirt, &spec), wanted, "{spec}");
    }
}

#[test]
fn gates_that_do_nothing_are_warned_of() {
    let object = json!({ "metadata": {}, "spec": { "configuration": { "developerConfiguration": { "featureGates": ["VMExport"] } } } });
    let found = admit(Kind::KubeVirt, None, &object, Scope::Cluster);
    let told: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.is_refusal())).collect();
    assert_eq!(told, [("spec.configuration.developerConfiguration.featureGates[0]", false)]);
}

#[test]
fn what_cannot_be_read_is_told_by_its_path() {
    let table = [
        (
            Kind::Instance,
            json!({ "domain": { "cpu": { "cores": "many" } } }),
            "spec.domain.cpu.cores",
        ),
        (
            Kind::Machine,
            json!({ "template": { "spec": { "volumes": [{ "name": 1 }] } } }),
            "spec.template.spec.volumes[0].name",
        ),
        (Kind::ReplicaSet, json!({ "replicas": "three" }), "spec.replicas"),
        (Kind::Migration, json!({ "vmiName": [] }), "spec.vmiName"),
        (Kind::KubeVirt, json!([]), "spec"),
    ];
    for (kind, spec, path) in table {
        assert_eq!(refused(kind, &spec), [path]);
    }
}

#[test]
fn a_hook_is_refused_by_its_annotation() {
    let object = json!({ "metadata": { "annotations": { "hooks.kubevirt.io/hookSidecars": "[]" } },
        "spec": { "domain": { "memory": { "guest": "64Mi" } } } });
    let found = admit(Kind::Instance, None, &object, Scope::Cluster);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, "metadata.annotations[hooks.kubevirt.io/hookSidecars]");
}

#[test]
fn some_of_it_cannot_change() {
    let object = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    let machine = |guest: &str| json!({ "domain": { "memory": { "guest": guest } } });
    let table = [
        (Kind::Instance, machine("64Mi"), machine("65Mi"), vec!["spec"]),
        (Kind::Migration, json!({ "vmiName": "a" }), json!({ "vmiName": "b" }), vec!["spec"]),
        (
            Kind::ReplicaSet,
            set(|_| ()),
            set(|spec| spec["selector"]["matchLabels"]["tier"] = json!("1")),
            vec!["spec.selector"],
        ),
        (Kind::ReplicaSet, set(|_| ()), set(|spec| spec["replicas"] = json!(9)), vec![]),
        (
            Kind::Machine,
            json!({ "running": true, "template": { "spec": machine("64Mi") } }),
            json!({ "running": false, "template": { "spec": machine("65Mi") } }),
            vec![],
        ),
    ];
    for (kind, old, new, wanted) in table {
        let (old, new) = (object(old), object(new));
        let paths = |found: Vec<crate::validate::Finding>| {
            found.into_iter().map(|it| it.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(unchanged(kind, &old, &new)), wanted);
        assert_eq!(paths(admit(kind, Some(&old), &new, Scope::Cluster)), wanted);
    }
}

#[test]
fn what_an_earlier_release_let_in_may_be_labelled_and_go() {
    let old = json!({ "metadata": { "finalizers": ["f"] }, "spec": { "thisIsNoField": 1 } });
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(admit(Kind::Instance, Some(&old), &labelled, Scope::Cluster), []);
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-02T03:04:05Z" }, "spec": { "other": 1 } });
    assert_eq!(admit(Kind::Instance, Some(&old), &going, Scope::Cluster), []);
}

#[test]
fn what_corten_reports_of_an_instance_is_refused_in_whatever_it_is_made_from() {
    let metadata = json!({
        "name": "a",
        "labels": { "app": "a", "kubevirt.io/nodeName": "n" },
        "annotations": { "note": "a", "corten.kubevirt.io/launch-attempt": "1",
            "corten.kubevirt.io/node-boot-id": "b" },
    });
    let keys = [
        "labels[kubevirt.io/nodeName]",
        "annotations[corten.kubevirt.io/launch-attempt]",
        "annotations[corten.kubevirt.io/node-boot-id]",
    ];
    let inside = |path: &str| keys.map(|key| format!("{path}.{key}"));
    let mut spec = set(|spec| spec["template"]["metadata"] = metadata.clone());
    assert_eq!(refused(Kind::ReplicaSet, &spec), inside("spec.template.metadata"));
    let machine = json!({ "runStrategy": "Halted", "template": spec["template"].take() });
    assert_eq!(refused(Kind::Machine, &machine), inside("spec.template.metadata"));
    let instance = json!({ "metadata": metadata, "spec": machine["template"]["spec"] });
    let paths = |found: Vec<crate::finding::Finding>| -> Vec<String> {
        found.into_iter().map(|it| it.path).collect()
    };
    let made = admit(Kind::Instance, None, &instance, Scope::Cluster);
    assert_eq!(paths(made), inside("metadata"));
    // A copy of one that ran in a cluster can be run without one, and one that is there may have them.
    assert_eq!(paths(admit(Kind::Instance, None, &instance, Scope::Standalone)), [""; 0]);
    let mut old = instance.clone();
    old["metadata"]["annotations"] = json!({});
    assert_eq!(paths(admit(Kind::Instance, Some(&old), &instance, Scope::Cluster)), [""; 0]);
}

#[test]
fn labels_that_no_instance_can_have_are_refused_in_its_template() {
    let spec = set(|spec| {
        let metadata = &mut spec["template"]["metadata"];
        metadata["labels"]["long"] = json!("x".repeat(64));
        metadata["labels"]["no key!"] = json!("a");
        metadata["annotations"] = json!({ "Example.com/a": "anything at all", "b/c/d": "" });
    });
    let wanted = ["labels[no key!]", "annotations[b/c/d]", "labels[long]"]
        .map(|it| format!("spec.template.metadata.{it}"));
    assert_eq!(refused(Kind::ReplicaSet, &spec), wanted);
    let machine = json!({ "runStrategy": "Halted", "template": spec["template"] });
    assert_eq!(refused(Kind::Machine, &machine), wanted);
}
