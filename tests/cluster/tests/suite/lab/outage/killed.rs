//! What serves a guest is killed, and the guest notices nothing.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::process::{in_node, vmm_process};
use crate::guest::{Guest, UP, condition, text, vmi};
use crate::workbench::{Workbench, eventually, two_nodes};

/// Ends what runs under that name in the node, and waits until it runs again.
fn kill(node: &str, program: &str) -> Result<()> {
    let pids = in_node(node, "pidof \"$1\" && kill -9 $(pidof \"$1\")", &[program])?;
    eventually(&format!("{program} does not come back"), || {
        let now = in_node(node, "pidof \"$1\"", &[program])?;
        ensure!(now.split_whitespace().all(|pid| !pids.split_whitespace().any(|it| it == pid)));
        Ok(())
    })
}

/// How long its guest has run, if a line of its console says that.
fn tick(line: &str) -> Option<f64> {
    line.trim().strip_prefix("CORTEN-TICK ")?.parse().ok()
}

/// By the last that it said.
fn last_tick(log: &str) -> Option<f64> {
    log.lines().rev().find_map(tick)
}

/// Waits until it has run for some seconds more.
fn ticks_on(guest: &Guest<'_>, since: f64) -> Result<f64> {
    eventually("its console does not go on", || {
        let log = guest.log()?;
        let now = last_tick(&log).context("it does not tick")?;
        ensure!(now > since + 5.0, "it has come from {since} to {now}");
        Ok(now)
    })
}

fn vmi_on(node: &str, name: &str, arguments: &str) -> Value {
    let mut object = vmi(name, arguments);
    object["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    object
}

#[test]
fn guest_outlives_agent_operators_kubelet_and_containerd() -> Result<()> {
    Workbench::test("killed", |bench| {
        let [first, second] = two_nodes(&bench.kubectl)?;
        bench.create(vmi_on(&second, "lasting", "corten.end=tick"))?;
        let guest = Guest::new(bench, "lasting");
        let object = guest.is_ready()?;
        let pod = guest.pod()?;
        let process = vmm_process(&pod)?;
        let mut since =
            eventually("it does not tick", || last_tick(&guest.log()?).context("no tick"))?;

        let connected = |log: &str| log.matches("has connected, version").count();
        let before = connected(&guest.log()?);
        kill(&second, "corten-node-agent").context("the agent")?;
        eventually("the new agent does not connect", || {
            ensure!(connected(&guest.log()?) > before);
            Ok(())
        })?;
        since = ticks_on(&guest, since).context("without its agent")?;
        for node in [&first, &second] {
            // There need not be one on each.
            in_node(node, "kill -9 $(pidof corten-operator) || true", &[])?;
        }
        let before = connected(&guest.log()?);
        kill(&second, "kubelet").context("kubelet")?;
        since = ticks_on(&guest, since).context("after kubelet")?;
        kill(&second, "containerd").context("containerd")?;
        since = ticks_on(&guest, since).context("after containerd")?;
        ensure!(since > 15.0, "{since}");

        // The agent must have registered again: otherwise nobody would get a device.
        let offered = "jsonpath={.status.allocatable.devices\\.kubevirt\\.io/kvm}";
        eventually("the node offers no devices", || {
            let offered = bench.kubectl.run(&["get", "node", &second, "-o", offered])?;
            ensure!(offered.parse::<u32>().is_ok_and(|count| count > 0), "{offered:?}");
            Ok(())
        })?;
        bench.create(vmi_on(&second, "next", "corten.end=idle"))?;
        Guest::new(bench, "next").is_ready().context("nobody serves the next one")?;

        let now = guest.is_ready()?;
        assert_eq!(now["metadata"]["uid"], object["metadata"]["uid"]);
        assert_eq!(now["status"]["activePods"], object["status"]["activePods"]);
        assert_eq!(now["status"]["phase"], "Running");
        let now = guest.pod()?;
        assert_eq!(now["metadata"]["uid"], pod["metadata"]["uid"]);
        assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
        assert_eq!(vmm_process(&now)?, process);
        let log = guest.log()?;
        assert_eq!(log.matches(UP).count(), 1, "it booted again:\n{log}");
        ensure!(connected(&log) <= before + 1, "agents came and went:\n{log}");
        let ticks: Vec<f64> = log.lines().filter_map(tick).collect();
        ensure!(ticks.is_sorted_by(|one, next| one < next), "its clock went back:\n{log}");
        Ok(())
    })
}

/// kubelet starts anew when a Pod has just come to its node, and the agent is not there: the Pod is refused for good, and the
/// VMI gets another one.
#[test]
fn pod_that_came_while_the_agent_was_down_is_replaced() -> Result<()> {
    Workbench::test("admission", |bench| {
        let [_, node] = two_nodes(&bench.kubectl)?;
        // A node that is silent for less than a minute is still one to the scheduler.
        in_node(&node, "kill -STOP $(pidof kubelet); kill -9 $(pidof corten-node-agent)", &[])?;
        let guest = Guest::new(bench, "patient");
        let made = bench.create(vmi_on(&node, "patient", "corten.end=idle")).and_then(|()| {
            eventually("its Pod gets no node", || {
                let pod = guest.pod()?;
                ensure!(pod["spec"]["nodeName"] == node.as_str(), "{pod}");
                Ok(pod)
            })
        });
        // It is started anew whatever became of that.
        kill(&node, "kubelet")?;
        let refused = made?;
        let refused = text(&refused["metadata"]["uid"]);

        let object = guest.is_ready()?;
        let phases = object["status"]["phaseTransitionTimestamps"].as_array().cloned();
        let phases = phases.unwrap_or_default();
        ensure!(phases.iter().all(|it| it["phase"] != "Failed"), "{object}");
        let runs = guest.running_pod()?;
        assert_ne!(runs["metadata"]["uid"], refused, "it was not refused");
        let selector = "reason=PodRejected";
        let events = bench.run(&["get", "events", "--field-selector", selector])?;
        ensure!(events.contains("UnexpectedAdmissionError"), "{events}");
        assert_eq!(condition(&object, "Synchronized"), Value::Null);
        Ok(())
    })
}
