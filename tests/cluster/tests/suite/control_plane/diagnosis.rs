//! What is told of VMs that do not get on, or have ended: on the object and in events, by the operator and by agents.

use anyhow::{Context, Result, ensure};
use corten_node_agent::cluster::Cluster;
use corten_resources::types::VirtualMachineInstance;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::agent::{AGENT, Agents, Nodes, client, runtime};
use super::objects::{Object, condition, end_guest_saying, vmi};
use super::operator::Operators;
use super::test;
use crate::guest::{Guest, text};
use crate::workbench::{Workbench, eventually, two_nodes};

#[test]
fn what_led_to_an_end_stays_on_the_object_when_its_pod_is_gone() -> Result<()> {
    test("last-words", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let said = json!({ "reason": "panicked", "text": "the guest's kernel panicked", "detail": "",
            "console": "[    1.0] Run /init\n[    1.1] Kernel panic - not syncing" });
        bench.create(vmi("panics"))?;
        let panics = Object::new(bench, "vmi", "panics");
        panics.reaches("/status/phase", "Running")?;
        let pod = Guest::new(bench, "panics").pod()?;
        let pod = text(&pod["metadata"]["name"]).to_owned();
        end_guest_saying(bench, &pod, 81, &said.to_string())?;
        panics.reaches("/status/phase", "Failed")?;
        bench.run(&["delete", "pod", &pod, "--wait=false"])?;
        Object::new(bench, "pod", &pod).gone()?;

        let ended = panics.condition("Ended", "True")?;
        assert_eq!(ended["reason"], "Panicked", "{ended}");
        assert!(text(&ended["message"]).ends_with("Kernel panic - not syncing"), "{ended}");
        let event = event(bench, "panics", "Stopped")?;
        assert_eq!(event["type"], "Warning", "{event}");
        assert!(text(&event["message"]).ends_with("Kernel panic - not syncing"), "{event}");
        Ok(())
    })
}

#[test]
fn what_kept_a_guest_from_starting_is_the_reason_of_its_end() -> Result<()> {
    test("fault", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let said = json!({ "reason": "not-started", "text": "the VM could not be started",
            "detail": "spec.volumes[0].persistentVolumeClaim: volume root cannot be used", "fault": "disk-missing" });
        bench.create(vmi("diskless"))?;
        let diskless = Object::new(bench, "vmi", "diskless");
        diskless.bound_or_running()?;
        let pod = Guest::new(bench, "diskless").pod()?;
        end_guest_saying(bench, text(&pod["metadata"]["name"]), 84, &said.to_string())?;
        let ended = diskless.reaches("/status/phase", "Failed")?;
        assert_eq!(ended["status"]["reason"], "DiskMissing", "{ended}");
        let told = condition(&ended, "Ended").context("no condition Ended")?;
        assert!(text(&told["message"]).contains("volume root"), "{told}");
        Ok(())
    })
}

#[test]
fn launcher_that_waits_for_an_agent_that_is_not_there_says_so() -> Result<()> {
    test("agentless", |bench, _| {
        bench.create(vmi("waits"))?;
        let waits = Object::new(bench, "vmi", "waits");
        let told = waits.condition("Synchronized", "False")?;
        assert_eq!(told["reason"], "NodeAgentMissing", "{told}");
        let event = event(bench, "waits", "SyncFailed")?;
        assert!(text(&event["message"]).starts_with("NodeAgentMissing: "), "{event}");
        Ok(())
    })
}

#[test]
fn agent_tells_events_of_machines_in_the_name_of_its_own_node_only() -> Result<()> {
    test("agents-events", |bench, operators| {
        bench.create(vmi("bound"))?;
        let object = Object::new(bench, "vmi", "bound").bound()?;
        let own = text(&object["status"]["nodeName"]).to_owned();
        let other = two_nodes(&bench.kubectl)?.into_iter().find(|node| *node != own);
        let other = other.context("there is one node only")?;
        let vmi: VirtualMachineInstance = serde_json::from_value(object.clone())?;
        tell(operators, &own, &own, &vmi)?;
        let told = event(bench, "bound", "SyncFailed")?;
        assert_eq!(told["message"], "NetworkTap: no such link", "{told}");

        let forged = tell(operators, &own, &other, &vmi);
        let said = forged.err().context("an event was told in another's name")?;
        ensure!(format!("{said:#}").contains("its own node"), "{said:#}");
        let of_a_pod = of_a_pod(bench, operators, &own);
        let said = of_a_pod.err().context("an event of a Pod was told")?;
        ensure!(format!("{said:#}").contains("tells events of"), "{said:#}");
        Ok(())
    })
}

/// Tells an event as the agent of a node, which says that it is that of another one or the same.
fn tell(operators: &Operators, node: &str, says: &str, vmi: &VirtualMachineInstance) -> Result<()> {
    runtime()?.block_on(async {
        let admin = client(&operators.kubectl.kubeconfig, None).await?;
        let agent = Nodes::new(admin, operators).client(node).await?;
        let cluster = Cluster::new(agent, says);
        Ok(cluster.tell(vmi, true, "SyncFailed", "NetworkTap: no such link").await?)
    })
}

/// Tells an event of a Pod as the agent of a node.
fn of_a_pod(bench: &Workbench, operators: &Operators, node: &str) -> Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let event: Event = serde_json::from_value(json!({
        "metadata": { "generateName": "forged-", "namespace": bench.namespace },
        "regarding": { "apiVersion": "v1", "kind": "Pod", "name": "any", "namespace": bench.namespace },
        "eventTime": now,
        "reportingController": AGENT,
        "reportingInstance": node,
        "action": "Evicted",
        "reason": "Evicted",
        "type": "Warning",
    }))?;
    runtime()?.block_on(async {
        let admin = client(&operators.kubectl.kubeconfig, None).await?;
        let agent = Nodes::new(admin, operators).client(node).await?;
        let events: Api<Event> = Api::namespaced(agent, &bench.namespace);
        events.create(&PostParams::default(), &event).await?;
        Ok(())
    })
}

/// Waits for an event of that instance.
fn event(bench: &Workbench, name: &str, reason: &str) -> Result<Value> {
    let fields = format!(
        "involvedObject.kind=VirtualMachineInstance,involvedObject.name={name},reason={reason}"
    );
    eventually(&format!("no event {reason} of {name}"), || {
        let list = bench.run(&["get", "events", "--field-selector", &fields, "-o", "json"])?;
        let mut list: Value = serde_json::from_str(&list)?;
        let first = list["items"].as_array_mut().and_then(|items| items.drain(..).next());
        first.context("it is not there")
    })
}
