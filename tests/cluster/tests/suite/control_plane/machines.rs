//! VirtualMachines: when they run, and when they run again.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::agent::Agents;
use super::objects::{End, Object, all_gone, condition, end_guest, launchers, vm};
use super::test;
use crate::guest::{Guest, text};
use crate::workbench::{Workbench, eventually};

/// A VirtualMachine with the instance that it may have.
struct Machine<'a> {
    bench: &'a Workbench,
    name: &'a str,
    object: Object<'a>,
    instance: Object<'a>,
}

impl<'a> Machine<'a> {
    fn create(bench: &'a Workbench, name: &'a str, strategy: &str) -> Result<Self> {
        bench.create(vm(name, strategy))?;
        Ok(Self::new(bench, name))
    }

    fn new(bench: &'a Workbench, name: &'a str) -> Self {
        let (object, instance) = (Object::new(bench, "vm", name), Object::new(bench, "vmi", name));
        Self { bench, name, object, instance }
    }

    /// Waits until its instance runs, and it says so; returns the instance's uid.
    fn runs(&self) -> Result<String> {
        let instance = self.instance.reaches("/status/phase", "Running")?;
        self.object.reaches("/status/printableStatus", "Running")?;
        Ok(text(&instance["metadata"]["uid"]).to_owned())
    }

    /// Waits until another instance runs than that one.
    fn runs_anew(&self, earlier: &str) -> Result<String> {
        let instance = self.instance.until("no new instance runs", |it| {
            text(&it["metadata"]["uid"]) != earlier && it["status"]["phase"] == "Running"
        })?;
        Ok(text(&instance["metadata"]["uid"]).to_owned())
    }

    /// Ends the guest that runs now.
    fn end(&self, end: End) -> Result<()> {
        let pods = Guest::new(self.bench, self.name).pods()?;
        let running = pods.iter().find(|pod| pod["status"]["phase"] == "Running");
        let name = &running.context("no Pod of it runs")?["metadata"]["name"];
        end_guest(self.bench, text(name), end)
    }

    fn ask(&self, request: &Value) -> Result<()> {
        self.object.patch_status(&json!({ "status": { "stateChangeRequests": [request] } }))
    }

    /// It has no instance that runs, and stays so for a while in which another one would have been made.
    fn stays_down(&self) -> Result<()> {
        for _ in 0..20 {
            let instance = self.instance.find()?;
            let over = instance
                .as_ref()
                .is_none_or(|it| matches!(text(&it["status"]["phase"]), "Succeeded" | "Failed"));
            ensure!(over, "it runs again: {}", instance.unwrap_or_default());
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Ok(())
    }
}

#[test]
fn always_runs_again_when_the_guest_switches_itself_off() -> Result<()> {
    test("always", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "always", "Always")?;
        let first = machine.runs()?;
        machine.object.condition("Ready", "True")?;
        let object = machine.object.get()?;
        assert_eq!(object["status"]["created"], true, "{object}");
        assert_eq!(object["status"]["ready"], true, "{object}");
        machine.end(End::PoweredOff)?;
        machine.runs_anew(&first)?;
        machine.object.delete()?;
        all_gone(bench)
    })
}

#[test]
fn halted_runs_and_stops_when_the_strategy_is_changed() -> Result<()> {
    test("halted", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "halted", "Halted")?;
        machine.object.reaches("/status/printableStatus", "Stopped")?;
        assert!(machine.instance.find()?.is_none());
        machine.object.patch(&json!({ "spec": { "runStrategy": "Always" } }))?;
        machine.runs()?;
        machine.object.patch(&json!({ "spec": { "runStrategy": "Halted" } }))?;
        machine.object.reaches("/status/printableStatus", "Stopped")?;
        machine.instance.gone()
    })
}

#[test]
fn manual_runs_and_stops_as_it_is_asked() -> Result<()> {
    test("manual", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "manual", "Manual")?;
        machine.object.reaches("/status/printableStatus", "Stopped")?;
        machine.stays_down()?;
        machine.ask(&json!({ "action": "Start" }))?;
        let uid = machine.runs()?;
        machine.ask(&json!({ "action": "Stop", "uid": uid }))?;
        machine.object.reaches("/status/printableStatus", "Stopped")?;
        machine.instance.gone()?;
        let object = machine.object.until("the request stays", |it| {
            it["status"]["stateChangeRequests"].as_array().is_none_or(Vec::is_empty)
        })?;
        assert_ne!(object["status"]["created"], true);
        machine.stays_down()
    })
}

#[test]
fn rerun_on_failure_runs_again_after_a_failure_only() -> Result<()> {
    test("rerun", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "rerun", "RerunOnFailure")?;
        let first = machine.runs()?;
        machine.end(End::Panicked)?;
        machine.runs_anew(&first)?;
        machine.end(End::PoweredOff)?;
        machine.object.until("it is not stopped", |object| {
            matches!(text(&object["status"]["printableStatus"]), "Stopped" | "Succeeded")
        })?;
        machine.stays_down()
    })
}

#[test]
fn once_never_runs_again() -> Result<()> {
    test("once", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "once", "Once")?;
        machine.runs()?;
        machine.end(End::Panicked)?;
        machine.instance.reaches("/status/phase", "Failed")?;
        machine.stays_down()
    })
}

#[test]
fn running_means_always_or_halted() -> Result<()> {
    test("running", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let mut object = vm("running", "Always");
        object["spec"].as_object_mut().context("it has a spec")?.remove("runStrategy");
        object["spec"]["running"] = json!(true);
        bench.create(object)?;
        let machine = Machine::new(bench, "running");
        machine.runs()?;
        machine.object.patch(&json!({ "spec": { "running": false } }))?;
        machine.object.reaches("/status/printableStatus", "Stopped")?;
        machine.instance.gone()
    })
}

#[test]
fn machine_that_fails_at_once_is_tried_again_after_a_growing_pause() -> Result<()> {
    test("back-off", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "failing", "Always")?;
        let first = machine.runs()?;
        machine.end(End::Panicked)?;
        let object = machine.object.until("no failure is noted", |object| {
            object["status"]["startFailure"]["consecutiveFailCount"].as_i64() >= Some(1)
        })?;
        let pause = |object: &Value| -> Result<i128> {
            let until = text(&object["status"]["startFailure"]["retryAfterTimestamp"]);
            let until: Timestamp = until.parse().with_context(|| object.to_string())?;
            Ok(until.duration_since(Timestamp::now()).as_secs().into())
        };
        let first_pause = pause(&object)?;
        machine.object.reaches("/status/printableStatus", "CrashLoopBackOff")?;
        machine.runs_anew(&first)?;
        machine.end(End::Panicked)?;
        let object = machine.object.until("the second failure is not noted", |object| {
            object["status"]["startFailure"]["consecutiveFailCount"].as_i64() >= Some(2)
        })?;
        let second_pause = pause(&object)?;
        assert!(second_pause > first_pause, "{first_pause} s, then {second_pause} s");
        machine.stays_down()
    })
}

#[test]
fn change_of_the_template_waits_for_a_restart_and_says_so() -> Result<()> {
    test("restart", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "changed", "Always")?;
        let first = machine.runs()?;
        let memory = json!({ "domain": { "memory": { "guest": "512Mi" } } });
        machine.object.patch(&json!({ "spec": { "template": { "spec": memory } } }))?;
        machine.object.condition("RestartRequired", "True")?;
        let instance = machine.instance.get()?;
        assert_eq!(instance["spec"]["domain"]["memory"]["guest"], "256Mi");
        bench.run(&["delete", "--wait=false", "vmi", "changed"])?;
        machine.runs_anew(&first)?;
        let instance = machine.instance.get()?;
        assert_eq!(instance["spec"]["domain"]["memory"]["guest"], "512Mi");
        machine.object.until("a restart is still required", |object| {
            condition(object, "RestartRequired").is_none_or(|it| it["status"] != "True")
        })?;
        Ok(())
    })
}

#[test]
fn instance_of_a_machine_deleted_with_cascade_orphan_stays() -> Result<()> {
    test("orphan", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let machine = Machine::create(bench, "parent", "Always")?;
        let uid = machine.runs()?;
        let pods = launchers(bench)?;
        bench.run(&["delete", "vm", "parent", "--cascade=orphan", "--timeout=60s"])?;
        let instance = eventually("the reference stays", || {
            let instance = machine.instance.get()?;
            let owners = instance["metadata"]["ownerReferences"].as_array();
            ensure!(owners.is_none_or(Vec::is_empty), "{instance}");
            Ok(instance)
        })?;
        assert_eq!(text(&instance["metadata"]["uid"]), uid);
        assert!(instance["metadata"]["deletionTimestamp"].is_null(), "{instance}");
        assert_eq!(launchers(bench)?, pods);
        machine.instance.delete()?;
        all_gone(bench)
    })
}
