//! What the lab's own cluster promises.

mod audit;
mod dashboard;
mod inside;
mod outage;
mod process;
mod whole_way;

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use corten_lab::oci::Image;
use serde_json::json;

use crate::workbench::{Workbench, eventually, kubectl, pod};

#[test]
fn two_nodes_are_ready() -> Result<()> {
    let conditions = "jsonpath={range .items[*]}{.metadata.name} \
         {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let ready = kubectl()?.run(&["get", "nodes", "-o", conditions])?;
    let mut ready: Vec<&str> = ready.lines().map(str::trim).collect();
    ready.sort_unstable();
    assert_eq!(ready, ["node1 True", "node2 True"]);
    Ok(())
}

#[test]
fn versions_are_those_that_were_built() -> Result<()> {
    let versions = kubectl()?.run(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[*].status.nodeInfo.kubeletVersion}",
    ])?;
    let expected = format!("v{}", corten_cluster::assets::KUBERNETES);
    assert!(versions.split(' ').all(|version| version == expected), "{versions}");
    Ok(())
}

#[test]
fn shared_disk_holds_on_each_node_what_another_wrote() -> Result<()> {
    // At the end of the disk, where no other test looks.
    let write =
        "echo written-on-node1 | dd of=/dev/sda bs=512 seek=7000000 conv=sync,fsync status=none";
    let read = "dd if=/dev/sda bs=512 skip=7000000 count=1 iflag=direct status=none | head -n 1";
    cluster(&["node-shell", "1", "--", "sh", "-ec", write])?;
    assert_eq!(cluster(&["node-shell", "2", "--", "sh", "-ec", read])?, "written-on-node1\n");
    Ok(())
}

#[test]
fn command_in_the_clusters_network_reaches_a_service() -> Result<()> {
    let script = "kubectl get --raw /readyz && ip -4 route get 10.96.0.1";
    let output = cluster(&["exec", "--", "sh", "-ec", script])?;
    assert!(output.starts_with("ok"), "{output}");
    assert!(output.contains("via 10.99.0.1"), "{output}");
    Ok(())
}

#[test]
fn services_outlive_a_restart_of_kube_proxy() -> Result<()> {
    let node = |script: &str| cluster(&["node-shell", "2", "--", "sh", "-c", script]);
    let before = node("pidof kube-proxy; kill $(pidof kube-proxy)")?;
    // It is healthy again when it has written all rules.
    let synced = "pidof kube-proxy; busybox wget -q -O - http://127.0.0.1:10256/healthz";
    eventually("kube-proxy does not come back", || {
        let now = node(synced)?;
        let (process, health) = now.split_once('\n').context("it does not run")?;
        ensure!(process != before.trim() && health.contains("lastUpdated"), "{now}");
        ensure!(
            !health.contains("\"lastUpdated\": \"0001")
                && !health.contains("\"lastUpdated\":\"0001"),
            "{now}"
        );
        Ok(())
    })?;
    let services = node("nft list map ip kube-proxy service-ips")?;
    assert!(services.contains("10.96.0.1 . tcp . 443"), "{services}");
    Ok(())
}

#[test]
fn long_loaded_image_runs_in_a_pod_under_its_own_name() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("image.tar");
    let name = format!("elsewhere.example/team/loaded:{}", std::process::id());
    Image::new(&name).file("/bin/busybox", "/bin/sh", 0o755, 0, 0).write(&archive)?;
    let archive = archive.to_str().context("a path is not UTF-8")?;
    assert_eq!(cluster(&["load", archive])?, format!("{name}\n"));

    Workbench::test("loaded", |bench| {
        let mut pod = pod("loaded", &name, &[]);
        pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", "sleep 1000"]);
        bench.create(pod)?;
        bench.ready("loaded")
    })
}

/// Runs `scripts/cluster` and returns what it prints.
pub(crate) fn cluster(arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os("CORTEN_CLUSTER");
    let program =
        program.context("CORTEN_CLUSTER is not set: run this by `scripts/test cluster`")?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cluster {arguments:?}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
