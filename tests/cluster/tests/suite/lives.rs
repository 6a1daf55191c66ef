//! How VirtualMachineInstances live and end, alone and many at once.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::guest::{Guest, UP, condition, text, vmi};
use crate::workbench::{Workbench, eventually};

const NOTHING: &str = include_str!("../../../../resources/examples/vmi-nothing-to-boot.yaml");

/// As with a firmware that finds no system: the machine is on, and says so.
#[test]
fn vmi_with_nothing_to_boot_runs_until_its_button_is_pressed() -> Result<()> {
    Workbench::test("nothing", |bench| {
        bench.kubectl.feed(&["-n", &bench.namespace, "apply", "-f", "-"], NOTHING)?;
        let guest = Guest::new(bench, "nothing");
        guest.is_ready()?;
        let log = guest.says("waits for its power button")?;
        ensure!(
            log.contains("there is no disk to boot from"),
            "it does not say what it looked for:\n{log}"
        );
        let log = guest.follow_log()?;
        assert_eq!(guest.is_ready()?["status"]["phase"], "Running");
        bench.run(&["delete", "--timeout=120s", "vmi", "nothing"])?;
        let log = log.end()?;
        ensure!(log.contains("the guest powered off"), "{log}");
        Ok(())
    })
}

/// Each says so when its user space runs; then all go at once.
fn ten(purpose: &str, object: impl Fn(&str) -> Value, words: &str) -> Result<()> {
    Workbench::test(purpose, |bench| {
        let names: Vec<String> = (0..10).map(|number| format!("one-of-ten-{number}")).collect();
        let objects: Vec<Value> = names
            .iter()
            .map(|name| {
                let mut object = object(name);
                object["metadata"]["namespace"] = json!(bench.namespace);
                object
            })
            .collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        bench.kubectl.apply(&list.to_string())?;
        for name in &names {
            let guest = Guest::new(bench, name);
            guest.is_ready()?;
            guest.says(words)?;
        }
        let pods: Value = serde_json::from_str(&bench.run(&["get", "pods", "-o", "json"])?)?;
        let pods = pods["items"].as_array().context("no list of Pods")?;
        ensure!(pods.len() == names.len(), "{} Pods", pods.len());
        bench.run(&["delete", "--timeout=240s", "vmi", "--all"])?;
        eventually("Pods are left", || {
            let left = bench.run(&["get", "pods", "-o", "name"])?;
            ensure!(left.is_empty(), "{left}");
            Ok(())
        })
    })
}

#[test]
fn long_ten_vmis_run_and_go_at_once() -> Result<()> {
    let small = |name: &str| {
        let mut object = vmi(name, "");
        object["spec"]["domain"]["firmware"] = Value::Null;
        object["spec"]["domain"]["memory"]["guest"] = json!("64Mi");
        object
    };
    ten("ten", small, "Nothing to boot")
}

#[test]
fn long_ten_guests_of_linux_run_and_go_at_once() -> Result<()> {
    ten("ten-guests", |name| vmi(name, "corten.end=button"), UP)
}

/// Before there is a Pod, before it has a node, before its container runs, and when its guest has ended.
#[test]
fn vmi_is_deleted_in_each_phase() -> Result<()> {
    Workbench::test("phases", |bench| {
        let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "missing" } });
        let mut pending = vmi("pending", "");
        pending["spec"]["volumes"] = json!([claim]);
        let mut unplaced = vmi("unplaced", "");
        unplaced["spec"]["nodeSelector"] = json!({ "corten.test/no-such-node": "" });
        let mut unpulled = vmi("unpulled", "");
        let boot = &mut unpulled["spec"]["domain"]["firmware"]["kernelBoot"];
        boot["container"]["image"] = json!("corten.test/no-such-image:1");
        let mut failed = vmi("failed", "");
        let boot = &mut failed["spec"]["domain"]["firmware"]["kernelBoot"];
        boot["container"]["kernelPath"] = json!("/boot/none");
        for object in [pending, unplaced, unpulled, failed] {
            bench.create(object)?;
        }
        let reasons = [("pending", "FailedPvcNotFound"), ("unpulled", "ImagePull")];
        for (name, reason) in reasons {
            eventually(&format!("{name} does not say why it waits"), || {
                let object = Guest::new(bench, name).object()?;
                let said = condition(&object, "Synchronized");
                ensure!(text(&said["reason"]).contains(reason), "{object}");
                Ok(())
            })?;
        }
        eventually("unplaced does not say why it waits", || {
            let object = Guest::new(bench, "unplaced").object()?;
            ensure!(condition(&object, "PodScheduled")["reason"] == "Unschedulable", "{object}");
            Ok(())
        })?;
        Guest::new(bench, "failed").reaches("/phase", "Failed")?;
        for (name, phase) in
            [("pending", "Pending"), ("unplaced", "Pending"), ("unpulled", "Scheduling")]
        {
            assert_eq!(Guest::new(bench, name).object()?["status"]["phase"], phase, "{name}");
        }
        // Deleted as soon as it is made, wherever that finds it.
        bench.create(vmi("hasty", ""))?;
        bench.run(&["delete", "--timeout=240s", "vmi", "--all"])?;
        eventually("Pods are left", || {
            let left = bench.run(&["get", "pods", "-o", "name"])?;
            ensure!(left.is_empty(), "{left}");
            Ok(())
        })
    })
}
