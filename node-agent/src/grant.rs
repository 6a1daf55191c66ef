//! Devices that are handed to launchers, which cannot open them themselves.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use corten_link::Role;
use thiserror::Error;

/// Why a launcher cannot be given what it needs.
#[derive(Debug, Error)]
#[error("cannot open {path} to hand it to a launcher")]
pub struct GrantError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Devices of the node.
#[derive(Clone, Debug)]
pub struct Devices {
    /// KVM.
    pub kvm: PathBuf,
    /// Userfaultfd.
    pub userfaultfd: PathBuf,
}

impl Devices {
    /// Whether KVM can be used now.
    pub fn are_usable(&self) -> bool {
        open(&self.kvm).is_ok()
    }

    /// Opens them anew, for one launcher. Userfaultfd is left out where the node has none.
    pub fn open(&self) -> Result<Vec<(Role, File)>, GrantError> {
        let failed = |source| GrantError { path: self.kvm.clone(), source };
        let mut opened = vec![(Role::kvm(), open(&self.kvm).map_err(failed)?)];
        opened.extend(open(&self.userfaultfd).ok().map(|file| (Role::userfaultfd(), file)));
        Ok(opened)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_userfaultfd_grants_kvm_alone() {
        let missing = PathBuf::from("/nonexistent/userfaultfd");
        let devices = Devices { kvm: "/dev/null".into(), userfaultfd: missing };
        let roles: Vec<Role> = devices.open().unwrap().into_iter().map(|(role, _)| role).collect();
        assert_eq!(roles, [Role::kvm()]);
        assert!(devices.are_usable());
    }

    #[test]
    fn node_without_kvm_grants_nothing_and_says_what_is_missing() {
        let missing = PathBuf::from("/nonexistent/kvm");
        let devices = Devices { kvm: missing, userfaultfd: "/dev/null".into() };
        let error = devices.open().unwrap_err().to_string();
        assert!(error.starts_with("cannot open /nonexistent/kvm"), "{error}");
        assert!(!devices.are_usable());
    }
}
