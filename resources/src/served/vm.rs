//! What a VirtualMachine has besides its template.

use super::Support::{Harmless, Refused, Served};
use super::{Entry, alone};

const STARTED_BY_HAND: &str = "the machine runs once, when it is started";

pub(super) const ENTRIES: &[Entry] = &[
    alone(
        "spec.dataVolumeTemplates",
        Harmless("nothing is imported: the disk must be there already"),
    ),
    alone("spec.instancetype", Refused("instance types are objects of a cluster")),
    alone("spec.preference", Refused("preferences are objects of a cluster")),
    alone("spec.runStrategy", Harmless(STARTED_BY_HAND)),
    alone("spec.running", Harmless(STARTED_BY_HAND)),
    alone("spec.template", Served),
    alone("spec.updateVolumesStrategy", Harmless("volumes do not change while the machine runs")),
];
