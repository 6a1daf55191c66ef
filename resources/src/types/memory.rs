//! Memory of a machine.

use super::fields::object;
use crate::Quantity;

object! {
    /// Memory of a machine.
    pub struct Memory {
        /// What the guest sees.
        pub guest: Option<Quantity>,
        /// Pages of the node that are larger than usual.
        pub hugepages: Option<Hugepages>,
        /// The most that it can grow to while it runs.
        pub max_guest: Option<Quantity>,
        /// What is kept beyond the guest's memory.
        pub reserved_overhead: Option<ReservedOverhead>,
    }

    /// Pages of the node that are larger than usual.
    pub struct Hugepages {
        /// Their size, such as `2Mi` or `1Gi`.
        pub page_size: Option<String>,
    }

    /// What is kept beyond the guest's memory.
    pub struct ReservedOverhead {
        /// So much more than Corten reckons with.
        pub added_overhead: Option<Quantity>,
        /// Whether it is locked in memory: `Required` or `NotRequired`.
        pub mem_lock: Option<String>,
    }
}
