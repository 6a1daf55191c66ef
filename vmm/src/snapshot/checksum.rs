//! CRC-32C (Castagnoli), the checksum of all parts of a snapshot: it is to find damage, not forgery.

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Bytes taken at once.
const STRIDE: usize = 8;

/// What a byte does to the checksum when that many bytes follow it.
static TABLES: [[u32; 256]; STRIDE] = tables();

const fn tables() -> [[u32; 256]; STRIDE] {
    let mut tables = [[0_u32; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is less than 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut follow = 1;
    while follow < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[follow - 1][byte];
            tables[follow][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        follow += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let step =
        |crc: u32, byte: u8| (crc >> 8) ^ TABLES[0][usize::from(crc.to_le_bytes()[0] ^ byte)];
    let eight = |crc: u32, stride: &[u8; STRIDE]| {
        let [a, b, c, d] = crc.to_le_bytes();
        let mut mixed = *stride;
        for (byte, crc) in mixed.iter_mut().zip([a, b, c, d]) {
            *byte ^= crc;
        }
        let places = mixed.iter().zip(TABLES.iter().rev());
        places.fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)])
    };
    let crc = strides.iter().fold(u32::MAX, eight);
    !rest.iter().fold(crc, |crc, byte| step(crc, *byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, as it is defined.
    fn slow(bytes: &[u8]) -> u32 {
        let bit = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
        !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
    }

    /// Those of RFC 3720, B.4.
    #[test]
    fn known_checksums_come_out() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(checksum(&rising), 0x46dd_794e);
        assert_eq!(checksum(b""), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_have_the_checksum_that_is_defined(bytes: Vec<u8>) {
            prop_assert_eq!(checksum(&bytes), slow(&bytes));
        }
    }
}
