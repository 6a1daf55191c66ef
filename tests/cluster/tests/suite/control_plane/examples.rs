//! Manifests of users: those of the checkout, and some that nobody wrote for it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use corten_resources::served::Scope;
use corten_resources::types::{VirtualMachine, VirtualMachineInstance};
use corten_resources::validate::{Finding, can_run, validate, validate_machine};
use serde_json::Value;

use super::agent::Agents;
use super::objects::{Object, all_gone, checkout, claim, objects_in};
use super::test;
use crate::guest::text;
use crate::workbench::Workbench;

/// Our own rules for a cluster: the API server is to judge alike.
fn findings(object: &Value) -> Result<Vec<Finding>> {
    let object = object.clone();
    Ok(match object["kind"].as_str() {
        Some("VirtualMachineInstance") => {
            let vmi: VirtualMachineInstance = serde_json::from_value(object)?;
            validate(&vmi.spec, Scope::Cluster)
        }
        Some("VirtualMachine") => {
            let machine: VirtualMachine = serde_json::from_value(object)?;
            validate_machine(&machine.spec, Scope::Cluster)
        }
        _ => Vec::new(),
    })
}

/// Makes, describes, changes and deletes each object that is served; the others are refused by the path that is at fault.
/// Returns how many were served.
fn use_all(bench: &mut Workbench, directory: &Path) -> Result<usize> {
    let mut served = 0;
    for (file, object) in objects_in(directory)? {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        if !text(&object["apiVersion"]).starts_with("kubevirt.io/") {
            bench.create(object)?;
            continue;
        }
        let found = findings(&object).with_context(|| file.clone())?;
        let create = ["-n", &bench.namespace.clone(), "create", "-f", "-"];
        let made = bench.kubectl.feed(&create, &object.to_string());
        if !can_run(&found) {
            let refused = made.err().with_context(|| format!("{file}: {name} was taken"))?;
            let refused = refused.to_string();
            ensure!(
                found.iter().any(|it| refused.contains(&it.path)),
                "{file}: {found:?}: {refused}"
            );
            continue;
        }
        made.with_context(|| file.clone())?;
        for claimed in claims(&object) {
            claim(bench, &claimed)?;
        }
        use_one(bench, kind, name).with_context(|| file.clone())?;
        served += 1;
    }
    Ok(served)
}

fn use_one(bench: &Workbench, kind: &str, name: &str) -> Result<()> {
    let object = Object::new(bench, kind, name);
    match kind {
        "VirtualMachineInstance" => drop(object.reaches("/status/phase", "Running")?),
        "VirtualMachine" => drop(object.until("it has no status", |object| {
            matches!(text(&object["status"]["printableStatus"]), "Running" | "Stopped")
        })?),
        _ => {}
    }
    let described = bench.run(&["describe", kind, name])?;
    ensure!(described.contains(name), "{described}");
    bench.run(&["label", kind, name, "changed=yes"])?;
    bench.run(&["annotate", kind, name, "changed=yes"])?;
    object.delete()
}

/// The claims that its volumes name.
fn claims(object: &Value) -> Vec<String> {
    let spec = match text(&object["kind"]) {
        "VirtualMachineInstance" => &object["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    volumes
        .filter_map(|it| it["persistentVolumeClaim"]["claimName"].as_str())
        .map(Into::into)
        .collect()
}

#[test]
fn every_example_is_made_described_changed_and_deleted() -> Result<()> {
    test("examples", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let served = use_all(bench, &checkout("resources/examples"))?;
        assert!(served > 0, "a cluster serves no example");
        all_gone(bench)
    })
}

#[test]
fn manifests_that_nobody_wrote_for_it_are_served_or_refused_by_path() -> Result<()> {
    test("unseen", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let served = use_all(bench, &checkout("tests/cluster/manifests/unseen"))?;
        assert!(served >= 5, "only {served} are served");
        all_gone(bench)
    })
}
