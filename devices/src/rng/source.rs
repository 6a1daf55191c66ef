//! Random bytes of the host's.

use std::io;

use libc::{GRND_NONBLOCK, SYS_getrandom};
use nix::errno::Errno;

/// Fills the front of `buffer`, without waiting: with at least one byte, if there is room for any.
pub(super) fn random(buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let (start, length) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the call takes a pointer, a length and flags, in this order; `buffer` is valid for writes of that many
        // bytes, of which any may be overwritten by any.
        let answer = unsafe { libc::syscall(SYS_getrandom, start, length, GRND_NONBLOCK) };
        match usize::try_from(answer) {
            Ok(count) => return Ok(count.min(length)),
            // Interrupted before the first byte.
            Err(_) if Errno::last() == Errno::EINTR => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_buffer_is_random() {
        let mut buffer = vec![0; 4096];
        assert_eq!(random(&mut buffer).unwrap(), 4096);
        // That 64 bytes in a row are zero happens once in 2^512 times.
        assert!(buffer.chunks(64).all(|part| part.iter().any(|byte| *byte != 0)));
        let mut other = vec![0; 4096];
        assert_eq!(random(&mut other).unwrap(), 4096);
        assert_ne!(buffer, other);
    }

    #[test]
    fn no_room_is_no_bytes() {
        assert_eq!(random(&mut []).unwrap(), 0);
    }
}
