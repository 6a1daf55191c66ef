//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An Ethernet address, written as `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Everybody's.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it is a group's, as [`Self::BROADCAST`] is.
    pub fn is_multicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 != 0
    }

    /// Whether an interface can have it.
    pub fn is_valid(self) -> bool {
        !self.is_multicast() && self.0 != [0; 6]
    }
}

/// Not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not an Ethernet address: six pairs of hexadecimal digits with colons between them"
)]
pub struct MacAddressError(String);

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let byte = |digits: &str| {
            let are_digits =
                digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            are_digits.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        bytes.map(Self).ok_or_else(|| MacAddressError(text.into()))
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_reads_as_it_is_written() {
        let address: MacAddress = "02:00:5e:Ff:00:01".parse().unwrap();
        assert_eq!(address.0, [2, 0, 0x5e, 0xff, 0, 1]);
        assert_eq!(address.to_string(), "02:00:5e:ff:00:01");
        assert!(address.is_valid());
    }

    #[test]
    fn what_is_no_address_is_named() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "+2:00:00:00:00:01"]
        {
            let error = text.parse::<MacAddress>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn groups_and_nobody_are_no_interface() {
        for text in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
            assert!(!text.parse::<MacAddress>().unwrap().is_valid(), "{text}");
        }
    }
}
