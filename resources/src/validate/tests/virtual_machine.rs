//! VirtualMachines on one machine.

use crate::served::Scope;
use crate::validate::{can_run, validate_machine};
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

#[test]
fn clusters_do_not_run_virtual_machines_yet() {
    let spec = json!({ "runStrategy": "Always", "template": template(|_| ()) });
    let found = validate_machine(&serde_json::from_value(spec).unwrap(), Scope::Cluster);
    assert!(!can_run(&found));
}
