//! Buffers of a transfer, as the kernel takes them, filled and emptied by ourselves.

use libc::iovec;
use vm_memory::VolatileSlice;

/// Zeroes that are copied at a time.
const ZEROES: [u8; 4096] = [0; 4096];

/// How many bytes they have.
pub(super) fn length_of(vectors: &[iovec]) -> u64 {
    vectors.iter().map(|vector| vector.iov_len as u64).sum()
}

/// The first `length` bytes of them.
pub(super) fn first(vectors: &[iovec], length: u64) -> Vec<iovec> {
    let mut left = usize::try_from(length).unwrap_or(usize::MAX);
    let mut part = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let iov_len = vector.iov_len.min(left);
        if iov_len == 0 {
            continue;
        }
        part.push(iovec { iov_base: vector.iov_base, iov_len });
        left -= iov_len;
    }
    part
}

/// Copies `bytes` into the buffers; as many as they hold.
pub(super) fn scatter(bytes: &[u8], vectors: &[iovec]) {
    let mut rest = bytes;
    for vector in vectors {
        let (part, behind) = rest.split_at(rest.len().min(vector.iov_len));
        memory(vector).copy_from(part);
        rest = behind;
    }
}

/// Copies as many bytes out of the buffers as `bytes` holds.
pub(super) fn gather(vectors: &[iovec], bytes: &mut [u8]) {
    let mut rest = bytes;
    for vector in vectors {
        let length = rest.len().min(vector.iov_len);
        let (part, behind) = rest.split_at_mut(length);
        memory(vector).copy_to(part);
        rest = behind;
    }
}

/// Fills the buffers with zeroes.
pub(super) fn clear(vectors: &[iovec]) {
    for vector in vectors {
        let mut rest = memory(vector);
        while !rest.is_empty() {
            let length = rest.len().min(ZEROES.len());
            rest.copy_from(&ZEROES[..length]);
            let Ok(behind) = rest.offset(length) else { return };
            rest = behind;
        }
    }
}

/// The guest may change it at any time, so it is only copied.
fn memory(vector: &iovec) -> VolatileSlice<'_> {
    // SAFETY: these are buffers of a step, which its transfer keeps until it is done; what is shared with the guest is
    // used by nobody in a way that forbids others to write to it.
    unsafe { VolatileSlice::new(vector.iov_base.cast(), vector.iov_len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(buffers: &mut [Vec<u8>]) -> Vec<iovec> {
        let vector = |buffer: &mut Vec<u8>| iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        buffers.iter_mut().map(vector).collect()
    }

    #[test]
    fn bytes_go_across_buffers() {
        let mut buffers = [vec![1; 3], vec![], vec![1; 2], vec![1; 5000]];
        let all = vectors(&mut buffers);
        assert_eq!(length_of(&all), 5005);
        scatter(b"abcd", &all);
        let mut read = [0; 6];
        gather(&all, &mut read);
        assert_eq!(&read, b"abcd\x01\x01");
        let part = first(&all, 4);
        assert_eq!((part.len(), length_of(&part)), (2, 4));
        clear(&first(&all, 5001));
        assert_eq!(buffers, [vec![0; 3], vec![], vec![0; 2], [&[0; 4996][..], &[1; 4]].concat()]);
    }
}
