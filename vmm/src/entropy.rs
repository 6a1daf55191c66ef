//! Random bytes, by the system call alone.
//!
//! The crate getrandom looks for the C library's function by dlsym, which finds nothing in a static program; then it
//! opens /dev/urandom, which a process that is locked in cannot.

use std::io;

/// Fills `bytes`. Waits for the host's entropy only where that has never been complete since it started.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel writes at most that many bytes, and all of them are `rest`'s.
        let answer = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(answer) {
            Ok(count) => filled += count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_long_buffer_is_filled() {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes).unwrap();
        assert!(bytes.chunks(64).all(|part| part.iter().any(|byte| *byte != 0)));
        fill(&mut []).unwrap();
    }
}
