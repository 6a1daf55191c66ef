//! Why a command failed, and with which status the program ends then.

use std::io;
use std::path::PathBuf;

use corten_resources::validate::Finding;
use thiserror::Error;

use crate::client::ClientError;
use crate::job::JobError;
use crate::kvm::KvmError;
use crate::manifest::{ManifestError, SelectionError};
use crate::place::PlaceError;
use crate::program::ProgramError;
use crate::supervisor::SupervisorError;

/// What is wrong with a manifest, or Corten does not do.
pub const REFUSED: u8 = 3;
/// KVM cannot run the guest.
pub const NO_KVM: u8 = 4;
/// As timeout(1) has it.
pub const TIMED_OUT: u8 = 124;
/// The VM was saved, and ended for that.
pub const SAVED: u8 = 87;
/// A guest that should tell a status told none.
pub const NO_STATUS: u8 = 88;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// A file of manifests.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// What the manifests have.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The object.
    #[error("{title} is refused:{}", lines(.findings))]
    Refused {
        /// Which one.
        title: String,
        /// What is wrong with it.
        findings: Vec<Finding>,
    },
    /// Several files, each told already.
    #[error("{0} refused")]
    Validation(String),
    /// KVM.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The program of the VM process.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A run directory.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A link.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// This process as a supervisor.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    /// A file to write.
    #[error("cannot write {path}")]
    Write {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file to read.
    #[error("cannot read {path}")]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A directory that `corten save` did not write.
    #[error("{directory} is no saved VM, which `corten save` writes: job.json: {why}")]
    NotSaved {
        /// Which one.
        directory: PathBuf,
        /// What is wrong with the file that says what was saved.
        why: String,
    },
    /// Something else of the system's.
    #[error("cannot {what}")]
    System {
        /// Do what.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A field that is none.
    #[error("{0}")]
    Said(String),
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n  {finding}")).collect()
}

impl Failure {
    /// Status of the program.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Manifest(_) | Self::Selection(_) | Self::Refused { .. } | Self::Validation(_) => {
                REFUSED
            }
            Self::Kvm(_) => NO_KVM,
            _ => 1,
        }
    }
}
