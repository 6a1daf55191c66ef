//! What the control peer asks of a VM process, and what that tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    BootFault, BootOrigin, Counters, DiskHost, EndReason, EntropyHost, MachineDescription, Memory,
    NetworkHost, Restoration,
};

/// What the control peer wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Start the machine. The first request, or [`Request::Load`] or [`Request::Restore`] is.
    Boot {
        /// Which one.
        machine: MachineDescription,
        /// It is made and waits for [`Request::Resume`]: its guest has done nothing yet.
        #[serde(default, skip_serializing_if = "is_not")]
        paused: bool,
    },
    /// Go on with the machine whose records and memory were granted. It is paused.
    Load {
        /// How to treat its disks, by name; the others by default.
        #[serde(default)]
        disks: BTreeMap<String, DiskHost>,
        /// How to treat its networks, by name; the others by default.
        #[serde(default)]
        networks: BTreeMap<String, NetworkHost>,
        /// How to give random numbers.
        #[serde(default)]
        entropy: EntropyHost,
    },
    /// Go on with the snapshot in the files that were granted as `snapshot/memory` and `snapshot/records`. It is paused.
    /// With `uffd` granted, too, memory comes when it is needed; without, all of it is read first.
    Restore {
        /// In particular.
        how: Restoration,
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
    /// Write a paused machine to the two files that come as `snapshot/memory` and `snapshot/records`: empty, and nobody's but
    /// their owner's. It stays as it is.
    Snapshot,
    /// Say what was counted.
    Counters,
    /// Have the guest give up this much of its memory, in whole pages.
    SetBalloon {
        /// How much is to be in the balloon from now on.
        bytes: u64,
    },
    /// Ask the guest how it uses its memory, again and again.
    PollMemory {
        /// How often; 0 for no more.
        seconds: u32,
    },
    /// Say how memory is used.
    Memory,
    /// Attach the socket that comes as `connection` to a port of the console device, in place of what was attached.
    Attach {
        /// Number of the port: 0 is the terminal.
        port: u32,
    },
    /// Connect the socket that comes as `connection` to a port of the guest's. If the guest does not take it, it is closed.
    Connect {
        /// The port.
        port: u32,
    },
    /// Give the guest the connection that it asked for by [`Event::Connecting`]: the socket comes as `connection`.
    GrantConnection {
        /// That of the event.
        ticket: u64,
    },
    /// Tell the guest that it does not get the connection that it asked for.
    RefuseConnection {
        /// That of the event.
        ticket: u64,
    },
    /// End at once.
    Kill,
}

fn is_not(switch: &bool) -> bool {
    !switch
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
    /// How memory is used.
    Memory {
        /// The numbers.
        memory: Memory,
    },
}

/// How a VM is. Agents of an older release pass over what they do not know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Streams of the console device that a program of the guest has open, by number.
    #[serde(default)]
    pub open_ports: Vec<u32>,
    /// The power button was pressed, and nothing in the guest has taken notice of it yet.
    #[serde(default, skip_serializing_if = "is_not")]
    pub button_waits: bool,
    /// What the guest was booted from; none where an older release does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootOrigin>,
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

/// What the VM process tells by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// The guest was reset and starts anew.
    Reset,
    /// What the guest is booted from was looked for on its disks: this is what was found, at the start and after each
    /// reset. Nothing is told of a kernel that was granted.
    Booting {
        /// Where it is.
        from: BootOrigin,
    },
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
    /// The guest wants to connect to a port of the host's, and waits for [`Request::GrantConnection`] or
    /// [`Request::RefuseConnection`].
    Connecting {
        /// What the answer has to carry.
        ticket: u64,
        /// The port.
        port: u32,
    },
    /// It is over. The process ends next, with the reason's exit status.
    Ended {
        /// Why.
        reason: EndReason,
        /// More of it: registers, an error.
        detail: String,
        /// What of the boot was at fault, if it did not come to run for that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<BootFault>,
    },
}
