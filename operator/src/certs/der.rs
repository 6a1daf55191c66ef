//! What a certificate says of itself, as far as renewing it needs: from when to when it is valid, whose it is, who signed
//! it. Whether it is to be believed is for TLS to find out; here it is our own, read back.

use super::Span;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) span: Span,
    /// Name of who signed it, as encoded.
    pub(super) issuer: Vec<u8>,
    /// Name of whose it is, as encoded.
    pub(super) subject: Vec<u8>,
}

/// Reads a certificate (RFC 5280, section 4.1); nothing if it is none.
pub(super) fn details(certificate: &[u8]) -> Option<Details> {
    let (whole, _) = take(certificate, SEQUENCE)?;
    let (signed, _) = take(whole, SEQUENCE)?;
    let after_version = take(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, rest) = take(after_version, INTEGER)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    let (issuer, rest) = take(rest, SEQUENCE)?;
    let (validity, rest) = take(rest, SEQUENCE)?;
    let (subject, _) = take(rest, SEQUENCE)?;
    let (from, validity) = time(validity)?;
    let (until, _) = time(validity)?;
    let span = Span { from, until };
    Some(Details { span, issuer: issuer.to_vec(), subject: subject.to_vec() })
}

/// The content of a value with this tag, and what follows it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    if *found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    if let Some((text, rest)) = take(bytes, GENERALIZED_TIME) {
        let (year, text) = text.split_at_checked(4)?;
        return Some((moment(number(year)?, text)?, rest));
    }
    let (text, rest) = take(bytes, UTC_TIME)?;
    let (year, text) = text.split_at_checked(2)?;
    let year = number(year)?;
    // Two digits stand for the years from 1950 to 2049.
    Some((moment(year + if year < 50 { 2000 } else { 1900 }, text)?, rest))
}

fn moment(year: i16, rest: &[u8]) -> Option<Timestamp> {
    let (digits, zone) = rest.split_at_checked(10)?;
    if zone != b"Z" {
        return None;
    }
    let mut parts = digits.chunks(2).map(|two| i8::try_from(number(two)?).ok());
    let mut part = || parts.next().flatten();
    let date = DateTime::new(year, part()?, part()?, part()?, part()?, part()?, 0).ok()?;
    TimeZone::UTC.to_timestamp(date).ok()
}

fn number(digits: &[u8]) -> Option<i16> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::make::authority;
    use jiff::SignedDuration;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    fn certificate(span: Span) -> Vec<u8> {
        let pem = authority(span).unwrap().certificate;
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }

    #[test]
    fn what_was_put_into_a_certificate_is_read_back() {
        let from = Timestamp::from_second(1_767_225_600).unwrap();
        for days in [7, 365 * 40] {
            let span = Span { from, until: from + SignedDuration::from_hours(24 * days) };
            let read = details(&certificate(span)).unwrap();
            assert_eq!(read.span, span, "{days} days");
            assert_eq!(read.issuer, read.subject);
            assert!(!read.subject.is_empty());
        }
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        let from = Timestamp::from_second(1_767_225_600).unwrap();
        let span = Span { from, until: from + SignedDuration::from_hours(1) };
        let certificate = certificate(span);
        for length in 0..certificate.len() {
            // Cut short anywhere, it is one no longer.
            assert_eq!(details(&certificate[..length]), None, "{length}");
        }
        for (place, value) in [(0, 0x31), (1, 0xff), (4, 0x02), (20, 0xff)] {
            let mut broken = certificate.clone();
            broken[place] = value;
            let _ = details(&broken);
        }
        assert_eq!(details(b""), None);
        assert_eq!(details(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }
}
