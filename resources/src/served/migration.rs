//! A VirtualMachineInstanceMigration.

use super::Support::{Harmless, Partly, Refused};
use super::{Entry, both};

const NOT_YET: &str = "migration comes with a later release";
const ONE_CLUSTER: &str = "machines do not move from cluster to cluster";

pub(super) const ENTRIES: &[Entry] = &[
    both("spec.addedNodeSelector", Harmless(NOT_YET)),
    both("spec.priority", Harmless(NOT_YET)),
    both("spec.receive", Refused(ONE_CLUSTER)),
    both("spec.sendTo", Refused(ONE_CLUSTER)),
    both(
        "spec.vmiName",
        Partly(
            "the object is taken, and a condition says that migration comes with a later release",
        ),
    ),
];
