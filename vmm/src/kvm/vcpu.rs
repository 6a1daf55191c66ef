//! One virtual processor. Its calls are made by the thread that runs it.

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd};

use kvm_bindings::{CpuId, kvm_cpuid_entry2};
use kvm_ioctls::VcpuFd;

use super::{Exit, Kick, KvmError, cannot, exit, tsc};

/// A virtual processor.
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    page_size: NonZeroUsize,
}

impl Vcpu {
    pub(super) fn new(fd: VcpuFd, page_size: NonZeroUsize) -> Self {
        Self { fd, page_size }
    }

    /// KVM's calls for registers and other state.
    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    /// Gives it the processor that the guest sees.
    pub fn set_cpuid(&self, entries: &[kvm_cpuid_entry2]) -> Result<(), KvmError> {
        let too_many =
            |_| cannot("take that many CPUID leaves")(kvm_ioctls::Error::new(libc::E2BIG));
        let cpuid = CpuId::from_entries(entries).map_err(too_many)?;
        self.fd.set_cpuid2(&cpuid).map_err(cannot("set CPUID"))
    }

    /// A handle that gets it out of [`Vcpu::run`].
    pub fn kick(&self) -> Result<Kick, KvmError> {
        // SAFETY: the descriptor is open as long as `self`, which outlives the borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd.as_raw_fd()) };
        Kick::new(fd, self.page_size).map_err(|error| {
            cannot("share a vCPU's page")(kvm_ioctls::Error::new(error.raw_os_error().unwrap_or(0)))
        })
    }

    /// Runs the guest until it needs us.
    pub fn run(&mut self) -> Result<Exit<'_>, KvmError> {
        let page_size = self.page_size.get();
        match self.fd.run().map(drop) {
            Ok(()) => Ok(exit::decode(self.fd.get_kvm_run(), page_size)),
            // EINTR is a kick. EAGAIN comes on a vCPU that was woken by INIT or SIPI: it is to be run again.
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => Ok(Exit::Kicked),
            Err(error) => Err(cannot("run a vCPU")(error)),
        }
    }

    /// Lets KVM finish the instruction whose access was answered last, without entering the guest. Before that, saved
    /// registers would stand before an access that has had its effect already. An access that KVM hands over in
    /// pieces exits again for the next one; [`Exit::Kicked`] says that all is done.
    pub fn finish_access(&mut self) -> Result<Exit<'_>, KvmError> {
        self.fd.set_kvm_immediate_exit(1);
        self.run()
    }

    /// The next [`Vcpu::run`] enters the guest, whatever kicks came before.
    pub fn forget_kicks(&mut self) {
        self.fd.set_kvm_immediate_exit(0);
    }

    /// Sets the rate of its time stamp counter, if it has another one: a machine may come from another host.
    pub fn set_tsc_khz(&self, rate: u32) -> Result<(), KvmError> {
        let own =
            self.fd.get_tsc_khz().map_err(cannot("tell the rate of the time stamp counter"))?;
        if own == rate {
            return Ok(());
        }
        let outcome = self.fd.set_tsc_khz(rate);
        outcome.map_err(cannot(format!("run a time stamp counter at {rate} kHz instead of {own}")))
    }

    /// Guest time stamp counter minus the host's; none where KVM cannot tell.
    pub fn tsc_offset(&self) -> Option<u64> {
        tsc::read(&self.fd).ok()
    }

    /// Sets guest time stamp counter minus the host's.
    pub fn set_tsc_offset(&self, offset: u64) -> Result<(), KvmError> {
        tsc::write(&self.fd, offset)
    }

    /// Tells the guest's watchdogs that it was stopped. A guest without kvm-clock has none to tell.
    pub fn announce_stop(&self) -> Result<(), KvmError> {
        match self.fd.kvmclock_ctrl() {
            Err(error) if error.errno() != libc::EINVAL => Err(cannot("announce the stop")(error)),
            _ => Ok(()),
        }
    }
}
