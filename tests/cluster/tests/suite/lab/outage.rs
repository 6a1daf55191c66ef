//! Nodes that fail.

mod killed;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::cluster;
use super::process::in_node;
use crate::guest::{Guest, text, vm, vmi};
use crate::workbench::{Workbench, eventually, kubectl_as_it_is};

/// Connects node 2 again, whatever becomes of the test: the others need it.
struct Cut;

impl Cut {
    fn node_2() -> Result<Self> {
        let cut = Self;
        cluster(&["node-cut", "2"])?;
        Ok(cut)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let _ = cluster(&["node-heal", "2"]);
    }
}

/// The controller manager waits 50 s for a sign of life.
fn node_2_becomes(ready: &str) -> Result<()> {
    let condition = format!("--for=condition=Ready={ready}");
    kubectl_as_it_is()?.run(&["wait", "node/node2", &condition, "--timeout=240s"])?;
    Ok(())
}

/// How often its guest has said something, by the log on its node: that of the cluster does not get there.
fn ticks_on_node(pod: &str) -> Result<usize> {
    let said = in_node("node2", "cat /var/log/pods/*\"$1\"*/compute/*.log", &[pod])?;
    Ok(said.matches("CORTEN-TICK").count())
}

/// A guest on a node that nobody hears of runs on; whoever forces its Pod away starts no second one.
#[test]
fn node_that_is_cut_off_keeps_its_guest_and_nobody_starts_a_second_one() -> Result<()> {
    Workbench::test("forced", |bench| {
        let mut vmi = vmi("kept", "corten.end=tick");
        vmi["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node2" });
        bench.create(vm(vmi))?;
        let guest = Guest::new(bench, "kept");
        let instance = guest.reaches("/phase", "Running")?;
        guest.says("CORTEN-TICK")?;
        let uid = text(&instance["metadata"]["uid"]);
        let pod = text(&guest.pod()?["metadata"]["name"]).to_owned();
        let cut = Cut::node_2()?;
        node_2_becomes("Unknown").context("it does not become unknown")?;
        // The lab's own way into the node is not the network.
        let before = ticks_on_node(&pod)?;
        bench.run(&["delete", "pod", &pod, "--force", "--grace-period=0", "--wait=false"])?;
        eventually("nobody says that its node does not answer", || {
            let object = guest.object()?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let silent = conditions.iter().any(|it| it["reason"] == "NodeUnresponsive");
            ensure!(silent, "{object}");
            Ok(())
        })?;
        // Long enough for a second one to be made, and to get a node.
        for _ in 0..20 {
            let pods = guest.pods()?;
            ensure!(pods.len() == 1 && text(&pods[0]["metadata"]["name"]) == pod, "{pods:?}");
            ensure!(text(&guest.object()?["metadata"]["uid"]) == uid, "it was made anew");
            std::thread::sleep(Duration::from_secs(1));
        }
        eventually("the guest does not go on", || {
            let now = ticks_on_node(&pod)?;
            ensure!(now > before, "{now} ticks");
            Ok(())
        })?;
        drop(cut);
        node_2_becomes("True").context("it does not come back")?;
        // Its kubelet hears of the deletion, and ends it: that is the proof, and the next one may run.
        eventually("no new one runs", || {
            let object = guest.object()?;
            let is_new = text(&object["metadata"]["uid"]) != uid;
            ensure!(is_new && object["status"]["phase"] == "Running", "{object}");
            Ok(())
        })
    })
}
