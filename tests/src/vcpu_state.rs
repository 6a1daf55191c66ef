//! All state of a vCPU and of the chips around it, as KVM gives it out and takes it in.
//!
//! KVM's calls depend on each other; the order here is that of QEMU and Firecracker. Reading MP_STATE may deliver a
//! pending INIT or SIPI and so change other state: it is read first. Reading anything may queue events: those are
//! read last. On the way in, segments (with the APIC base) go before the local APIC, and it before the MSR of its
//! deadline timer.

use kvm_bindings::{
    KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, Msrs, Xsave, kvm_clock_data,
    kvm_debugregs, kvm_irqchip, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs,
    kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};
use thiserror::Error;

const CHIPS: [u32; 3] = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC];
const MSR_TSC_DEADLINE: u32 = 0x6e0;

/// Why state could not be moved.
#[derive(Debug, Error)]
pub enum StateError {
    /// KVM refused a part.
    #[error("KVM refuses to {what}")]
    Refused {
        /// Which part, and which way.
        what: &'static str,
        /// Its answer.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// KVM stopped at one of the MSRs which it listed itself.
    #[error("KVM refuses to {way} MSR {index:#x}, {done} of {all}")]
    Msr {
        /// "read" or "write".
        way: &'static str,
        /// Which one.
        index: u32,
        /// How many went well.
        done: usize,
        /// How many there are.
        all: usize,
    },
    /// More than one call takes.
    #[error("{0} MSRs or bytes of XSAVE are more than KVM takes")]
    TooMany(usize),
    /// Older than 5.17.
    #[error("KVM cannot tell the size of its XSAVE area")]
    NoXsaveSize,
}

/// The state of one VM with one vCPU.
#[derive(Debug)]
pub struct SavedState {
    mp_state: kvm_mp_state,
    regs: kvm_regs,
    sregs: kvm_sregs,
    xsave: Xsave,
    xcrs: kvm_xcrs,
    debug_regs: kvm_debugregs,
    lapic: kvm_lapic_state,
    msrs: Msrs,
    events: kvm_vcpu_events,
    chips: [kvm_irqchip; 3],
    clock: kvm_clock_data,
}

impl SavedState {
    /// The vCPU must not run, and the I/O of its last exit must be complete.
    pub fn save(kvm: &Kvm, vm: &VmFd, vcpu: &VcpuFd) -> Result<Self, StateError> {
        Ok(Self {
            mp_state: vcpu.get_mp_state().map_err(refuses("read MP_STATE"))?,
            regs: vcpu.get_regs().map_err(refuses("read registers"))?,
            sregs: vcpu.get_sregs().map_err(refuses("read segments"))?,
            xsave: save_xsave(vm, vcpu)?,
            xcrs: vcpu.get_xcrs().map_err(refuses("read XCRs"))?,
            debug_regs: vcpu.get_debug_regs().map_err(refuses("read debug registers"))?,
            lapic: vcpu.get_lapic().map_err(refuses("read the local APIC"))?,
            msrs: save_msrs(kvm, vcpu)?,
            chips: save_chips(vm)?,
            clock: vm.get_clock().map_err(refuses("read the clock"))?,
            events: vcpu.get_vcpu_events().map_err(refuses("read events"))?,
        })
    }

    /// Into a VM whose vCPU has not run and has the CPUID of the old one.
    pub fn load(&self, vm: &VmFd, vcpu: &VcpuFd) -> Result<(), StateError> {
        for chip in &self.chips {
            vm.set_irqchip(chip).map_err(refuses("write an interrupt chip"))?;
        }
        // Flags tell how the value was taken; going in they would ask for more than setting it.
        let clock = kvm_clock_data { clock: self.clock.clock, ..Default::default() };
        vm.set_clock(&clock).map_err(refuses("write the clock"))?;
        vcpu.set_mp_state(self.mp_state).map_err(refuses("write MP_STATE"))?;
        vcpu.set_regs(&self.regs).map_err(refuses("write registers"))?;
        vcpu.set_sregs(&self.sregs).map_err(refuses("write segments"))?;
        // SAFETY: the area has the size that KVM asks for; both VMs are of one host and permit the same features.
        unsafe { vcpu.set_xsave2(&self.xsave) }.map_err(refuses("write XSAVE"))?;
        vcpu.set_xcrs(&self.xcrs).map_err(refuses("write XCRs"))?;
        vcpu.set_debug_regs(&self.debug_regs).map_err(refuses("write debug registers"))?;
        vcpu.set_lapic(&self.lapic).map_err(refuses("write the local APIC"))?;
        let done = vcpu.set_msrs(&self.msrs).map_err(refuses("write MSRs"))?;
        all_done("write", &self.msrs, done)?;
        vcpu.set_vcpu_events(&self.events).map_err(refuses("write events"))
    }
}

fn save_xsave(vm: &VmFd, vcpu: &VcpuFd) -> Result<Xsave, StateError> {
    let size = usize::try_from(vm.check_extension_int(Cap::Xsave2)).unwrap_or(0);
    if size == 0 {
        return Err(StateError::NoXsaveSize);
    }
    let words = size.saturating_sub(size_of::<kvm_xsave>()).div_ceil(size_of::<u32>());
    let mut xsave = Xsave::new(words).map_err(|_| StateError::TooMany(size))?;
    // SAFETY: the area has the size that KVM has just named.
    unsafe { vcpu.get_xsave2(&mut xsave) }.map_err(refuses("read XSAVE"))?;
    Ok(xsave)
}

fn save_msrs(kvm: &Kvm, vcpu: &VcpuFd) -> Result<Msrs, StateError> {
    let list = kvm.get_msr_index_list().map_err(refuses("list MSRs"))?;
    let mut indices = list.as_slice().to_vec();
    indices.sort_by_key(|index| *index == MSR_TSC_DEADLINE);
    let entries: Vec<_> =
        indices.iter().map(|index| kvm_msr_entry { index: *index, ..Default::default() }).collect();
    let mut msrs = Msrs::from_entries(&entries).map_err(|_| StateError::TooMany(entries.len()))?;
    let done = vcpu.get_msrs(&mut msrs).map_err(refuses("read MSRs"))?;
    all_done("read", &msrs, done)?;
    Ok(msrs)
}

/// KVM stops at the first MSR that it refuses and tells only how far it came.
fn all_done(way: &'static str, msrs: &Msrs, done: usize) -> Result<(), StateError> {
    let entries = msrs.as_slice();
    match entries.get(done) {
        None => Ok(()),
        Some(entry) => Err(StateError::Msr { way, index: entry.index, done, all: entries.len() }),
    }
}

fn save_chips(vm: &VmFd) -> Result<[kvm_irqchip; 3], StateError> {
    let mut chips = CHIPS.map(|chip_id| kvm_irqchip { chip_id, ..Default::default() });
    for chip in &mut chips {
        vm.get_irqchip(chip).map_err(refuses("read an interrupt chip"))?;
    }
    Ok(chips)
}

fn refuses(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> StateError {
    move |source| StateError::Refused { what, source }
}
