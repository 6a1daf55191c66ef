//! In which order a machine is stopped, saved, loaded and resumed, and why.
//!
//! The tables are what is carried out: [`super::Machine`] walks them. Each line's reason is a bug that some VMM had.

/// One step of a table.
#[derive(Clone, Copy, Debug)]
pub struct Step<A> {
    /// What is done.
    pub action: A,
    /// Why here.
    pub reason: &'static str,
}

const fn step<A>(action: A, reason: &'static str) -> Step<A> {
    Step { action, reason }
}

/// What stopping does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Every vCPU leaves the guest and finishes its last access.
    ParkVcpus,
    /// The guest's clock and each vCPU's time stamp counter are read.
    ReadClock,
    /// Devices finish what they began and give their queues back.
    DrainDevices,
}

/// What saving does, in a machine that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// State of devices.
    Devices,
    /// State of interrupt controllers.
    InterruptControllers,
    /// State of vCPUs.
    Vcpus,
    /// The clock that was read when the machine stopped.
    Clock,
}

/// What loading does, in a machine that was assembled and has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Registers, segments, extended state and local APICs.
    VcpuRegisters,
    /// State of interrupt controllers.
    InterruptControllers,
    /// State of devices.
    Devices,
    /// The guest's clock, for the next resume.
    Clock,
}

/// What resuming does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Disks are locked.
    LockDisks,
    /// The guest's clock is set.
    SetClock,
    /// Every vCPU gets its time stamp counter, all by one offset.
    SetTscOffset,
    /// MSRs, the timer's deadline last, then events.
    LoadMsrsAndEvents,
    /// BARs and doorbells are put where they are, devices get their queues, look at each once and raise each interrupt once.
    StartDevices,
    /// Interfaces of a machine that was loaded have their drivers tell the network where they are.
    AnnounceNetworks,
    /// The guest's watchdogs are told.
    AnnounceStop,
    /// Memory of a restored machine is filled in.
    FillMemory,
    /// vCPUs enter the guest.
    RunVcpus,
}

/// Stopping.
pub const STOP: &[Step<Stop>] = &[
    step(Stop::ParkVcpus, "while a vCPU runs, everything else may still change"),
    step(
        Stop::ReadClock,
        "the time at which the guest stopped, before devices take theirs to drain",
    ),
    step(
        Stop::DrainDevices,
        "after vCPUs, which could start new requests; they may still raise interrupts",
    ),
];

/// Saving.
pub const SAVE: &[Step<Save>] = &[
    step(
        Save::Devices,
        "first: what they raised last is in the interrupt controllers only afterwards",
    ),
    step(
        Save::InterruptControllers,
        "after devices, or an interrupt raised in between would be in neither",
    ),
    step(
        Save::Vcpus,
        "after the controllers, whose interrupts may be on their way to a local APIC",
    ),
    step(Save::Clock, "as read at the stop: nothing here may move it"),
];

/// Loading.
pub const LOAD: &[Step<Load>] = &[
    step(
        Load::VcpuRegisters,
        "before the controllers: a local APIC that is not enabled yet would drop their interrupts",
    ),
    step(
        Load::InterruptControllers,
        "before devices, which may raise interrupts as soon as they are loaded",
    ),
    step(Load::Devices, "they have everything they use"),
    step(Load::Clock, "kept for the resume: set now, it would run on until then"),
];

/// Resuming.
pub const RESUME: &[Step<Resume>] = &[
    step(
        Resume::LockDisks,
        "first: a machine whose disks another one writes to must not run, nor change at all",
    ),
    step(Resume::SetClock, "directly before running, or the guest would see the time in between"),
    step(
        Resume::SetTscOffset,
        "from the clock just set; one for all vCPUs, or time would differ between them",
    ),
    step(
        Resume::LoadMsrsAndEvents,
        "among the MSRs is the timer's deadline, which is compared with the counter just set",
    ),
    step(Resume::StartDevices, "before vCPUs run: a doorbell rung meanwhile must find somebody"),
    step(
        Resume::AnnounceNetworks,
        "once interfaces work: switches still send frames for the guest to where it was",
    ),
    step(Resume::AnnounceStop, "before the guest looks at its clock, or its watchdogs bark"),
    step(
        Resume::FillMemory,
        "not earlier, or the work before the guest's first step would grow with its memory",
    ),
    step(Resume::RunVcpus, "last"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn place<A: Copy + PartialEq>(table: &[Step<A>], action: A) -> usize {
        let places: Vec<usize> =
            (0..table.len()).filter(|at| table[*at].action == action).collect();
        assert_eq!(places.len(), 1, "each action stands once");
        places[0]
    }

    #[test]
    fn every_line_has_a_reason() {
        let reasons =
            STOP.iter().map(|step| step.reason).chain(SAVE.iter().map(|step| step.reason));
        let reasons = reasons.chain(LOAD.iter().map(|step| step.reason));
        for reason in reasons.chain(RESUME.iter().map(|step| step.reason)) {
            assert!(!reason.is_empty());
        }
    }

    #[test]
    fn vcpus_stop_before_devices_drain_and_the_clock_is_read_between() {
        assert!(place(STOP, Stop::ParkVcpus) < place(STOP, Stop::ReadClock));
        assert!(place(STOP, Stop::ReadClock) < place(STOP, Stop::DrainDevices));
    }

    #[test]
    fn devices_are_saved_before_controllers_and_these_before_vcpus() {
        assert!(place(SAVE, Save::Devices) < place(SAVE, Save::InterruptControllers));
        assert!(place(SAVE, Save::InterruptControllers) < place(SAVE, Save::Vcpus));
    }

    #[test]
    fn local_apics_are_loaded_before_what_sends_to_them() {
        assert!(place(LOAD, Load::VcpuRegisters) < place(LOAD, Load::InterruptControllers));
        assert!(place(LOAD, Load::InterruptControllers) < place(LOAD, Load::Devices));
    }

    #[test]
    fn clock_comes_before_counter_and_that_before_the_deadline() {
        assert!(place(RESUME, Resume::SetClock) < place(RESUME, Resume::SetTscOffset));
        assert!(place(RESUME, Resume::SetTscOffset) < place(RESUME, Resume::LoadMsrsAndEvents));
    }

    #[test]
    fn nothing_changes_before_the_disks_are_locked() {
        assert_eq!(place(RESUME, Resume::LockDisks), 0);
    }

    #[test]
    fn vcpus_run_last() {
        assert_eq!(place(RESUME, Resume::RunVcpus), RESUME.len() - 1);
    }
}
