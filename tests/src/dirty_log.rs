//! Which pages the guest wrote.

use std::collections::BTreeSet;
use std::ffi::c_ulong;

use kvm_bindings::{
    KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, KVM_DIRTY_LOG_INITIALLY_SET,
    KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, KVM_MEM_LOG_DIRTY_PAGES, KVMIO, kvm_clear_dirty_log,
    kvm_clear_dirty_log__bindgen_ty_1, kvm_enable_cap,
};
use kvm_ioctls::{Error as KvmError, VmFd};
use vmm_sys_util::ioctl::ioctl_with_ref;

use crate::ioctl::read_write;
use crate::memory::PAGE_SIZE;
use crate::microvm::MicroVm;

/// kvm-ioctls 0.25 can read the log but not clear it.
const KVM_CLEAR_DIRTY_LOG: c_ulong = read_write::<kvm_clear_dirty_log>(KVMIO, 0xc0);

/// KVM clears whole words of the log.
pub const PAGES_PER_WORD: u32 = u64::BITS;

/// Who clears the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyTracking {
    /// There is none.
    Off,
    /// Each reading of it.
    OnRead,
    /// [`MicroVm::clear_dirty_pages`] only.
    Manual,
    /// The same, and at first each page counts as written.
    ManualInitiallySet,
}

impl DirtyTracking {
    /// Must come before the memory slot.
    pub(crate) fn prepare(self, vm: &VmFd) -> Result<(), KvmError> {
        let flags = match self {
            Self::Off | Self::OnRead => return Ok(()),
            Self::Manual => KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE,
            Self::ManualInitiallySet => {
                KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET
            }
        };
        vm.enable_cap(&kvm_enable_cap {
            cap: KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
            args: [u64::from(flags), 0, 0, 0],
            ..Default::default()
        })
    }

    pub(crate) fn slot_flags(self) -> u32 {
        if self == Self::Off { 0 } else { KVM_MEM_LOG_DIRTY_PAGES }
    }
}

impl MicroVm {
    /// Numbers of the pages in the log.
    pub fn dirty_pages(&self) -> Result<BTreeSet<u64>, KvmError> {
        let words = self.fd().get_dirty_log(0, self.ram().size())?;
        let pages = (0..(self.ram().size() / PAGE_SIZE) as u64).zip(
            words.iter().flat_map(|word| (0..PAGES_PER_WORD).map(move |bit| word >> bit & 1 == 1)),
        );
        Ok(pages.filter(|(_, dirty)| *dirty).map(|(page, _)| page).collect())
    }

    /// Takes `pages` pages from `first` on, both multiples of [`PAGES_PER_WORD`], out of the log.
    pub fn clear_dirty_pages(&self, first: u64, pages: u32) -> Result<(), KvmError> {
        let mut all = vec![u64::MAX; pages.div_ceil(PAGES_PER_WORD) as usize];
        let clear = kvm_clear_dirty_log {
            slot: 0,
            num_pages: pages,
            first_page: first,
            __bindgen_anon_1: kvm_clear_dirty_log__bindgen_ty_1 {
                dirty_bitmap: all.as_mut_ptr().cast(),
            },
        };
        // SAFETY: KVM reads one bit a page from the bitmap, which has them and outlives the call, and writes nothing.
        let result = unsafe { ioctl_with_ref(self.fd(), KVM_CLEAR_DIRTY_LOG, &clear) };
        if result == 0 { Ok(()) } else { Err(KvmError::last()) }
    }
}
