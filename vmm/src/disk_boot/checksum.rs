//! Checksums of partition tables and journals.

/// CRC-32 of GPT, lowest bit first.
const GPT: [u32; 256] = table(0xedb8_8320);
/// CRC-32C of ext4's journal, lowest bit first.
const CASTAGNOLI: [u32; 256] = table(0x82f6_3b78);

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0_u32; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is less than 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn update(table: &[u32; 256], crc: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ table[usize::from(crc.to_le_bytes()[0] ^ byte)];
    bytes.iter().fold(crc, step)
}

/// As GPT has it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !update(&GPT, u32::MAX, bytes)
}

/// As ext4 and its journal have it: not inverted, so that it can be gone on with.
pub(super) fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    update(&CASTAGNOLI, crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums_come_out() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(!crc32c(u32::MAX, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(7, b"1234"), b"56"), crc32c(7, b"123456"));
    }
}
