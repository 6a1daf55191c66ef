//! Getting a thread out of KVM_RUN.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::thread::JoinHandleExt;
use std::ptr::NonNull;
use std::thread::JoinHandle;

use kvm_bindings::kvm_run;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The signal that ends KVM_RUN. Its handler does nothing: it must only not be ignored.
///
/// A real-time signal would do as well, but nix knows only the classic ones.
const KICK: Signal = Signal::SIGUSR1;

extern "C" fn nothing(_: libc::c_int) {}

/// A second view of the page that a vCPU shares with KVM, for the thread that wants it back.
///
/// A signal alone would be lost between the vCPU thread's last look at its orders and KVM_RUN; the flag in the page is
/// looked at by KVM itself.
#[derive(Debug)]
pub struct Kick {
    run: NonNull<kvm_run>,
    size: NonZeroUsize,
}

// SAFETY: the page is shared memory by design; we only store one byte in it, atomically.
unsafe impl Send for Kick {}

impl Kick {
    /// Maps the page of a vCPU. `size` is what KVM says of it.
    pub(super) fn new(vcpu: impl AsFd, size: NonZeroUsize) -> io::Result<Self> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let run = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, vcpu, 0) }?;
        Ok(Self { run: run.cast(), size })
    }

    /// Sets up the signal, once in a process.
    pub fn prepare() -> io::Result<()> {
        let action =
            SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing, which is safe at any moment.
        unsafe { sigaction(KICK, &action) }?;
        Ok(())
    }

    /// Makes the vCPU's KVM_RUN, the current one or the next one, return at once.
    pub fn kick<T>(&self, thread: &JoinHandle<T>) {
        self.set_immediate_exit(1);
        // SAFETY: the handle keeps the thread's identity valid until it is joined, which takes the handle.
        unsafe {
            libc::pthread_kill(thread.as_pthread_t() as libc::pthread_t, KICK as libc::c_int)
        };
    }

    fn set_immediate_exit(&self, value: u8) {
        // SAFETY: the field lies in our mapping.
        let flag = unsafe { &raw mut (*self.run.as_ptr()).immediate_exit };
        // SAFETY: one byte, always aligned, and every other access to it is atomic or KVM's own.
        let flag = unsafe { std::sync::atomic::AtomicU8::from_ptr(flag) };
        flag.store(value, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing else refers to it.
        let _ = unsafe { munmap(self.run.cast(), self.size.get()) };
    }
}
