//! A cluster none of whose nodes offers KVM any more.

use anyhow::{Result, ensure};

use crate::control_plane::agent::Agents;
use crate::control_plane::objects::{Object, vmi};
use crate::control_plane::test;
use crate::guest::text;
use crate::workbench::Workbench;

const LABEL: &str = "kubevirt.io/schedulable";

/// Says of all nodes whether VMs can be put on them, as their agents would.
fn label_all(bench: &Workbench, value: &str) -> Result<()> {
    let label = format!("{LABEL}={value}");
    bench.kubectl.run(&["label", "nodes", "--all", "--overwrite", &label]).map(drop)
}

#[test]
fn that_no_node_offers_kvm_is_told_and_it_runs_when_one_does() -> Result<()> {
    test("no-kvm", |bench, operators| {
        let _agents = Agents::start(bench, operators)?;
        label_all(bench, "false")?;
        let outcome = is_told(bench);
        label_all(bench, "true")?;
        outcome?;
        Object::new(bench, "vmi", "nowhere").reaches("/status/phase", "Running")?;
        Ok(())
    })
}

fn is_told(bench: &Workbench) -> Result<()> {
    bench.create(vmi("nowhere"))?;
    let told = Object::new(bench, "vmi", "nowhere").condition("PodScheduled", "False")?;
    let message = text(&told["message"]);
    ensure!(message.starts_with("no node offers devices.kubevirt.io/kvm: "), "{told}");
    ensure!(message.contains("kubevirt.io/schedulable=false"), "{told}");
    Ok(())
}
