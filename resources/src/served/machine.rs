//! Processors, memory, firmware, clock, features.

use super::Support::{Harmless, Only, Partly, Refused, Served, Values};
use super::{Entry, both, each};

const ALWAYS_ON: super::Support =
    Values { served: &["true"], warned: &["false"], why: "it is always on" };
const NO_FIRMWARE: &str =
    "there is no firmware: what the boot loader would start is read from the guest's own disk";
const NO_POD: &str = "there is no Pod whose memory it could change";
const NO_PINNING: &str = "virtual processors share those of the node";
const PULL_POLICIES: super::Support = Only(&["Always", "IfNotPresent", "Never"]);
const NO_HYPERV: &str = "guests find KVM's own interfaces, not Hyper-V's";

pub(super) const ENTRIES: &[Entry] = &[
    both("spec.domain.chassis", Refused("the guest's tables have no chassis")),
    both("spec.domain.clock.timer.hpet", Harmless("the machine has none, and systems do without")),
    both("spec.domain.clock.timer.hyperv", Refused(NO_HYPERV)),
    both("spec.domain.clock.timer.kvm.present", ALWAYS_ON),
    both(
        "spec.domain.clock.timer.pit",
        Harmless("its ticks are KVM's, which has a policy of its own"),
    ),
    both("spec.domain.clock.timer.rtc", Harmless("it is there and follows the host's clock")),
    both("spec.domain.clock.timezone", Only(&["UTC", "Etc/UTC"])),
    both("spec.domain.clock.utc", Served),
    both("spec.domain.clock.utc.offsetSeconds", Only(&["0"])),
    both("spec.domain.cpu.cores", Served),
    both("spec.domain.cpu.dedicatedCpuPlacement", Refused(NO_PINNING)),
    both(
        "spec.domain.cpu.features",
        Partly(
            "those whose policy is `optional` make no difference, as the guest sees what the host has; others are refused",
        ),
    ),
    both("spec.domain.cpu.isolateEmulatorThread", Refused(NO_PINNING)),
    both("spec.domain.cpu.maxSockets", Harmless("processors are not added while the machine runs")),
    both("spec.domain.cpu.model", Only(&["host-model", "host-passthrough"])),
    both("spec.domain.cpu.numa", Refused("the guest has one node of memory")),
    both("spec.domain.cpu.realtime", Refused(NO_PINNING)),
    both("spec.domain.cpu.sockets", Served),
    both("spec.domain.cpu.threads", Served),
    both("spec.domain.features.acpi.enabled", ALWAYS_ON),
    both("spec.domain.features.apic.enabled", ALWAYS_ON),
    both(
        "spec.domain.features.apic.endOfInterrupt",
        Harmless("KVM offers it, and guests that know it use it"),
    ),
    both("spec.domain.features.hyperv", Refused(NO_HYPERV)),
    both("spec.domain.features.hypervPassthrough", Refused(NO_HYPERV)),
    both("spec.domain.features.kvm.hidden", Refused("guests find that they are on KVM")),
    both(
        "spec.domain.features.pvspinlock",
        Harmless("KVM offers it, and guests that know it use it"),
    ),
    both("spec.domain.features.smm", Refused("the machine has no system management mode")),
    both("spec.domain.firmware.acpi", Refused("the guest's tables are the machine's own")),
    both("spec.domain.firmware.bootloader.bios", Harmless(NO_FIRMWARE)),
    both("spec.domain.firmware.bootloader.efi", Harmless(NO_FIRMWARE)),
    both(
        "spec.domain.firmware.bootloader.efi.persistent",
        Harmless("there is no firmware whose variables could be kept"),
    ),
    both(
        "spec.domain.firmware.bootloader.efi.secureBoot",
        Refused("there is no firmware that checks signatures; say `false` to do without"),
    ),
    both("spec.domain.firmware.kernelBoot.container.image", Served),
    both("spec.domain.firmware.kernelBoot.container.imagePullPolicy", PULL_POLICIES),
    each(
        "spec.domain.firmware.kernelBoot.container.imagePullSecret",
        Harmless("images are fetched with the credentials of whoever starts the machine"),
        Served,
    ),
    both("spec.domain.firmware.kernelBoot.container.initrdPath", Served),
    both("spec.domain.firmware.kernelBoot.container.kernelPath", Served),
    both("spec.domain.firmware.kernelBoot.kernelArgs", Served),
    both("spec.domain.firmware.serial", Served),
    both("spec.domain.firmware.uuid", Served),
    both("spec.domain.ioThreads", Harmless("disks have threads of their own")),
    both("spec.domain.ioThreadsPolicy", Harmless("disks have threads of their own")),
    both("spec.domain.launchSecurity", Refused("the host can read the guest's memory")),
    both(
        "spec.domain.machine.type",
        Partly(
            "`q35`, and versions of it such as `pc-q35-9.0` with a warning: there is one type of machine, which has its own \
             version; others are refused, as KubeVirt refuses them",
        ),
    ),
    both("spec.domain.memory.guest", Served),
    both(
        "spec.domain.memory.hugepages",
        Refused("guest memory is not taken from the node's reserved huge pages"),
    ),
    both("spec.domain.memory.maxGuest", Harmless("memory is not added while the machine runs")),
    each("spec.domain.memory.reservedOverhead.addedOverhead", Harmless(NO_POD), Served),
    each("spec.domain.memory.reservedOverhead.memLock", Harmless(NO_POD), Only(&["NotRequired"])),
    both("spec.domain.rebootPolicy", Only(&["Reboot"])),
    both("spec.domain.resources.limits.cpu", Served),
    both("spec.domain.resources.limits.memory", Served),
    each("spec.domain.resources.overcommitGuestOverhead", Harmless(NO_POD), Served),
    both("spec.domain.resources.requests.cpu", Served),
    both("spec.domain.resources.requests.memory", Served),
];
