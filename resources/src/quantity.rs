//! Amounts as Kubernetes writes them: `256Mi`, `1.5G`, `100m`, `2`, `1e3`.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// An amount, as it was written.
///
/// In JSON it is a string or a number: `memory: 1073741824` is as good as `memory: 1Gi`. It is kept as it came, so that
/// an object that is written back looks as its user wrote it, and read only when its value is wanted: a wrong amount
/// in one object must not keep others from being read.
#[derive(Clone, Debug)]
pub struct Quantity {
    text: String,
    /// It was a number, and is written as one. To whoever compares it makes no difference.
    is_number: bool,
}

/// What is wrong with a [`Quantity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with one of the suffixes.
    #[error(
        "{0:?} is not an amount: write a number with one of the suffixes Ki, Mi, Gi, Ti, Pi, Ei, n, u, m, k, M, G, T, P, E or none"
    )]
    Malformed(String),
    /// Below zero.
    #[error("{0:?} is negative")]
    Negative(String),
    /// More than fits.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

impl Quantity {
    /// The amount written like this.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_number: false }
    }

    /// So many bytes, in the largest binary unit that holds them without a rest.
    pub fn of_bytes(bytes: u64) -> Self {
        const UNITS: [(&str, u64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
        let whole = UNITS.iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
        Self::new(
            whole.map_or_else(
                || bytes.to_string(),
                |(unit, size)| format!("{}{unit}", bytes / size),
            ),
        )
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The amount as a whole number, rounded up as Kubernetes does: bytes of memory, a count.
    pub fn units(&self) -> Result<u64, QuantityError> {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded up: processor time in millicores.
    pub fn millis(&self) -> Result<u64, QuantityError> {
        self.scaled(3)
    }

    /// The amount times ten to the power of `decimals`, rounded up.
    fn scaled(&self, decimals: i32) -> Result<u64, QuantityError> {
        let malformed = || QuantityError::Malformed(self.text.clone());
        let too_large = || QuantityError::TooLarge(self.text.clone());
        let end = self
            .text
            .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'))
            .unwrap_or(self.text.len());
        let (number, suffix) = self.text.split_at(end);
        let (binary, power) = Suffix::parse(suffix).ok_or_else(malformed)?.powers();
        let negative = number.starts_with('-');
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) || (whole.is_empty() && fraction.is_empty())
        {
            return Err(malformed());
        }
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(0);
        }
        if negative {
            return Err(QuantityError::Negative(self.text.clone()));
        }
        // Digits before the point, once it has moved. Saturates: what is that large or small does not fit, or is under one.
        let leading = i64::try_from(whole.len()).unwrap_or(i64::MAX)
            - i64::try_from(all.len() - digits.len()).unwrap_or(i64::MAX);
        let point = leading.saturating_add(power.into()).saturating_add(decimals.into());
        shifted(digits.as_bytes(), point, binary).ok_or_else(too_large)
    }
}

/// These digits with the point behind the first so many of them, times two to the power of `binary`, rounded up as Kubernetes
/// does: however far behind the point a digit is, what is asked for is a little more. Nothing if it does not fit.
///
/// The first digit is not 0.
fn shifted(digits: &[u8], point: i64, binary: u32) -> Option<u64> {
    /// Digits of the largest number that fits.
    const MOST_DIGITS: i64 = 20;
    if point > MOST_DIGITS {
        return None;
    }
    let behind = usize::try_from(point).unwrap_or(0).min(digits.len());
    let (whole, fraction) = digits.split_at(behind);
    let mut value: u128 = 0;
    for digit in whole {
        value = value * 10 + u128::from(digit - b'0');
    }
    for _ in whole.len()..usize::try_from(point).unwrap_or(0) {
        value *= 10;
    }
    let value = u64::try_from(value).ok()?;
    // The fraction times the power of two, from its last digit on: what is carried in the end is whole.
    let (mut carried, mut has_rest): (u128, bool) = (0, false);
    for digit in fraction.iter().rev() {
        carried += u128::from(digit - b'0') << binary;
        has_rest |= !carried.is_multiple_of(10);
        carried /= 10;
    }
    // Zeros between the point and the first digit.
    for _ in point..0 {
        if carried == 0 {
            break;
        }
        has_rest |= !carried.is_multiple_of(10);
        carried /= 10;
    }
    let whole = u128::from(value).checked_mul(1 << binary)?;
    u64::try_from(whole + carried + u128::from(has_rest)).ok()
}

/// What stands behind the number.
#[derive(Clone, Copy)]
enum Suffix {
    /// 1024 to this power.
    Binary(u32),
    /// Ten to this power.
    Decimal(i32),
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" => Self::Decimal(0),
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            _ => Self::Decimal(text.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }

    /// Bits to shift by, and power of ten.
    fn powers(self) -> (u32, i32) {
        match self {
            Self::Binary(power) => (10 * power, 0),
            Self::Decimal(power) => (0, power),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.text.as_str();
        match (self.is_number, text.parse::<u64>(), text.parse::<i64>(), text.parse::<f64>()) {
            (true, Ok(number), ..) => serializer.serialize_u64(number),
            (true, _, Ok(number), _) => serializer.serialize_i64(number),
            (true, _, _, Ok(number)) => serializer.serialize_f64(number),
            _ => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity::new(text))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity { text: number.to_string(), is_number: true })
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity { text: number.to_string(), is_number: true })
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                // With a point or an exponent, so that it stays what it was when it is written.
                Ok(Quantity { text: format!("{number:?}"), is_number: true })
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

#[cfg(feature = "cluster")]
impl schemars::JsonSchema for Quantity {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Result<u64, QuantityError> {
        Quantity::new(text).units()
    }

    #[test]
    fn every_suffix_is_read() {
        let table = [
            ("0", 0),
            ("12", 12),
            ("+5", 5),
            ("-0", 0),
            ("1k", 1_000),
            ("2M", 2_000_000),
            ("3G", 3_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ki", 1 << 10),
            ("256Mi", 256 << 20),
            ("1Gi", 1 << 30),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("1Ei", 1 << 60),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("5e-1", 1),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("1.", 1),
            ("0.1", 1),
            ("100m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("1u", 1),
            ("1n", 1),
            ("1e-400", 1),
            ("0e400", 0),
            ("1.000000000000000000000000000000000000000000000001Gi", (1 << 30) + 1),
            ("0.000000000000000000000000000000000000000000000001Ei", 1),
            ("1.500000000000000000000000000000000000000000000000Gi", 3 << 29),
            ("000000000000000000000000000000000000000000000000001", 1),
            ("100000000000000000000000000000000000000000000000e-48", 1),
            ("123456789.5e-8", 2),
            ("0.001Ki", 2),
            ("0.0009765625Ki", 1),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, value) in table {
            assert_eq!(units(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn processor_time_is_in_thousandths() {
        for (text, value) in [("100m", 100), ("1", 1000), ("0.5", 500), ("1.0005", 1001), ("1u", 1)]
        {
            assert_eq!(Quantity::new(text).millis(), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "", "Mi", ".", "1 Gi", "1gi", "0x10", "1e", "1e1.5", "1-2", "--1", "1.2.3", "1KiB", "٣",
        ] {
            assert_eq!(units(text), Err(QuantityError::Malformed(text.into())));
        }
    }

    #[test]
    fn what_is_negative_or_does_not_fit_is_refused() {
        assert_eq!(units("-1"), Err(QuantityError::Negative("-1".into())));
        for text in [
            "16Ei",
            "20E",
            "18446744073709551616",
            "18446744073709551615.1",
            "1e20",
            "1e400",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(units(text), Err(QuantityError::TooLarge(text.into())));
        }
    }

    #[test]
    fn numbers_in_json_are_as_good_as_strings() {
        let read: Vec<Quantity> = serde_json::from_str(r#"[2, "2", 0.5, -1]"#).unwrap();
        assert_eq!(read, ["2", "2", "0.5", "-1"].map(Quantity::new));
    }

    #[test]
    fn an_amount_is_written_as_it_came() {
        let text = r#"[2,"2",2.0,0.5,-1,18446744073709551615,"1Gi",1e300]"#;
        let read: Vec<Quantity> = serde_json::from_str(text).unwrap();
        let again: serde_json::Value = serde_json::to_value(&read).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn bytes_are_written_in_the_largest_unit_that_fits() {
        let table = [
            (0, "0"),
            (1, "1"),
            (1 << 10, "1Ki"),
            (272 << 20, "272Mi"),
            (3 << 30, "3Gi"),
            (1025, "1025"),
        ];
        for (bytes, text) in table {
            assert_eq!(Quantity::of_bytes(bytes), Quantity::new(text));
            assert_eq!(Quantity::of_bytes(bytes).units(), Ok(bytes));
        }
    }
}
