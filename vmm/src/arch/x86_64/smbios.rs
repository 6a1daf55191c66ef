//! SMBIOS: names, serial number and UUID of the machine, as dmidecode and cloud-init read them.
//!
//! One entry point of 64 bits at [`layout::SMBIOS`], which kernels find by looking through 0xf0000-0xfffff, and behind
//! it the structures of type 0 (firmware), 1 (system), 3 (chassis) and 127 (end). Section numbers are those of DSP0134
//! 3.3.

use thiserror::Error;
use vm_memory::{Address, GuestAddress};

use super::layout;

/// Longest string in bytes. cloud-init takes URLs from the serial number, so 64 would not do.
pub const MAX_TEXT: usize = 1024;

const ENTRY_SIZE: u8 = 24;
const VERSION: [u8; 3] = [3, 3, 0];
/// Structures begin here, behind the entry point.
const STRUCTURES_OFFSET: u8 = 0x20;
const STRUCTURES: GuestAddress = GuestAddress(layout::SMBIOS.0 + STRUCTURES_OFFSET as u64);

const TYPE_FIRMWARE: u8 = 0;
const TYPE_SYSTEM: u8 = 1;
const TYPE_CHASSIS: u8 = 3;
const TYPE_END: u8 = 127;

const FIRMWARE_VENDOR: &str = "Corten";
/// Fixed, as the bytes must not depend on the build; kernels distrust PCI of machines older than 2001.
const FIRMWARE_DATE: &str = "01/01/2026";

/// What identifies the guest's machine. An empty string is one that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmbiosInput {
    /// Version of the "BIOS".
    pub firmware_version: String,
    /// The system: type 1.
    pub system: System,
    /// The chassis: type 3.
    pub chassis: Chassis,
}

/// Fields of type 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Who made it.
    pub manufacturer: String,
    /// What it is.
    pub product: String,
    /// Its version.
    pub version: String,
    /// Serial number.
    pub serial: String,
    /// In the order in which it is written (RFC 9562); all zero is "not there".
    pub uuid: [u8; 16],
    /// Stock-keeping unit.
    pub sku: String,
    /// Product family.
    pub family: String,
}

/// Fields of type 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chassis {
    /// Who made it.
    pub manufacturer: String,
    /// Its version.
    pub version: String,
    /// Serial number.
    pub serial: String,
    /// Asset tag.
    pub asset_tag: String,
    /// Stock-keeping unit.
    pub sku: String,
}

/// Why a machine cannot be described so.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SmbiosError {
    /// Longer than [`MAX_TEXT`].
    #[error("SMBIOS {field} has {length} bytes, {MAX_TEXT} are allowed")]
    TooLong {
        /// Which one.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// A zero would end the string; other control characters are refused as well.
    #[error("SMBIOS {field} has a control character")]
    ControlCharacter {
        /// Which one.
        field: &'static str,
    },
}

/// Makes entry point and structures, to be placed at [`layout::SMBIOS`].
pub fn build(input: &SmbiosInput) -> Result<Vec<u8>, SmbiosError> {
    let mut structures = firmware(input)?;
    structures.extend(system(&input.system)?);
    structures.extend(chassis(&input.chassis)?);
    structures.extend(Structure::new(TYPE_END).finish());

    let mut bytes = entry_point(&structures);
    bytes.resize(usize::from(STRUCTURES_OFFSET), 0);
    bytes.extend(structures);
    Ok(bytes)
}

/// Section 5.2.2.
fn entry_point(structures: &[u8]) -> Vec<u8> {
    const CHECKSUM: usize = 5;
    let size = u32::try_from(structures.len()).expect("strings are bounded");
    let mut entry = b"_SM3_".to_vec();
    entry.extend([0, ENTRY_SIZE]);
    entry.extend(VERSION);
    // Revision of the entry point, reserved.
    entry.extend([1, 0]);
    entry.extend(size.to_le_bytes());
    entry.extend(STRUCTURES.raw_value().to_le_bytes());
    entry[CHECKSUM] = entry.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    entry
}

/// Section 7.1.
fn firmware(input: &SmbiosInput) -> Result<Vec<u8>, SmbiosError> {
    // "Characteristics are not supported": there is no firmware that could have them.
    const CHARACTERISTICS: u64 = 1 << 3;
    const HAS_ACPI: u8 = 1 << 0;
    const VIRTUAL_MACHINE: u8 = 1 << 4;
    const NOT_GIVEN: u8 = 0xff;

    let mut table = Structure::new(TYPE_FIRMWARE);
    table.text("firmware vendor", FIRMWARE_VENDOR)?;
    table.text("firmware version", &input.firmware_version)?;
    // Segment of code, of which there is none.
    table.bytes(&[0, 0]);
    table.text("firmware date", FIRMWARE_DATE)?;
    // Size of the ROM: 64 KiB is the least that can be said.
    table.bytes(&[0]);
    table.bytes(&CHARACTERISTICS.to_le_bytes());
    table.bytes(&[HAS_ACPI, VIRTUAL_MACHINE]);
    // Release of firmware and embedded controller.
    table.bytes(&[NOT_GIVEN; 4]);
    // Extended size of the ROM.
    table.bytes(&[0, 0]);
    Ok(table.finish())
}

/// Section 7.2.
fn system(system: &System) -> Result<Vec<u8>, SmbiosError> {
    const WOKEN_BY_POWER_SWITCH: u8 = 6;

    let mut table = Structure::new(TYPE_SYSTEM);
    table.text("manufacturer", &system.manufacturer)?;
    table.text("product", &system.product)?;
    table.text("version", &system.version)?;
    table.text("serial", &system.serial)?;
    table.bytes(&mixed_endian(system.uuid));
    table.bytes(&[WOKEN_BY_POWER_SWITCH]);
    table.text("SKU", &system.sku)?;
    table.text("family", &system.family)?;
    Ok(table.finish())
}

/// Section 7.4.
fn chassis(chassis: &Chassis) -> Result<Vec<u8>, SmbiosError> {
    const KIND_OTHER: u8 = 1;
    const SAFE: u8 = 3;
    const SECURITY_NONE: u8 = 3;

    let mut table = Structure::new(TYPE_CHASSIS);
    table.text("chassis manufacturer", &chassis.manufacturer)?;
    table.bytes(&[KIND_OTHER]);
    table.text("chassis version", &chassis.version)?;
    table.text("chassis serial", &chassis.serial)?;
    table.text("chassis asset tag", &chassis.asset_tag)?;
    // Boot-up, power supply, thermal.
    table.bytes(&[SAFE, SAFE, SAFE, SECURITY_NONE]);
    // OEM-defined, height, power cords, contained elements and their size.
    table.bytes(&[0; 8]);
    table.text("chassis SKU", &chassis.sku)?;
    Ok(table.finish())
}

/// Section 7.2.1: the first three parts of a UUID are little-endian.
fn mixed_endian(mut uuid: [u8; 16]) -> [u8; 16] {
    uuid[0..4].reverse();
    uuid[4..6].reverse();
    uuid[6..8].reverse();
    uuid
}

/// A structure in the making: its fixed part with numbers of strings, and the strings that follow it.
struct Structure {
    fixed: Vec<u8>,
    texts: Vec<u8>,
    count: u8,
}

impl Structure {
    fn new(kind: u8) -> Self {
        // Length and handle. Each type occurs once, so that the type serves as handle.
        Self { fixed: vec![kind, 0, kind, 0], texts: Vec::new(), count: 0 }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.fixed.extend_from_slice(bytes);
    }

    fn text(&mut self, field: &'static str, text: &str) -> Result<(), SmbiosError> {
        if text.len() > MAX_TEXT {
            return Err(SmbiosError::TooLong { field, length: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(SmbiosError::ControlCharacter { field });
        }
        // An empty string would end the list.
        let number = if text.is_empty() {
            0
        } else {
            self.texts.extend_from_slice(text.as_bytes());
            self.texts.push(0);
            self.count += 1;
            self.count
        };
        self.fixed.push(number);
        Ok(())
    }

    fn finish(mut self) -> Vec<u8> {
        self.fixed[1] = u8::try_from(self.fixed.len()).expect("fixed parts are short");
        // Without strings two zeros end it, with strings one more than the last string's.
        if self.count == 0 {
            self.texts.push(0);
        }
        self.texts.push(0);
        self.fixed.extend(self.texts);
        self.fixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> SmbiosInput {
        SmbiosInput {
            firmware_version: "0.1".into(),
            system: System {
                manufacturer: "Corten".into(),
                product: "Corten VM".into(),
                version: "1".into(),
                serial: "ds=nocloud".into(),
                uuid: *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff",
                sku: "sku".into(),
                family: "family".into(),
            },
            chassis: Chassis { asset_tag: "tag".into(), ..Chassis::default() },
        }
    }

    /// Structures as a kernel walks them: type, fixed part, strings.
    fn walk(bytes: &[u8]) -> Vec<(u8, Vec<u8>, Vec<String>)> {
        let mut rest = &bytes[0x20..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (fixed, texts) = rest.split_at(usize::from(rest[1]));
            let end = texts.windows(2).position(|pair| pair == [0, 0]).unwrap();
            let strings = String::from_utf8(texts[..end].to_vec()).unwrap();
            let strings = strings.split('\0').map(str::to_owned).collect();
            found.push((fixed[0], fixed.to_vec(), strings));
            rest = &texts[end + 2..];
        }
        found
    }

    #[test]
    fn entry_point_has_checksum_size_and_address() {
        let bytes = build(&input()).unwrap();

        assert_eq!(&bytes[..5], b"_SM3_");
        assert_eq!(bytes[..24].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        assert_eq!(bytes[12..16], u32::try_from(bytes.len() - 0x20).unwrap().to_le_bytes());
        assert_eq!(bytes[16..24], 0xf_0020_u64.to_le_bytes());
    }

    #[test]
    fn structures_have_the_lengths_of_the_standard() {
        let lengths: Vec<_> = walk(&build(&input()).unwrap())
            .into_iter()
            .map(|(kind, fixed, _)| (kind, fixed.len()))
            .collect();

        assert_eq!(lengths, [(0, 0x1a), (1, 0x1b), (3, 0x16), (127, 4)]);
    }

    #[test]
    fn system_has_its_strings_and_uuid() {
        let bytes = build(&input()).unwrap();
        let (_, fixed, strings) = &walk(&bytes)[1];

        assert_eq!(strings, &["Corten", "Corten VM", "1", "ds=nocloud", "sku", "family"]);
        assert_eq!(fixed[4..8], [1, 2, 3, 4]);
        assert_eq!(fixed[8..16], [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66]);
        assert_eq!(fixed[16..24], [0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
        assert_eq!(fixed[25..27], [5, 6]);
    }

    #[test]
    fn firmware_says_that_it_is_a_virtual_machine() {
        let bytes = build(&input()).unwrap();
        let (_, fixed, _) = &walk(&bytes)[0];

        assert_eq!(fixed[0x13] & 0x10, 0x10);
    }

    #[test]
    fn empty_strings_have_no_number() {
        let bytes = build(&SmbiosInput::default()).unwrap();
        let (_, fixed, strings) = &walk(&bytes)[1];

        assert_eq!(fixed[4..8], [0, 0, 0, 0]);
        assert_eq!(strings, &[""]);
    }

    #[test]
    fn chassis_has_the_asset_tag() {
        let bytes = build(&input()).unwrap();
        let (_, fixed, strings) = &walk(&bytes)[2];

        assert_eq!(fixed[8], 1);
        assert_eq!(strings, &["tag"]);
    }

    #[test]
    fn longest_strings_fit_below_the_generation_id() {
        let text = "x".repeat(MAX_TEXT);
        let mut input = input();
        input.firmware_version.clone_from(&text);
        let system = &mut input.system;
        for field in [
            &mut system.manufacturer,
            &mut system.product,
            &mut system.version,
            &mut system.serial,
            &mut system.sku,
            &mut system.family,
            &mut input.chassis.manufacturer,
            &mut input.chassis.version,
            &mut input.chassis.serial,
            &mut input.chassis.asset_tag,
            &mut input.chassis.sku,
        ] {
            field.clone_from(&text);
        }

        let size = build(&input).unwrap().len() as u64;

        assert!(size <= layout::GENERATION_ID.unchecked_offset_from(layout::SMBIOS));
    }

    #[test]
    fn string_with_zero_is_refused() {
        let mut input = input();
        input.system.serial = "a\0b".into();

        assert_eq!(build(&input), Err(SmbiosError::ControlCharacter { field: "serial" }));
    }

    #[test]
    fn string_that_is_too_long_is_refused() {
        let mut input = input();
        input.chassis.asset_tag = "x".repeat(MAX_TEXT + 1);

        let refused = SmbiosError::TooLong { field: "chassis asset tag", length: MAX_TEXT + 1 };
        assert_eq!(build(&input), Err(refused));
    }

    #[test]
    fn same_input_gives_same_bytes() {
        assert_eq!(build(&input()), build(&input()));
    }
}
