//! What is known of a machine and its guest.

use crate::Quantity;
use crate::types::fields::object;

object! {
    /// Processors of a VM.
    pub struct CpuTopology {
        /// Cores of a socket.
        pub cores: Option<i64>,
        /// Sockets.
        pub sockets: Option<i64>,
        /// Threads of a core.
        pub threads: Option<i64>,
    }

    /// Memory of a VM.
    pub struct MemoryStatus {
        /// What the guest had when it booted.
        pub guest_at_boot: Option<Quantity>,
        /// What the guest has at present.
        pub guest_current: Option<Quantity>,
        /// What its user asks for.
        pub guest_requested: Option<Quantity>,
        /// What its Pod is given on top of the guest's memory.
        pub memory_overhead: Option<Quantity>,
    }

    /// What the guest agent says of its system, as `/etc/os-release` and `uname` do.
    pub struct GuestOsInfo {
        /// Name of the system, for programs.
        pub id: Option<String>,
        /// Release of its kernel.
        pub kernel_release: Option<String>,
        /// Version of its kernel.
        pub kernel_version: Option<String>,
        /// Its architecture.
        pub machine: Option<String>,
        /// Name of the system.
        pub name: Option<String>,
        /// Name and version, for people.
        pub pretty_name: Option<String>,
        /// Version of the system.
        pub version: Option<String>,
        /// Version of the system, for programs.
        pub version_id: Option<String>,
    }

    /// A network interface of a VM.
    pub struct InterfaceStatus {
        /// Who told of it: `domain`, `guest-agent`, `multus-status`, with commas between them.
        pub info_source: Option<String>,
        /// What the guest calls it.
        pub interface_name: Option<String>,
        /// Its first address.
        pub ip_address: Option<String>,
        /// All its addresses.
        pub ip_addresses: Vec<String>,
        /// `up` or `down`.
        pub link_state: Option<String>,
        /// Its hardware address.
        pub mac: Option<String>,
        /// Its name, and that of its network.
        pub name: Option<String>,
        /// The interface of the Pod behind it.
        pub pod_interface_name: Option<String>,
        /// How many queues it has.
        pub queue_count: Option<i32>,
    }

    /// The kernel that a VM was started with.
    pub struct KernelBootStatus {
        /// Its initial RAM disk.
        pub initrd_info: Option<FileChecksum>,
        /// The kernel itself.
        pub kernel_info: Option<FileChecksum>,
    }

    /// A file out of an image.
    pub struct FileChecksum {
        /// Checksum of its content.
        pub checksum: Option<i64>,
    }

    /// What the next node of a VM must have.
    pub struct TopologyHints {
        /// Frequency of the processors' counters, in Hertz.
        pub tsc_frequency: Option<i64>,
    }
}
