//! Names, paths, addresses.

use super::Findings;
use crate::finding::Finding;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A label of DNS (RFC 1123): what most names in Kubernetes are.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Labels with dots between them.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// A path that cannot lead out of where it is looked for.
pub(super) fn is_contained(path: &str) -> bool {
    !path.contains('\0') && !path.split('/').any(|part| part == "..")
}

/// A text of printable ASCII.
pub(super) fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// A domain in which short names are looked for. The root, which Kubernetes allows, is one.
pub(super) fn is_search_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.is_empty() || name.len() <= 253 && name.split('.').all(is_label)
}

/// A time as Go writes it: numbers with units, such as `1h30m`.
pub(super) fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let Some(unit_at) = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        else {
            return false;
        };
        let (number, after) = rest.split_at(unit_at);
        let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let known = ["h", "m", "s", "ms", "us", "ns"].contains(&unit);
        if !known || number.parse::<f64>().is_err() {
            return false;
        }
        rest = after;
    }
    !text.is_empty()
}

/// A tag of an image, as registries take it.
pub(super) fn is_tag(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with(['.', '-'])
}

/// A digest of an image: `sha256:` and what it is.
pub(super) fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|digit| b"0123456789abcdef".contains(&digit))
}

/// What stands before the last name of an image: a host, maybe with a port, and names behind it.
pub(super) fn is_registry(text: &str) -> bool {
    let mut parts = text.strip_suffix('/').unwrap_or(text).split('/');
    let host = parts.next().unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().is_ok()),
        _ => (host, true),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_host = address.map_or_else(
        || is_subdomain(&name.to_ascii_lowercase()),
        |address| address.parse::<std::net::Ipv6Addr>().is_ok(),
    );
    let is_name = |name: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        name.bytes().all(|byte| inner(byte) || b"._-".contains(&byte))
            && name.bytes().next().is_some_and(inner)
            && name.bytes().last().is_some_and(inner)
    };
    is_host && port && text.len() <= 255 && parts.all(is_name)
}

/// Refuses what is not a name. Whether there is one, of which more can be said.
pub(super) fn check_label(path: &str, text: &str, findings: &mut Findings) -> bool {
    if text.is_empty() {
        findings.push(Finding::missing(path, "it needs a name"));
    } else if !is_label(text) {
        let message =
            "a name has at most 63 small letters, digits and dashes, and no dash at its ends";
        findings.push(Finding::invalid(path, message));
    }
    !text.is_empty()
}

/// Refuses a value that came before.
pub(super) fn check_first<T: Ord>(
    seen: &mut BTreeSet<T>,
    value: T,
    finding: impl FnOnce() -> Finding,
    findings: &mut Findings,
) {
    if !seen.insert(value) {
        findings.push(finding());
    }
}

/// Refuses an empty text where one is needed.
pub(super) fn check_given(path: &str, text: Option<&str>, what: &str, findings: &mut Findings) {
    if text.is_none_or(str::is_empty) {
        findings.push(Finding::missing(path, what));
    }
}

/// A hardware address, with colons or dashes between six bytes.
pub(crate) fn mac_address(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut parts = text.split(separator);
    for byte in &mut bytes {
        let part = parts.next()?;
        // A sign before a digit would also be taken as a number.
        if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// A network as `address/bits`.
pub(super) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    if !bits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    (bits <= most).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_dns() {
        for name in ["a", "a-1", "0", &"x".repeat(63)] {
            assert!(is_label(name), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a.b", "ä", &"x".repeat(64)] {
            assert!(!is_label(name), "{name}");
        }
        assert!(is_subdomain("a.b-c.d") && !is_subdomain("a..b") && !is_subdomain(""));
    }

    #[test]
    fn parts_of_images_are_those_of_registries() {
        for tag in ["1", "v1.2.3-rc.1", "_a", &"x".repeat(128)] {
            assert!(is_tag(tag), "{tag}");
        }
        for tag in ["", "bad tag!!", "-a", ".a", "a:b", "a/b", &"x".repeat(129)] {
            assert!(!is_tag(tag), "{tag}");
        }
        let digest = format!("sha256:{}", "a1".repeat(32));
        assert!(is_digest(&digest) && !is_digest("sha256:ab") && !is_digest(&digest[1..]));
        for registry in
            ["r", "r:5000/x", "registry.example/corten/", "[::1]:5000/a/b-c", "10.0.0.1"]
        {
            assert!(is_registry(registry), "{registry}");
        }
        for registry in ["", "/", "a b", "r:port", "r/A", "r//a", "https://r", "r/a:1", "r/-a"] {
            assert!(!is_registry(registry), "{registry}");
        }
    }

    #[test]
    fn hardware_addresses_have_six_bytes() {
        let address = Some([0x02, 0, 0, 0xab, 0xCD, 0xff]);
        assert_eq!(mac_address("02:00:00:ab:CD:ff"), address);
        assert_eq!(mac_address("02-00-00-ab-CD-ff"), address);
        for text in
            ["", "02:00:00:ab:cd", "02:00:00:ab:cd:ff:00", "2:0:0:a:c:f", "+2:00:00:ab:cd:ff"]
        {
            assert_eq!(mac_address(text), None, "{text}");
        }
    }

    #[test]
    fn networks_have_an_address_and_bits() {
        assert_eq!(network("10.0.2.0/24"), Some(([10, 0, 2, 0].into(), 24)));
        assert!(network("fd10:0:2::/120").is_some());
        for text in ["10.0.2.0", "10.0.2.0/33", "10.0.2/24", "fd10::/129", "10.0.2.0/+4", "/"] {
            assert_eq!(network(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_with_dots_for_names_is_contained() {
        assert!(is_contained("/disk/a..b") && is_contained("..."));
        assert!(!is_contained("/disk/../etc") && !is_contained("..") && !is_contained("a\0b"));
    }
}
