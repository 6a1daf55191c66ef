//! The machine as its user describes it.

use super::fields::object;
use super::{Clock, Cpu, Devices, Features, Firmware, Marker, Memory};
use crate::Quantity;
use std::collections::BTreeMap;

object! {
    /// A machine.
    pub struct Domain {
        /// What stands on its case.
        pub chassis: Option<Chassis>,
        /// Its clock and timers.
        pub clock: Option<Clock>,
        /// Processors.
        pub cpu: Option<Cpu>,
        /// What is plugged in.
        pub devices: Devices,
        /// Parts of the platform that can be switched.
        pub features: Option<Features>,
        /// How it boots, and what it says it is.
        pub firmware: Option<Firmware>,
        /// Threads that serve its disks.
        pub io_threads: Option<IoThreads>,
        /// How disks share threads: `shared`, `auto` or `supplementalPool`.
        pub io_threads_policy: Option<String>,
        /// Memory that its host cannot read.
        pub launch_security: Option<LaunchSecurity>,
        /// Machine type.
        pub machine: Option<Machine>,
        /// Memory.
        pub memory: Option<Memory>,
        /// What a reboot of the guest does: `Reboot` or `Terminate`.
        pub reboot_policy: Option<String>,
        /// What it wants of its node.
        pub resources: Option<ResourceRequirements>,
    }

    /// What stands on the case of a machine.
    pub struct Chassis {
        /// Asset tag.
        pub asset: Option<String>,
        /// Who made it.
        pub manufacturer: Option<String>,
        /// Serial number.
        pub serial: Option<String>,
        /// Stock-keeping number.
        pub sku: Option<String>,
        /// Version.
        pub version: Option<String>,
    }

    /// Threads that serve disks.
    pub struct IoThreads {
        /// How many there are, with the policy `supplementalPool`.
        pub supplemental_pool_thread_count: Option<i64>,
    }

    /// Machine type.
    pub struct Machine {
        /// Its name.
        #[serde(rename = "type")]
        pub machine_type: Option<String>,
    }

    /// What a machine wants of its node.
    pub struct ResourceRequirements {
        /// The most it gets, by resource.
        pub limits: BTreeMap<String, Quantity>,
        /// The Pod gets no memory beyond the guest's.
        pub overcommit_guest_overhead: Option<bool>,
        /// What is kept for it, by resource.
        pub requests: BTreeMap<String, Quantity>,
    }

    /// Memory that the host cannot read, by one of these means.
    pub struct LaunchSecurity {
        /// AMD's Secure Encrypted Virtualization.
        pub sev: Option<Sev>,
        /// AMD's SEV with Secure Nested Paging.
        pub snp: Option<Marker>,
        /// Intel's Trust Domain Extensions.
        pub tdx: Option<Marker>,
    }

    /// AMD's Secure Encrypted Virtualization.
    pub struct Sev {
        /// The guest waits until it was attested.
        pub attestation: Option<Marker>,
        /// The owner's Diffie-Hellman key, in Base64.
        pub dh_cert: Option<String>,
        /// What the platform must keep to.
        pub policy: Option<SevPolicy>,
        /// The owner's session, in Base64.
        pub session: Option<String>,
    }

    /// What the platform of an encrypted guest must keep to.
    pub struct SevPolicy {
        /// Registers are encrypted too.
        pub encrypted_state: Option<bool>,
    }
}
