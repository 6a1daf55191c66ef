//! What a VirtualMachineInstanceReplicaSet has besides its template.

use super::Support::Served;
use super::{Entry, both};

pub(super) const ENTRIES: &[Entry] = &[
    both("spec.paused", Served),
    both("spec.replicas", Served),
    both("spec.selector", Served),
    both("spec.template", Served),
];
