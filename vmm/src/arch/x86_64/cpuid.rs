//! The processor a guest sees, from the one its host can offer.
//!
//! Computed once, when the machine is planned, and stored in its blueprint. A restored or moved machine gets the stored
//! leaves: computed anew on another host or kernel, they could differ under a running guest.

use kvm_bindings::{KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use super::topology::Topology;

const LEAF_HYPERVISOR_TIMING: u32 = 0x4000_0010;
const LEAVES_HYPERVISOR: u32 = 0x4000_0000;
const LEAVES_EXTENDED: u32 = 0x8000_0000;
const LEAF_NAME: u32 = 0x8000_0002;

/// What one vCPU is.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Where it is among the others.
    pub apic_id: u32,
    /// How all of them are arranged.
    pub topology: Topology,
    /// Rate of its time stamp counter.
    pub tsc_khz: u32,
    /// What it calls itself.
    pub name: ProcessorName,
}

/// What a processor calls itself: the registers of three leaves. KVM does not list them, though guests show it to people
/// and choose workarounds by it.
pub type ProcessorName = [[u32; 4]; 3];

/// The name of this host's processor.
pub fn host_name() -> ProcessorName {
    [0, 1, 2].map(|index| {
        let leaf = std::arch::x86_64::__cpuid(LEAF_NAME + index);
        [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]
    })
}

/// The leaves of the vCPU with this identity.
pub fn leaves(supported: &[kvm_cpuid_entry2], identity: Identity) -> Vec<kvm_cpuid_entry2> {
    let made_here = [0xb, 0x1f, LEAF_NAME, LEAF_NAME + 1, LEAF_NAME + 2];
    let mut leaves: Vec<kvm_cpuid_entry2> =
        supported.iter().copied().filter(|leaf| !made_here.contains(&leaf.function)).collect();
    leaves.iter_mut().for_each(|leaf| adjust(leaf, identity));
    for function in [0xb, 0x1f] {
        // Only where the host has the leaf: a guest reads the highest one from leaf 0.
        if supported.iter().any(|leaf| leaf.function == function) {
            leaves.extend(extended_topology(function, identity));
        }
    }
    leaves.extend((LEAF_NAME..).zip(identity.name).map(|(function, [eax, ebx, ecx, edx])| {
        kvm_cpuid_entry2 { function, eax, ebx, ecx, edx, ..Default::default() }
    }));
    add_timing(&mut leaves, identity.tsc_khz);
    leaves.sort_by_key(|leaf| (leaf.function, leaf.index));
    leaves
}

fn adjust(leaf: &mut kvm_cpuid_entry2, identity: Identity) {
    match leaf.function {
        0x1 => features(leaf, identity),
        // Monitor and wait: a guest that waits would keep its host's processor.
        0x5 => clear(leaf),
        // Turbo and hardware feedback are the host's business.
        0x6 => leaf.eax &= 1 << 2,
        0x4 => caches(leaf, identity, true),
        // User wait (WAITPKG).
        0x7 if leaf.index == 0 => leaf.ecx &= !(1 << 5),
        // Performance counters.
        0xa | 0x8000_0022 => clear(leaf),
        0x8000_0001 => {
            // SVM, performance counters of cores, of the northbridge and of caches, instruction-based sampling.
            leaf.ecx &= !(1 << 2 | 1 << 10 | 1 << 23 | 1 << 24 | 1 << 28);
        }
        0x8000_0008 => {
            let threads = per_package(identity.topology);
            leaf.ecx = identity.topology.package_bits() << 12 | (threads - 1);
        }
        // SVM.
        0x8000_000a => clear(leaf),
        0x8000_001d => caches(leaf, identity, false),
        0x8000_001e => amd_topology(leaf, identity),
        _ => {}
    }
}

fn clear(leaf: &mut kvm_cpuid_entry2) {
    (leaf.eax, leaf.ebx, leaf.ecx, leaf.edx) = (0, 0, 0, 0);
}

fn features(leaf: &mut kvm_cpuid_entry2, identity: Identity) {
    let threads = per_package(identity.topology);
    leaf.ebx =
        (leaf.ebx & 0xffff) | threads.next_power_of_two().min(255) << 16 | identity.apic_id << 24;
    // Monitor/wait, VMX, debug store and performance capabilities.
    leaf.ecx &= !(1 << 3 | 1 << 5 | 1 << 2 | 1 << 15);
    // The deadline timer, which KVM always has but did not list before Linux 6.14: without it a guest has no timer to
    // calibrate against. And the bit that says "hypervisor".
    leaf.ecx |= 1 << 24 | 1 << 31;
    leaf.edx &= !(1 << 21);
    if threads > 1 {
        leaf.edx |= 1 << 28;
    } else {
        leaf.edx &= !(1 << 28);
    }
}

/// Who shares a cache: threads of a core share levels 1 and 2, all of a package level 3.
fn caches(leaf: &mut kvm_cpuid_entry2, identity: Identity, intel: bool) {
    if leaf.eax & 0x1f == 0 {
        return;
    }
    let topology = identity.topology;
    let level = leaf.eax >> 5 & 7;
    let sharing =
        if level < 3 { 1 << topology.thread_bits() } else { 1 << topology.package_bits() };
    leaf.eax = leaf.eax & 0x3fff | (sharing - 1) << 14;
    if intel {
        // Intel's form also counts the cores of a package.
        let cores = 1_u32 << (topology.package_bits() - topology.thread_bits());
        leaf.eax |= (cores - 1).min(0x3f) << 26;
    }
}

fn amd_topology(leaf: &mut kvm_cpuid_entry2, identity: Identity) {
    let topology = identity.topology;
    let core = (identity.apic_id & ((1 << topology.package_bits()) - 1)) >> topology.thread_bits();
    leaf.eax = identity.apic_id;
    leaf.ebx = u32::from(topology.threads - 1) << 8 | core;
    // One node for each package.
    leaf.ecx = identity.apic_id >> topology.package_bits();
    leaf.edx = 0;
}

/// Leaves 0xb and 0x1f: levels from threads upwards, each with the bits to shift out to get past it.
fn extended_topology(function: u32, identity: Identity) -> [kvm_cpuid_entry2; 3] {
    let topology = identity.topology;
    let level = |index: u32, kind: u32, shift: u32, count: u32| kvm_cpuid_entry2 {
        function,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | index,
        edx: identity.apic_id,
        ..Default::default()
    };
    [
        level(0, 1, topology.thread_bits(), u32::from(topology.threads)),
        level(1, 2, topology.package_bits(), per_package(topology)),
        level(2, 0, 0, 0),
    ]
}

/// The rate of the time stamp counter, where Linux looks for it before it calibrates.
fn add_timing(leaves: &mut Vec<kvm_cpuid_entry2>, tsc_khz: u32) {
    leaves.retain(|leaf| leaf.function != LEAF_HYPERVISOR_TIMING);
    let Some(first) = leaves.iter_mut().find(|leaf| leaf.function == LEAVES_HYPERVISOR) else {
        return;
    };
    first.eax = first.eax.max(LEAF_HYPERVISOR_TIMING);
    leaves.push(kvm_cpuid_entry2 {
        function: LEAF_HYPERVISOR_TIMING,
        eax: tsc_khz,
        ..Default::default()
    });
}

fn per_package(topology: Topology) -> u32 {
    u32::from(topology.cores) * u32::from(topology.threads)
}

/// Bits of a physical address, as leaf 0x80000008 tells them.
pub fn physical_address_bits(leaves: &[kvm_cpuid_entry2]) -> u32 {
    let leaf = leaves.iter().find(|leaf| leaf.function == LEAVES_EXTENDED + 8);
    leaf.map_or(36, |leaf| leaf.eax & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(function: u32, index: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 { function, index, eax, ebx, ecx, edx, ..Default::default() }
    }

    fn host() -> Vec<kvm_cpuid_entry2> {
        let mut leaves: Vec<_> =
            [0x1, 0x5, 0xa, 0x8000_0001, 0x8000_0003, 0x8000_0008, 0x8000_000a, 0x8000_001e]
                .map(|function| leaf(function, 0, [u32::MAX; 4]))
                .into();
        leaves.push(leaf(0x4000_0000, 0, [0x4000_0001, 0, 0, 0]));
        leaves.push(leaf(0xb, 0, [9; 4]));
        leaves.push(leaf(0x4, 0, [0x121, 0, 0, 0]));
        leaves.push(leaf(0x4, 3, [0x163, 0, 0, 0]));
        leaves.push(leaf(0x8000_001d, 2, [0x143, 0, 0, 0]));
        leaves
    }

    fn guest(apic_id: u32, sockets: u16, cores: u16, threads: u16) -> Vec<kvm_cpuid_entry2> {
        let topology = Topology::new(sockets, cores, threads).unwrap();
        let name = [[1; 4], [2; 4], [3; 4]];
        leaves(&host(), Identity { apic_id, topology, tsc_khz: 2_000_000, name })
    }

    fn find(leaves: &[kvm_cpuid_entry2], function: u32, index: u32) -> kvm_cpuid_entry2 {
        *leaves.iter().find(|leaf| leaf.function == function && leaf.index == index).unwrap()
    }

    #[test]
    fn three_cores_of_two_threads_are_seen_by_both_vendors() {
        let leaves = guest(5, 1, 3, 2);
        let one = find(&leaves, 1, 0);
        assert_eq!((one.ebx >> 24, one.ebx >> 16 & 0xff), (5, 8));
        assert_eq!(one.edx >> 28 & 1, 1);
        let threads = find(&leaves, 0xb, 0);
        assert_eq!((threads.eax, threads.ebx, threads.ecx, threads.edx), (1, 2, 0x100, 5));
        let package = find(&leaves, 0xb, 1);
        assert_eq!((package.eax, package.ebx, package.ecx), (3, 6, 0x201));
        assert_eq!(find(&leaves, 0xb, 2).ecx, 2);
        let amd = find(&leaves, 0x8000_001e, 0);
        assert_eq!((amd.eax, amd.ebx, amd.ecx), (5, 0x102, 0));
        assert_eq!(find(&leaves, 0x8000_0008, 0).ecx, 3 << 12 | 5);
        assert_eq!(find(&leaves, 4, 0).eax >> 14 & 0xfff, 1);
        assert_eq!(find(&leaves, 4, 3).eax >> 14 & 0xfff, 7);
        assert_eq!(find(&leaves, 4, 3).eax >> 26, 3);
        assert_eq!(find(&leaves, 0x8000_001d, 2).eax >> 14 & 0xfff, 1);
    }

    #[test]
    fn nested_virtualization_counters_and_monitor_are_hidden() {
        let leaves = guest(0, 1, 1, 1);
        let one = find(&leaves, 1, 0);
        assert_eq!(one.ecx & (1 << 3 | 1 << 5 | 1 << 15), 0);
        assert_eq!(one.edx >> 28 & 1, 0);
        assert_eq!(find(&leaves, 0x8000_0001, 0).ecx & (1 << 2 | 1 << 23 | 1 << 28), 0);
        for function in [0x5, 0xa, 0x8000_000a] {
            let hidden = find(&leaves, function, 0);
            assert_eq!([hidden.eax, hidden.ebx, hidden.ecx, hidden.edx], [0; 4], "{function:#x}");
        }
    }

    #[test]
    fn deadline_timer_and_hypervisor_are_always_there() {
        assert_eq!(find(&guest(0, 1, 1, 1), 1, 0).ecx & (1 << 24 | 1 << 31), 1 << 24 | 1 << 31);
        let timing = find(&guest(0, 1, 1, 1), 0x4000_0010, 0);
        assert_eq!(timing.eax, 2_000_000);
        assert_eq!(find(&guest(0, 1, 1, 1), 0x4000_0000, 0).eax, 0x4000_0010);
    }

    #[test]
    fn processor_has_the_name_of_the_hosts() {
        let leaves = guest(0, 1, 1, 1);
        let words = [0x8000_0002, 0x8000_0003, 0x8000_0004].map(|leaf| find(&leaves, leaf, 0).edx);
        assert_eq!(words, [1, 2, 3]);
    }

    #[test]
    fn leaf_that_the_host_lacks_is_not_made_up() {
        assert!(guest(0, 1, 3, 2).iter().all(|leaf| leaf.function != 0x1f));
    }
}
