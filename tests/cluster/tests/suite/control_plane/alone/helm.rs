//! The chart, with Helm itself.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::install::{installed, kubevirt, without_instances};
use crate::control_plane::agent::Agents;
use crate::control_plane::objects::{Object, checkout, install, objects_in, vmi};
use crate::control_plane::operator::{Operators, REPLICAS, SYSTEM};
use crate::control_plane::test;
use crate::workbench::Workbench;

const RELEASE: &str = "corten";

/// Helm, in the namespace of the installation.
struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

impl Helm {
    fn new(operators: &Operators) -> Result<Self> {
        let program = std::env::var_os("CORTEN_HELM");
        let program =
            program.context("CORTEN_HELM is not set: run this by `scripts/test --long cluster`")?;
        let kubeconfig = operators.kubectl.kubeconfig.clone();
        Ok(Self { program: program.into(), kubeconfig, home: tempfile::tempdir()? })
    }

    /// Runs it, and returns what it printed; fails with what it complained of.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(["--namespace", SYSTEM])
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {}: {said}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Takes away what the manifests brought, and what came of it.
fn remove(operators: &Operators) -> Result<()> {
    without_instances(operators)?;
    operators.kubectl.run(&["-n", SYSTEM, "delete", "--timeout=120s", "kubevirt", "--all"])?;
    REPLICAS.into_iter().try_for_each(|number| operators.kill(number))?;
    let objects: Vec<Value> = objects_in(&checkout("resources/manifests"))?
        .into_iter()
        .map(|(_, object)| object)
        .filter(|object| !matches!(object["kind"].as_str(), Some("Namespace" | "KubeVirt")))
        .collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let delete = ["delete", "--ignore-not-found", "--timeout=60s", "-f", "-"];
    operators.kubectl.feed(&delete, &list.to_string()).map(drop)
}

/// What the manifests bring, and operators with tokens of the service account that is there now.
fn put_back(operators: &Operators) -> Result<()> {
    install(&operators.kubectl)?;
    REPLICAS.into_iter().try_for_each(|number| operators.kill(number))?;
    operators.start()
}

/// Installs the chart, whose operators are processes of this test and not Pods, and runs an instance.
fn started<'a>(
    helm: &Helm,
    bench: &'a Workbench,
    operators: &Operators,
) -> Result<(Agents, Object<'a>, Value)> {
    let chart = chart();
    helm.run(&["install", RELEASE, &chart, "--create-namespace", "--set", "replicas=0"])?;
    operators.start()?;
    let agents = Agents::start(bench, operators)?;
    bench.create(vmi("charted"))?;
    let instance = Object::new(bench, "vmi", "charted");
    let running = instance.reaches("/status/phase", "Running")?;
    Ok((agents, instance, running))
}

fn chart() -> String {
    checkout("resources/chart").display().to_string()
}

/// An installation by the chart, from its first day to its last.
fn live(helm: &Helm, bench: &Workbench, operators: &Operators) -> Result<()> {
    let (_agents, instance, _) = started(helm, bench, operators)?;
    let ratio = "configuration.developerConfiguration.cpuAllocationRatio=5";
    helm.run(&["upgrade", RELEASE, &chart(), "--reuse-values", "--set", ratio])?;
    let changed = kubevirt(operators)?;
    let developer = &changed["spec"]["configuration"]["developerConfiguration"];
    ensure!(developer["cpuAllocationRatio"] == 5, "{changed}");
    instance.delete()?;
    operators.kubectl.run(&["-n", SYSTEM, "delete", "--timeout=120s", "kubevirt", "--all"])?;
    helm.run(&["uninstall", RELEASE])?;
    REPLICAS.into_iter().try_for_each(|number| operators.kill(number))?;
    let left = installed(operators)?;
    ensure!(left.is_empty(), "{left:?}");
    let services = ["-n", SYSTEM, "get", "deployments,services,serviceaccounts", "-o", "name"];
    let left = operators.kubectl.run(&services)?;
    ensure!(!left.contains("corten"), "{left}");
    Ok(())
}

/// Whoever takes it away under running VMs loses none of them, and can go on where it stopped.
fn taken_away(helm: &Helm, bench: &Workbench, operators: &Operators) -> Result<()> {
    let (_agents, instance, running) = started(helm, bench, operators)?;
    ensure!(helm.run(&["uninstall", RELEASE]).is_err(), "it was taken away");
    ensure!(kubevirt(operators)?["metadata"]["deletionTimestamp"].is_null());
    let kept = instance.get()?;
    ensure!(kept["metadata"]["uid"] == running["metadata"]["uid"], "{kept}");
    ensure!(kept["status"]["phase"] == "Running", "{kept}");
    // Helm takes its release for one that is going: the operator comes back by the manifests.
    put_back(operators)?;
    instance.delete()?;
    remove(operators)?;
    helm.run(&["uninstall", RELEASE]).map(drop)
}

#[test]
fn long_chart_installs_is_changed_and_goes() -> Result<()> {
    test("chart", |bench, operators| {
        let helm = Helm::new(operators)?;
        remove(operators)?;
        let lived = live(&helm, bench, operators);
        let lived = lived.and_then(|()| taken_away(&helm, bench, operators));
        // The next test finds what the first one found, whatever happened here.
        let restored = put_back(operators);
        lived.and(restored)
    })
}
