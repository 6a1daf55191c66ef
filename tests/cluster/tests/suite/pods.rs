//! Pods run, and Pod Security holds.

use anyhow::Result;
use corten_cluster::assets::TOOLS_IMAGE;
use serde_json::json;

use crate::workbench::{Workbench, nodes, pod};

#[test]
fn pod_runs_on_each_node() -> Result<()> {
    let bench = Workbench::new("each-node")?;
    let nodes = nodes(&bench.kubectl)?;
    for node in &nodes {
        let mut pod = pod(node, TOOLS_IMAGE, &["-c", "echo ready; exec sleep 1000"]);
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        bench.create(pod)?;
    }
    for node in &nodes {
        bench.ready(node)?;
        assert_eq!(bench.run(&["logs", node])?, "ready\n");
        assert_eq!(bench.sh(node, "id -u")?, "107\n");
    }
    Ok(())
}

#[test]
fn privileged_pod_is_refused_in_a_restricted_namespace() -> Result<()> {
    let bench = Workbench::new("restricted")?;
    let mut pod = pod("privileged", TOOLS_IMAGE, &[]);
    pod["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
    let error = bench.create(pod).unwrap_err().to_string();
    assert!(error.contains("violates PodSecurity \"restricted:latest\""), "{error}");
    Ok(())
}
