//! Names under which descriptors travel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const MAX_SEGMENTS: usize = 3;
const MAX_SEGMENT_LENGTH: usize = 63;

/// What a descriptor is for: `kvm`, `uffd`, `tap/net1/0`, `disk/vda`.
///
/// One to three segments separated by `/`, each of lower-case letters, digits and inner `-`, as Kubernetes names
/// networks and volumes. A role is a name, not a path: nothing ever opens it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Role(String);

/// Why a text is not a role.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RoleError {
    /// Too many or too few segments.
    #[error("role {0:?} has not one to {MAX_SEGMENTS} segments")]
    Segments(String),
    /// A segment that is no DNS label.
    #[error(
        "role {role:?}: segment {segment:?} is not a DNS label of at most {MAX_SEGMENT_LENGTH} characters"
    )]
    Label {
        /// The whole text.
        role: String,
        /// The offending part of it.
        segment: String,
    },
}

impl Role {
    /// An open /dev/kvm.
    pub fn kvm() -> Self {
        Self("kvm".into())
    }

    /// An open /dev/userfaultfd, on which the receiver makes its own userfaultfd.
    pub fn userfaultfd() -> Self {
        Self("uffd".into())
    }

    /// The network namespace of a launcher.
    pub fn network_namespace() -> Self {
        Self("netns".into())
    }

    /// The kernel to boot.
    pub fn kernel() -> Self {
        Self("kernel".into())
    }

    /// Its initial RAM disk.
    pub fn initrd() -> Self {
        Self("initrd".into())
    }

    /// Where the serial console goes.
    pub fn console() -> Self {
        Self("console".into())
    }

    /// Where the input of the serial console comes from: a stream socket, which may be the one its output goes to.
    pub fn console_input() -> Self {
        Self("console/input".into())
    }

    /// Guest memory, a memfd.
    pub fn ram() -> Self {
        Self("ram".into())
    }

    /// A saved machine without its memory.
    pub fn records() -> Self {
        Self("records".into())
    }

    /// The file with the memory of a snapshot.
    pub fn snapshot_memory() -> Self {
        Self("snapshot/memory".into())
    }

    /// The file with all else of a snapshot.
    pub fn snapshot_records() -> Self {
        Self("snapshot/records".into())
    }

    /// Queue `queue` of the TAP that serves `network`.
    pub fn tap(network: &str, queue: u16) -> Result<Self, RoleError> {
        format!("tap/{network}/{queue}").parse()
    }

    /// The network and the queue, if it is the role of a TAP's queue.
    pub fn tap_queue(&self) -> Option<(&str, u16)> {
        self.numbered("tap/")
    }

    /// A fresh open /dev/vhost-net, for queue pair `pair` of the interface on `network`: nobody has used it before.
    pub fn vhost(network: &str, pair: u16) -> Result<Self, RoleError> {
        format!("vhost/{network}/{pair}").parse()
    }

    /// The network and the queue pair, if it is the role of a vhost-net.
    pub fn vhost_pair(&self) -> Option<(&str, u16)> {
        self.numbered("vhost/")
    }

    /// A name and a number behind `kind`, the number as we write it: no two roles are of the same queue.
    fn numbered(&self, kind: &str) -> Option<(&str, u16)> {
        let (name, number) = self.0.strip_prefix(kind)?.split_once('/')?;
        let parsed = number.parse().ok()?;
        (format!("{parsed}") == number).then_some((name, parsed))
    }

    /// The UDP socket on which the guest of `network` asks for its IPv4 address.
    pub fn dhcp4(network: &str) -> Result<Self, RoleError> {
        format!("dhcp4/{network}").parse()
    }

    /// The UDP socket on which the guest of `network` asks for its IPv6 address.
    pub fn dhcp6(network: &str) -> Result<Self, RoleError> {
        format!("dhcp6/{network}").parse()
    }

    /// The raw ICMPv6 socket on which the guest of `network` looks for routers.
    pub fn router(network: &str) -> Result<Self, RoleError> {
        format!("router/{network}").parse()
    }

    /// The network whose guest asks for addresses there, if it is the role of such a socket.
    pub fn asked_by_guest_of(&self) -> Option<&str> {
        let (kind, name) = self.0.split_once('/')?;
        (matches!(kind, "dhcp4" | "dhcp6" | "router") && !name.contains('/')).then_some(name)
    }

    /// The disk `name`.
    pub fn disk(name: &str) -> Result<Self, RoleError> {
        format!("disk/{name}").parse()
    }

    /// The name of the disk, if it is one's role.
    pub fn disk_name(&self) -> Option<&str> {
        self.0.strip_prefix("disk/").filter(|name| !name.contains('/'))
    }

    /// The name of the disk whose content this is a part of, be it the disk itself, an image of it or its overlay.
    pub fn content_of(&self) -> Option<&str> {
        let mut segments = self.0.split('/');
        match (segments.next(), segments.next(), segments.next()) {
            (Some("disk" | "overlay"), Some(name), None) | (Some("image"), Some(name), Some(_)) => {
                Some(name)
            }
            _ => None,
        }
    }

    /// Image `number` of the disk `name`, counted from the disk's own.
    pub fn image(name: &str, number: usize) -> Result<Self, RoleError> {
        format!("image/{name}/{number}").parse()
    }

    /// What is written to the disk `name`, which is made of images.
    pub fn overlay(name: &str) -> Result<Self, RoleError> {
        format!("overlay/{name}").parse()
    }

    /// Where the output of the console device's terminal goes.
    pub fn terminal() -> Self {
        Self("hvc".into())
    }

    /// Where its input comes from.
    pub fn terminal_input() -> Self {
        Self("hvc/input".into())
    }

    /// The host's end of a stream of the console device.
    pub fn port(number: usize) -> Self {
        Self(format!("port/{number}"))
    }

    /// A connected stream socket.
    pub fn connection() -> Self {
        Self("connection".into())
    }

    /// What stands for `name` in roles: itself if it can be a segment. Of other names, such as those of interfaces with capitals
    /// or underscores, as much as can be, and a checksum that tells it from its like.
    pub fn segment(name: &str) -> String {
        if is_label(name) {
            return name.into();
        }
        // FNV-1a: whoever makes two names alike on purpose is told that they are.
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let kept: String = name.chars().map(letter).take(MAX_SEGMENT_LENGTH - 17).collect();
        format!("{}-{sum:016x}", kept.trim_matches('-')).trim_start_matches('-').into()
    }

    /// The role as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let segments: Vec<&str> = text.splitn(MAX_SEGMENTS + 2, '/').collect();
        if segments.len() > MAX_SEGMENTS {
            return Err(RoleError::Segments(shortened(text)));
        }
        match segments.iter().find(|segment| !is_label(segment)) {
            Some(segment) => {
                Err(RoleError::Label { role: shortened(text), segment: shortened(segment) })
            }
            None => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Role {
    type Error = RoleError;

    fn try_from(text: String) -> Result<Self, RoleError> {
        text.parse()
    }
}

impl From<Role> for String {
    fn from(role: Role) -> Self {
        role.0
    }
}

fn is_label(segment: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=MAX_SEGMENT_LENGTH).contains(&segment.len())
        && segment.bytes().all(|byte| inner(byte) || byte == b'-')
        && segment.bytes().next().is_some_and(inner)
        && segment.bytes().next_back().is_some_and(inner)
}

/// An error must not carry 64 KiB of somebody else's text into a log.
fn shortened(text: &str) -> String {
    text.chars().take(2 * MAX_SEGMENT_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors_are_roles() {
        for text in ["kvm", "uffd", "tap/net1/0", "disk/vda", "vhost/my-net/12"] {
            assert_eq!(text.parse::<Role>().unwrap().as_str(), text);
        }
        assert_eq!(Role::tap("net1", 3).unwrap().as_str(), "tap/net1/3");
        assert_eq!(Role::disk("vda").unwrap().disk_name(), Some("vda"));
        assert_eq!(Role::tap("net1", 3).unwrap().disk_name(), None);
        assert!(Role::disk("a/b").unwrap().disk_name().is_none());
        for role in [Role::disk("vda"), Role::overlay("vda"), Role::image("vda", 3)] {
            assert_eq!(role.unwrap().content_of(), Some("vda"));
        }
        assert_eq!(Role::tap("net1", 3).unwrap().content_of(), None);
        assert_eq!(Role::kvm().content_of(), None);
    }

    #[test]
    fn roles_of_queues_say_of_which() {
        let role = |text: &str| text.parse::<Role>().unwrap();
        assert_eq!(Role::tap("net1", 3).unwrap().tap_queue(), Some(("net1", 3)));
        assert_eq!(Role::vhost("net1", 0).unwrap().as_str(), "vhost/net1/0");
        assert_eq!(role("vhost/my-net/12").vhost_pair(), Some(("my-net", 12)));
        assert_eq!(role("vhost/my-net/12").tap_queue(), None);
        assert_eq!(role("tap/net1/0").vhost_pair(), None);
        for text in ["tap", "tap/net1", "tap/net1/x", "tap/net1/007", "tap/net1/65536", "taps/a/1"]
        {
            assert_eq!(role(text).tap_queue(), None, "{text}");
        }
    }

    #[test]
    fn roles_of_sockets_for_addresses_say_of_which_network() {
        for role in [Role::dhcp4("net1"), Role::dhcp6("net1"), Role::router("net1")] {
            assert_eq!(role.unwrap().asked_by_guest_of(), Some("net1"));
        }
        for text in ["dhcp4", "dhcp6/a/b", "tap/net1/0", "disk/router"] {
            assert_eq!(text.parse::<Role>().unwrap().asked_by_guest_of(), None, "{text}");
        }
    }

    #[test]
    fn paths_and_odd_text_are_no_roles() {
        let long = "x".repeat(64);
        for text in ["", "/dev/kvm", "tap/../0", "a/b/c/d", "tap//0", "Kvm", "-a", "a-", "ä", &long]
        {
            assert!(text.parse::<Role>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn any_name_has_a_segment_of_its_own() {
        let long = "a".repeat(64);
        let names = ["net1", "Net1", "net_1", "net.1", "net-1", "", "-", "_", "ä", &long, "x-"];
        let segments = names.map(Role::segment);
        for segment in &segments {
            assert!(Role::disk(segment).is_ok(), "{segment}");
        }
        let unique: std::collections::BTreeSet<_> = segments.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert_eq!(segments[0], "net1");
        // Both ends of a link work it out, each by its own release.
        assert_eq!(segments[2], "net-1-bc75761e34d8657c");
    }

    #[test]
    fn error_text_stays_short() {
        let error = "X".repeat(1 << 20).parse::<Role>().unwrap_err();
        assert!(error.to_string().len() < 400);
    }
}
