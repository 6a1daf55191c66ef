//! Who has a disk.
//!
//! A VM process locks each disk that it writes to, for as long as it may write (an open file's lock). What is only read is locked
//! here, before the VM process gets it, and is so for as long as that has it open: the lock belongs to the open file. Readers
//! share a disk; a writer has it for itself.
//!
//! The kernel says that there is such a lock, but not whose: an open file may belong to many processes. So the one is looked for
//! that has the file open.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, flock, pid_t};

/// The program that locks disks.
const VMM: &str = "corten-vmm";

/// Who has a disk, as far as it can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The process; none if it is another user's, or another container's.
    pub process: Option<pid_t>,
    /// Its program.
    pub program: String,
    /// Its VM's name, for those who know the VMs of this host.
    pub vm: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.vm, self.process) {
            (Some(vm), Some(process)) => write!(f, "VM {vm} (process {process})"),
            (Some(vm), None) => write!(f, "VM {vm}"),
            (None, Some(process)) => write!(f, "process {process} ({})", self.program),
            (None, None) => f.write_str("a process that cannot be seen from here"),
        }
    }
}

/// Locks the file beside others who share it; false if somebody has it for itself. Not every file system has locks.
pub(super) fn share(file: &File) -> Result<bool, Errno> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole(F_RDLCK))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All of a file.
fn whole(kind: c_int) -> flock {
    let short = |number: c_int| c_short::try_from(number).unwrap_or(0);
    flock { l_type: short(kind), l_whence: short(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 }
}

/// Who keeps the file from being locked, alone or beside others who share it; none if nobody does.
pub fn holder(file: &File, is_shared: bool) -> io::Result<Option<Holder>> {
    let mut range = whole(if is_shared { F_RDLCK } else { F_WRLCK });
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut range))?;
    if c_int::from(range.l_type) == F_UNLCK {
        return Ok(None);
    }
    if range.l_pid > 0 {
        let program = program_of(&Path::new("/proc").join(range.l_pid.to_string()));
        return Ok(Some(Holder { process: Some(range.l_pid), program, vm: None }));
    }
    Ok(Some(search(&file.metadata()?)))
}

/// The process that has the file open; a VM process before whoever else has it.
fn search(file: &Metadata) -> Holder {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: &str| name.parse::<pid_t>().ok();
    let mut found = Holder::default();
    for entry in entries {
        let Some(process) = entry.file_name().to_str().and_then(number) else { continue };
        if u32::try_from(process) == Ok(own) || !has_open(&entry.path(), file) {
            continue;
        }
        let program = program_of(&entry.path());
        let is_vmm = program == VMM;
        if found.process.is_none() || is_vmm {
            found = Holder { process: Some(process), program, vm: None };
        }
        if is_vmm {
            break;
        }
    }
    found
}

fn has_open(process: &Path, file: &Metadata) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    // Following the link is asking the open file, also if it has no name any more.
    let mut opened = descriptors.filter_map(|entry| fs::metadata(entry.path()).ok());
    opened.any(|opened| is_same(&opened, file))
}

/// A block device is the same under all its names.
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    if one.file_type().is_block_device() && other.file_type().is_block_device() {
        return one.rdev() == other.rdev();
    }
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn program_of(process: &Path) -> String {
    fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
pub(crate) mod testing {
    use std::process::{Child, Command, Stdio};

    use super::*;

    pub(crate) fn lock(file: &File) {
        fcntl(file, FcntlArg::F_OFD_SETLK(&whole(F_WRLCK))).unwrap();
    }

    /// A process that has the file locked: the lock belongs to the open file, which is then the child's alone.
    pub(crate) fn hold(file: File) -> Child {
        lock(&file);
        keep(file)
    }

    /// A process that has the file open.
    pub(crate) fn keep(file: File) -> Child {
        Command::new("sleep").arg("600").stdin(Stdio::from(file)).spawn().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_nobody_has_locked_has_no_holder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let _open = file.reopen().unwrap();
        assert_eq!(holder(file.as_file(), false).unwrap(), None);
    }

    #[test]
    fn the_process_that_has_a_locked_disk_open_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child = testing::hold(file.reopen().unwrap());
        let found = holder(file.as_file(), false).unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.process, Some(child.id().try_into().unwrap()));
        assert_eq!(found.to_string(), format!("process {} (sleep)", child.id()));
        assert_eq!(holder(file.as_file(), false).unwrap(), None);
    }

    #[test]
    fn holders_are_named_as_well_as_they_are_known() {
        let holder = |process, vm: Option<&str>| {
            let program = "corten-vmm".to_owned();
            Holder { process, program, vm: vm.map(Into::into) }.to_string()
        };
        assert_eq!(holder(Some(7), Some("a")), "VM a (process 7)");
        assert_eq!(holder(Some(7), None), "process 7 (corten-vmm)");
        assert_eq!(holder(None, None), "a process that cannot be seen from here");
    }
}
