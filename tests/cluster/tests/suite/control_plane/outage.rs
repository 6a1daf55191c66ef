//! A node that nobody hears of any more. The test is its kubelet, so that it falls silent when the test does.

use anyhow::{Context, Result, ensure};
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
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
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

/// What a kubelet says of a Pod whose container runs.
fn running(bench: &Workbench, pod: &str) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({ "status": {
        "phase": "Running",
        "podIP": "10.244.200.1",
        "podIPs": [{ "ip": "10.244.200.1" }],
        "startTime": now,
        "containerStatuses": [{
            "name": "compute", "image": "corten.test/launcher:1", "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": { "running": { "startedAt": now } },
        }],
    } });
    Object::new(bench, "pod", pod).patch_status(&status)
}

#[test]
fn forced_deletion_on_a_silent_node_starts_no_second_guest_until_the_node_is_deleted() -> Result<()>
{
    test("silent", |bench, operators| {
        let name = format!("silent-{}", std::process::id());
        bench.create_global(&node(&name))?;
        ready(bench, &name)?;
        let _agents = Agents::start(bench, operators)?;
        let mut machine = vm("lonely", "Always");
        let spec = &mut machine["spec"]["template"]["spec"];
        spec["tolerations"] = json!([{ "operator": "Exists" }]);
        // It may go elsewhere, but prefers this one.
        spec["affinity"] = json!({ "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "preference": { "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [name] },
                ] },
            }],
        } });
        let audit = operators.audit()?;
        bench.create(machine)?;
        let instance = Object::new(bench, "vmi", "lonely");
        let object = instance.reaches("/status/phase", "Running")?;
        ensure!(object["status"]["nodeName"] == *name, "it went elsewhere: {object}");
        let pod = launchers(bench)?.pop().context("no Pod")?;
        running(bench, &pod)?;
        let lost = ["wait", "--for=condition=Ready=Unknown", "--timeout=240s"];
        bench.kubectl.run(&[&lost[..], &[&format!("node/{name}")]].concat())?;
        instance.condition("Ready", "False")?;
        bench.run(&["delete", "pod", &pod, "--force", "--grace-period=0", "--wait=false"])?;
        // Nothing has proven that the guest is gone.
        for _ in 0..50 {
            assert_eq!(launchers(bench)?, [pod.as_str()]);
            let now = instance.get()?;
            assert_eq!(now["metadata"]["uid"], object["metadata"]["uid"]);
            assert_eq!(now["status"]["phase"], "Running", "{now}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        assert_eq!(pods_made(&audit, bench)?, 1);

        bench.kubectl.run(&["delete", "node", &name])?;
        let next = instance.until("no second instance runs", |it| {
            it["metadata"]["uid"] != object["metadata"]["uid"] && it["status"]["phase"] == "Running"
        })?;
        assert_ne!(text(&next["status"]["nodeName"]), name);
        eventually("the first Pod stays", || {
            let left = launchers(bench)?;
            ensure!(left.len() == 1 && left[0] != pod, "{left:?}");
            Ok(())
        })?;
        assert_eq!(pods_made(&audit, bench)?, 2);
        Ok(())
    })
}

fn pods_made(audit: &corten_cluster::audit::AuditLog, bench: &Workbench) -> Result<usize> {
    let writes = audit.each_in(&bench.namespace)?;
    Ok(writes.iter().filter(|it| it.what == "create pods" && it.code == 201).count())
}
