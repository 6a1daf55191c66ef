//! How long threads had a processor, in the guest and out of it. Linux counts; here it is only asked.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// That of all threads of this process, also of those that have ended.
pub fn of_process() -> Option<Duration> {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// That of one thread. None once it has ended.
pub fn of_thread<T>(thread: &JoinHandle<T>) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    let id = thread.as_pthread_t() as libc::pthread_t;
    // SAFETY: the handle keeps the thread's identity valid until it is joined, which takes the handle; the clock's number
    // is written to a variable of ours.
    let refused = unsafe { libc::pthread_getcpuclockid(id, &raw mut clock) };
    if refused == 0 { read(ClockId::from_raw(clock)) } else { None }
}

/// No clock of the library's own: it goes to the kernel, by a call that every thread may make.
fn read(clock: ClockId) -> Option<Duration> {
    clock_gettime(clock).ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_of_a_thread_is_in_its_time_and_in_that_of_the_process() {
        let (worked, done) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            black_box((0..1_000_000_u64).fold(0, |sum, number| black_box(sum ^ number)));
            worked.send(()).unwrap();
            let _ = ended.recv();
        });
        let idle = std::thread::spawn(|| std::thread::park_timeout(Duration::from_secs(60)));
        done.recv().unwrap();
        let (busy, waiting) = (of_thread(&thread).unwrap(), of_thread(&idle).unwrap());
        assert!(busy > waiting, "{busy:?} {waiting:?}");
        assert!(of_process().unwrap() >= busy);
        drop(end);
        idle.thread().unpark();
        thread.join().unwrap();
        idle.join().unwrap();
    }
}
