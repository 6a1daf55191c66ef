//! What the control peer asks of a VM process, and what that tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::EndReason;

/// A machine as its user wants it. What it boots from comes as descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MachineDescription {
    /// Bytes of memory.
    pub memory: u64,
    /// Packages.
    pub sockets: u16,
    /// Cores of a package.
    pub cores: u16,
    /// Threads of a core.
    pub threads: u16,
    /// Kernel command line.
    pub command_line: String,
    /// What the guest reads as its UUID; all zero is "none".
    pub uuid: [u8; 16],
    /// What the guest reads as its serial number.
    pub serial: String,
    /// Disks, in the order in which the guest finds them. Each comes as a descriptor of the role `disk/NAME`.
    #[serde(default)]
    pub disks: Vec<DiskDescription>,
}

/// A disk as its user wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DiskDescription {
    /// That of its role.
    pub name: String,
    /// What the guest knows it by: at most 20 bytes of printable ASCII.
    #[serde(default)]
    pub serial: String,
    /// Refuses to be written.
    #[serde(default)]
    pub read_only: bool,
    /// How many queues it has.
    #[serde(default = "one")]
    pub queues: u16,
    /// What transfers are multiples of; none for what the file needs.
    #[serde(default)]
    pub block_size: Option<u32>,
    /// What the guest does not see of it.
    #[serde(default)]
    pub host: DiskHost,
}

fn one() -> u16 {
    1
}

/// How the host treats a disk. May change when a machine is loaded elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DiskHost {
    /// Whether to bypass the page cache, where the file system can.
    pub direct: bool,
    /// What becomes of requests that the host fails.
    pub on_error: OnDiskError,
    /// What does its transfers.
    pub engine: DiskEngine,
    /// Bytes.
    pub bytes: Option<DiskRate>,
    /// Requests.
    pub requests: Option<DiskRate>,
}

/// What becomes of a request that the host fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDiskError {
    /// The guest gets an I/O error.
    #[default]
    Report,
    /// The machine is paused. A resume does the request again.
    Pause,
}

/// What does a disk's transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskEngine {
    /// Rings where the host allows them, else threads.
    #[default]
    Auto,
    /// io_uring.
    Ring,
    /// Threads.
    Pool,
}

/// How much of something a disk may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DiskRate {
    /// In each second, over a long time.
    pub per_second: u64,
    /// At once, after a rest.
    pub burst: u64,
}

/// What the control peer wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Start the machine. The first request, or [`Request::Load`] is.
    Boot {
        /// Which one.
        machine: MachineDescription,
    },
    /// Go on with the machine whose records and memory were granted. It is paused.
    Load {
        /// How to treat its disks, by name; the others by default.
        #[serde(default)]
        disks: BTreeMap<String, DiskHost>,
    },
    /// Say how it is.
    Info,
    /// Stop the guest until [`Request::Resume`].
    Pause,
    /// Let the guest go on.
    Resume,
    /// Press the power button.
    PowerButton,
    /// Give out the records and the memory of a paused machine, and what it boots from after a reset. It stays as it is.
    Save,
    /// Say what was counted.
    Counters,
    /// End at once.
    Kill,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// It was done.
    Done,
    /// It was not done, and nothing has changed.
    Refused {
        /// Why.
        reason: String,
    },
    /// How the VM is.
    Info {
        /// In particular.
        info: Info,
    },
    /// What was counted.
    Counters {
        /// The numbers.
        counters: Counters,
    },
}

/// How a VM is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Info {
    /// Version of its machine, the guest's ABI.
    pub machine_version: u16,
    /// Whether it runs.
    pub state: RunState,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// How often the guest was reset.
    pub resets: u64,
}

/// Whether a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// vCPUs run.
    Running,
    /// vCPUs are parked.
    Paused,
}

/// Numbers since the VM started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Counters {
    /// Exits to the VM process for ports.
    pub port_exits: u64,
    /// Exits to the VM process for memory that is not RAM.
    pub memory_exits: u64,
    /// Exits because somebody wanted the vCPU's thread.
    pub kicks: u64,
    /// Bytes that the guest's console did not take.
    pub console_bytes_dropped: u64,
    /// Events that were not told, because the peer did not read the ones before.
    pub events_dropped: u64,
    /// Those of each disk, by name.
    pub disks: BTreeMap<String, DiskCounters>,
}

/// Numbers of one disk, over all of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DiskCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes they gave the guest.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes they took from the guest.
    pub written_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Requests to discard that succeeded.
    pub discards: u64,
    /// Requests to write zeroes that succeeded.
    pub write_zeroes: u64,
    /// Requests that the host failed, whether the guest was told or the request is held.
    pub errors: u64,
    /// Requests that the guest got wrong.
    pub bad_requests: u64,
    /// Times that a queue waited for its rate limit.
    pub throttled: u64,
}

/// What the VM process tells by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// The guest was reset and starts anew.
    Reset,
    /// The guest's kernel panicked and writes a crash dump.
    CrashLoaded,
    /// A disk failed a request, which is held until the next resume.
    DiskFailed {
        /// Name of the disk.
        disk: String,
        /// What the guest wanted.
        operation: String,
        /// Why it failed.
        error: String,
        /// Whether the machine is paused now.
        paused: bool,
    },
    /// It is over. The process ends next, with the reason's exit status.
    Ended {
        /// Why.
        reason: EndReason,
        /// More of it: registers, an error.
        detail: String,
    },
}
