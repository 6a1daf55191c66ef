//! Where the program of the VM process is.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

use thiserror::Error;

const NAME: &str = "corten-vmm";
/// Beside the directory of this program, in the way of distributions.
const LIBEXEC: &str = "libexec/corten";

/// Why there is none.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// It was said where it is.
    #[error("cannot open the program of the VM process {path}")]
    Said {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It was looked for.
    #[error("no {NAME} beside this program or in the PATH; say where it is by --vmm PATH")]
    NotFound,
}

/// The program, as it was said or where it usually is.
pub fn find(said: Option<&Path>) -> Result<PathBuf, ProgramError> {
    if let Some(path) = said {
        let failed = |source| ProgramError::Said { path: path.into(), source };
        File::open(path).map_err(failed)?;
        return path.canonicalize().map_err(failed);
    }
    let own = env::current_exe().ok();
    let path = env::var_os("PATH").unwrap_or_default();
    candidates(own.as_deref(), env::split_paths(&path))
        .into_iter()
        .find(|candidate| candidate.is_file())
        .ok_or(ProgramError::NotFound)
}

fn candidates(own: Option<&Path>, path: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let beside = own.and_then(Path::parent);
    let prefix = beside.and_then(Path::parent);
    let near = [beside.map(|directory| directory.join(NAME))];
    let near =
        near.into_iter().chain([prefix.map(|prefix| prefix.join(LIBEXEC).join(NAME))]).flatten();
    // A relative directory in the PATH depends on where the caller stands: no place for a program that gets /dev/kvm.
    near.chain(path.filter(|directory| directory.is_absolute()).map(|d| d.join(NAME))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_program_comes_first_and_relative_directories_do_not_count() {
        let path = ["/sbin", "here", ""].map(PathBuf::from).into_iter();
        let found = candidates(Some(Path::new("/usr/bin/corten")), path);
        let expected =
            ["/usr/bin/corten-vmm", "/usr/libexec/corten/corten-vmm", "/sbin/corten-vmm"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn missing_program_is_named() {
        let error = find(Some(Path::new("/nonexistent/vmm"))).unwrap_err();
        assert_eq!(error.to_string(), "cannot open the program of the VM process /nonexistent/vmm");
    }
}
