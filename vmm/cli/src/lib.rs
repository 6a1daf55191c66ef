//! The `corten` command: a `kubevirt.io/v1` manifest becomes a running VM without a cluster.
//!
//! ```text
//!   corten run ──starts──▶ supervisor ──jail──▶ corten-vmm
//!      │   job, phases, end    │  ▲                opens nothing: all of it comes as descriptors
//!      └───── link ────────────┘  │
//!                                 └── control socket in the run directory ◀── corten ps, console, stop, ...
//! ```
//!
//! The **supervisor** is to a VM here what the launcher is to it in a Pod: it makes a machine of the object ([`machine`]
//! of corten-launcher), opens what the VM may touch, starts the VM process in a [`jail`] and tells how it ended. It is a
//! process of its own in every case; `corten run` without `--detach` is a client whose going the VM does not survive,
//! unless it takes leave. It holds the lock of the VM's run directory ([`place`]) as long as it lives, so whatever it
//! leaves behind when it is killed is recognised and removed by the next command.
//!
//! Clients speak [`protocol`]: JSON messages over a seqpacket socket, descriptors beside them. The console is a stream
//! socket that comes as an answer.
//!
//! | module | holds |
//! |---|---|
//! | [`options`] | the command line |
//! | [`manifest`] | files of YAML -> the one VM and what it refers to |
//! | [`job`] | all that a supervisor has to know, as it is handed over and kept with a saved VM |
//! | [`commands`] | one file for each command |
//! | [`client`] | links to supervisors, the terminal |
//! | [`supervisor`] | the loop, the console, what is prepared for a VM |
//! | [`jail`] | where the VM process runs |
//!
//! [`machine`]: corten_launcher::machine

pub mod client;
pub mod commands;
pub mod failure;
pub mod jail;
pub mod job;
pub mod junit;
pub mod kvm;
pub mod manifest;
pub mod oci;
pub mod options;
pub mod phase;
pub mod place;
pub mod program;
pub mod protocol;
pub mod regular;
pub mod sparse;
pub mod supervisor;
