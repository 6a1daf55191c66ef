//! What a human would ask for after a failure, collected while it is still there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corten_cluster::kubectl::Kubectl;
use corten_cluster::state::{NAME, State};
use corten_lab::cache::Cache;

/// Cargo keeps it in its target directory, so it outlives both the test and the cluster.
const ROOT: &str = env!("CARGO_TARGET_TMPDIR");
/// A cluster that is broken is not waited for.
const LIMIT: &str = "--request-timeout=20s";
/// Of each program's log in a node: the end.
const TAIL: usize = 128 << 10;

/// Collects what is known about `namespaces` and the nodes; returns the directory.
pub(crate) fn collect(kubectl: &Kubectl, namespaces: &[String]) -> Result<PathBuf> {
    let first = namespaces.first().context("a test has a namespace")?;
    let directory = Path::new(ROOT).join("evidence").join(first);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for namespace in namespaces {
        let place = directory.join(namespace);
        fs::create_dir_all(&place)?;
        of_namespace(kubectl, namespace, &place)?;
    }
    save(&directory.join("nodes.txt"), kubectl.run(&["describe", "nodes", LIMIT]))?;
    of_lab(kubectl, &directory)?;
    Ok(directory)
}

fn of_namespace(kubectl: &Kubectl, namespace: &str, place: &Path) -> Result<()> {
    let run = |arguments: &[&str]| kubectl.run(&[&["-n", namespace, LIMIT], arguments].concat());
    let kinds = "pods,daemonsets,services,endpointslices,persistentvolumeclaims";
    save(&place.join("describe.txt"), run(&["describe", kinds]))?;
    save(&place.join("pods.yaml"), run(&["get", "pods", "-o", "yaml"]))?;
    // An error where Corten is not installed, which says so.
    let machines = run(&["get", "vm,vmi,vmirs,vmim", "-o", "yaml"]);
    save(&place.join("machines.yaml"), machines)?;
    save(&place.join("events.txt"), run(&["get", "events", "--sort-by=.lastTimestamp"]))?;
    let pods = run(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]);
    for pod in pods.unwrap_or_default().split_whitespace() {
        let logs = ["logs", pod, "--all-containers", "--prefix", "--timestamps"];
        save(&place.join(format!("{pod}.log")), run(&logs))?;
        // There is one only if a container has ended before.
        if let Ok(previous) = run(&[&logs[..], &["--previous"]].concat()) {
            save(&place.join(format!("{pod}.previous.log")), Ok(previous))?;
        }
    }
    Ok(())
}

/// Consoles and logs of nodes, if the cluster is the lab's own.
fn of_lab(kubectl: &Kubectl, directory: &Path) -> Result<()> {
    let cache = Cache::open()?;
    let Some(state) = State::find(&cache)? else { return Ok(()) };
    if state.kubeconfig != kubectl.kubeconfig {
        return Ok(());
    }
    // Programs that tests started: each start has a log of its own.
    for entry in fs::read_dir(&state.logs)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("operator-") {
            save(&directory.join(&name), tail(&state.logs.join(&name)))?;
        }
    }
    let run = cache.runs().join(NAME);
    for number in 1..=state.nodes {
        let console = run.join(format!("node{number}/console.log"));
        save(&directory.join(format!("node{number}-console.log")), tail(&console))?;
        for program in ["containerd", "kubelet", "kube-proxy"] {
            let name = format!("node{number}-{program}.log");
            save(&directory.join(&name), tail(&state.logs.join(&name)))?;
        }
    }
    Ok(())
}

fn tail(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]).into_owned())
}

/// That something could not be had is evidence too.
fn save(file: &Path, found: Result<String>) -> Result<()> {
    let text = found.unwrap_or_else(|error| format!("{error:#}\n"));
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
