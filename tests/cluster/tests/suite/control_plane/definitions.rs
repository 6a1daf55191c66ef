//! The custom resource definitions, as kubectl has to do with them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::objects::{checkout, objects_in, vmi};
use super::test;

const KINDS: [&str; 5] = [
    "kubevirts",
    "virtualmachineinstancemigrations",
    "virtualmachineinstancereplicasets",
    "virtualmachineinstances",
    "virtualmachines",
];

/// Of an annotation, and so of what a plain `kubectl apply` takes.
const LIMIT: usize = 256 << 10;

fn definitions() -> Result<Vec<Value>> {
    let objects = objects_in(&checkout("resources/manifests"))?.into_iter();
    let definitions = objects.map(|(_, object)| object);
    Ok(definitions.filter(|object| object["kind"] == "CustomResourceDefinition").collect())
}

#[test]
fn plain_apply_takes_every_definition() -> Result<()> {
    test("apply", |bench, _| {
        let definitions = definitions()?;
        let mut names: Vec<_> =
            definitions.iter().map(|it| it["spec"]["names"]["plural"].clone()).collect();
        names.sort_by_key(ToString::to_string);
        assert_eq!(names, KINDS);
        for definition in definitions {
            let text = definition.to_string();
            ensure!(text.len() < LIMIT, "{}: {}", definition["metadata"]["name"], text.len());
            bench.kubectl.feed(&["apply", "-f", "-"], &text)?;
        }
        Ok(())
    })
}

#[test]
fn both_versions_are_served() -> Result<()> {
    test("versions", |bench, _| {
        for kind in KINDS {
            for version in ["v1", "v1alpha3"] {
                bench.run(&["get", &format!("{kind}.{version}.kubevirt.io")])?;
            }
        }
        let mut old = vmi("old");
        old["apiVersion"] = "kubevirt.io/v1alpha3".into();
        old["spec"]["nodeSelector"] = serde_json::json!({ "corten.test/no-such-node": "" });
        bench.create(old)?;
        let kept =
            bench.run(&["get", "virtualmachineinstances.v1.kubevirt.io", "old", "-o", "json"])?;
        let kept: Value = serde_json::from_str(&kept)?;
        assert_eq!(kept["spec"]["domain"]["memory"]["guest"], "256Mi");
        assert_eq!(kept["status"]["phase"], "Pending", "admission saw it too: {kept}");
        Ok(())
    })
}

#[test]
fn short_names_and_columns_are_those_that_users_know() -> Result<()> {
    test("names", |bench, _| {
        for short in ["vmi", "vmis", "vm", "vms", "vmim", "vmims", "vmirs", "vmirss", "kv", "kvs"] {
            bench.run(&["get", short])?;
        }
        bench.create(vmi("listed"))?;
        let table = bench.run(&["get", "vmi"])?;
        let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(head, ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"]);
        let all = bench.run(&["get", "all", "-o", "name"])?;
        assert!(all.contains("virtualmachineinstance.kubevirt.io/listed"), "{all}");
        Ok(())
    })
}

#[test]
fn explain_says_what_a_field_does_and_whether_it_is_served() -> Result<()> {
    test("explain", |bench, _| {
        for (field, words) in [
            ("vmi.spec.nodeSelector", "Served"),
            ("vmi.spec.domain.launchSecurity", "Not served"),
            ("vmi.spec.domain.cpu.maxSockets", "No effect"),
            ("vm.spec.runStrategy", "Served"),
            ("vm.spec.template.spec.domain.launchSecurity", "Not served"),
            ("kubevirt.spec.configuration.developerConfiguration.cpuAllocationRatio", "Served"),
        ] {
            let text = bench.run(&["explain", field])?;
            let (_, description) = text.split_once("DESCRIPTION:").context("no description")?;
            assert!(description.contains(words), "{field}: {text}");
        }
        Ok(())
    })
}
