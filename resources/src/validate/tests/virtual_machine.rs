//! VirtualMachines on one machine.

use crate::served::Scope;
use crate::validate::validate_machine;
use serde_json::{Value, json};

fn findings(spec: Value) -> Vec<String> {
    let found = validate_machine(&serde_json::from_value(spec).unwrap(), Scope::Standalone);
    found.iter().filter(|it| it.is_refusal()).map(ToString::to_string).collect()
}

fn template(change: impl FnOnce(&mut Value)) -> Value {
    let mut template = json!({ "metadata": { "creationTimestamp": null, "labels": { "a": "b" } },
        "spec": { "domain": { "memory": { "guest": "64Mi" } } } });
    change(&mut template);
    template
}

#[test]
fn a_virtual_machine_with_a_template_and_a_strategy_can_be_run() {
    for strategy in ["Always", "Halted", "Manual", "Once", "RerunOnFailure"] {
        assert_eq!(
            findings(json!({ "runStrategy": strategy, "template": template(|_| ()) })),
            [""; 0]
        );
    }
    assert_eq!(findings(json!({ "running": true, "template": template(|_| ()) })), [""; 0]);
}

#[test]
fn that_it_is_booted_all_the_same_is_told() {
    for (field, value) in [("runStrategy", json!("Halted")), ("running", json!(false))] {
        let mut spec = json!({ "template": template(|_| ()) });
        spec[field] = value;
        let found = validate_machine(&serde_json::from_value(spec).unwrap(), Scope::Standalone);
        let told: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.is_refusal())).collect();
        assert_eq!(told, [(&*format!("spec.{field}"), false)]);
    }
}

#[test]
fn strategies_exclude_each_other_and_one_is_needed() {
    let table = [
        json!({ "running": true, "runStrategy": "Always" }),
        json!({ "runStrategy": "Sometimes" }),
        json!({}),
    ];
    for mut spec in table {
        spec["template"] = template(|_| ());
        let found = findings(spec);
        assert!(found.len() == 1 && found[0].starts_with("spec.runStrategy: "), "{found:?}");
    }
}

#[test]
fn paths_lead_through_the_template() {
    let spec = json!({ "runStrategy": "Always", "template": template(|template| {
        template["spec"]["domain"]["devices"]["disks"] = json!([{ "name": "d" }]);
    }) });
    let found = findings(spec);
    assert!(found[0].starts_with("spec.template.spec.domain.devices.disks[0].name: "), "{found:?}");
    let missing = findings(json!({ "runStrategy": "Always" }));
    assert!(missing[0].starts_with("spec.template.spec: "), "{missing:?}");
}

#[test]
fn what_needs_a_cluster_is_refused_and_the_rest_is_warned_of() {
    let spec = json!({ "runStrategy": "Always", "template": template(|_| ()),
        "instancetype": { "name": "small" }, "preference": { "name": "p" }, "colour": "red",
        "dataVolumeTemplates": [{ "metadata": { "name": "d" }, "spec": {} }, { "spec": {} }] });
    let paths: Vec<_> = findings(spec.clone())
        .iter()
        .map(|finding| finding.split(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.colour",
            "spec.instancetype",
            "spec.preference",
            "spec.dataVolumeTemplates[1].metadata.name"
        ]
    );
    let all = validate_machine(&serde_json::from_value(spec).unwrap(), Scope::Standalone);
    assert!(all.iter().any(|it| it.path == "spec.dataVolumeTemplates" && !it.is_refusal()));
}

/// Refusals in a cluster.
fn in_cluster(spec: Value) -> Vec<String> {
    let found = validate_machine(&serde_json::from_value(spec).unwrap(), Scope::Cluster);
    found.iter().filter(|it| it.is_refusal()).map(ToString::to_string).collect()
}

fn template_with_disk() -> Value {
    template(|template| {
        template["spec"]["volumes"] = json!([{ "name": "root", "dataVolume": { "name": "d" } }]);
    })
}

#[test]
fn clusters_run_virtual_machines() {
    let storage = json!({ "resources": { "requests": { "storage": "1Gi" } } });
    let spec = json!({ "runStrategy": "Always", "template": template_with_disk(),
        "dataVolumeTemplates": [{ "metadata": { "name": "d" }, "spec": { "storage": storage, "source": { "blank": {} } } }] });
    let found = validate_machine(&serde_json::from_value(spec).unwrap(), Scope::Cluster);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(in_cluster(json!({ "running": true, "template": template(|_| ()) })), [""; 0]);
}

#[test]
fn what_clusters_do_not_serve_is_refused_by_its_path() {
    let volume = |name: &str| json!({ "metadata": { "name": name }, "spec": { "pvc": {} } });
    let table = [
        (json!({ "instancetype": { "name": "small" } }), "spec.instancetype"),
        (json!({ "preference": { "name": "p" } }), "spec.preference"),
        (json!({ "runStrategy": "WaitAsReceiver" }), "spec.runStrategy"),
        (json!({ "updateVolumesStrategy": "Migration" }), "spec.updateVolumesStrategy"),
        (
            json!({ "dataVolumeTemplates": [volume("e")] }),
            "spec.dataVolumeTemplates[0].metadata.name",
        ),
        (
            json!({ "dataVolumeTemplates": [volume("d"), volume("d")] }),
            "spec.dataVolumeTemplates[1].metadata.name",
        ),
        (
            json!({ "dataVolumeTemplates": [{ "metadata": { "name": "d" }, "spec": {} }] }),
            "spec.dataVolumeTemplates[0].spec",
        ),
        (
            json!({ "template": template(|it| it["metadata"]["annotations"] = json!({ "hooks.kubevirt.io/hookSidecars": "[]" })) }),
            "spec.template.metadata.annotations[hooks.kubevirt.io/hookSidecars]",
        ),
    ];
    for (change, path) in table {
        let mut spec = json!({ "runStrategy": "Always", "template": template_with_disk() });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let found = in_cluster(spec);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{path}: ")), "{found:?}");
    }
}
