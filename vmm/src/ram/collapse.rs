//! Makes huge pages of guest memory in the background.
//!
//! A memfd gets small pages, unless the host's administrator changed that; the kernel makes huge ones of them where it is
//! told to (MADV_COLLAPSE, Linux 6.1), by copying. A thread goes over all memory again and again, at a pace that costs a
//! few percent of a processor at most. Only what is in use as a whole becomes a huge page: the guest gets no memory by
//! it, and what the balloon gave back stays given back.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;

use super::source::next_hole;
use super::{HUGE_PAGE, Mapping};
use crate::sandbox::{self, ThreadKind};

/// Between one huge page and the next that there is something to do for. One takes about a millisecond.
const PACE: Duration = Duration::from_millis(20);
/// Between the end of memory and the next look at its beginning.
const REST: Duration = Duration::from_secs(2);
/// So many passes trust what the ones before made: a huge page that was cut and is all in use again is not seen, and asking
/// for each is a call on all processors.
const TRUSTING: u32 = 15;

/// MADV_COLLAPSE, which nix does not know.
const COLLAPSE: libc::c_int = 25;

/// The thread, as guest memory sees it.
#[derive(Debug)]
pub(super) struct Collapser {
    /// Dropped, it ends.
    stop: Option<Sender<()>>,
    huge_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Collapser {
    /// Begins with the memory behind `mappings`, which follow each other in `file`, whenever it is not being filled in.
    pub(super) fn start(
        mappings: &[Mapping],
        file: File,
        filling: &Arc<AtomicBool>,
        holes: &Arc<Mutex<()>>,
    ) -> io::Result<Self> {
        let huge_bytes = Arc::new(AtomicU64::default());
        let (stop, stopped) = channel();
        let walk = Walk {
            mappings: mappings.to_vec(),
            file,
            filling: Arc::clone(filling),
            holes: Arc::clone(holes),
            huge_bytes: Arc::clone(&huge_bytes),
            stopped,
        };
        let thread =
            Builder::new().name("collapse".into()).spawn(move || walk.again_and_again())?;
        Ok(Self { stop: Some(stop), huge_bytes, thread: Some(thread) })
    }

    /// What was in huge pages when it was last looked at.
    pub(super) fn huge_bytes(&self) -> u64 {
        self.huge_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Collapser {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Walk {
    mappings: Vec<Mapping>,
    file: File,
    filling: Arc<AtomicBool>,
    /// Nobody makes holes while it is held.
    holes: Arc<Mutex<()>>,
    huge_bytes: Arc<AtomicU64>,
    stopped: Receiver<()>,
}

impl Walk {
    fn again_and_again(self) {
        sandbox::enter(ThreadKind::Collapse);
        let mut known =
            vec![false; self.mappings.iter().map(|mapping| mapping.size / HUGE_PAGE).sum()];
        let mut passes = 0;
        while self.pass(&mut known, passes < TRUSTING) && self.wait(REST) {
            passes = if passes < TRUSTING { passes + 1 } else { 0 };
        }
    }

    /// False if it is to end.
    fn wait(&self, time: Duration) -> bool {
        matches!(self.stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    /// Goes over all memory once. `known` are the huge pages that were made before; with `trusts`, those stay as they are as
    /// long as all of them is in use. False if it is to end.
    fn pass(&self, known: &mut [bool], trusts: bool) -> bool {
        let mut places = known.iter_mut();
        let mut offset = 0;
        for mapping in &self.mappings {
            for place in 0..mapping.size / HUGE_PAGE {
                // While memory is being filled in, a huge page would be in the way of what is missing.
                while self.filling.load(Ordering::Acquire) {
                    if !self.wait(REST) {
                        return false;
                    }
                }
                let Some(known) = places.next() else { return true };
                let at = place * HUGE_PAGE;
                // A hole that is made between the look and the call would be filled by it.
                let holes = self.holes.lock().unwrap_or_else(PoisonError::into_inner);
                let is_full = self.is_full(offset + at as u64);
                let asks = is_full && !(trusts && *known);
                let is_huge = is_full && (!asks || mapping.collapse(at).is_ok());
                drop(holes);
                let was_huge = std::mem::replace(known, is_huge);
                match (was_huge, is_huge) {
                    (false, true) => self.huge_bytes.fetch_add(HUGE_PAGE as u64, Ordering::Relaxed),
                    (true, false) => self.huge_bytes.fetch_sub(HUGE_PAGE as u64, Ordering::Relaxed),
                    _ => 0,
                };
                if asks && !self.wait(PACE) {
                    return false;
                }
            }
            offset += mapping.size as u64;
        }
        true
    }

    fn is_full(&self, start: u64) -> bool {
        let hole = next_hole(&self.file, start);
        hole.is_ok_and(|hole| hole.is_some_and(|hole| hole >= start + HUGE_PAGE as u64))
    }
}

impl Mapping {
    /// Makes one huge page of the small ones from byte `at` on, a multiple of its size. It is one afterwards, or this fails.
    fn collapse(&self, at: usize) -> io::Result<()> {
        let start = self.start.as_ptr().wrapping_byte_add(at);
        // SAFETY: the range lies inside a mapping that is never undone; what is in it does not change.
        let result = unsafe { libc::madvise(start, HUGE_PAGE, COLLAPSE) };
        Errno::result(result)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use nix::fcntl::{FallocateFlags, fallocate};
    use vm_memory::{Bytes, GuestAddress};

    use super::super::{Ram, Slot};
    use super::*;

    const HUGE: u64 = HUGE_PAGE as u64;

    /// A walk over this memory, to be done here; it ends early once the sender is gone.
    fn walk(ram: &Ram) -> (Walk, Sender<()>) {
        let (stop, stopped) = channel();
        let walk = Walk {
            mappings: ram.mappings.clone(),
            file: ram.file().try_clone().unwrap(),
            filling: Arc::clone(&ram.filling),
            holes: Arc::clone(&ram.holes),
            huge_bytes: Arc::default(),
            stopped,
        };
        (walk, stop)
    }

    fn write_pages(ram: &Ram, start: u64, end: u64) {
        for at in (start..end).step_by(4096) {
            ram.memory().write_obj(at, GuestAddress(at)).unwrap();
        }
    }

    #[test]
    fn memory_that_is_in_use_becomes_huge_and_nothing_else_does() {
        let ram = Ram::new(&[Slot { start: 0, size: 16 << 20 }]).unwrap();
        write_pages(&ram, HUGE, 2 * HUGE);
        write_pages(&ram, 5 * HUGE, 6 * HUGE);
        // All but a page.
        write_pages(&ram, 2 * HUGE, 3 * HUGE - 4096);
        let blocks = ram.file().metadata().unwrap().blocks();
        let (walk, _stop) = walk(&ram);
        let mut known = vec![false; 8];
        assert!(walk.pass(&mut known, true));
        assert_eq!(known, [false, true, false, false, false, true, false, false]);
        assert_eq!(walk.huge_bytes.load(Ordering::Relaxed), 2 * HUGE);
        assert_eq!(ram.file().metadata().unwrap().blocks(), blocks, "memory was taken");
        let at = 5 * HUGE + 4096;
        assert_eq!(ram.memory().read_obj::<u64>(GuestAddress(at)).unwrap(), at);
    }

    #[test]
    fn memory_that_was_given_back_is_no_longer_counted() {
        let ram = Ram::new(&[Slot { start: 0, size: 4 << 20 }]).unwrap();
        write_pages(&ram, 0, 2 * HUGE);
        let (walk, _stop) = walk(&ram);
        let mut known = vec![false; 2];
        assert!(walk.pass(&mut known, true));
        ram.for_devices().discard(GuestAddress(0), 4096).unwrap();
        assert!(walk.pass(&mut known, true));
        assert_eq!(known, [false, true]);
        assert_eq!(walk.huge_bytes.load(Ordering::Relaxed), HUGE);
        // In use again, it is huge again.
        write_pages(&ram, 0, 4096);
        assert!(walk.pass(&mut known, false));
        assert_eq!(walk.huge_bytes.load(Ordering::Relaxed), 2 * HUGE);
    }

    #[test]
    fn memory_that_is_being_filled_in_is_left_alone() {
        let ram = Ram::new(&[Slot { start: 0, size: 2 << 20 }]).unwrap();
        write_pages(&ram, 0, HUGE);
        ram.filling.store(true, Ordering::Release);
        let (walk, stop) = walk(&ram);
        drop(stop);
        assert!(!walk.pass(&mut [false], true));
        assert_eq!(walk.huge_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_that_is_just_being_given_back_is_left_alone() {
        let ram = Ram::new(&[Slot { start: 0, size: 2 << 20 }]).unwrap();
        write_pages(&ram, 0, HUGE);
        let (walk, _stop) = walk(&ram);
        // As a balloon is at it.
        let holes = ram.holes.lock().unwrap();
        let walker = std::thread::spawn(move || {
            let mut known = [false];
            assert!(walk.pass(&mut known, true));
            known
        });
        std::thread::sleep(2 * PACE);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(ram.file(), flags, 4096, 4096).unwrap();
        drop(holes);
        assert_eq!(walker.join().unwrap(), [false]);
        assert_eq!(ram.file().metadata().unwrap().blocks() * 512, HUGE - 4096);
    }

    #[test]
    fn thread_ends_with_the_memory() {
        let ram = Ram::new(&[Slot { start: 0, size: 2 << 20 }]).unwrap();
        ram.collapse().unwrap();
        drop(ram);
    }
}
