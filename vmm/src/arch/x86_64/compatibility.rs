//! Whether a host can go on with a processor that a guest was promised on another one.
//!
//! Compared is what software looks for and then uses: features, sizes of addresses, the layout of extended state. What is of
//! one vCPU (APIC id, topology, caches), of the time stamp counter, or switched by the guest itself (OSXSAVE, OSPKE) says
//! nothing about a host.

use std::fmt;

use kvm_bindings::kvm_cpuid_entry2;
use thiserror::Error;

use super::cpuid::physical_address_bits;

/// A host that does not offer what a guest was promised.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("this host does not offer what the guest's processor has: {}", .0.iter().map(Lack::to_string).collect::<Vec<_>>().join(", "))]
pub struct Incompatible(pub Vec<Lack>);

/// Something that a guest was promised and that a host does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The processor is another maker's.
    Vendor {
        /// The guest's.
        guest: String,
        /// The host's.
        host: String,
    },
    /// A feature.
    Feature {
        /// What Linux calls it, if it has a name for it.
        name: &'static str,
        /// Leaf.
        function: u32,
        /// Subleaf.
        index: u32,
        /// "eax" and so on.
        register: &'static str,
        /// Bit of it.
        bit: u32,
    },
    /// Physical addresses are shorter.
    AddressBits {
        /// The guest's.
        guest: u32,
        /// The host's.
        host: u32,
    },
    /// A part of the extended state that is somewhere else, or of another size.
    StateComponent(u32),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vendor { guest, host } => write!(f, "a processor of {guest} (it is of {host})"),
            Self::Feature { name, function, index, register, bit } => {
                let name = if name.is_empty() { "a feature" } else { name };
                write!(f, "{name} (leaf {function:#x}.{index} {register} bit {bit})")
            }
            Self::AddressBits { guest, host } => {
                write!(f, "{guest} bits of physical addresses (it has {host})")
            }
            Self::StateComponent(number) => write!(f, "the layout of XSAVE component {number}"),
        }
    }
}

#[derive(Clone, Copy)]
enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

impl Register {
    fn of(self, leaf: &kvm_cpuid_entry2) -> u32 {
        match self {
            Self::Eax => leaf.eax,
            Self::Ebx => leaf.ebx,
            Self::Ecx => leaf.ecx,
            Self::Edx => leaf.edx,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Eax => "eax",
            Self::Ebx => "ebx",
            Self::Ecx => "ecx",
            Self::Edx => "edx",
        }
    }
}

/// A register of which each bit is a feature.
struct Word {
    function: u32,
    index: u32,
    register: Register,
    /// Bits that are none of the host's: switched by the guest, or set by the plan.
    but: u32,
    names: &'static [(u32, &'static str)],
}

const fn word(function: u32, index: u32, register: Register, but: u32) -> Word {
    Word { function, index, register, but, names: &[] }
}

const STATE: u32 = 0xd;

/// Every register of features that KVM offers anything of. Names are those of /proc/cpuinfo.
const WORDS: &[Word] = &[
    Word {
        names: &[
            (0, "pni"),
            (1, "pclmulqdq"),
            (9, "ssse3"),
            (12, "fma"),
            (13, "cx16"),
            (17, "pcid"),
            (19, "sse4_1"),
            (20, "sse4_2"),
            (21, "x2apic"),
            (22, "movbe"),
            (23, "popcnt"),
            (25, "aes"),
            (26, "xsave"),
            (28, "avx"),
            (29, "f16c"),
            (30, "rdrand"),
        ],
        // The deadline timer, OSXSAVE, the hypervisor bit.
        ..word(1, 0, Register::Ecx, 1 << 24 | 1 << 27 | 1 << 31)
    },
    Word {
        names: &[
            (0, "fpu"),
            (4, "tsc"),
            (6, "pae"),
            (8, "cx8"),
            (9, "apic"),
            (12, "mtrr"),
            (15, "cmov"),
            (16, "pat"),
            (19, "clflush"),
            (23, "mmx"),
            (24, "fxsr"),
            (25, "sse"),
            (26, "sse2"),
        ],
        // Several threads.
        ..word(1, 0, Register::Edx, 1 << 28)
    },
    Word { names: &[(2, "arat")], ..word(6, 0, Register::Eax, 0) },
    Word {
        names: &[
            (0, "fsgsbase"),
            (1, "tsc_adjust"),
            (3, "bmi1"),
            (4, "hle"),
            (5, "avx2"),
            (7, "smep"),
            (8, "bmi2"),
            (9, "erms"),
            (10, "invpcid"),
            (11, "rtm"),
            (14, "mpx"),
            (16, "avx512f"),
            (17, "avx512dq"),
            (18, "rdseed"),
            (19, "adx"),
            (20, "smap"),
            (21, "avx512ifma"),
            (23, "clflushopt"),
            (24, "clwb"),
            (28, "avx512cd"),
            (29, "sha_ni"),
            (30, "avx512bw"),
            (31, "avx512vl"),
        ],
        // Two that say what a processor does not do any more.
        ..word(7, 0, Register::Ebx, 1 << 6 | 1 << 13)
    },
    Word {
        names: &[
            (1, "avx512vbmi"),
            (2, "umip"),
            (3, "pku"),
            (6, "avx512_vbmi2"),
            (7, "shstk"),
            (8, "gfni"),
            (9, "vaes"),
            (10, "vpclmulqdq"),
            (11, "avx512_vnni"),
            (12, "avx512_bitalg"),
            (14, "avx512_vpopcntdq"),
            (16, "la57"),
            (22, "rdpid"),
            (24, "bus_lock_detect"),
            (25, "cldemote"),
            (27, "movdiri"),
            (28, "movdir64b"),
        ],
        // OSPKE.
        ..word(7, 0, Register::Ecx, 1 << 4)
    },
    Word {
        names: &[
            (4, "fsrm"),
            (8, "avx512_vp2intersect"),
            (10, "md_clear"),
            (14, "serialize"),
            (16, "tsxldtrk"),
            (20, "ibt"),
            (22, "amx_bf16"),
            (23, "avx512_fp16"),
            (24, "amx_tile"),
            (25, "amx_int8"),
            (26, "ibrs"),
            (27, "stibp"),
            (28, "flush_l1d"),
            (29, "arch_capabilities"),
            (31, "ssbd"),
        ],
        ..word(7, 0, Register::Edx, 0)
    },
    Word {
        names: &[
            (4, "avx_vnni"),
            (5, "avx512_bf16"),
            (7, "cmpccxadd"),
            (21, "amx_fp16"),
            (23, "avx_ifma"),
            (26, "lam"),
        ],
        ..word(7, 1, Register::Eax, 0)
    },
    word(7, 1, Register::Ebx, 0),
    word(7, 1, Register::Ecx, 0),
    Word {
        names: &[(4, "avx_vnni_int8"), (5, "avx_ne_convert"), (14, "prefetchi"), (19, "avx10")],
        ..word(7, 1, Register::Edx, 0)
    },
    word(7, 2, Register::Edx, 0),
    // Components of the extended state.
    Word {
        names: &[
            (0, "x87 state"),
            (1, "SSE state"),
            (2, "AVX state"),
            (5, "AVX-512 masks"),
            (6, "AVX-512 upper halves"),
            (7, "AVX-512 upper registers"),
            (9, "protection keys state"),
            (17, "AMX configuration"),
            (18, "AMX tiles"),
        ],
        ..word(STATE, 0, Register::Eax, 0)
    },
    word(STATE, 0, Register::Edx, 0),
    Word {
        names: &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1"), (3, "xsaves"), (4, "xfd")],
        ..word(STATE, 1, Register::Eax, 0)
    },
    Word {
        names: &[(11, "shadow stack state of users"), (12, "shadow stack state of the kernel")],
        ..word(STATE, 1, Register::Ecx, 0)
    },
    word(STATE, 1, Register::Edx, 0),
    Word {
        names: &[
            (0, "kvm-clock"),
            (1, "kvm nop_io_delay"),
            (3, "kvm-clock (new MSRs)"),
            (4, "kvm async_pf"),
            (5, "kvm steal_time"),
            (6, "kvm pv_eoi"),
            (7, "kvm pv_unhalt"),
            (9, "kvm pv_tlb_flush"),
            (11, "kvm pv_ipi"),
            (12, "kvm poll_control"),
            (13, "kvm pv_sched_yield"),
            (14, "kvm async_pf_int"),
            (24, "kvm stable clock"),
        ],
        ..word(0x4000_0001, 0, Register::Eax, 0)
    },
    Word {
        names: &[
            (0, "lahf_lm"),
            (4, "cr8_legacy"),
            (5, "abm"),
            (6, "sse4a"),
            (7, "misalignsse"),
            (8, "3dnowprefetch"),
            (11, "xop"),
            (16, "fma4"),
            (21, "tbm"),
            (22, "topoext"),
        ],
        ..word(0x8000_0001, 0, Register::Ecx, 0)
    },
    Word {
        names: &[
            (11, "syscall"),
            (20, "nx"),
            (22, "mmxext"),
            (25, "fxsr_opt"),
            (26, "pdpe1gb"),
            (27, "rdtscp"),
            (29, "lm"),
        ],
        ..word(0x8000_0001, 0, Register::Edx, 0)
    },
    Word { names: &[(8, "constant_tsc")], ..word(0x8000_0007, 0, Register::Edx, 0) },
    Word {
        names: &[
            (0, "clzero"),
            (2, "xsaveerptr"),
            (9, "wbnoinvd"),
            (12, "ibpb"),
            (14, "ibrs"),
            (15, "stibp"),
            (24, "ssbd"),
            (25, "virt_ssbd"),
        ],
        ..word(0x8000_0008, 0, Register::Ebx, 0)
    },
    Word {
        names: &[(0, "no_nested_data_bp"), (2, "lfence_rdtsc"), (6, "null_sel_clr_base")],
        ..word(0x8000_0021, 0, Register::Eax, 0)
    },
];

/// Whether a host with these leaves in its KVM can go on with a vCPU that has those.
pub fn check(guest: &[kvm_cpuid_entry2], host: &[kvm_cpuid_entry2]) -> Result<(), Incompatible> {
    let lacks = lacks(guest, host);
    if lacks.is_empty() { Ok(()) } else { Err(Incompatible(lacks)) }
}

/// What the leaves of a guest's vCPU promise and those that a host's KVM supports do not have.
fn lacks(guest: &[kvm_cpuid_entry2], host: &[kvm_cpuid_entry2]) -> Vec<Lack> {
    let mut lacks = Vec::new();
    let vendors = [vendor(guest), vendor(host)];
    if let [Some(guest), Some(host)] = vendors
        && guest != host
    {
        lacks.push(Lack::Vendor { guest, host });
    }
    for word in WORDS {
        let value = |leaves| find(leaves, word.function, word.index);
        let bits = |leaf: Option<&kvm_cpuid_entry2>| leaf.map_or(0, |leaf| word.register.of(leaf));
        let missing = bits(value(guest)) & !bits(value(host)) & !word.but;
        lacks.extend((0..32).filter(|bit| missing >> bit & 1 != 0).map(|bit| word.lack(bit)));
    }
    let [promised, offered] = [guest, host].map(physical_address_bits);
    if offered < promised {
        lacks.push(Lack::AddressBits { guest: promised, host: offered });
    }
    lacks.extend(moved_components(guest, host).map(Lack::StateComponent));
    lacks
}

impl Word {
    fn lack(&self, bit: u32) -> Lack {
        let name = self.names.iter().find(|(named, _)| *named == bit);
        Lack::Feature {
            name: name.map_or("", |(_, name)| name),
            function: self.function,
            index: self.index,
            register: self.register.name(),
            bit,
        }
    }
}

/// Components that both have, but not at the same place or of the same size: a guest has laid out its memory by that.
fn moved_components(
    guest: &[kvm_cpuid_entry2],
    host: &[kvm_cpuid_entry2],
) -> impl Iterator<Item = u32> {
    // The first two have their place in the legacy area, and no leaf.
    (2..63).filter(move |number| {
        let place = |leaves| find(leaves, STATE, *number).map(|leaf| (leaf.eax, leaf.ebx));
        let nowhere = Some((0, 0));
        match (place(guest), place(host)) {
            (Some(ours), Some(theirs)) if Some(ours) != nowhere && Some(theirs) != nowhere => {
                ours != theirs
            }
            _ => false,
        }
    })
}

fn vendor(leaves: &[kvm_cpuid_entry2]) -> Option<String> {
    let leaf = find(leaves, 0, 0)?;
    let bytes: Vec<u8> =
        [leaf.ebx, leaf.edx, leaf.ecx].iter().flat_map(|word| word.to_le_bytes()).collect();
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').escape_default().to_string())
}

fn find(leaves: &[kvm_cpuid_entry2], function: u32, index: u32) -> Option<&kvm_cpuid_entry2> {
    leaves.iter().find(|leaf| leaf.function == function && leaf.index == index)
}

#[cfg(test)]
mod tests {
    use super::super::cpuid::{Identity, leaves};
    use super::super::topology::Topology;
    use super::*;

    fn leaf(function: u32, index: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 { function, index, eax, ebx, ecx, edx, ..Default::default() }
    }

    fn host() -> Vec<kvm_cpuid_entry2> {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        let vendor = [0x1f, word(b"Genu"), word(b"ntel"), word(b"ineI")];
        vec![
            leaf(0, 0, vendor),
            leaf(1, 0, [0x806f8, 0x0401_0800, 1 << 26 | 1 << 27 | 1 << 28, 0x1fcb_fbff]),
            leaf(4, 0, [0x121, 7, 8, 9]),
            leaf(7, 0, [2, 1 << 5 | 1 << 16, 1 << 3 | 1 << 4, 1 << 29]),
            leaf(0xb, 0, [1, 2, 0x100, 4]),
            leaf(0xd, 0, [0xe7, 0xa88, 0xa88, 0]),
            leaf(0xd, 1, [0xf, 0x988, 1 << 11, 0]),
            leaf(0xd, 2, [256, 576, 0, 0]),
            leaf(0xd, 9, [8, 2688, 0, 0]),
            leaf(0x15, 0, [2, 200, 0, 0]),
            leaf(0x4000_0000, 0, [0x4000_0001, 0, 0, 0]),
            leaf(0x4000_0001, 0, [0x0100_7efb, 0, 0, 0]),
            leaf(0x8000_0001, 0, [0, 0, 1, 1 << 29]),
            leaf(0x8000_0007, 0, [0, 0, 0, 1 << 8]),
            leaf(0x8000_0008, 0, [0x3034, 0, 0, 0]),
        ]
    }

    fn guest() -> Vec<kvm_cpuid_entry2> {
        let topology = Topology::new(1, 3, 2).unwrap();
        leaves(&host(), Identity { apic_id: 5, topology, tsc_khz: 2_000_000, name: [[1; 4]; 3] })
    }

    /// The host, with one leaf changed.
    fn with(function: u32, index: u32, change: fn(&mut kvm_cpuid_entry2)) -> Vec<kvm_cpuid_entry2> {
        let mut host = host();
        let leaf = host.iter_mut().find(|leaf| (leaf.function, leaf.index) == (function, index));
        change(leaf.unwrap());
        host
    }

    #[test]
    fn host_of_the_guest_lacks_nothing() {
        assert_eq!(lacks(&guest(), &host()), []);
    }

    #[test]
    fn what_is_no_feature_does_not_count() {
        for other in [
            // APIC id and threads; OSXSAVE; several threads; caches; topology; the counter's rate; OSPKE.
            with(1, 0, |leaf| leaf.ebx = 0),
            with(1, 0, |leaf| leaf.ecx &= !(1 << 27)),
            with(1, 0, |leaf| leaf.edx &= !(1 << 28)),
            with(4, 0, |leaf| leaf.eax = 0),
            with(0xb, 0, |leaf| leaf.ebx = 1),
            with(0x15, 0, |leaf| leaf.ebx = 100),
            with(7, 0, |leaf| leaf.ecx &= !(1 << 4)),
            // The size of what is switched on just now.
            with(0xd, 0, |leaf| leaf.ebx = 576),
            // More than was promised.
            with(7, 0, |leaf| leaf.edx = u32::MAX),
            with(0x8000_0008, 0, |leaf| leaf.eax = 0x3039),
            with(1, 0, |leaf| leaf.eax = 0x306f2),
        ] {
            assert_eq!(lacks(&guest(), &other), []);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (other, expected) in [
            (with(7, 0, |leaf| leaf.ebx &= !(1 << 16)), "avx512f (leaf 0x7.0 ebx bit 16)"),
            (with(1, 0, |leaf| leaf.ecx &= !(1 << 28)), "avx (leaf 0x1.0 ecx bit 28)"),
            (with(1, 0, |leaf| leaf.edx &= !2), "a feature (leaf 0x1.0 edx bit 1)"),
            (
                with(0x4000_0001, 0, |leaf| leaf.eax &= !1),
                "kvm-clock (leaf 0x40000001.0 eax bit 0)",
            ),
            (
                with(0x8000_0008, 0, |leaf| leaf.eax = 0x302e),
                "52 bits of physical addresses (it has 46)",
            ),
            (with(0xd, 0, |leaf| leaf.eax &= !(1 << 5)), "AVX-512 masks (leaf 0xd.0 eax bit 5)"),
            (with(0xd, 1, |leaf| leaf.eax &= !(1 << 3)), "xsaves (leaf 0xd.1 eax bit 3)"),
            (with(0xd, 9, |leaf| leaf.ebx = 2432), "the layout of XSAVE component 9"),
            (
                with(0, 0, |leaf| leaf.ebx = 0x6874_7541),
                "a processor of GenuineIntel (it is of AuthineIntel)",
            ),
        ] {
            let found: Vec<String> = lacks(&guest(), &other).iter().map(Lack::to_string).collect();
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn leaf_that_is_not_there_has_nothing() {
        let without: Vec<_> =
            host().into_iter().filter(|leaf| leaf.function != 0x8000_0007).collect();
        let found: Vec<String> = lacks(&guest(), &without).iter().map(Lack::to_string).collect();
        assert_eq!(found, ["constant_tsc (leaf 0x80000007.0 edx bit 8)"]);
        let error = check(&guest(), &[]).unwrap_err().to_string();
        assert!(error.starts_with("this host does not offer what the guest's processor has: "));
        assert!(error.contains("avx2 (leaf 0x7.0 ebx bit 5), avx512f"), "{error}");
    }
}
