//! Requests of ioctl, by number: from linux/kvm.h, linux/if_tun.h, linux/vhost.h and linux/userfaultfd.h.

use kvm_bindings::{
    kvm_clock_data, kvm_cpuid2, kvm_debugregs, kvm_device_attr, kvm_enable_cap, kvm_ioeventfd,
    kvm_irq_routing, kvm_irqchip, kvm_irqfd, kvm_lapic_state, kvm_mp_state, kvm_msr_list, kvm_msrs,
    kvm_regs, kvm_sregs, kvm_userspace_memory_region, kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};

const KVM: u32 = 0xae;
const TUN: u32 = b'T' as u32;
const VHOST_VIRTIO: u32 = 0xaf;
const UFFD: u32 = 0xaa;

const fn none(class: u32, number: u32) -> u32 {
    class << 8 | number
}

const fn sized<T>(class: u32, number: u32) -> u32 {
    // The field has 14 bits; nothing that is named here comes near.
    let size = size_of::<T>();
    assert!(size < 1 << 14);
    #[expect(clippy::cast_possible_truncation, reason = "it was compared above")]
    let size = size as u32;
    size << 16 | none(class, number)
}

/// _IOW: the kernel reads.
const fn write<T>(class: u32, number: u32) -> u32 {
    1 << 30 | sized::<T>(class, number)
}

/// _IOR: the kernel writes.
const fn read<T>(class: u32, number: u32) -> u32 {
    2 << 30 | sized::<T>(class, number)
}

/// _IOWR.
const fn both<T>(class: u32, number: u32) -> u32 {
    3 << 30 | sized::<T>(class, number)
}

const SET_GSI_ROUTING: u32 = write::<kvm_irq_routing>(KVM, 0x6a);
const IRQFD: u32 = write::<kvm_irqfd>(KVM, 0x76);
const GET_TSC_KHZ: u32 = none(KVM, 0xa3);

/// Of the system, of a VM, and of a vCPU that has no thread yet.
pub(super) const KVM_OF_OWNER: &[u32] = &[
    none(KVM, 0x01),                                 // CREATE_VM
    both::<kvm_msr_list>(KVM, 0x02),                 // GET_MSR_INDEX_LIST
    none(KVM, 0x03),                                 // CHECK_EXTENSION
    none(KVM, 0x04),                                 // GET_VCPU_MMAP_SIZE
    both::<kvm_cpuid2>(KVM, 0x05),                   // GET_SUPPORTED_CPUID
    none(KVM, 0x41),                                 // CREATE_VCPU
    write::<kvm_userspace_memory_region>(KVM, 0x46), // SET_USER_MEMORY_REGION
    none(KVM, 0x47),                                 // SET_TSS_ADDR
    write::<u64>(KVM, 0x48),                         // SET_IDENTITY_MAP_ADDR
    none(KVM, 0x60),                                 // CREATE_IRQCHIP
    both::<kvm_irqchip>(KVM, 0x62),                  // GET_IRQCHIP
    read::<kvm_irqchip>(KVM, 0x63),                  // SET_IRQCHIP
    SET_GSI_ROUTING,
    IRQFD,
    write::<kvm_ioeventfd>(KVM, 0x79),  // IOEVENTFD
    write::<kvm_clock_data>(KVM, 0x7b), // SET_CLOCK
    read::<kvm_clock_data>(KVM, 0x7c),  // GET_CLOCK
    write::<kvm_cpuid2>(KVM, 0x90),     // SET_CPUID2
    none(KVM, 0xa2),                    // SET_TSC_KHZ
    GET_TSC_KHZ,
    write::<kvm_enable_cap>(KVM, 0xa3), // ENABLE_CAP
];

/// Of a vCPU, that which it makes most first; and of the VM what a guest's access to a vector asks for.
pub(super) const KVM_OF_VCPU: &[u32] = &[
    none(KVM, 0x80), // RUN
    IRQFD,
    SET_GSI_ROUTING,
    read::<kvm_regs>(KVM, 0x81),         // GET_REGS
    write::<kvm_regs>(KVM, 0x82),        // SET_REGS
    read::<kvm_sregs>(KVM, 0x83),        // GET_SREGS
    write::<kvm_sregs>(KVM, 0x84),       // SET_SREGS
    both::<kvm_msrs>(KVM, 0x88),         // GET_MSRS
    write::<kvm_msrs>(KVM, 0x89),        // SET_MSRS
    read::<kvm_lapic_state>(KVM, 0x8e),  // GET_LAPIC
    write::<kvm_lapic_state>(KVM, 0x8f), // SET_LAPIC
    read::<kvm_mp_state>(KVM, 0x98),     // GET_MP_STATE
    write::<kvm_mp_state>(KVM, 0x99),    // SET_MP_STATE
    read::<kvm_vcpu_events>(KVM, 0x9f),  // GET_VCPU_EVENTS
    write::<kvm_vcpu_events>(KVM, 0xa0), // SET_VCPU_EVENTS
    read::<kvm_debugregs>(KVM, 0xa1),    // GET_DEBUGREGS
    write::<kvm_debugregs>(KVM, 0xa2),   // SET_DEBUGREGS
    GET_TSC_KHZ,
    write::<kvm_xsave>(KVM, 0xa5),       // SET_XSAVE
    read::<kvm_xcrs>(KVM, 0xa6),         // GET_XCRS
    write::<kvm_xcrs>(KVM, 0xa7),        // SET_XCRS
    none(KVM, 0xad),                     // KVMCLOCK_CTRL
    read::<kvm_xsave>(KVM, 0xcf),        // GET_XSAVE2
    write::<kvm_device_attr>(KVM, 0xe1), // SET_DEVICE_ATTR
    write::<kvm_device_attr>(KVM, 0xe2), // GET_DEVICE_ATTR
];

const TUNSETOFFLOAD: u32 = write::<u32>(TUN, 208);
const TUNSETVNETHDRSZ: u32 = write::<i32>(TUN, 216);
const TUNSETQUEUE: u32 = write::<i32>(TUN, 217);

/// To start and to stop a network interface.
pub(super) const TUN_OF_OWNER: &[u32] = &[
    TUNSETOFFLOAD,
    read::<u32>(TUN, 210), // TUNGETIFF
    TUNSETVNETHDRSZ,
    TUNSETQUEUE,
];

/// What a driver may ask for while it works: other offloads, more or fewer queues.
pub(super) const TUN_OF_IO: &[u32] = &[TUNSETOFFLOAD, TUNSETQUEUE];

/// `struct vhost_vring_state`, and `vhost_vring_file`: index, and a number or a descriptor.
type VringState = [u32; 2];
/// `struct vhost_vring_addr`.
type VringAddress = [u64; 5];

/// To hand queues to the kernel.
pub(super) const VHOST_OF_OWNER: &[u32] = &[
    read::<u64>(VHOST_VIRTIO, 0x00),           // GET_FEATURES
    write::<u64>(VHOST_VIRTIO, 0x00),          // SET_FEATURES
    none(VHOST_VIRTIO, 0x01),                  // SET_OWNER
    write::<u64>(VHOST_VIRTIO, 0x03),          // SET_MEM_TABLE
    write::<VringState>(VHOST_VIRTIO, 0x10),   // SET_VRING_NUM
    write::<VringAddress>(VHOST_VIRTIO, 0x11), // SET_VRING_ADDR
    write::<VringState>(VHOST_VIRTIO, 0x22),   // SET_VRING_ERR
];

/// To let the kernel begin with a queue, and end.
pub(super) const VHOST_OF_IO: &[u32] = &[
    write::<VringState>(VHOST_VIRTIO, 0x12), // SET_VRING_BASE
    both::<VringState>(VHOST_VIRTIO, 0x12),  // GET_VRING_BASE
    write::<VringState>(VHOST_VIRTIO, 0x20), // SET_VRING_KICK
    write::<VringState>(VHOST_VIRTIO, 0x21), // SET_VRING_CALL
    write::<VringState>(VHOST_VIRTIO, 0x30), // NET_SET_BACKEND
];

/// `struct uffdio_range`.
type UffdRange = [u64; 2];
/// `struct uffdio_copy`.
type UffdCopy = [u64; 5];
/// `struct uffdio_zeropage`.
type UffdZeroPage = [u64; 4];

/// To bring a page and to let go of a range. A descriptor for faults is made and registered before lock-in.
pub(super) const UFFD_OF_PAGER: &[u32] = &[
    both::<UffdCopy>(UFFD, 0x03),     // COPY
    both::<UffdZeroPage>(UFFD, 0x04), // ZEROPAGE
    read::<UffdRange>(UFFD, 0x02),    // WAKE
    read::<UffdRange>(UFFD, 0x01),    // UNREGISTER
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernels_headers() {
        assert_eq!(KVM_OF_VCPU[0], 0xae80);
        assert_eq!(SET_GSI_ROUTING, 0x4008_ae6a);
        assert_eq!(IRQFD, 0x4020_ae76);
        assert!(KVM_OF_OWNER.contains(&0x4020_ae46), "SET_USER_MEMORY_REGION");
        assert!(KVM_OF_VCPU.contains(&0x9000_aecf), "GET_XSAVE2");
        assert_eq!(u64::from(TUNSETOFFLOAD), libc::TUNSETOFFLOAD);
        assert_eq!(u64::from(TUN_OF_OWNER[1]), libc::TUNGETIFF);
        assert_eq!(u64::from(TUNSETVNETHDRSZ), libc::TUNSETVNETHDRSZ);
        assert_eq!(u64::from(TUNSETQUEUE), libc::TUNSETQUEUE);
        assert!(VHOST_OF_OWNER.contains(&0x4028_af11), "SET_VRING_ADDR");
        assert!(VHOST_OF_IO.contains(&0xc008_af12), "GET_VRING_BASE");
        assert!(VHOST_OF_IO.contains(&0x4008_af30), "NET_SET_BACKEND");
        assert_eq!(UFFD_OF_PAGER, [0xc028_aa03, 0xc020_aa04, 0x8010_aa02, 0x8010_aa01]);
    }
}
