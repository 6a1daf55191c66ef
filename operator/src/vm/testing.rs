//! Objects for tests.

use crate::control::owner;
use crate::vmi::testing::{minimal_vmi, now};
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::names::VM_FINALIZER;
use corten_resources::types::Phase;
use serde_json::{Value, json};

pub(super) const VM_UID: &str = "7c1f0a52-93a1-4c3e-8f55-2a4f3c1d9e01";
pub(super) const VMI_UID: &str = "11111111-93a1-4c3e-8f55-2a4f3c1d9e01";

/// One that is in the controller's charge, with `change` made to it.
pub(super) fn vm(strategy: &str, change: impl FnOnce(&mut Value)) -> VirtualMachine {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": "first", "namespace": "guests", "uid": VM_UID, "resourceVersion": "5",
            "generation": 3, "finalizers": [VM_FINALIZER] },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": { "note": "a" } },
                "spec": minimal_vmi(|_| ()).spec,
            },
        },
    });
    change(&mut vm);
    serde_json::from_value(vm).unwrap()
}

/// Its instance, as made by the controller and with `change` made to it.
pub(super) fn instance(phase: Phase, change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let vm = vm("Always", |_| ());
    let made = super::instance::instance_of(&vm, false);
    let mut vmi = serde_json::to_value(made).unwrap();
    vmi["metadata"]["uid"] = json!(VMI_UID);
    vmi["metadata"]["resourceVersion"] = json!("8");
    vmi["metadata"]["ownerReferences"] = json!([owner::reference(&vm)]);
    vmi["status"]["phase"] = json!(phase);
    change(&mut vmi);
    serde_json::from_value(vmi).unwrap()
}

pub(super) fn starting() -> VirtualMachineInstance {
    instance(Phase::Scheduling, |_| ())
}

pub(super) fn running(change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    instance(Phase::Running, |vmi| {
        vmi["status"]["phaseTransitionTimestamps"] = json!([transition(Phase::Running, 0)]);
        vmi["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        change(vmi);
    })
}

pub(super) fn ended(phase: Phase, change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    instance(phase, change)
}

pub(super) fn going(vmi: &VirtualMachineInstance) -> VirtualMachineInstance {
    let mut vmi = serde_json::to_value(vmi).unwrap();
    vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    serde_json::from_value(vmi).unwrap()
}

pub(super) fn transition(phase: Phase, at: i64) -> Value {
    json!({ "phase": phase, "phaseTransitionTimestamp": now(at).to_string() })
}
