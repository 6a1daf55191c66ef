//! VirtualMachineInstanceReplicaSets and VirtualMachineInstanceMigrations.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::agent::Agents;
use super::objects::{Object, all_gone, vmi};
use super::test;
use crate::guest::text;
use crate::workbench::{Workbench, eventually};

fn replica_set(name: &str, replicas: u32) -> Value {
    let labels = json!({ "set": name });
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": vmi(name)["spec"] },
        },
    })
}

/// Waits until so many of its instances run, and no more are there.
fn has(bench: &Workbench, name: &str, count: usize) -> Result<()> {
    eventually(&format!("{name} has not {count} instances"), || {
        let selector = format!("set={name}");
        let list = bench.run(&["get", "vmi", "-l", &selector, "-o", "json"])?;
        let list: Value = serde_json::from_str(&list)?;
        let items = list["items"].as_array().context("no list")?;
        let running = items.iter().filter(|it| it["status"]["phase"] == "Running").count();
        ensure!(items.len() == count && running == count, "{running} of {} run", items.len());
        let set = Object::new(bench, "vmirs", name).get()?;
        let told = |field: &str| set["status"][field].as_u64().unwrap_or(0);
        ensure!(told("replicas") == count as u64 && told("readyReplicas") == count as u64, "{set}");
        Ok(())
    })
}

#[test]
fn set_has_as_many_instances_as_it_is_scaled_to() -> Result<()> {
    test("replicas", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        bench.create(replica_set("three", 3))?;
        has(bench, "three", 3)?;
        bench.run(&["scale", "vmirs/three", "--replicas=5"])?;
        has(bench, "three", 5)?;
        bench.run(&["scale", "vmirs/three", "--replicas=1"])?;
        has(bench, "three", 1)?;
        // One that goes is replaced.
        let name = bench.run(&["get", "vmi", "-o", "jsonpath={.items[0].metadata.name}"])?;
        bench.run(&["delete", "vmi", &name, "--timeout=120s"])?;
        has(bench, "three", 1)?;
        bench.run(&["delete", "--wait=false", "vmirs", "three"])?;
        all_gone(bench)
    })
}

#[test]
fn migration_says_that_it_comes_with_a_later_release() -> Result<()> {
    test("migration", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        bench.create(vmi("stays"))?;
        let instance = Object::new(bench, "vmi", "stays").reaches("/status/phase", "Running")?;
        bench.create(json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": "away" },
            "spec": { "vmiName": "stays" },
        }))?;
        let migration = Object::new(bench, "vmim", "away");
        let told = migration.until("no condition says so", |object| {
            let conditions = object["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|it| text(&it["message"]).contains("later release"))
        })?;
        assert_ne!(told["status"]["phase"], "Succeeded", "{told}");
        let after = Object::new(bench, "vmi", "stays").get()?;
        assert_eq!(after["status"]["nodeName"], instance["status"]["nodeName"]);
        migration.delete()
    })
}
