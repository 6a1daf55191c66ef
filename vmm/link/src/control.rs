//! What the control peer asks of a VM process, and what that tells.

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
        /// For a reset later on.
        command_line: String,
    },
    /// Say how it is.
    Info,
    /// Stop the guest until [`Request::Resume`].
    Pause,
    /// Let the guest go on.
    Resume,
    /// Press the power button.
    PowerButton,
    /// Give out the records and the memory of a paused machine. It stays as it is.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// What the VM process tells by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// The guest was reset and starts anew.
    Reset,
    /// The guest's kernel panicked and writes a crash dump.
    CrashLoaded,
    /// It is over. The process ends next, with the reason's exit status.
    Ended {
        /// Why.
        reason: EndReason,
        /// More of it: registers, an error.
        detail: String,
    },
}
