//! VirtualMachineInstances from their creation to their end.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::agent::{AGENT, Agents};
use super::objects::{End, Object, all_gone, claim, condition, end_guest, launchers, vmi};
use super::operator::{OPERATOR, account};
use super::test;
use crate::guest::{Guest, text};
use crate::workbench::eventually;

#[test]
fn instance_runs_after_four_writes_at_most_and_then_is_ready() -> Result<()> {
    test("writes", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let audit = operators.audit()?;
        bench.create(vmi("counted"))?;
        let counted = Object::new(bench, "vmi", "counted");
        counted.reaches("/status/phase", "Running")?;
        let object = counted.condition("Ready", "True").and_then(|_| counted.get())?;

        let writes = audit.each_in(&bench.namespace)?;
        let [operator, agent] = [OPERATOR, AGENT].map(account);
        // A refused one stored nothing: its writer looked at what had changed meanwhile.
        let ours: Vec<_> = writes
            .iter()
            .filter(|it| (it.user == operator || it.user == agent) && it.code < 300)
            .filter(|it| !it.what.ends_with(" events"))
            .collect();
        let runs = ours.iter().position(|it| it.user == agent).map_or(0, |at| at + 1);
        // The Pod, its node, Scheduled if its container is seen to run before the guest does, and Running.
        assert!((3..=4).contains(&runs), "{ours:#?}");
        assert_eq!(ours[0].what, "create pods", "{ours:#?}");
        assert!(
            ours[1..runs].iter().all(|it| it.what == "patch virtualmachineinstances"),
            "{ours:#?}"
        );
        // That its Pod may be ready (once more if that word had not come back yet), and that it is.
        assert!(ours.len() <= runs + 3, "{ours:#?}");

        let phases = object["status"]["phaseTransitionTimestamps"].as_array().cloned();
        let phases = phases.unwrap_or_default();
        let phases: Vec<&str> = phases.iter().map(|it| text(&it["phase"])).collect();
        assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);
        counted.delete()?;
        all_gone(bench)
    })
}

#[test]
fn object_is_accepted_without_a_write_of_the_operator() -> Result<()> {
    test("accept", |bench, _| {
        // As the API server answers the request itself.
        let made = bench.kubectl.feed(
            &["-n", &bench.namespace, "create", "-o", "json", "-f", "-"],
            &vmi("accepted").to_string(),
        )?;
        let made: Value = serde_json::from_str(&made)?;
        assert_eq!(made["status"]["phase"], "Pending");
        assert_eq!(made["status"]["runtimeUser"], 107);
        let finalizers = made["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        assert_eq!(finalizers, [json!("kubevirt.io/foregroundDeleteVirtualMachine")]);
        Ok(())
    })
}

#[test]
fn how_the_guest_ended_is_how_the_instance_ends() -> Result<()> {
    test("ends", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        for (name, end, phase, reason) in [
            ("off", End::PoweredOff, "Succeeded", "PoweredOff"),
            ("panic", End::Panicked, "Failed", "Panicked"),
        ] {
            bench.create(vmi(name))?;
            let object = Object::new(bench, "vmi", name);
            object.reaches("/status/phase", "Running")?;
            let pod = Guest::new(bench, name).pod()?;
            end_guest(bench, text(&pod["metadata"]["name"]), end)?;
            let ended = object.reaches("/status/phase", phase)?;
            assert_eq!(ended["status"]["reason"], reason, "{ended}");
            let ready = condition(&ended, "Ready").context("no condition Ready")?;
            assert_eq!(ready["status"], "False", "{ended}");
        }
        bench.run(&["delete", "--wait=false", "vmi", "--all"])?;
        all_gone(bench)
    })
}

#[test]
fn what_keeps_an_instance_from_running_is_told_on_it() -> Result<()> {
    test("causes", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let mut nowhere = vmi("nowhere");
        nowhere["spec"]["nodeSelector"] = json!({ "corten.test/no-such-node": "" });
        bench.create(nowhere)?;
        let mut claimless = vmi("claimless");
        with_claim(&mut claimless, "missing");
        bench.create(claimless)?;

        let object = Object::new(bench, "vmi", "nowhere");
        let scheduled = object.condition("PodScheduled", "False")?;
        assert_eq!(scheduled["reason"], "Unschedulable", "{scheduled}");
        let object = Object::new(bench, "vmi", "claimless");
        object.until("the missing claim is not named", |object| told(object, "missing"))?;
        claim(bench, "missing")?;
        Object::new(bench, "vmi", "claimless").reaches("/status/phase", "Running")?;
        Ok(())
    })
}

#[test]
fn quota_is_told_and_once_it_is_raised_the_instance_runs() -> Result<()> {
    test("quota", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let quota = |pods: &str| {
            json!({
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": { "name": "few" },
                "spec": { "hard": { "pods": pods } },
            })
        };
        bench.create(quota("0"))?;
        eventually("the quota is not in force", || {
            let hard = bench.run(&["get", "quota", "few", "-o", "jsonpath={.status.hard.pods}"])?;
            ensure!(hard == "0", "{hard:?}");
            Ok(())
        })?;
        bench.create(vmi("held"))?;
        let held = Object::new(bench, "vmi", "held");
        held.until("the quota is not named", |object| told(object, "exceeded quota"))?;
        bench.create(quota("5"))?;
        held.reaches("/status/phase", "Running")?;
        assert_eq!(launchers(bench)?.len(), 1);
        Ok(())
    })
}

#[test]
fn spec_cannot_be_changed_and_metadata_can() -> Result<()> {
    test("immutable", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        bench.create(vmi("kept"))?;
        let kept = Object::new(bench, "vmi", "kept");
        kept.reaches("/status/phase", "Running")?;
        let change = json!({ "spec": { "terminationGracePeriodSeconds": 77 } });
        let refused = kept.patch(&change).err().context("a spec was changed")?.to_string();
        assert!(refused.contains("spec"), "{refused}");
        bench.run(&["label", "vmi", "kept", "mine=yes"])?;
        bench.run(&["annotate", "vmi", "kept", "note=mine"])?;
        let now = kept.get()?;
        assert_eq!(now["metadata"]["labels"]["mine"], "yes");
        assert_eq!(now["status"]["phase"], "Running");
        Ok(())
    })
}

/// Some condition of the object says it.
fn told(object: &Value, words: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["status"] == "False" && text(&condition["message"]).contains(words)
    })
}

/// Gives the guest a disk on that claim.
fn with_claim(vmi: &mut Value, name: &str) {
    vmi["spec"]["domain"]["devices"]["disks"] =
        json!([{ "name": "data", "disk": { "bus": "virtio" } }]);
    vmi["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
}
