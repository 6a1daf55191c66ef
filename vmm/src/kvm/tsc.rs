//! Time stamp counters: their rate, and the offset between the host's and a vCPU's. kvm-ioctls knows the first of vCPUs
//! only, the second on other architectures only.

use std::os::fd::AsRawFd;

use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, kvm_device_attr};
use kvm_ioctls::{VcpuFd, VmFd};

use super::{KvmError, cannot};

const KVMIO: u8 = 0xae;

nix::ioctl_none!(get_tsc_khz, KVMIO, 0xa3);
nix::ioctl_write_ptr!(set_device_attr, KVMIO, 0xe1, kvm_device_attr);
nix::ioctl_write_ptr!(get_device_attr, KVMIO, 0xe2, kvm_device_attr);

fn attribute(offset: &mut u64) -> kvm_device_attr {
    kvm_device_attr {
        flags: 0,
        group: KVM_VCPU_TSC_CTRL,
        attr: u64::from(KVM_VCPU_TSC_OFFSET),
        addr: std::ptr::from_mut(offset).addr() as u64,
    }
}

/// Rate of the counters of a VM's vCPUs, where KVM tells (Linux 5.16).
pub(super) fn rate_of(vm: &VmFd) -> Option<u32> {
    // SAFETY: the call takes no argument and changes nothing.
    let rate = unsafe { get_tsc_khz(vm.as_raw_fd()) }.ok()?;
    u32::try_from(rate).ok().filter(|rate| *rate > 0)
}

/// Guest counter minus host counter.
pub(super) fn read(vcpu: &VcpuFd) -> Result<u64, KvmError> {
    let mut offset = 0;
    let attribute = attribute(&mut offset);
    // SAFETY: the attribute names one u64, which lives until the call is over.
    unsafe { get_device_attr(vcpu.as_raw_fd(), &raw const attribute) }
        .map_err(|errno| cannot("read the TSC offset")(kvm_ioctls::Error::new(errno as i32)))?;
    Ok(offset)
}

/// Sets guest counter minus host counter.
pub(super) fn write(vcpu: &VcpuFd, mut offset: u64) -> Result<(), KvmError> {
    let attribute = attribute(&mut offset);
    // SAFETY: the attribute names one u64, which lives until the call is over.
    unsafe { set_device_attr(vcpu.as_raw_fd(), &raw const attribute) }
        .map_err(|errno| cannot("write the TSC offset")(kvm_ioctls::Error::new(errno as i32)))?;
    Ok(())
}
