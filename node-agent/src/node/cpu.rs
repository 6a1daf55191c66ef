//! The processors that guests of this node can have, by KVM's word: what it offers, not what the host has.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::Kvm;

use super::features::{Register, WORDS};

/// Processors of guests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestCpu {
    /// Who made them, as in `Intel`; none of an unknown maker.
    pub vendor: Option<&'static str>,
    /// What they are called, if that is known.
    pub model: Option<&'static str>,
    /// Features that they have.
    pub features: BTreeSet<&'static str>,
}

impl GuestCpu {
    /// Those that the KVM at `path` offers; none if it cannot be asked.
    pub fn offered_by(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let kvm = Kvm::new_with_path(path).ok()?;
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).ok()?;
        Some(Self::of(cpuid.as_slice()))
    }

    fn of(entries: &[kvm_cpuid_entry2]) -> Self {
        let find = |leaf, subleaf| {
            let mut all = entries.iter();
            all.find(|entry| entry.function == leaf && entry.index == subleaf)
        };
        let mut features = BTreeSet::new();
        for word in WORDS {
            let Some(entry) = find(word.leaf, word.subleaf) else { continue };
            let value = match word.register {
                Register::Eax => entry.eax,
                Register::Ebx => entry.ebx,
                Register::Ecx => entry.ecx,
                Register::Edx => entry.edx,
            };
            let set = word.names.iter().filter(|(bit, _)| value >> bit & 1 == 1);
            features.extend(set.map(|(_, name)| *name));
        }
        let vendor = find(0, 0).and_then(vendor);
        let signature = find(1, 0).map(|entry| Signature::of(entry.eax));
        let model = vendor.zip(signature).and_then(|(vendor, signature)| signature.model(vendor));
        Self { vendor, model, features }
    }
}

fn vendor(entry: &kvm_cpuid_entry2) -> Option<&'static str> {
    let mut text = Vec::new();
    for word in [entry.ebx, entry.edx, entry.ecx] {
        text.extend(word.to_le_bytes());
    }
    match text.as_slice() {
        b"GenuineIntel" => Some("Intel"),
        b"AuthenticAMD" => Some("AMD"),
        b"HygonGenuine" => Some("Hygon"),
        _ => None,
    }
}

/// What leaf 1 says of the kind of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signature {
    family: u32,
    model: u32,
    stepping: u32,
}

impl Signature {
    /// As both makers' manuals have it: the further bits count for some families only.
    fn of(eax: u32) -> Self {
        let (family, model) = (eax >> 8 & 0xf, eax >> 4 & 0xf);
        let more = eax >> 20 & 0xff;
        let has_more = matches!(family, 0x6 | 0xf);
        Self {
            family: if family == 0xf { family + more } else { family },
            model: if has_more { (eax >> 16 & 0xf) << 4 | model } else { model },
            stepping: eax & 0xf,
        }
    }

    /// The name of its generation, as libvirt knows it.
    fn model(self, vendor: &str) -> Option<&'static str> {
        match (vendor, self.family) {
            ("Intel", 6) => self.intel(),
            ("AMD", 0x17) => Some(if self.model >= 0x30 { "EPYC-Rome" } else { "EPYC" }),
            ("AMD", 0x19) => match self.model {
                0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf => Some("EPYC-Genoa"),
                _ => Some("EPYC-Milan"),
            },
            ("AMD", 0x1a) => Some("EPYC-Turin"),
            ("Hygon", 0x18) => Some("Dhyana"),
            _ => None,
        }
    }

    fn intel(self) -> Option<&'static str> {
        Some(match self.model {
            0x1a | 0x1e | 0x1f | 0x2e => "Nehalem",
            0x25 | 0x2c | 0x2f => "Westmere",
            0x2a | 0x2d => "SandyBridge",
            0x3a | 0x3e => "IvyBridge",
            0x3c | 0x3f | 0x45 | 0x46 => "Haswell",
            0x3d | 0x47 | 0x4f | 0x56 => "Broadwell",
            0x4e | 0x5e | 0x8e | 0x9e => "Skylake-Client",
            0x55 => match self.stepping {
                0..=4 => "Skylake-Server",
                5..=7 => "Cascadelake-Server",
                _ => "Cooperlake",
            },
            0x7d | 0x7e => "Icelake-Client",
            0x6a | 0x6c => "Icelake-Server",
            0x8f | 0xcf => "SapphireRapids",
            0xad | 0xae => "GraniteRapids",
            0xaf => "SierraForest",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: u32, index: u32, registers: [u32; 4]) -> kvm_cpuid_entry2 {
        let [eax, ebx, ecx, edx] = registers;
        kvm_cpuid_entry2 { function, index, eax, ebx, ecx, edx, ..kvm_cpuid_entry2::default() }
    }

    fn word(text: &[u8]) -> u32 {
        u32::from_le_bytes(text.try_into().unwrap())
    }

    #[test]
    fn offer_of_kvm_is_read() {
        let intel = [0x16, word(b"Genu"), word(b"ntel"), word(b"ineI")];
        let entries = [
            entry(0, 0, intel),
            entry(1, 0, [0x0005_0654, 0, 1 << 19 | 1 << 28, 1]),
            entry(7, 0, [1, 1 << 5, 0, 1 << 31]),
            entry(7, 1, [1 << 4, 0, 0, 0]),
            entry(0x8000_0001, 0, [0, 0, 0, 1 << 20]),
        ];
        let cpu = GuestCpu::of(&entries);
        assert_eq!((cpu.vendor, cpu.model), (Some("Intel"), Some("Skylake-Server")));
        let expected = ["fpu", "sse4.1", "avx", "avx2", "ssbd", "avx-vnni", "nx"];
        assert_eq!(cpu.features, expected.into());
    }

    #[test]
    fn processors_are_called_as_their_signatures_say() {
        let cases = [
            ("Intel", 0x0005_0657, Some("Cascadelake-Server")),
            ("Intel", 0x0005_065b, Some("Cooperlake")),
            ("Intel", 0x0006_06a6, Some("Icelake-Server")),
            ("Intel", 0x0008_06f8, Some("SapphireRapids")),
            ("Intel", 0x0000_0f43, None),
            ("AMD", 0x0080_0f12, Some("EPYC")),
            ("AMD", 0x0083_0f10, Some("EPYC-Rome")),
            ("AMD", 0x00a0_0f11, Some("EPYC-Milan")),
            ("AMD", 0x00a1_0f11, Some("EPYC-Genoa")),
            ("AMD", 0x00b0_0f21, Some("EPYC-Turin")),
            ("AMD", 0x0060_0f12, None),
            ("Hygon", 0x0090_0f01, Some("Dhyana")),
        ];
        for (vendor, eax, expected) in cases {
            assert_eq!(Signature::of(eax).model(vendor), expected, "{vendor} {eax:#x}");
        }
    }

    #[test]
    fn kvm_that_says_nothing_or_is_not_there_has_no_features() {
        assert_eq!(GuestCpu::of(&[]), GuestCpu::default());
        assert_eq!(GuestCpu::offered_by(Path::new("/nonexistent/kvm")), None);
        assert_eq!(GuestCpu::offered_by(Path::new("/dev/null")), None);
    }
}
