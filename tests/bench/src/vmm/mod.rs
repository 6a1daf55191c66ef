//! The programs that are compared, each behind one small trait.

mod choice;
pub(crate) mod corten;
mod devices;
mod process;
mod qemu;

use std::io::PipeReader;
use std::path::PathBuf;

use anyhow::Result;

pub use choice::{Choice, Programs};
pub use corten::Corten;
pub use devices::{Control, Devices, Disk, Peer};
pub use process::VmmProcess;
pub use qemu::{Machine, Qemu};

/// One way to run a guest.
pub trait Vmm {
    /// What it is called in reports, and in `--against`.
    fn name(&self) -> &str;

    /// Which build of it this is, in one line.
    fn version(&self) -> Result<String>;

    /// Its settings, as a reader needs them to judge whether the comparison is fair.
    fn settings(&self) -> String;

    /// Starts the guest and returns at once. The caller's clock runs already: whatever is prepared here is measured.
    fn start(&self, guest: &Guest) -> Result<Started>;
}

/// What every VMM of a part is given alike.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Kernel file.
    pub kernel: PathBuf,
    /// Initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// Kernel command line, word for word.
    pub command_line: String,
    /// Processors.
    pub cpus: u16,
    /// Bytes of memory.
    pub memory: u64,
    /// What it writes to its first serial port when it has come as far as is measured.
    pub mark: String,
    /// When the clock stops.
    pub stop_at: StopAt,
    /// What else the machine has; none for nothing else.
    pub devices: Option<Devices>,
}

/// When the clock stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// At the first byte on the console, which has to be that of [`Guest::mark`].
    FirstByte,
    /// When the whole of [`Guest::mark`] is there.
    Mark,
}

/// A VMM that was started.
#[derive(Debug)]
pub struct Started {
    /// Its process, which ends when this is dropped.
    pub process: VmmProcess,
    /// What the guest writes to its first serial port.
    pub console: PipeReader,
    /// The host's side of a machine with devices.
    pub peer: Option<Peer>,
}
