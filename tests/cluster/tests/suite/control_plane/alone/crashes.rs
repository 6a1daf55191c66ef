//! Operators that are killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corten_cluster::audit::AuditLog;
use serde_json::json;

use crate::control_plane::agent::Agents;
use crate::control_plane::objects::{End, Object, all_gone, end_guest, vm, vmi, vmi_on};
use crate::control_plane::operator::{Operators, REPLICAS};
use crate::control_plane::test;
use crate::guest::{Guest, text};
use crate::workbench::{Workbench, eventually};

#[test]
fn operators_killed_at_random_leave_nothing_behind() -> Result<()> {
    killed_at_random("killed", 10, 4)
}

#[test]
fn long_operators_killed_at_random_leave_nothing_behind() -> Result<()> {
    killed_at_random("killed-long", 100, 30)
}

/// Makes and deletes so many instances, while operators are killed and started again, at least so many times.
fn killed_at_random(purpose: &str, count: u32, kills: u32) -> Result<()> {
    test(purpose, |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let audit = operators.audit()?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| kill_until(operators, &done, kills));
            let outcome = make_and_delete(bench, count);
            done.store(true, Ordering::Relaxed);
            let kills =
                killer.join().map_err(|_| anyhow::anyhow!("a thread of this test ended"))??;
            eprintln!("operators were killed {kills} times");
            outcome
        })?;
        operators.start()?;
        all_gone(bench)?;
        check_pods(&audit, bench, count)
    })
}

/// Kills one operator after the other, each after a time that nobody foresees, and starts it again. Returns how often.
fn kill_until(operators: &Operators, done: &AtomicBool, least: u32) -> Result<u32> {
    let mut kills = 0;
    let mut chance = u64::from(std::process::id());
    while kills < least || !done.load(Ordering::Relaxed) {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((chance >> 33) & 0xfff));
        // The one that leads, most of the time: it is the one that can leave something half done.
        let number = operators.leader()?.filter(|_| kills % 4 != 3).unwrap_or(REPLICAS[0]);
        operators.kill(number)?;
        kills += 1;
        operators.start_again(number)?;
    }
    Ok(kills)
}

/// A deletion follows a creation after a while, so that instances are deleted in every state.
fn make_and_delete(bench: &Workbench, count: u32) -> Result<()> {
    let name = |number: u32| format!("one-{number:03}");
    let create = ["-n", &bench.namespace, "create", "-f", "-"];
    for number in 0..count {
        let object = vmi(&name(number)).to_string();
        // While the webhooks are away the API server takes nothing: a user tries again.
        eventually("it cannot be made", || match bench.kubectl.feed(&create, &object) {
            Err(error) if !error.to_string().contains("AlreadyExists") => Err(error),
            _ => Ok(()),
        })?;
        if let Some(earlier) = number.checked_sub(3) {
            bench.run(&["delete", "--wait=false", "--ignore-not-found", "vmi", &name(earlier)])?;
        }
    }
    bench.run(&["delete", "--wait=false", "vmi", "--all"])?;
    Ok(())
}

/// No instance ever had two Pods.
fn check_pods(audit: &AuditLog, bench: &Workbench, count: u32) -> Result<()> {
    let mut made: BTreeMap<String, u32> = BTreeMap::new();
    for write in audit.each_in(&bench.namespace)? {
        if write.what == "create pods" && write.code == 201 {
            let vmi = write.name.rsplit_once('-').context("a Pod without a hash")?.0;
            *made.entry(vmi.to_owned()).or_default() += 1;
        }
    }
    ensure!(made.len() <= count as usize, "{made:?}");
    let twice: Vec<_> = made.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twice.is_empty(), "made twice: {twice:?}");
    Ok(())
}

#[test]
fn instances_deleted_in_each_phase_go_once_the_operator_is_back() -> Result<()> {
    test("phases", |bench, operators| {
        let mut agents = Some(Agents::start(bench, operators)?);
        for name in ["running", "succeeded", "failed"] {
            bench.create(vmi(name))?;
            Object::new(bench, "vmi", name).reaches("/status/phase", "Running")?;
        }
        for (name, end, phase) in
            [("succeeded", End::PoweredOff, "Succeeded"), ("failed", End::Panicked, "Failed")]
        {
            let pod = Guest::new(bench, name).pod()?;
            end_guest(bench, text(&pod["metadata"]["name"]), end)?;
            Object::new(bench, "vmi", name).reaches("/status/phase", phase)?;
        }
        agents.take();
        bench.create(vmi("scheduling"))?;
        Object::new(bench, "vmi", "scheduling").bound()?;
        bench.create(vmi_on("unplaced", "no-such-node"))?;
        Object::new(bench, "vmi", "unplaced").condition("PodScheduled", "False")?;
        bench.create(vm("machine", "Always"))?;
        Object::new(bench, "vmi", "machine").bound()?;
        // With the leader gone, the other replica still admits, and nobody makes a Pod.
        let leader = operators.leader()?.context("nobody leads")?;
        operators.kill(leader)?;
        bench.create(vmi("pending"))?;
        for number in REPLICAS {
            operators.kill(number)?;
        }
        let pending = Object::new(bench, "vmi", "pending").get()?;
        assert_eq!(pending["status"]["phase"], "Pending", "{pending}");
        bench.run(&["delete", "--wait=false", "vm,vmi", "--all"])?;
        let left = bench.run(&["get", "vmi", "-o", "name"])?;
        assert_eq!(left.lines().count(), 7, "what the operator has to see is kept for it: {left}");
        operators.start()?;
        all_gone(bench)
    })
}

#[test]
fn when_the_leader_is_killed_the_other_goes_on_and_serves_meanwhile() -> Result<()> {
    test("leader", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        bench.create(vmi("before"))?;
        Object::new(bench, "vmi", "before").reaches("/status/phase", "Running")?;
        let before = Object::new(bench, "vmi", "before").get()?;
        let leader = operators.leader()?.context("nobody leads")?;
        let other = REPLICAS.into_iter().find(|number| *number != leader).context("no other")?;
        let metrics = operators.get(other, "/metrics")?;
        ensure!(
            metrics.contains("kubevirt_virt_operator_leading_status 0"),
            "both lead: {metrics}"
        );

        operators.kill(leader)?;
        // Nobody leads yet; the webhooks are the other one's.
        bench.create(vmi("meanwhile"))?;
        let mut bad = vmi("bad");
        bad["spec"]["readinessProbe"] = json!({ "exec": { "command": ["true"] } });
        let Err(refused) = bench.create(bad) else { bail!("it was taken") };
        assert!(refused.to_string().contains("spec.readinessProbe.exec"), "{refused}");
        eventually("the other does not lead", || {
            ensure!(operators.leader()? == Some(other), "{}", operators.holder()?);
            Ok(())
        })?;
        Object::new(bench, "vmi", "meanwhile").reaches("/status/phase", "Running")?;
        // What was settled was not written again.
        let after = Object::new(bench, "vmi", "before").get()?;
        assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
        operators.start()?;
        assert_eq!(operators.leader()?, Some(other), "the one that came back took over");
        Ok(())
    })
}
