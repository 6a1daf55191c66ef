//! The KubeVirt object: what it installs, what it says, and what keeps it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::control_plane::agent::Agents;
use crate::control_plane::objects::{Object, checkout, condition, objects_in, vmi};
use crate::control_plane::operator::{Operators, SYSTEM};
use crate::control_plane::test;
use crate::guest::{Guest, text};
use crate::workbench::{Workbench, eventually};

pub(super) fn kubevirt(operators: &Operators) -> Result<Value> {
    let list = operators.kubectl.run(&["-n", SYSTEM, "get", "kubevirt", "-o", "json"])?;
    let list: Value = serde_json::from_str(&list)?;
    list["items"].get(0).cloned().context("there is no KubeVirt object")
}

fn patch(operators: &Operators, patch: &Value) -> Result<()> {
    let object = kubevirt(operators)?;
    let name = text(&object["metadata"]["name"]);
    let patch = patch.to_string();
    operators.kubectl.run(&[
        "-n",
        SYSTEM,
        "patch",
        "kubevirt",
        name,
        "--type=merge",
        "-p",
        &patch,
    ])?;
    Ok(())
}

/// Names of what is installed by it.
pub(super) fn installed(operators: &Operators) -> Result<Vec<String>> {
    let kinds = "daemonsets,mutatingwebhookconfigurations,validatingwebhookconfigurations,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let names = operators.kubectl.run(&[
        "get",
        kinds,
        "-A",
        "-l",
        "app.kubernetes.io/part-of=corten",
        "-o",
        "name",
    ])?;
    Ok(names.lines().map(Into::into).collect())
}

/// Waits until no instance of any test is left.
pub(super) fn without_instances(operators: &Operators) -> Result<()> {
    eventually("instances of other tests are left", || {
        let left = operators.kubectl.run(&["get", "vmi", "-A", "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}

#[test]
fn status_says_what_tools_wait_for() -> Result<()> {
    test("status", |_, operators| {
        eventually("it is not Deployed", || {
            let object = kubevirt(operators)?;
            let status = &object["status"];
            for (kind, expected) in [
                ("Available", "True"),
                ("Created", "True"),
                ("Progressing", "False"),
                ("Degraded", "False"),
            ] {
                let found = condition(&object, kind).context(kind)?;
                ensure!(found["status"] == expected, "{found}");
            }
            ensure!(status["phase"] == "Deployed", "{status}");
            ensure!(status["observedGeneration"] == object["metadata"]["generation"], "{object}");
            ensure!(status["observedKubeVirtVersion"].is_string(), "{status}");
            ensure!(status["operatorVersion"].is_string(), "{status}");
            Ok(())
        })
    })
}

#[test]
fn what_is_taken_away_comes_back() -> Result<()> {
    test("repaired", |_, operators| {
        let before = installed(operators)?;
        assert!(before.len() >= 4, "{before:?}");
        operators.kubectl.run(&["-n", SYSTEM, "delete", "daemonset", "corten-node-agent"])?;
        eventually("it does not come back", || {
            let now = installed(operators)?;
            ensure!(now == before, "{now:?}");
            Ok(())
        })?;
        operators.start()
    })
}

#[test]
fn changed_ratio_holds_for_the_next_instance() -> Result<()> {
    test("ratio", |bench, operators| {
        let processes = (operators.process(1)?, operators.process(2)?);
        let asked = |name: &str| -> Result<String> {
            bench.create(vmi(name))?;
            Object::new(bench, "vmi", name).bound()?;
            let pod = Guest::new(bench, name).pod()?;
            Ok(text(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]).to_owned())
        };
        assert_eq!(asked("before")?, "100m");
        let ratio = |ratio: Value| json!({ "spec": { "configuration": { "developerConfiguration": { "cpuAllocationRatio": ratio } } } });
        patch(operators, &ratio(json!(5)))?;
        let names = ["after-1", "after-2", "after-3", "after-4", "after-5"];
        // The next, or the one after: the operator learns of it in its own time.
        let found =
            names.iter().map(|name| asked(name)).find(|it| !matches!(it, Ok(cpu) if cpu == "100m"));
        patch(operators, &ratio(Value::Null))?;
        assert_eq!(found.context("it changed nothing")??, "200m");
        assert_eq!((operators.process(1)?, operators.process(2)?), processes);
        Ok(())
    })
}

#[test]
fn neither_it_nor_the_definitions_are_deleted_while_instances_exist() -> Result<()> {
    test("kept", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        bench.create(vmi("kept"))?;
        let kept = Object::new(bench, "vmi", "kept");
        let running = kept.reaches("/status/phase", "Running")?;
        let object = kubevirt(operators)?;
        let name = text(&object["metadata"]["name"]);
        let delete = ["-n", SYSTEM, "delete", "--wait=false", "kubevirt", name];
        let refused = operators.kubectl.run(&delete).err().context("it was deleted")?.to_string();
        assert!(refused.contains("VirtualMachineInstance"), "{refused}");
        // Another one is nobody's, and may go.
        let mut second = json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "second" }, "spec": {} });
        second["metadata"]["namespace"] = json!(bench.namespace);
        operators.kubectl.apply(&second.to_string())?;
        bench.run(&["delete", "--timeout=60s", "kubevirt", "second"])?;
        let crd = "virtualmachineinstances.kubevirt.io";
        let refused = operators.kubectl.run(&["delete", "--wait=false", "crd", crd]);
        let refused = refused.err().context("the definition was deleted")?.to_string();
        assert!(refused.contains("VirtualMachineInstance"), "{refused}");
        assert!(kubevirt(operators)?["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(kept.get()?["metadata"]["uid"], running["metadata"]["uid"]);
        kept.delete()
    })
}

#[test]
fn what_it_installed_goes_with_it_and_comes_with_the_next() -> Result<()> {
    test("removed", |bench, operators| {
        without_instances(operators)?;
        let before = installed(operators)?;
        let object = kubevirt(operators)?;
        let name = text(&object["metadata"]["name"]);
        operators.kubectl.run(&["-n", SYSTEM, "delete", "--timeout=120s", "kubevirt", name])?;
        let left = installed(operators)?;
        let kept = definitions_are_kept(bench, operators);
        let again = objects_in(&checkout("resources/manifests"))?;
        let again = again.iter().find(|(_, it)| it["kind"] == "KubeVirt").context("no KubeVirt")?;
        operators.kubectl.apply(&again.1.to_string())?;
        operators.start()?;
        assert_eq!(left, [""; 0]);
        assert_eq!(installed(operators)?, before);
        kept
    })
}

/// Without a KubeVirt object: an instance keeps the definitions, and what keeps them goes with it.
fn definitions_are_kept(bench: &Workbench, operators: &Operators) -> Result<()> {
    bench.create(vmi("unmanaged"))?;
    eventually("nothing keeps the definitions", || {
        let found = installed(operators)?;
        ensure!(found.iter().any(|name| name.ends_with("/corten-definitions")), "{found:?}");
        Ok(())
    })?;
    let crd = "virtualmachineinstances.kubevirt.io";
    let refused = operators.kubectl.run(&["delete", "--wait=false", "crd", crd]);
    let refused = refused.err().context("the definition was deleted")?.to_string();
    ensure!(refused.contains("VirtualMachineInstance"), "{refused}");
    Object::new(bench, "vmi", "unmanaged").delete()?;
    eventually("it is left behind", || {
        let found = installed(operators)?;
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    })
}
