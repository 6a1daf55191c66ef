//! Processors of a machine.

use super::Marker;
use super::fields::object;

object! {
    /// Processors of a machine: sockets x cores x threads.
    pub struct Cpu {
        /// Cores of a socket.
        pub cores: Option<i64>,
        /// Each virtual processor has a processor of the node to itself.
        pub dedicated_cpu_placement: Option<bool>,
        /// Abilities of the processor, one by one.
        pub features: Vec<CpuFeature>,
        /// Threads of the VMM run on another processor than those of the guest.
        pub isolate_emulator_thread: Option<bool>,
        /// The most sockets that it can grow to while it runs.
        pub max_sockets: Option<i64>,
        /// Which processor the guest sees.
        pub model: Option<String>,
        /// How memory and processors lie together.
        pub numa: Option<Numa>,
        /// Processors that run without interruption.
        pub realtime: Option<Realtime>,
        /// Sockets.
        pub sockets: Option<i64>,
        /// Threads of a core.
        pub threads: Option<i64>,
    }

    /// An ability of a processor.
    pub struct CpuFeature {
        /// Its name.
        pub name: String,
        /// `force`, `require`, `optional`, `disable` or `forbid`; `require` if not given.
        pub policy: Option<String>,
    }

    /// How memory and processors lie together.
    pub struct Numa {
        /// As they do on the node.
        pub guest_mapping_passthrough: Option<Marker>,
    }

    /// Processors that run without interruption.
    pub struct Realtime {
        /// Which of them; all if not given.
        pub mask: Option<String>,
    }
}
