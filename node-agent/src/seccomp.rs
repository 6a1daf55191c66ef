//! The system-call profile of launchers. A Pod that names it does not start where it is missing, so it is installed
//! before the node offers its devices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The profile, as `scripts/lib/seccomp-profiles` wrote it.
pub const PROFILE: &[u8] = include_bytes!("../seccomp/launcher.json");

/// Why the profile is not in its place.
#[derive(Debug, Error)]
#[error("cannot install the launchers' system-call profile as {path}")]
pub struct SeccompError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Puts the profile in its place, if it is not there as it should be. Whoever reads it meanwhile reads a whole one.
pub fn install(path: &Path) -> Result<(), SeccompError> {
    let failed = |source| SeccompError { path: path.into(), source };
    if fs::read(path).is_ok_and(|installed| installed == PROFILE) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, PROFILE).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_is_installed_and_an_old_one_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seccomp/corten/launcher.json");
        install(&path).unwrap();
        fs::write(&path, "{}").unwrap();
        install(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), PROFILE);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn profile_that_is_there_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("launcher.json");
        install(&path).unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        install(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    }

    #[test]
    fn profile_is_json_and_lets_rings_be_made() {
        let profile: serde_json::Value = serde_json::from_slice(PROFILE).unwrap();
        assert!(profile.to_string().contains("\"io_uring_setup\""));
    }
}
