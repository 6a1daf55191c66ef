//! Parts of the platform that can be switched.

use super::fields::object;

object! {
    /// Parts of the platform that can be switched.
    pub struct Features {
        /// Tables that describe the machine.
        pub acpi: Option<FeatureState>,
        /// The interrupt controller of each processor.
        pub apic: Option<Apic>,
        /// What Windows finds on Microsoft's hypervisor.
        pub hyperv: Option<Hyperv>,
        /// All of it that the node has.
        pub hyperv_passthrough: Option<HypervPassthrough>,
        /// What a guest finds on KVM.
        pub kvm: Option<KvmFeature>,
        /// Spin locks that tell the hypervisor.
        pub pvspinlock: Option<FeatureState>,
        /// System management mode.
        pub smm: Option<FeatureState>,
    }

    /// Something that is on unless it is switched off.
    pub struct FeatureState {
        /// It is on unless this says no.
        pub enabled: Option<bool>,
    }

    /// The interrupt controller of each processor.
    pub struct Apic {
        /// It is on unless this says no.
        pub enabled: Option<bool>,
        /// An interrupt's end is told without an exit.
        pub end_of_interrupt: Option<bool>,
    }

    /// What a guest finds on KVM.
    pub struct KvmFeature {
        /// It does not find that it is on KVM.
        pub hidden: Option<bool>,
    }

    /// All that the node has of Hyper-V.
    pub struct HypervPassthrough {
        /// It is on.
        pub enabled: Option<bool>,
    }

    /// What Windows finds on Microsoft's hypervisor.
    pub struct Hyperv {
        /// Nested virtualization by shared memory.
        pub evmcs: Option<FeatureState>,
        /// Frequencies of processor and timers.
        pub frequencies: Option<FeatureState>,
        /// Interrupts between processors by call.
        pub ipi: Option<FeatureState>,
        /// Word of a changed clock frequency after a migration.
        pub reenlightenment: Option<FeatureState>,
        /// Timers may be late.
        pub relaxed: Option<FeatureState>,
        /// A reset by register.
        pub reset: Option<FeatureState>,
        /// Time that each processor has run.
        pub runtime: Option<FeatureState>,
        /// Spin locks that tell the hypervisor.
        pub spinlocks: Option<HypervSpinlocks>,
        /// The synthetic interrupt controller.
        pub synic: Option<FeatureState>,
        /// Synthetic timers.
        pub synictimer: Option<HypervTimers>,
        /// Flushes of other processors' translations by call.
        pub tlbflush: Option<HypervTlbFlush>,
        /// The interrupt controller by shared memory.
        pub vapic: Option<FeatureState>,
        /// Name of the hypervisor's maker.
        pub vendorid: Option<HypervVendor>,
        /// Numbers of virtual processors.
        pub vpindex: Option<FeatureState>,
    }

    /// Spin locks that tell the hypervisor.
    pub struct HypervSpinlocks {
        /// It is on unless this says no.
        pub enabled: Option<bool>,
        /// Turns before the hypervisor is told.
        pub spinlocks: Option<i64>,
    }

    /// Synthetic timers.
    pub struct HypervTimers {
        /// They interrupt without a message.
        pub direct: Option<FeatureState>,
        /// They are on unless this says no.
        pub enabled: Option<bool>,
    }

    /// Flushes of other processors' translations by call.
    pub struct HypervTlbFlush {
        /// Also from a nested guest.
        pub direct: Option<FeatureState>,
        /// It is on unless this says no.
        pub enabled: Option<bool>,
        /// Also of single pages.
        pub extended: Option<FeatureState>,
    }

    /// Name of the hypervisor's maker.
    pub struct HypervVendor {
        /// It is told unless this says no.
        pub enabled: Option<bool>,
        /// The name, of twelve characters at most.
        pub vendorid: Option<String>,
    }
}
