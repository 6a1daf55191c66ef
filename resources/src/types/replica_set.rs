//! A VirtualMachineInstanceReplicaSet: so many VirtualMachineInstances of one make.

use super::fields::object;
use super::{Condition, LabelSelector, VirtualMachineInstanceTemplate};

object! {
    /// The specification of a VirtualMachineInstanceReplicaSet.
    pub struct VirtualMachineInstanceReplicaSetSpec {
        /// While true, none is made and none is taken away.
        pub paused: Option<bool>,
        /// How many there are to be; one if not given.
        pub replicas: Option<i32>,
        /// Which VirtualMachineInstances count as its own; the template's labels must match.
        pub selector: Option<LabelSelector>,
        /// What each of them is made from.
        pub template: Option<VirtualMachineInstanceTemplate>,
    }

    /// The status of a VirtualMachineInstanceReplicaSet.
    pub struct VirtualMachineInstanceReplicaSetStatus {
        /// What is true of it.
        pub conditions: Vec<Condition>,
        /// The selector as text, for autoscalers.
        pub label_selector: Option<String>,
        /// How many of them are ready to serve.
        pub ready_replicas: Option<i32>,
        /// How many there are.
        pub replicas: Option<i32>,
    }
}

impl VirtualMachineInstanceReplicaSetStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}
