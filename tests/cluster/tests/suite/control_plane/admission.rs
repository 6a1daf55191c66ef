//! What the API server says about objects before it stores them.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::objects::{Object, vm, vmi};
use super::test;
use crate::workbench::Workbench;

/// What kubectl says beside its output when it makes an object: warnings, or why it is refused.
fn said(bench: &Workbench, object: &Value) -> Result<(bool, String)> {
    let mut child = bench
        .kubectl
        .command()
        .args(["-n", &bench.namespace, "create", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(object.to_string().as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn refusal(bench: &Workbench, object: &Value) -> Result<String> {
    let (stored, said) = said(bench, object)?;
    ensure!(!stored, "it was stored: {object}");
    Ok(said)
}

#[test]
fn what_cannot_be_served_is_refused_by_its_path() -> Result<()> {
    test("refused", |bench, _| {
        let with = |pointer: &str, value: Value| {
            let mut object = vmi("refused");
            set(&mut object, pointer, value);
            object
        };
        let exec = json!({ "exec": { "command": ["true"] } });
        let gpu = json!([{ "name": "gpu", "deviceName": "nvidia.com/GPU" }]);
        for (object, path) in [
            (with("spec/domain/devices/gpus", gpu), "spec.domain.devices.gpus"),
            (with("spec/readinessProbe", exec.clone()), "spec.readinessProbe.exec"),
            (
                with("spec/livenessProbe", json!({ "guestAgentPing": {} })),
                "spec.livenessProbe.guestAgentPing",
            ),
            (
                with("spec/domain/launchSecurity", json!({ "sev": {} })),
                "spec.domain.launchSecurity",
            ),
            (with("spec/affinity", json!({ "nodeAffinity": 7 })), "spec.affinity.nodeAffinity"),
            (with("spec/domain/memory/guest", json!("a lot")), "spec.domain.memory.guest"),
            (
                with("metadata/annotations", json!({ "hooks.kubevirt.io/hookSidecars": "[]" })),
                "hooks.kubevirt.io/hookSidecars",
            ),
        ] {
            let said = refusal(bench, &object)?;
            assert!(said.contains(path), "{path} is not named: {said}");
            assert!(!said.contains("failed calling webhook"), "{said}");
        }
        let mut machine = vm("refused", "Always");
        set(&mut machine, "spec/template/spec/readinessProbe", exec);
        let said = refusal(bench, &machine)?;
        assert!(said.contains("spec.template.spec.readinessProbe.exec"), "{said}");
        let mut machine = vm("refused", "Always");
        let boot = json!({ "corten.kubevirt.io/node-boot-id": "earlier" });
        set(&mut machine, "spec/template/metadata/annotations", boot);
        let said = refusal(bench, &machine)?;
        assert!(said.contains("spec.template.metadata.annotations[corten"), "{said}");
        let said = refusal(bench, &vm("refused", "WaitAsReceiver"))?;
        assert!(said.contains("spec.runStrategy"), "{said}");
        let left = bench.run(&["get", "vm,vmi", "-o", "name"])?;
        assert_eq!(left, "");
        Ok(())
    })
}

#[test]
fn what_has_no_effect_is_stored_with_a_warning() -> Result<()> {
    test("warned", |bench, _| {
        let mut object = vmi("warned");
        set(&mut object, "spec/domain/cpu/maxSockets", json!(4));
        let (stored, said) = said(bench, &object)?;
        assert!(stored, "{said}");
        assert!(said.contains("Warning: ") && said.contains("maxSockets"), "{said}");
        let kept = Object::new(bench, "vmi", "warned").get()?;
        assert_eq!(kept["spec"]["domain"]["cpu"]["maxSockets"], 4);
        Ok(())
    })
}

#[test]
fn dry_run_shows_what_would_be_stored_and_stores_nothing() -> Result<()> {
    test("dry", |bench, _| {
        for (object, kind) in [(vmi("dry"), "vmi"), (vm("dry", "Always"), "vm")] {
            let dry =
                ["-n", &bench.namespace, "create", "--dry-run=server", "-o", "json", "-f", "-"];
            let shown = bench.kubectl.feed(&dry, &object.to_string())?;
            let shown: Value = serde_json::from_str(&shown)?;
            assert_eq!(shown["metadata"]["name"], "dry");
            assert!(Object::new(bench, kind, "dry").find()?.is_none());
        }
        let mut object = vmi("dry");
        set(&mut object, "spec/readinessProbe", json!({ "exec": { "command": ["true"] } }));
        let refused = bench
            .kubectl
            .feed(
                &["-n", &bench.namespace, "create", "--dry-run=server", "-f", "-"],
                &object.to_string(),
            )
            .err()
            .context("it was taken")?
            .to_string();
        assert!(refused.contains("spec.readinessProbe.exec"), "{refused}");
        Ok(())
    })
}

#[test]
fn machine_cannot_be_changed_to_what_cannot_be_served() -> Result<()> {
    test("changed", |bench, _| {
        bench.create(vm("served", "Halted"))?;
        let object = Object::new(bench, "vm", "served");
        let probe = json!({ "readinessProbe": { "exec": { "command": ["true"] } } });
        let refused = object.patch(&json!({ "spec": { "template": { "spec": probe } } }));
        let refused = refused.err().context("it was taken")?.to_string();
        assert!(refused.contains("spec.template.spec.readinessProbe.exec"), "{refused}");
        object.patch(&json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } }))
    })
}

/// Sets a field, whatever is there, and makes what is on the way to it.
pub(super) fn set(object: &mut Value, path: &str, value: Value) {
    let place = path.split('/').fold(object, |object, name| &mut object[name]);
    *place = value;
}
