//! Which nodes a Pod may come to.
//!
//! Only to those whose agent says that VMs can be put on them: their system-call profile is installed, KVM can be used.

use super::{embedded, given, some};
use corten_resources::names::SCHEDULABLE_LABEL;
use corten_resources::types::{Toleration, VirtualMachineInstanceSpec};
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;

pub(super) fn place(
    pod: &mut core::PodSpec,
    spec: &VirtualMachineInstanceSpec,
) -> Result<(), Finding> {
    let mut selector = spec.node_selector.clone();
    selector.insert(SCHEDULABLE_LABEL.to_owned(), "true".to_owned());
    pod.node_selector = Some(selector);
    pod.affinity =
        spec.affinity.as_ref().map(|affinity| embedded("spec.affinity", affinity)).transpose()?;
    pod.tolerations = some(spec.tolerations.iter().map(toleration).collect());
    let spread = spec.topology_spread_constraints.iter().enumerate().map(|(index, constraint)| {
        embedded(&format!("spec.topologySpreadConstraints[{index}]"), constraint)
    });
    pod.topology_spread_constraints = some(spread.collect::<Result<_, _>>()?);
    pod.priority_class_name = given(spec.priority_class_name.as_ref());
    pod.scheduler_name = given(spec.scheduler_name.as_ref());
    Ok(())
}

fn toleration(toleration: &Toleration) -> core::Toleration {
    core::Toleration {
        effect: toleration.effect.clone(),
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        toleration_seconds: toleration.toleration_seconds,
        value: toleration.value.clone(),
    }
}
