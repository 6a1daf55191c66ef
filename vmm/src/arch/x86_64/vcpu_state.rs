//! State of a vCPU as KVM gives it out and takes it in.
//!
//! The calls depend on each other. Reading MP_STATE may deliver a pending INIT or SIPI, which changes registers: it
//! comes first. Events come last, since reading anything else may queue some. On the way in, segments (with the APIC's
//! base) come before the local APIC. MSRs and events are written apart, directly before the vCPU runs: among the MSRs
//! is the deadline of its timer, which has to be compared with a time stamp counter that is already right.

use kvm_bindings::{
    Msrs, Xsave, kvm_debugregs, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs,
    kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use corten_devices::State;

use super::boot::StartRegisters;
use crate::kvm::Vcpu;

const MSR_TSC: u32 = 0x10;
const MSR_TSC_DEADLINE: u32 = 0x6e0;

const MSR_MCG_CAP: u32 = 0x179;
/// Control, status, address and more of the first machine-check bank; those of the others follow.
const MSR_MC0_CTL: u32 = 0x400;
const MSRS_PER_BANK: u32 = 4;
/// Memory type ranges: eight variable ones of two MSRs, eleven fixed ones, the default.
const MSRS_MTRR: [std::ops::Range<u32>; 5] =
    [0x200..0x210, 0x250..0x251, 0x258..0x25a, 0x268..0x270, 0x2ff..0x300];

/// What firmware would have set: memory is cached write-back, string instructions are fast.
const BOOT_MSRS: [(u32, u64); 2] = [(0x2ff, 0xc06), (0x1a0, 1)];

/// Why state could not be read or written.
#[derive(Debug, Error)]
pub enum VcpuStateError {
    /// KVM refused a part.
    #[error("KVM refuses to {what}")]
    Refused {
        /// Which part, and which way.
        what: &'static str,
        /// Its answer.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// KVM stopped at one of the MSRs.
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
    #[error("{0} MSRs or bytes of extended state are more than KVM takes")]
    TooMany(usize),
    /// Saved on a host whose processor has another extended state.
    #[error("the extended state has {found} bytes, this host's has {expected}")]
    XsaveSize {
        /// Of the record.
        found: usize,
        /// Of this host.
        expected: usize,
    },
}

/// All state of one vCPU.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuState {
    mp_state: kvm_mp_state,
    regs: kvm_regs,
    sregs: kvm_sregs,
    xsave: Vec<u32>,
    xcrs: kvm_xcrs,
    debug_regs: kvm_debugregs,
    lapic: kvm_lapic_state,
    msrs: Vec<(u32, u64)>,
    tsc_offset: Option<u64>,
    events: kvm_vcpu_events,
}

impl State for VcpuState {
    const KIND: &'static str = "vcpu";
    const VERSION: u16 = 1;
}

/// What of a vCPU's state this host's KVM has.
#[derive(Clone, Debug, Default)]
pub struct StateShape {
    /// Indices of MSRs.
    pub msrs: Vec<u32>,
    /// Bytes of extended state.
    pub xsave_size: usize,
}

impl StateShape {
    /// That of a vCPU whose CPUID is set, with the MSRs that KVM lists and those that it has but does not list.
    pub fn of(vcpu: &Vcpu, listed: Vec<u32>, xsave_size: usize) -> Self {
        let banks = save_msrs(vcpu, &[MSR_MCG_CAP]).ok().and_then(|read| read.first().copied());
        let banks = banks.map_or(0, |(_, capabilities)| capabilities.to_le_bytes()[0]);
        let banks = MSR_MC0_CTL..MSR_MC0_CTL + MSRS_PER_BANK * u32::from(banks);
        let unlisted = MSRS_MTRR.into_iter().flatten().chain(banks);
        let mut msrs = listed;
        for index in unlisted {
            if !msrs.contains(&index) && save_msrs(vcpu, &[index]).is_ok() {
                msrs.push(index);
            }
        }
        Self { msrs, xsave_size }
    }
}

impl VcpuState {
    /// Reads it. The vCPU does not run, and its last access is complete.
    pub fn save(vcpu: &Vcpu, shape: &StateShape) -> Result<Self, VcpuStateError> {
        let fd = vcpu.fd();
        let mp_state = fd.get_mp_state().map_err(refuses("read MP_STATE"))?;
        Ok(Self {
            mp_state,
            regs: fd.get_regs().map_err(refuses("read registers"))?,
            sregs: fd.get_sregs().map_err(refuses("read segments"))?,
            xsave: save_xsave(vcpu, shape.xsave_size)?,
            xcrs: fd.get_xcrs().map_err(refuses("read XCRs"))?,
            debug_regs: fd.get_debug_regs().map_err(refuses("read debug registers"))?,
            lapic: fd.get_lapic().map_err(refuses("read the local APIC"))?,
            tsc_offset: vcpu.tsc_offset(),
            msrs: save_msrs(vcpu, &shape.msrs)?,
            events: fd.get_vcpu_events().map_err(refuses("read events"))?,
        })
    }

    /// Writes everything but MSRs and events.
    pub fn load_registers(&self, vcpu: &Vcpu, shape: &StateShape) -> Result<(), VcpuStateError> {
        let fd = vcpu.fd();
        fd.set_mp_state(self.mp_state).map_err(refuses("write MP_STATE"))?;
        fd.set_regs(&self.regs).map_err(refuses("write registers"))?;
        fd.set_sregs(&self.sregs).map_err(refuses("write segments"))?;
        load_xsave(vcpu, &self.xsave, shape.xsave_size)?;
        fd.set_xcrs(&self.xcrs).map_err(refuses("write XCRs"))?;
        fd.set_debug_regs(&self.debug_regs).map_err(refuses("write debug registers"))?;
        fd.set_lapic(&self.lapic).map_err(refuses("write the local APIC"))
    }

    /// Writes MSRs and events. The clock and, where KVM has one, the TSC offset are set.
    pub fn load_msrs_and_events(&self, vcpu: &Vcpu) -> Result<(), VcpuStateError> {
        // With an offset the counter is right already; writing it would make KVM guess at an offset of its own.
        let by_offset = self.tsc_offset.is_some();
        let wanted = self.msrs.iter().filter(|(index, _)| !by_offset || *index != MSR_TSC);
        let entries: Vec<kvm_msr_entry> = wanted
            .map(|(index, data)| kvm_msr_entry { index: *index, data: *data, ..Default::default() })
            .collect();
        let msrs = msrs_of(&entries)?;
        let done = vcpu.fd().set_msrs(&msrs).map_err(refuses("write MSRs"))?;
        all_done("write", &msrs, done)?;
        vcpu.fd().set_vcpu_events(&self.events).map_err(refuses("write events"))
    }

    /// Makes a vCPU that has just been created the one that starts to execute a kernel.
    pub fn start_at(&mut self, start: &StartRegisters) {
        self.regs = start.regs;
        self.sregs = start.sregs;
    }

    /// Makes a vCPU that has just been created one that firmware has prepared.
    pub fn prepare(&mut self) {
        for (index, value) in BOOT_MSRS {
            if let Some(msr) = self.msrs.iter_mut().find(|(known, _)| *known == index) {
                msr.1 = value;
            }
        }
    }

    /// Segments and control registers.
    pub fn sregs(&self) -> &kvm_sregs {
        &self.sregs
    }

    /// Guest time stamp counter minus the host's, when it was saved.
    pub fn tsc_offset(&self) -> Option<u64> {
        self.tsc_offset
    }

    /// The general registers, for whoever wants to know where the guest was.
    pub fn regs(&self) -> &kvm_regs {
        &self.regs
    }
}

/// What of a vCPU's time has to be set anew after a stop, though the vCPU stays.
#[derive(Clone, Copy, Debug)]
pub struct VcpuTime {
    /// Guest time stamp counter minus the host's.
    pub tsc_offset: Option<u64>,
    deadline: u64,
}

impl VcpuTime {
    /// Reads it from a vCPU that has just stopped.
    pub fn read(vcpu: &Vcpu) -> Result<Self, VcpuStateError> {
        let deadline = save_msrs(vcpu, &[MSR_TSC_DEADLINE])?;
        let deadline = deadline.first().map_or(0, |(_, deadline)| *deadline);
        Ok(Self { tsc_offset: vcpu.tsc_offset(), deadline })
    }

    /// Arms the timer again: KVM armed it by the host's time, which went on while the guest's stood still.
    pub fn arm(&self, vcpu: &Vcpu) -> Result<(), VcpuStateError> {
        if self.deadline == 0 {
            return Ok(());
        }
        let entry =
            kvm_msr_entry { index: MSR_TSC_DEADLINE, data: self.deadline, ..Default::default() };
        let msrs = msrs_of(&[entry])?;
        let done = vcpu.fd().set_msrs(&msrs).map_err(refuses("write the timer's deadline"))?;
        all_done("write", &msrs, done)
    }
}

fn save_xsave(vcpu: &Vcpu, size: usize) -> Result<Vec<u32>, VcpuStateError> {
    let mut xsave = empty_xsave(size)?;
    // SAFETY: the area has the size that KVM has named for this VM.
    unsafe { vcpu.fd().get_xsave2(&mut xsave) }.map_err(refuses("read extended state"))?;
    let fixed = xsave.as_fam_struct_ref().xsave.region;
    Ok(fixed.iter().chain(xsave.as_slice()).copied().collect())
}

fn load_xsave(vcpu: &Vcpu, words: &[u32], size: usize) -> Result<(), VcpuStateError> {
    let mut xsave = empty_xsave(size)?;
    let expected = size_of::<kvm_xsave>() + size_of_val(xsave.as_slice());
    let found = size_of_val(words);
    let fixed = size_of::<kvm_xsave>() / size_of::<u32>();
    if found != expected {
        return Err(VcpuStateError::XsaveSize { found, expected });
    }
    xsave.as_mut_slice().copy_from_slice(&words[fixed..]);
    // SAFETY: only the fixed part is changed, not the length of the flexible one.
    unsafe { xsave.as_mut_fam_struct() }.xsave.region.copy_from_slice(&words[..fixed]);
    // SAFETY: the area has the size that KVM has named for this VM.
    unsafe { vcpu.fd().set_xsave2(&xsave) }.map_err(refuses("write extended state"))
}

fn empty_xsave(size: usize) -> Result<Xsave, VcpuStateError> {
    let flexible = size.saturating_sub(size_of::<kvm_xsave>()).div_ceil(size_of::<u32>());
    Xsave::new(flexible).map_err(|_| VcpuStateError::TooMany(size))
}

fn save_msrs(vcpu: &Vcpu, indices: &[u32]) -> Result<Vec<(u32, u64)>, VcpuStateError> {
    let mut indices = indices.to_vec();
    // Last, so that it is written last: by then the counter it is compared with is right.
    indices.sort_by_key(|index| *index == MSR_TSC_DEADLINE);
    let entries: Vec<kvm_msr_entry> =
        indices.iter().map(|index| kvm_msr_entry { index: *index, ..Default::default() }).collect();
    let mut msrs = msrs_of(&entries)?;
    let done = vcpu.fd().get_msrs(&mut msrs).map_err(refuses("read MSRs"))?;
    all_done("read", &msrs, done)?;
    Ok(msrs.as_slice().iter().map(|entry| (entry.index, entry.data)).collect())
}

fn msrs_of(entries: &[kvm_msr_entry]) -> Result<Msrs, VcpuStateError> {
    Msrs::from_entries(entries).map_err(|_| VcpuStateError::TooMany(entries.len()))
}

/// KVM stops at the first MSR that it refuses and tells only how far it came.
fn all_done(way: &'static str, msrs: &Msrs, done: usize) -> Result<(), VcpuStateError> {
    let entries = msrs.as_slice();
    match entries.get(done) {
        None => Ok(()),
        Some(entry) => {
            Err(VcpuStateError::Msr { way, index: entry.index, done, all: entries.len() })
        }
    }
}

fn refuses(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> VcpuStateError {
    move |source| VcpuStateError::Refused { what, source }
}
