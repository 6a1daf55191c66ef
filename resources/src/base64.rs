//! Base64 as objects hold it (RFC 4648, section 4). Validation asks whether it can be read, and whoever reads it has the same
//! answer.

/// The bytes of a text in Base64 with its padding; nothing if it is none. White space is passed over: encoders break lines,
/// and YAML's block texts end with one.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let padding = digits.iter().rev().take_while(|byte| **byte == b'=').count();
    if !digits.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    let (mut number, mut bits) = (0_u32, 0);
    for digit in &digits[..digits.len() - padding] {
        number = number << 6 | u32::from(value(*digit)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((number >> bits).to_le_bytes()[0]);
        }
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        let table: [(&str, &[u8]); 8] = [
            ("", b""),
            ("YQ==", b"a"),
            ("YWI=", b"ab"),
            ("YWJj", b"abc"),
            ("YW\nJj\r\n", b"abc"),
            ("  YWJj\n\n", b"abc"),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
            // The bits behind the last byte say nothing.
            ("YR==", b"a"),
        ];
        for (text, bytes) in table {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["YQ", "Y===", "YQ=a", "#cloud-config", "YWJ-", "====", "=", "YQ==YQ==", "Äaaa"]
        {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
