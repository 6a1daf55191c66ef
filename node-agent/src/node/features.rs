//! Names of processor features, as KubeVirt's tools and libvirt have them, by the bit of CPUID that says so.

/// A register of CPUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

/// Features that one register tells.
pub(super) struct Word {
    pub(super) leaf: u32,
    pub(super) subleaf: u32,
    pub(super) register: Register,
    /// Bits, and what they are called.
    pub(super) names: &'static [(u8, &'static str)],
}

const fn word(
    leaf: u32,
    subleaf: u32,
    register: Register,
    names: &'static [(u8, &'static str)],
) -> Word {
    Word { leaf, subleaf, register, names }
}

/// Every feature that is told. Of others no label is made.
#[rustfmt::skip]
pub(super) const WORDS: &[Word] = &[
    word(1, 0, Register::Edx, &[
        (0, "fpu"), (1, "vme"), (2, "de"), (3, "pse"), (4, "tsc"), (5, "msr"), (6, "pae"), (7, "mce"), (8, "cx8"),
        (9, "apic"), (11, "sep"), (12, "mtrr"), (13, "pge"), (14, "mca"), (15, "cmov"), (16, "pat"), (17, "pse36"),
        (19, "clflush"), (23, "mmx"), (24, "fxsr"), (25, "sse"), (26, "sse2"), (27, "ss"), (28, "ht"),
    ]),
    word(1, 0, Register::Ecx, &[
        (0, "pni"), (1, "pclmuldq"), (3, "monitor"), (5, "vmx"), (9, "ssse3"), (12, "fma"), (13, "cx16"), (15, "pdcm"),
        (17, "pcid"), (19, "sse4.1"), (20, "sse4.2"), (21, "x2apic"), (22, "movbe"), (23, "popcnt"), (24, "tsc-deadline"),
        (25, "aes"), (26, "xsave"), (27, "osxsave"), (28, "avx"), (29, "f16c"), (30, "rdrand"), (31, "hypervisor"),
    ]),
    word(6, 0, Register::Eax, &[(2, "arat")]),
    word(7, 0, Register::Ebx, &[
        (0, "fsgsbase"), (1, "tsc_adjust"), (2, "sgx"), (3, "bmi1"), (4, "hle"), (5, "avx2"), (7, "smep"), (8, "bmi2"),
        (9, "erms"), (10, "invpcid"), (11, "rtm"), (14, "mpx"), (16, "avx512f"), (17, "avx512dq"), (18, "rdseed"), (19, "adx"),
        (20, "smap"), (21, "avx512ifma"), (23, "clflushopt"), (24, "clwb"), (28, "avx512cd"), (29, "sha-ni"),
        (30, "avx512bw"), (31, "avx512vl"),
    ]),
    word(7, 0, Register::Ecx, &[
        (1, "avx512vbmi"), (2, "umip"), (3, "pku"), (4, "ospke"), (5, "waitpkg"), (6, "avx512vbmi2"), (8, "gfni"), (9, "vaes"),
        (10, "vpclmulqdq"), (11, "avx512vnni"), (12, "avx512bitalg"), (14, "avx512-vpopcntdq"), (16, "la57"), (22, "rdpid"),
        (24, "bus-lock-detect"), (25, "cldemote"), (27, "movdiri"), (28, "movdir64b"),
    ]),
    word(7, 0, Register::Edx, &[
        (2, "avx512-4vnniw"), (3, "avx512-4fmaps"), (4, "fsrm"), (8, "avx512-vp2intersect"), (10, "md-clear"),
        (14, "serialize"), (16, "tsx-ldtrk"), (22, "amx-bf16"), (23, "avx512-fp16"), (24, "amx-tile"), (25, "amx-int8"),
        (26, "spec-ctrl"), (27, "stibp"), (28, "flush-l1d"), (29, "arch-capabilities"), (31, "ssbd"),
    ]),
    word(7, 1, Register::Eax, &[
        (4, "avx-vnni"), (5, "avx512-bf16"), (7, "cmpccxadd"), (10, "fzrm"), (11, "fsrs"), (12, "fsrc"), (21, "amx-fp16"),
        (23, "avx-ifma"),
    ]),
    word(13, 1, Register::Eax, &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1"), (3, "xsaves")]),
    word(0x8000_0001, 0, Register::Edx, &[
        (11, "syscall"), (20, "nx"), (22, "mmxext"), (25, "fxsr_opt"), (26, "pdpe1gb"), (27, "rdtscp"), (29, "lm"),
    ]),
    word(0x8000_0001, 0, Register::Ecx, &[
        (0, "lahf_lm"), (1, "cmp_legacy"), (2, "svm"), (4, "cr8legacy"), (5, "abm"), (6, "sse4a"), (7, "misalignsse"),
        (8, "3dnowprefetch"), (9, "osvw"), (11, "xop"), (16, "fma4"), (21, "tbm"), (22, "topoext"), (23, "perfctr_core"),
    ]),
    word(0x8000_0007, 0, Register::Edx, &[(8, "invtsc")]),
    word(0x8000_0008, 0, Register::Ebx, &[
        (0, "clzero"), (2, "xsaveerptr"), (9, "wbnoinvd"), (12, "ibpb"), (14, "ibrs"), (15, "amd-stibp"), (24, "amd-ssbd"),
        (25, "virt-ssbd"), (28, "amd-psfd"),
    ]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_part_of_labels_and_none_is_there_twice() {
        let names: Vec<&str> =
            WORDS.iter().flat_map(|word| word.names).map(|(_, name)| *name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        for name in names {
            assert!(name.len() <= 63 && name.bytes().all(is_inner), "{name}");
        }
    }

    #[test]
    fn bits_of_a_word_are_in_order() {
        for word in WORDS {
            assert!(word.names.is_sorted_by(|(a, _), (b, _)| a < b && *b < 32), "{}", word.leaf);
        }
    }
}
