//! A node that nobody hears of any more. The test is its kubelet, so that it falls silent when the test does.

use anyhow::{Context, Result, ensure};
use corten_cluster::audit::AuditLog;
use serde_json::{Value, json};

use super::agent::Agents;
use super::objects::{Object, launchers, vm};
use super::test;
use crate::guest::text;
use crate::workbench::{Workbench, eventually};

/// A node without a kubelet, which takes only what asks for it.
fn node(name: &str) -> Value {
    let resources = json!({
        "cpu": "8", "memory": "32Gi", "pods": "10", "ephemeral-storage": "1Ti", "devices.kubevirt.io/kvm": "10",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "kubevirt.io/schedulable": "true" },
        },
        "spec": { "taints": [{ "key": "corten.test/silent", "effect": "NoSchedule" }] },
        "status": { "allocatable": resources, "capacity": resources },
    })
}

/// A sign of life. The controller manager waits for the next one.
fn ready(bench: &Workbench, name: &str) -> Result<()> {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": now(), "lastTransitionTime": now(),
    });
    let status = json!({ "status": { "conditions": [ready], "nodeInfo": { "bootID": "first" } } });
    let arguments = ["patch", "node", name, "--subresource=status", "--type=merge", "-p"];
    bench.kubectl.run(&[&arguments[..], &[&status.to_string()]].concat())?;
    eventually("the node is still tainted as not ready", || {
        let taints = bench.kubectl.run(&["get", "node", name, "-o", "jsonpath={.spec.taints}"])?;
        ensure!(!taints.contains("not-ready"), "{taints}");
        Ok(())
    })
}

/// What a kubelet says of a Pod whose container is in this state.
fn report(bench: &Workbench, pod: &str, phase: &str, state: &Value) -> Result<()> {
    let status = json!({ "status": {
        "phase": phase,
        "podIP": "10.244.200.1",
        "podIPs": [{ "ip": "10.244.200.1" }],
        "startTime": now(),
        "containerStatuses": [{
            "name": "compute", "image": "corten.test/launcher:1", "imageID": "", "ready": phase == "Running",
            "started": true, "restartCount": 0, "state": state,
        }],
    } });
    Object::new(bench, "pod", pod).patch_status(&status)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A guest that runs on a node of which the test is the kubelet.
struct Lonely<'a> {
    node: String,
    pod: String,
    uid: Value,
    instance: Object<'a>,
}

impl<'a> Lonely<'a> {
    /// On the node of this name, for which it asks.
    fn start(bench: &'a Workbench, node: String) -> Result<Self> {
        ready(bench, &node)?;
        let mut machine = vm("lonely", "Always");
        let spec = &mut machine["spec"]["template"]["spec"];
        spec["tolerations"] = json!([{ "operator": "Exists" }]);
        // It may go elsewhere, but prefers this one.
        spec["affinity"] = json!({ "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "preference": { "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
                ] },
            }],
        } });
        bench.create(machine)?;
        let instance = Object::new(bench, "vmi", "lonely");
        let object = instance.reaches("/status/phase", "Running")?;
        ensure!(object["status"]["nodeName"] == *node, "it went elsewhere: {object}");
        let pod = launchers(bench)?.pop().context("no Pod")?;
        report(bench, &pod, "Running", &json!({ "running": { "startedAt": now() } }))?;
        Ok(Self { node, pod, uid: object["metadata"]["uid"].clone(), instance })
    }

    /// For ten seconds there is no other.
    fn stays(&self, bench: &Workbench) -> Result<()> {
        for _ in 0..50 {
            assert_eq!(launchers(bench)?, [self.pod.as_str()]);
            let now = self.instance.get()?;
            assert_eq!(now["metadata"]["uid"], self.uid);
            assert_eq!(now["status"]["phase"], "Running", "{now}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        Ok(())
    }

    /// Another one runs in its place, and nothing is left of it.
    fn is_followed(&self, bench: &Workbench) -> Result<Value> {
        let next = self.instance.until("no second instance runs", |it| {
            it["metadata"]["uid"] != self.uid && it["status"]["phase"] == "Running"
        })?;
        eventually("the first Pod stays", || {
            let left = launchers(bench)?;
            ensure!(left.len() == 1 && left[0] != self.pod, "{left:?}");
            Ok(())
        })?;
        Ok(next)
    }
}

/// Runs `body` with a guest on a node that is the test's, and with what is written from then on.
fn with_lonely(
    name: &str,
    body: impl FnOnce(&Workbench, &AuditLog, &Lonely<'_>) -> Result<()>,
) -> Result<()> {
    test(name, |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        let audit = operators.audit()?;
        let node = format!("silent-{}", std::process::id());
        bench.create_global(&self::node(&node))?;
        let lonely = Lonely::start(bench, node)?;
        body(bench, &audit, &lonely)
    })
}

#[test]
fn forced_deletion_on_a_silent_node_starts_no_second_guest_until_the_node_is_deleted() -> Result<()>
{
    with_lonely("silent", |bench, audit, lonely| {
        let Lonely { node, pod, instance, .. } = lonely;
        let lost = ["wait", "--for=condition=Ready=Unknown", "--timeout=240s"];
        bench.kubectl.run(&[&lost[..], &[&format!("node/{node}")]].concat())?;
        instance.condition("Ready", "False")?;
        bench.run(&["delete", "pod", pod, "--force", "--grace-period=0", "--wait=false"])?;
        // Nothing has proven that the guest is gone.
        lonely.stays(bench)?;
        assert_eq!(pods_made(audit, bench)?, 1);

        bench.kubectl.run(&["delete", "node", node])?;
        let next = lonely.is_followed(bench)?;
        assert_ne!(text(&next["status"]["nodeName"]), node);
        assert_eq!(pods_made(audit, bench)?, 2);
        Ok(())
    })
}

/// The collector takes the owner out of the Pod, which runs on.
#[test]
fn instance_that_is_deleted_without_its_dependents_waits_for_its_pod_all_the_same() -> Result<()> {
    with_lonely("stripped", |bench, audit, lonely| {
        let Lonely { node, pod, .. } = lonely;
        let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
        bench.kubectl.run(&["taint", "node", node, taint])?;
        bench.run(&["delete", "vmi", "lonely", "--cascade=orphan", "--wait=false"])?;
        let owned = Object::new(bench, "pod", pod);
        owned.until("the Pod keeps its owner", |it| {
            it["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)
        })?;
        // It has the name for itself, and a node that reports itself ready is not out of service.
        lonely.stays(bench)?;
        assert_eq!(pods_made(audit, bench)?, 1);

        let ended =
            json!({ "terminated": { "exitCode": 0, "startedAt": now(), "finishedAt": now() } });
        report(bench, pod, "Succeeded", &ended)?;
        lonely.is_followed(bench)?;
        Ok(())
    })
}

fn pods_made(audit: &AuditLog, bench: &Workbench) -> Result<usize> {
    let writes = audit.each_in(&bench.namespace)?;
    Ok(writes.iter().filter(|it| it.what == "create pods" && it.code == 201).count())
}
