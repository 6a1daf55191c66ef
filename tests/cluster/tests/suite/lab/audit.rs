//! The API server's audit log.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corten_cluster::assets::TOOLS_IMAGE;
use corten_cluster::audit::{AuditLog, Writes};

use super::cluster;
use crate::workbench::{Workbench, kubectl, on_node, pod};

pub(super) fn audit_log() -> Result<PathBuf> {
    let status = cluster(&["status"])?;
    let logs = status.lines().find_map(|line| line.strip_prefix("logs, and the audit log: "));
    Ok(Path::new(logs.context("status names no logs")?).join("audit.log"))
}

#[test]
fn every_request_is_in_the_audit_log() -> Result<()> {
    let kubectl = kubectl()?;
    let name = format!("audited-{}", std::process::id());
    kubectl.run(&["create", "namespace", &name])?;
    kubectl.run(&["delete", "--wait=false", "namespace", &name])?;
    let audit = std::fs::read_to_string(audit_log()?)?;
    let created = audit.lines().any(|line| {
        line.contains(&name)
            && line.contains("\"verb\":\"create\"")
            && line.contains("\"level\":\"Metadata\"")
    });
    assert!(created, "the creation of {name} was not logged");
    Ok(())
}

#[test]
fn starting_a_pod_costs_one_binding_and_few_status_writes() -> Result<()> {
    Workbench::test("writes", |bench| {
        let log = AuditLog::from_now(&audit_log()?)?;
        let pod = pod("counted", TOOLS_IMAGE, &["-c", "exec sleep 1000"]);
        bench.create(on_node("node1", pod))?;
        bench.ready("counted")?;

        let counts = log.writes_in(&bench.namespace)?;
        let by = |component: &str| counts.get(component).cloned().unwrap_or_default();
        assert_eq!(by("admin"), Writes::from([("patch pods".into(), 1)]));
        assert_eq!(by("system:kube-scheduler").get("create pods/binding"), Some(&1));
        let kubelet = by("system:node:node1").get("patch pods/status").copied();
        // Scheduled, containers made, ready.
        assert!(matches!(kubelet, Some(1..=4)), "{counts:?}");
        assert_eq!(by("system:node:node2"), Writes::new());
        Ok(())
    })
}
