//! What a guest reads as its UUID.

use corten_resources::machine::parse_uuid;
use corten_resources::types::VirtualMachineInstance;
use corten_resources::validate::Finding;

/// That of the firmware, else the VMI's uid: a UUID too, and as much the guest's own.
pub fn uuid(vmi: &VirtualMachineInstance) -> Result<[u8; 16], Finding> {
    let given = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.as_deref());
    let (path, text) = match given.filter(|text| !text.is_empty()) {
        Some(text) => ("spec.domain.firmware.uuid", text),
        None => ("metadata.uid", vmi.metadata.uid.as_str()),
    };
    parse_uuid(text).ok_or_else(|| {
        let example = "5d307ca9-b3ef-428c-8861-06e72d69f223";
        Finding::invalid(path, format!("{text:?} is no UUID such as {example}"))
    })
}

/// A UUID as people write it.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid));
    let group = |from: usize, to: usize| &digits[from..to];
    [group(0, 8), group(8, 12), group(12, 16), group(16, 20), group(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_it_is_read() {
        let text = "5d307ca9-b3ef-428c-8861-06e72d69f223";
        assert_eq!(uuid_text(parse_uuid(text).unwrap()), text);
        assert_eq!(uuid_text([0; 16]), "00000000-0000-0000-0000-000000000000");
    }
}
