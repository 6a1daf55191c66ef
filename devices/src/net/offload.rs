//! What TAP and guest leave to each other: checksums and segmentation.

use libc::c_uint;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
    VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
    VIRTIO_NET_HDR_F_DATA_VALID, VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_ECN,
    VIRTIO_NET_HDR_GSO_NONE, VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6,
    VIRTIO_NET_HDR_GSO_UDP_L4,
};

/// What every TAP can do.
pub(super) const FEATURES: [u32; 8] = [
    VIRTIO_NET_F_CSUM,
    VIRTIO_NET_F_GUEST_CSUM,
    VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_ECN,
    VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_F_HOST_ECN,
];

/// What TAPs can do since Linux 6.2: segmentation of UDP.
pub(super) const USO_FEATURES: [u32; 3] =
    [VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_HOST_USO];

/// What [`USO_FEATURES`] need of a TAP.
pub(super) const USO_FLAGS: c_uint = libc::TUN_F_CSUM | libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// What a driver takes unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offloads {
    checksum: bool,
    tso4: bool,
    tso6: bool,
    ecn: bool,
    uso: bool,
}

impl Offloads {
    /// Those that these features stand for. Section 5.1.3.1 says which needs which: one without the other counts for
    /// nothing, and so says TUNSETOFFLOAD, which also has segmentation of UDP for both versions of IP or for none.
    pub(super) fn of(features: u64) -> Self {
        let has = |feature: u32| features & 1 << feature != 0;
        let checksum = has(VIRTIO_NET_F_GUEST_CSUM);
        let tso4 = checksum && has(VIRTIO_NET_F_GUEST_TSO4);
        let tso6 = checksum && has(VIRTIO_NET_F_GUEST_TSO6);
        Self {
            checksum,
            tso4,
            tso6,
            ecn: (tso4 || tso6) && has(VIRTIO_NET_F_GUEST_ECN),
            uso: checksum && has(VIRTIO_NET_F_GUEST_USO4) && has(VIRTIO_NET_F_GUEST_USO6),
        }
    }

    /// As TUNSETOFFLOAD takes them.
    pub(super) fn flags(self) -> c_uint {
        let flag = |is_set: bool, flag: c_uint| if is_set { flag } else { 0 };
        flag(self.checksum, libc::TUN_F_CSUM)
            | flag(self.tso4, libc::TUN_F_TSO4)
            | flag(self.tso6, libc::TUN_F_TSO6)
            | flag(self.ecn, libc::TUN_F_TSO_ECN)
            | flag(self.uso, libc::TUN_F_USO4 | libc::TUN_F_USO6)
    }

    /// Whether frames may be larger than the interface's MTU.
    pub(super) fn has_large_frames(self) -> bool {
        self.tso4 || self.tso6 || self.uso
    }

    /// Whether the driver can do with a frame of these header fields. The TAP may have queued others while there was no
    /// driver, or a driver before this one.
    pub(super) fn take(self, flags: u8, segmentation: u8) -> bool {
        let needs_checksum = u32::from(flags) & VIRTIO_NET_HDR_F_NEEDS_CSUM != 0;
        let has_ecn = u32::from(segmentation) & VIRTIO_NET_HDR_GSO_ECN != 0;
        let is_taken = match u32::from(segmentation) & !VIRTIO_NET_HDR_GSO_ECN {
            VIRTIO_NET_HDR_GSO_NONE => true,
            VIRTIO_NET_HDR_GSO_TCPV4 => self.tso4,
            VIRTIO_NET_HDR_GSO_TCPV6 => self.tso6,
            VIRTIO_NET_HDR_GSO_UDP_L4 => self.uso,
            _ => false,
        };
        is_taken && (self.checksum || !needs_checksum) && (self.ecn || !has_ecn)
    }

    /// The flags that the driver may see. One that did not take checksums must see none (5.1.6.4.1).
    pub(super) fn visible(self, flags: u8) -> u8 {
        let known = VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID;
        let seen = if self.checksum { u32::from(flags) & known } else { 0 };
        seen.to_le_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS_CSUM: u8 = 1;
    const DATA_VALID: u8 = 2;
    const ECN: u8 = 0x80;

    fn of(features: &[u32]) -> Offloads {
        Offloads::of(features.iter().fold(0, |all, feature| all | 1 << feature))
    }

    #[test]
    fn features_without_what_they_need_count_for_nothing() {
        let (checksum, ecn) = (VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN);
        let (tso4, uso4, uso6) =
            (VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6);
        assert_eq!(of(&[tso4, ecn, uso4, uso6]).flags(), 0);
        assert_eq!(of(&[checksum, ecn, uso4]).flags(), libc::TUN_F_CSUM);
        let all = of(&FEATURES).flags() | of(&[checksum, uso4, uso6]).flags();
        assert_eq!(all, 0x6f, "all that TUNSETOFFLOAD knows, but for UFO");
        assert!(!of(&[checksum]).has_large_frames());
        assert!(of(&[checksum, tso4]).has_large_frames());
    }

    #[test]
    fn frame_is_taken_by_who_took_its_offload() {
        let (checksum, tso4) = (VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4);
        for (offloads, flags, segmentation, expected) in [
            (of(&[]), 0, 0, true),
            (of(&[]), DATA_VALID, 0, true),
            (of(&[]), NEEDS_CSUM, 0, false),
            (of(&[checksum]), NEEDS_CSUM, 0, true),
            (of(&[checksum]), NEEDS_CSUM, 1, false),
            (of(&[checksum, tso4]), NEEDS_CSUM, 1, true),
            (of(&[checksum, tso4]), NEEDS_CSUM, 1 | ECN, false),
            (of(&[checksum, tso4]), NEEDS_CSUM, 4, false),
            (of(&FEATURES), NEEDS_CSUM, 4 | ECN, true),
            (of(&FEATURES), NEEDS_CSUM, 5, false),
            (of(&FEATURES), NEEDS_CSUM, 3, false),
        ] {
            assert_eq!(offloads.take(flags, segmentation), expected, "{offloads:?} {segmentation}");
        }
    }

    #[test]
    fn flags_are_seen_by_who_took_checksums() {
        assert_eq!(of(&[]).visible(DATA_VALID), 0);
        assert_eq!(of(&[VIRTIO_NET_F_GUEST_CSUM]).visible(0xff), NEEDS_CSUM | DATA_VALID);
    }
}
