//! Processes of a node.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::cluster;
use crate::guest::text;

/// Runs a script of bash in that node, with arguments from $1 on.
pub(super) fn in_node(node: &str, script: &str, arguments: &[&str]) -> Result<String> {
    let number = node.trim_start_matches("node");
    let shell = ["node-shell", number, "--", "bash", "-c", script, "-"];
    cluster(&[&shell[..], arguments].concat())
}

/// A process of a node: when it started, and what the kernel says of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Its number there.
    pub(super) pid: String,
    started: String,
    status: BTreeMap<String, String>,
}

impl Process {
    /// A line of /proc/PID/status.
    pub(super) fn status(&self, field: &str) -> &str {
        self.status.get(field).map_or("", String::as_str)
    }
}

/// The VM process of a launcher Pod, found on its node by its control group.
pub(super) fn vmm_process(pod: &Value) -> Result<Process> {
    let script = r#"for process in /proc/[0-9]*; do
        read -r name 2>/dev/null <$process/comm || continue
        [ "$name" = corten-vmm ] && grep -q "pod$1" $process/cgroup || continue
        echo "${process#/proc/}"; cut -d ' ' -f 22 <$process/stat
        grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' $process/status
    done"#;
    let node = text(&pod["spec"]["nodeName"]);
    let uid = text(&pod["metadata"]["uid"]);
    let said = in_node(node, script, &[uid])?;
    let mut lines = said.lines().map(str::to_owned);
    let (pid, started) = lines.next().zip(lines.next()).context("no VM process in the Pod")?;
    let status = lines.filter_map(|line| {
        let (field, value) = line.split_once(':')?;
        Some((field.to_owned(), value.trim().to_owned()))
    });
    Ok(Process { pid, started, status: status.collect() })
}
