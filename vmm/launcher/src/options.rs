//! Where things are. In a launcher Pod all of it is as it is by default.

use std::ffi::OsString;
use std::path::PathBuf;

use corten_resources::names::{KERNEL_BOOT_MOUNT, SCRATCH_MOUNT, SECRETS_MOUNT, VOLUMES_MOUNT};
use thiserror::Error;

/// Paths that the launcher uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The device directory, in which it listens.
    pub door: PathBuf,
    /// Where the image with kernel and initrd is mounted.
    pub kernel_boot: PathBuf,
    /// Where volumes are mounted, each by its name.
    pub volumes: PathBuf,
    /// Where Secrets are mounted, each by its name.
    pub secrets: PathBuf,
    /// Where files go that live no longer than the VM.
    pub scratch: PathBuf,
    /// The VM process's program.
    pub vmm: PathBuf,
    /// Where the Pod's termination message goes.
    pub termination_log: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            door: "/var/run/corten/door".into(),
            kernel_boot: KERNEL_BOOT_MOUNT.into(),
            volumes: VOLUMES_MOUNT.into(),
            secrets: SECRETS_MOUNT.into(),
            scratch: SCRATCH_MOUNT.into(),
            vmm: "/corten-vmm".into(),
            termination_log: "/dev/termination-log".into(),
        }
    }
}

/// Why the command line cannot be followed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// No such option.
    #[error(
        "{0:?} is no option; there are --door DIR, --kernel-boot DIR, --volumes DIR, --secrets DIR, --scratch DIR, --vmm FILE and --termination-log FILE"
    )]
    Unknown(OsString),
    /// An option without its path.
    #[error("option {0:?} wants a path")]
    NoPath(OsString),
}

impl Options {
    /// Reads the arguments that follow the program's name.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let place = match name.to_str() {
                Some("--door") => &mut options.door,
                Some("--kernel-boot") => &mut options.kernel_boot,
                Some("--volumes") => &mut options.volumes,
                Some("--secrets") => &mut options.secrets,
                Some("--scratch") => &mut options.scratch,
                Some("--vmm") => &mut options.vmm,
                Some("--termination-log") => &mut options.termination_log,
                _ => return Err(OptionError::Unknown(name)),
            };
            *place = arguments.next().ok_or(OptionError::NoPath(name))?.into();
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, OptionError> {
        Options::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn each_path_can_be_said_and_has_a_default() {
        assert_eq!(parse(&[]), Ok(Options::default()));
        let names = [
            "--door",
            "--kernel-boot",
            "--volumes",
            "--secrets",
            "--scratch",
            "--vmm",
            "--termination-log",
        ];
        let all: Vec<&str> = names.iter().flat_map(|name| [*name, &name[1..]]).collect();
        let options = Options {
            door: "-door".into(),
            kernel_boot: "-kernel-boot".into(),
            volumes: "-volumes".into(),
            secrets: "-secrets".into(),
            scratch: "-scratch".into(),
            vmm: "-vmm".into(),
            termination_log: "-termination-log".into(),
        };
        assert_eq!(parse(&all), Ok(options));
    }

    #[test]
    fn unknown_options_and_missing_paths_are_refused() {
        assert_eq!(parse(&["--dor", "/d"]), Err(OptionError::Unknown("--dor".into())));
        assert_eq!(parse(&["--door"]), Err(OptionError::NoPath("--door".into())));
    }
}
