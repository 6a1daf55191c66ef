//! What is plugged in, but for disks and interfaces.

use super::Support::{Harmless, Only, Partly, Refused, Served, Values};
use super::{Entry, alone, both, each};

const NO_SCREEN: &str = "there is no screen; the serial console is the way in";
const NO_DEVICES: &str = "devices of the node are not given to guests";

pub(super) const ENTRIES: &[Entry] = &[
    both(
        "spec.domain.devices.autoattachGraphicsDevice",
        Values { served: &["false"], warned: &["true"], why: NO_SCREEN },
    ),
    both("spec.domain.devices.autoattachInputDevice", Harmless(NO_SCREEN)),
    both("spec.domain.devices.autoattachMemBalloon", Served),
    both("spec.domain.devices.autoattachPodInterface", Served),
    each(
        "spec.domain.devices.autoattachSerialConsole",
        Partly("without one nobody hears what the guest writes to its port, which it still finds"),
        Only(&["true"]),
    ),
    alone("spec.domain.devices.autoattachVSOCK", Served),
    both("spec.domain.devices.blockMultiQueue", Served),
    both("spec.domain.devices.clientPassthrough", Refused("there is no USB")),
    both("spec.domain.devices.disableHotplug", Served),
    both(
        "spec.domain.devices.downwardMetrics",
        Refused("there is no such port; the volume of the same name has the numbers"),
    ),
    both("spec.domain.devices.filesystems", Refused("folders are not shared with guests")),
    both("spec.domain.devices.gpus", Refused(NO_DEVICES)),
    both("spec.domain.devices.hostDevices", Refused(NO_DEVICES)),
    both("spec.domain.devices.inputs", Harmless(NO_SCREEN)),
    each("spec.domain.devices.logSerialConsole", Served, Only(&["true"])),
    both("spec.domain.devices.networkInterfaceMultiqueue", Served),
    both(
        "spec.domain.devices.panicDevices.model",
        Values {
            served: &["isa"],
            warned: &["hyperv", "pvpanic"],
            why: "the machine's panic device is the one on the ISA bus, and always there",
        },
    ),
    both("spec.domain.devices.rng", Served),
    both("spec.domain.devices.sound", Refused("there is no sound")),
    both("spec.domain.devices.tpm", Refused("there is no trusted platform module")),
    both(
        "spec.domain.devices.useVirtioTransitional",
        Refused("devices are those of virtio 1; systems of before 2014 have no drivers for them"),
    ),
    both("spec.domain.devices.video", Refused(NO_SCREEN)),
    both("spec.domain.devices.watchdog", Refused("there is no watchdog")),
];
