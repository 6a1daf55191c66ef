//! A virtual machine for microguests: as little as it takes to try one KVM feature after another.
//!
//! It is no model of Corten's own VMM and shares no code with it, so the two can disagree. Everything runs on the
//! caller's thread: a [`MicroVm`] runs until its guest reports something, each wait has a deadline, and a guest that
//! never reports fails its test instead of hanging it.

pub mod boot;
pub mod caller;
pub mod command;
pub mod deadline;
pub mod dirty_log;
pub mod exit_stop;
pub mod exits;
pub mod guest;
pub mod host;
pub mod injection;
mod ioctl;
pub mod lab;
pub mod lives;
pub mod memory;
pub mod microvm;
pub mod process;
pub mod snapshot_files;
pub mod threads;
pub mod uffd;
pub mod vcpu_state;
pub mod vmm;

pub use exits::{Access, Place};
pub use memory::Ram;
pub use microvm::{MicroVm, RunError, VmError};
