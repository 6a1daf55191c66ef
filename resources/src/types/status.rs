//! What has become of a VirtualMachineInstance.

use super::{OtherFields, null_as_default};
use crate::Quantity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The status of a VirtualMachineInstance. There is no status subresource: it is part of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceStatus {
    /// uid of each Pod that may run this VM, and its node. Only the operator writes it; a node agent gives nothing to
    /// a Pod that is not listed.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub active_pods: BTreeMap<String, String>,
    /// What is true of it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Image of its launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_container_image_version: Option<String>,
    /// Its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// The node it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Where in its life it is.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Phase::is_unset"
    )]
    pub phase: Phase,
    /// When it came to each phase.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<PhaseTransition>,
    /// Quality-of-service class of its Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos_class: Option<String>,
    /// Why it is in this phase, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// User id of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_user: Option<i64>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

impl VirtualMachineInstanceStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// Where in its life a VirtualMachineInstance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
pub enum Phase {
    /// Nobody has looked at it yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Accepted; it has no node.
    Pending,
    /// Its Pod has a node.
    Scheduling,
    /// Its Pod's container runs, its guest does not yet.
    Scheduled,
    /// Its guest runs.
    Running,
    /// Its guest ended as it should.
    Succeeded,
    /// Its guest did not end as it should, or never ran.
    Failed,
    /// It waits for a migration from another cluster.
    WaitingForSync,
    /// Nobody knows, or a later release does.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// Nobody has looked at it yet.
    pub fn is_unset(&self) -> bool {
        *self == Self::Unset
    }

    /// The guest has ended, and nothing comes after.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// When a VirtualMachineInstance came to a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransition {
    /// The phase.
    #[serde(default)]
    pub phase: Phase,
    /// When, as RFC 3339 writes it.
    #[serde(default)]
    pub phase_transition_timestamp: String,
}

/// Something that is, or is not, true of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is said to be true.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it is.
    pub status: ConditionStatus,
    /// When its status last changed, as RFC 3339 writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Why, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Memory of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// What the guest had when it booted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_at_boot: Option<Quantity>,
    /// What its user asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_requested: Option<Quantity>,
    /// What its Pod is given on top of the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overhead: Option<Quantity>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_of_a_later_release_is_unknown_and_does_not_stop_the_reader() {
        let read = |text| serde_json::from_str::<Phase>(text).unwrap();
        assert_eq!(read("\"Hibernated\""), Phase::Unknown);
        assert_eq!(read("\"\""), Phase::Unset);
        assert_eq!(read("\"Running\""), Phase::Running);
    }

    #[test]
    fn succeeded_and_failed_are_final() {
        assert!(Phase::Succeeded.is_final() && Phase::Failed.is_final());
        assert!(
            !Phase::Running.is_final() && !Phase::Unset.is_final() && !Phase::Unknown.is_final()
        );
    }
}
