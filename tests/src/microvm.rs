//! The virtual machine: one vCPU, the in-kernel interrupt chips, a console and the result port.

use std::fmt;
use std::time::Duration;

use corten_microguest::{Entry, Event, ResultPort};
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use nix::errno::Errno;
use thiserror::Error;
use vm_memory::GuestAddress;

use crate::boot::{self, BootError};
use crate::deadline::Deadline;
use crate::dirty_log::DirtyTracking;
use crate::exits::{Access, ExitCounts, Seen};
use crate::host::{self, HostError};
use crate::memory::{MemoryError, Ram};
use crate::vcpu_state::{SavedState, StateError};

/// Bytes of memory that [`MicroVm::boot`] gives a guest.
pub const RAM_SIZE: usize = 16 << 20;

/// Three pages which Intel's KVM wants for itself, below the usual place of firmware.
const TSS: usize = 0xfffb_d000;

/// Why there is no virtual machine.
#[derive(Debug, Error)]
pub enum VmError {
    /// No KVM.
    #[error("no KVM")]
    Host(#[from] HostError),
    /// No memory.
    #[error("no guest memory")]
    Memory(#[from] MemoryError),
    /// No guest.
    #[error("no guest")]
    Boot(#[from] BootError),
    /// KVM refused.
    #[error("KVM cannot {what}")]
    Kvm {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// State could not be saved or loaded.
    #[error("the state cannot be moved")]
    State(#[from] StateError),
}

/// Why the guest did not report anything.
#[derive(Debug, Error)]
pub enum RunError {
    /// No report in time.
    #[error("the guest reported nothing within {within:?}; {guest}")]
    Deadline {
        /// How long it had.
        within: Duration,
        /// Where it is.
        guest: GuestView,
    },
    /// An exit that no microguest makes.
    #[error("unexpected exit {exit}; {guest}")]
    Exit {
        /// As KVM calls it.
        exit: String,
        /// Where it is.
        guest: GuestView,
    },
    /// KVM_RUN failed.
    #[error("KVM_RUN failed: {error}; {guest}")]
    Run {
        /// Its error.
        error: kvm_ioctls::Error,
        /// Where it is.
        guest: GuestView,
    },
    /// The deadline could not be armed.
    #[error("cannot arm a timer")]
    Timer(#[from] Errno),
}

/// What can be seen of a guest from outside, on one line.
#[derive(Debug)]
pub struct GuestView {
    registers: Option<Box<kvm_regs>>,
    exits: ExitCounts,
    console: String,
}

impl fmt::Display for GuestView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(r) = &self.registers {
            write!(f, "rip {:#x} rsp {:#x} rflags {:#x} ", r.rip, r.rsp, r.rflags)?;
            write!(f, "rax {:#x} rbx {:#x} rcx {:#x} rdx {:#x} ", r.rax, r.rbx, r.rcx, r.rdx)?;
            write!(f, "rsi {:#x} rdi {:#x}, ", r.rsi, r.rdi)?;
        }
        write!(f, "exits {}, console {:?}", self.exits, self.console)
    }
}

/// One virtual machine. The vCPU and the VM go before the memory they use.
#[derive(Debug)]
pub struct MicroVm {
    vcpu: VcpuFd,
    vm: VmFd,
    kvm: Kvm,
    ram: Ram,
    seen: Seen,
}

impl MicroVm {
    /// A microguest about to execute its first instruction.
    pub fn boot(entry: Entry, command_line: &str) -> Result<Self, VmError> {
        let mut vm = Self::new(Ram::new(RAM_SIZE)?, DirtyTracking::Off)?;
        vm.load(entry, command_line)?;
        Ok(vm)
    }

    /// A virtual machine whose vCPU is as after reset.
    pub fn new(ram: Ram, tracking: DirtyTracking) -> Result<Self, VmError> {
        let kvm = host::kvm()?;
        let vm = kvm.create_vm().map_err(refused("create a VM"))?;
        vm.set_tss_address(TSS).map_err(refused("place the TSS"))?;
        vm.create_irq_chip().map_err(refused("create interrupt chips"))?;
        tracking.prepare(&vm).map_err(refused("enable the manual dirty log"))?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: tracking.slot_flags(),
            guest_phys_addr: 0,
            memory_size: ram.size() as u64,
            userspace_addr: ram.host_address(GuestAddress(0), ram.size())?.addr().get() as u64,
        };
        // SAFETY: the range is one whole mapping, which the new VM keeps and drops after the VM's descriptors.
        unsafe { vm.set_user_memory_region(region) }.map_err(refused("take guest memory"))?;
        let vcpu = vm.create_vcpu(0).map_err(refused("create a vCPU"))?;
        let cpuid =
            kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(refused("list CPUID"))?;
        vcpu.set_cpuid2(&cpuid).map_err(refused("set CPUID"))?;
        Ok(Self { vcpu, vm, kvm, ram, seen: Seen::default() })
    }

    /// Loads the microguest.
    pub fn load(&mut self, entry: Entry, command_line: &str) -> Result<(), VmError> {
        let reset = self.vcpu.get_sregs().map_err(refused("read registers"))?;
        let start = boot::load(self.ram.mapping(), entry, command_line, reset)?;
        self.vcpu.set_sregs(&start.sregs).map_err(refused("set segments"))?;
        self.vcpu.set_regs(&start.regs).map_err(refused("set registers"))
    }

    /// Runs the guest until it reports something.
    pub fn next_event(&mut self, within: Duration) -> Result<Event, RunError> {
        match self.run_for(within)? {
            Some(event) => Ok(event),
            None => Err(RunError::Deadline { within, guest: self.view() }),
        }
    }

    /// Runs the guest until it reports something or the time is over.
    pub fn run_for(&mut self, within: Duration) -> Result<Option<Event>, RunError> {
        let deadline = Deadline::after(within)?;
        loop {
            if let Some(event) = self.seen.results.next_event() {
                return Ok(Some(event));
            }
            if deadline.is_over() {
                return Ok(None);
            }
            self.run_once()?;
        }
    }

    /// Completes the I/O of the last exit, so registers and memory are those after it. Runs no further instruction.
    fn settle(&mut self) -> Result<(), RunError> {
        let interrupted = self.seen.exits.of("interrupted");
        self.vcpu.set_kvm_immediate_exit(1);
        let mut settled = Ok(());
        while settled.is_ok() && self.seen.exits.of("interrupted") == interrupted {
            settled = self.run_once();
        }
        self.vcpu.set_kvm_immediate_exit(0);
        settled
    }

    /// Stops the guest where it is and takes its state. Its memory stays with this VM.
    pub fn save(&mut self) -> Result<SavedVm, SaveError> {
        self.settle()?;
        let state = SavedState::save(&self.kvm, &self.vm, &self.vcpu)?;
        Ok(SavedVm { state, results: self.seen.results.clone() })
    }

    /// Goes on where `saved` stopped, given that this VM has its memory.
    pub fn restore(&mut self, saved: &SavedVm) -> Result<(), VmError> {
        saved.state.load(&self.vm, &self.vcpu)?;
        self.seen.results = saved.results.clone();
        Ok(())
    }

    fn run_once(&mut self) -> Result<(), RunError> {
        let seen = &mut self.seen;
        let failure = match self.vcpu.run() {
            Ok(exit) => match seen.take(exit) {
                Ok(()) => return Ok(()),
                Err(exit) => RunError::Exit { exit, guest: self.view() },
            },
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {
                seen.exits.add("interrupted");
                return Ok(());
            }
            Err(error) => RunError::Run { error, guest: self.view() },
        };
        Err(failure)
    }

    fn view(&self) -> GuestView {
        GuestView {
            registers: self.vcpu.get_regs().ok().map(Box::new),
            exits: self.seen.exits.clone(),
            console: self.console(),
        }
    }

    /// The VM, for irqfds, ioeventfds and the dirty log.
    pub fn fd(&self) -> &VmFd {
        &self.vm
    }

    /// Its memory.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// What the guest wrote to its console.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&self.seen.console).into_owned()
    }

    /// Exits so far.
    pub fn exits(&self) -> &ExitCounts {
        &self.seen.exits
    }

    /// I/O so far to places without a device.
    pub fn accesses(&self) -> &[Access] {
        &self.seen.accesses
    }

    /// What the guest reads from places without a device, from the lowest byte on.
    pub fn answer_reads_with(&mut self, answer: u64) {
        self.seen.answer = answer;
    }
}

/// A guest on its way, but for its memory.
#[derive(Debug)]
pub struct SavedVm {
    state: SavedState,
    results: ResultPort,
}

/// Why no state was taken.
#[derive(Debug, Error)]
pub enum SaveError {
    /// The guest could not be stopped.
    #[error("the guest cannot be stopped")]
    Settle(#[from] RunError),
    /// KVM refused.
    #[error("the state cannot be saved")]
    State(#[from] StateError),
}

fn refused(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> VmError {
    move |source| VmError::Kvm { what, source }
}
