//! Bytes as a file that nobody can change: what is made for a guest never lies on a disk of the host's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// A file of the host's memory with these bytes. `name` is for those who look at the process.
pub fn sealed(name: &str, bytes: &[u8]) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags)?);
    file.write_all_at(bytes, 0)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_change_what_is_sealed() {
        let file = sealed("seed", b"data").unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"data");
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(5).is_err());
    }
}
