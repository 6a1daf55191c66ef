//! What a VirtualMachine has besides its template.

use super::Support::{Harmless, Only, Partly, Refused, Served};
use super::{Entry, both, each};

pub(crate) const STARTED_BY_HAND: &str = "the machine runs once, when it is started";
const NO_TYPES: &str = "instance types are not served: write the sizes into the template";

pub(super) const ENTRIES: &[Entry] = &[
    each(
        "spec.dataVolumeTemplates",
        Harmless("nothing is imported: the disk must be there already"),
        Partly(
            "they are made where the Containerized Data Importer is installed, which fills them",
        ),
    ),
    each(
        "spec.instancetype",
        Refused("instance types are objects of a cluster"),
        Refused(NO_TYPES),
    ),
    each(
        "spec.preference",
        Refused("preferences are objects of a cluster"),
        Refused("preferences are not served: write what you want into the template"),
    ),
    each(
        "spec.runStrategy",
        Harmless(STARTED_BY_HAND),
        Only(&["Always", "Halted", "Manual", "Once", "RerunOnFailure"]),
    ),
    each("spec.running", Harmless(STARTED_BY_HAND), Served),
    both("spec.template", Served),
    each(
        "spec.updateVolumesStrategy",
        Harmless("volumes do not change while the machine runs"),
        Only(&["Replacement"]),
    ),
];
