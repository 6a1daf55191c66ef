//! All that a supervisor has to know. It is handed over as a sealed file, and kept beside a saved VM.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use corten_resources::types::VirtualMachineInstance;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::manifest::Sources;

/// Of this layout.
pub const VERSION: u16 = 1;
/// Manifests with their Secrets, as text.
const MAX_BYTES: u64 = 32 << 20;

/// What is to be run, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Job {
    /// [`VERSION`].
    pub version: u16,
    /// Name of its run directory.
    pub name: String,
    /// The object, with everything decided that is left open in it.
    pub vmi: VirtualMachineInstance,
    /// It is the template of a VirtualMachine, by whose paths the user knows its fields.
    #[serde(default)]
    pub in_template: bool,
    /// What the object refers to.
    pub sources: Sources,
    /// What stands for claims and the like, by name.
    pub volumes: BTreeMap<String, PathBuf>,
    /// What has images, by their names.
    pub images: BTreeMap<String, PathBuf>,
    /// Where other images are looked for.
    pub image_dir: Option<PathBuf>,
    /// Where what was unpacked of images is kept.
    pub cache: PathBuf,
    /// How networks are connected.
    pub network: Network,
    /// Where files go that live no longer than the VM.
    pub scratch: PathBuf,
    /// The program of the VM process.
    pub vmm: PathBuf,
    /// Forbidden system calls are logged only.
    pub seccomp_log: bool,
    /// The guest may tell an exit status.
    pub exit_status: bool,
    /// What the guest told before it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_status: Option<u8>,
    /// Seconds until it is killed.
    pub timeout: Option<u32>,
    /// Where the console is written to as well.
    pub log: Option<PathBuf>,
    /// Seconds from the power button to the kill.
    pub grace: u32,
    /// When the command was given, by the monotonic clock in nanoseconds.
    pub begun: u64,
    /// A saved VM to go on with.
    pub restore: Option<Restore>,
}

/// How networks are connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// As the object says, behind an address of this machine.
    Own,
    /// With this bridge.
    Bridge(String),
    /// With bridges by the names of the object's networks.
    Bridges {
        /// By name.
        named: BTreeMap<String, String>,
        /// The one for all others; none to have them as the object says.
        others: Option<String>,
    },
    /// Not at all: the guest has no interface.
    None,
}

impl Network {
    /// The bridge that takes the place of a network with one of these names.
    pub fn bridge(&self, names: &[&str]) -> Option<&str> {
        match self {
            Self::Own | Self::None => None,
            Self::Bridge(bridge) => Some(bridge),
            Self::Bridges { named, others } => {
                let found = names.iter().find_map(|name| named.get(*name));
                found.or(others.as_ref()).map(String::as_str)
            }
        }
    }

    /// Names that somebody has given a bridge.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let named = if let Self::Bridges { named, .. } = self { Some(named) } else { None };
        named.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }
}

/// A saved VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Restore {
    /// Where it was saved.
    pub directory: PathBuf,
    /// Leave it paused.
    pub paused: bool,
    /// Disks that the user vouches for, by the names of their volumes.
    pub force_disks: Vec<String>,
}

/// Why a job cannot be passed on or read.
#[derive(Debug, Error)]
pub enum JobError {
    /// A file of it.
    #[error("cannot pass the job on")]
    File(#[from] io::Error),
    /// No job.
    #[error("the job cannot be read")]
    Malformed(#[from] serde_json::Error),
    /// Of another release.
    #[error("the job is of version {0}, this build knows version {VERSION}")]
    Version(u16),
    /// Too large.
    #[error("the manifests have more than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
}

impl Job {
    /// A file without a name that holds it.
    pub fn to_file(&self) -> Result<File, JobError> {
        let file = memfd_create("job", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?;
        let mut file = File::from(file);
        let bytes = serde_json::to_vec(self)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(JobError::TooLarge);
        }
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads one.
    pub fn from_file(file: File) -> Result<Self, JobError> {
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(JobError::TooLarge);
        }
        #[derive(Deserialize)]
        struct Version {
            version: u16,
        }
        let Version { version } = serde_json::from_slice(&bytes)?;
        if version != VERSION {
            return Err(JobError::Version(version));
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file_of(value: &serde_json::Value) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(value.to_string().as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn networks_have_the_bridge_of_their_name_or_that_of_all_others() {
        let named = BTreeMap::from([("lan".to_owned(), "br1".to_owned())]);
        let some = Network::Bridges { named: named.clone(), others: None };
        assert_eq!((some.bridge(&["a", "lan"]), some.bridge(&["a"])), (Some("br1"), None));
        let all = Network::Bridges { named, others: Some("br0".into()) };
        assert_eq!((all.bridge(&["lan"]), all.bridge(&["a"])), (Some("br1"), Some("br0")));
        assert_eq!(all.named().collect::<Vec<_>>(), ["lan"]);
        assert_eq!(Network::Bridge("br0".into()).bridge(&["a"]), Some("br0"));
        assert_eq!(Network::Own.bridge(&["a"]), None);
    }

    #[test]
    fn job_of_another_release_is_refused_by_its_version() {
        let error = Job::from_file(file_of(&json!({"version": 99, "what": "ever"}))).unwrap_err();
        assert_eq!(error.to_string(), "the job is of version 99, this build knows version 1");
        assert!(matches!(Job::from_file(file_of(&json!({}))), Err(JobError::Malformed(_))));
    }
}
