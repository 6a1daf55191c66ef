//! From a descriptor chain to a request. Everything in a chain is the guest's word.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use crate::virtio::GuestRam;

/// Sectors are of this size whatever the block size is.
pub(super) const SECTOR: u64 = 512;
/// Length of the serial number that GET_ID gives.
pub(super) const ID_LENGTH: usize = 20;
/// Data buffers in one request.
pub(super) const MAX_SEGMENTS: usize = 254;
/// Bytes in one request. Drivers that keep to SIZE_MAX and SEG_MAX stay below.
pub(super) const MAX_LENGTH: u64 = 256 << 20;
/// Ranges in one discard.
pub(super) const MAX_DISCARD_RANGES: usize = 16;
/// Sectors in one range of a discard.
pub(super) const MAX_DISCARD_SECTORS: u32 = 1 << 21;
/// Ranges in one request for zeroes.
pub(super) const MAX_ZERO_RANGES: usize = 1;
/// Sectors in one range of zeroes. They may have to be written, and a pause waits for them.
pub(super) const MAX_ZERO_SECTORS: u32 = 1 << 18;

/// Status: done.
pub(super) const OK: u8 = VIRTIO_BLK_S_OK.to_le_bytes()[0];
/// Status: not done.
pub(super) const IOERR: u8 = VIRTIO_BLK_S_IOERR.to_le_bytes()[0];
/// Status: not known.
pub(super) const UNSUPPORTED: u8 = VIRTIO_BLK_S_UNSUPP.to_le_bytes()[0];

const HEADER: usize = 16;
const RANGE: usize = 16;
const UNMAP: u32 = 1;

/// A part of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Where it begins.
    #[serde(with = "address")]
    pub address: GuestAddress,
    /// How many bytes it has.
    pub length: u32,
}

/// A part of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectorRange {
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// Whether the space may be given back.
    pub unmap: bool,
}

/// What a guest asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Action {
    /// From the disk into memory.
    Read {
        /// First sector.
        sector: u64,
        /// Where to.
        segments: Vec<Segment>,
    },
    /// From memory to the disk.
    Write {
        /// First sector.
        sector: u64,
        /// Where from.
        segments: Vec<Segment>,
    },
    /// What was written stays.
    Flush,
    /// The serial number.
    GetId {
        /// Where to.
        segments: Vec<Segment>,
    },
    /// Content that is not needed any more.
    Discard {
        /// Where.
        ranges: Vec<SectorRange>,
    },
    /// Zeroes.
    WriteZeroes {
        /// Where.
        ranges: Vec<SectorRange>,
    },
}

/// One request, complete: it can be done again without its chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Head of its chain.
    pub head: u16,
    /// Where its status goes.
    #[serde(with = "address")]
    pub status: GuestAddress,
    /// What is asked for.
    pub action: Action,
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Sectors that the disk has.
    pub(super) capacity: u64,
    /// What transfers are multiples of, in bytes.
    pub(super) block_size: u32,
    pub(super) read_only: bool,
    /// The driver took the feature.
    pub(super) discard: bool,
    /// The driver took the feature.
    pub(super) write_zeroes: bool,
}

/// Why there is no request in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// There is no place to say so: the queue fails.
    Unanswerable,
    /// The status says so.
    Answered { status: GuestAddress, code: u8, reason: BadRequest },
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum BadRequest {
    #[error("its header is short")]
    Header,
    #[error("buffers to read from come behind buffers to write to")]
    Order,
    #[error("its data has the wrong direction")]
    Direction,
    #[error("its data has a length that cannot be")]
    Length,
    #[error("it does not begin or end with a block")]
    Alignment,
    #[error("it is not on the disk")]
    Range,
    #[error("its data is not in memory")]
    Memory,
    #[error("the disk is read-only")]
    ReadOnly,
    #[error("no such request")]
    Unsupported,
}

impl BadRequest {
    fn code(self) -> u8 {
        match self {
            Self::Unsupported => UNSUPPORTED,
            _ => IOERR,
        }
    }
}

impl Action {
    /// Bytes of data that go between guest and disk.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Read { segments, .. } | Self::Write { segments, .. } => length_of(segments),
            _ => 0,
        }
    }

    /// Bytes that a pause may have to wait for, and that rate limits count: zeroes, too, as the host may have to write
    /// them. What is discarded is not written, whatever its length.
    pub(super) fn work(&self) -> u64 {
        match self {
            Self::WriteZeroes { ranges } => {
                ranges.iter().map(|range| u64::from(range.sectors) * SECTOR).sum()
            }
            _ => self.length(),
        }
    }

    /// Checks what holds for a request from any source: a chain, or a saved state.
    pub(super) fn check(&self, ram: &GuestRam, rules: &Rules) -> Result<(), BadRequest> {
        match self {
            Self::Read { sector, segments } => check_transfer(*sector, segments, ram, rules),
            Self::Write { sector, segments } => {
                refuse_read_only(rules)?;
                check_transfer(*sector, segments, ram, rules)
            }
            Self::Flush => Ok(()),
            Self::GetId { segments } => check_memory(segments, ram),
            Self::Discard { ranges } => {
                refuse_read_only(rules)?;
                if !rules.discard || ranges.iter().any(|range| range.unmap) {
                    return Err(BadRequest::Unsupported);
                }
                check_ranges(ranges, (MAX_DISCARD_RANGES, MAX_DISCARD_SECTORS), rules)
            }
            Self::WriteZeroes { ranges } => {
                refuse_read_only(rules)?;
                if !rules.write_zeroes {
                    return Err(BadRequest::Unsupported);
                }
                check_ranges(ranges, (MAX_ZERO_RANGES, MAX_ZERO_SECTORS), rules)
            }
        }
    }
}

fn refuse_read_only(rules: &Rules) -> Result<(), BadRequest> {
    if rules.read_only { Err(BadRequest::ReadOnly) } else { Ok(()) }
}

fn length_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}

fn check_memory(segments: &[Segment], ram: &GuestRam) -> Result<(), BadRequest> {
    let there = |segment: &Segment| {
        usize::try_from(segment.length).is_ok_and(|length| {
            GuestMemory::check_range(&**ram, segment.address, length, Permissions::ReadWrite)
        })
    };
    if segments.len() > MAX_SEGMENTS || length_of(segments) > MAX_LENGTH {
        return Err(BadRequest::Length);
    }
    if segments.iter().all(there) { Ok(()) } else { Err(BadRequest::Memory) }
}

fn check_transfer(
    sector: u64,
    segments: &[Segment],
    ram: &GuestRam,
    rules: &Rules,
) -> Result<(), BadRequest> {
    let length = length_of(segments);
    if !length.is_multiple_of(SECTOR) {
        return Err(BadRequest::Length);
    }
    check_range(sector, length / SECTOR, rules)?;
    check_memory(segments, ram)
}

fn check_range(sector: u64, sectors: u64, rules: &Rules) -> Result<(), BadRequest> {
    let block = u64::from(rules.block_size) / SECTOR;
    if sector.checked_add(sectors).is_none_or(|end| end > rules.capacity) {
        return Err(BadRequest::Range);
    }
    if sector.is_multiple_of(block) && sectors.is_multiple_of(block) {
        Ok(())
    } else {
        Err(BadRequest::Alignment)
    }
}

fn check_ranges(
    ranges: &[SectorRange],
    (most, most_sectors): (usize, u32),
    rules: &Rules,
) -> Result<(), BadRequest> {
    if ranges.is_empty() || ranges.len() > most {
        return Err(BadRequest::Length);
    }
    for range in ranges {
        if range.sectors > most_sectors {
            return Err(BadRequest::Length);
        }
        check_range(range.sector, range.sectors.into(), rules)?;
    }
    Ok(())
}

/// The buffers of a chain, by direction, as the specification has them: framing says nothing (2.7.4).
struct Parts {
    readable: Vec<Segment>,
    writable: Vec<Segment>,
    status: GuestAddress,
    ordered: bool,
}

impl Parts {
    /// None if there is no place for a status.
    fn of(descriptors: impl Iterator<Item = Descriptor>, ram: &GuestRam) -> Option<Self> {
        let (mut readable, mut writable) = (Vec::new(), Vec::new());
        let (mut ordered, mut complete) = (true, false);
        for (count, descriptor) in descriptors.enumerate() {
            // Longer than any queue we offer: chains cannot be (2.7.5.3.1).
            if count >= MAX_SEGMENTS + 2 {
                return None;
            }
            // A chain that breaks off looks like a short one but for this.
            complete = !descriptor.has_next();
            let segment = Segment { address: descriptor.addr(), length: descriptor.len() };
            if segment.length == 0 {
                continue;
            }
            if descriptor.is_write_only() {
                writable.push(segment);
            } else {
                ordered &= writable.is_empty();
                readable.push(segment);
            }
        }
        let last: &mut Segment = writable.last_mut()?;
        last.length -= 1;
        let status = GuestAddress(last.address.0.checked_add(last.length.into())?);
        if last.length == 0 {
            writable.pop();
        }
        let there = GuestMemory::check_range(&**ram, status, 1, Permissions::Write);
        (complete && there).then_some(Self { readable, writable, status, ordered })
    }

    /// Takes `N` bytes off the front of what is readable.
    fn take<const N: usize>(&mut self, ram: &GuestRam) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            let first = self.readable.first_mut()?;
            let part = usize::try_from(first.length).ok()?.min(N - filled);
            ram.read_slice(&mut bytes[filled..filled + part], first.address).ok()?;
            filled += part;
            let taken = u32::try_from(part).ok()?;
            first.length -= taken;
            first.address = GuestAddress(first.address.0.checked_add(taken.into())?);
            if first.length == 0 {
                self.readable.remove(0);
            }
        }
        Some(bytes)
    }

    fn action(&mut self, ram: &GuestRam) -> Result<Action, BadRequest> {
        if !self.ordered {
            return Err(BadRequest::Order);
        }
        let header: [u8; HEADER] = self.take(ram).ok_or(BadRequest::Header)?;
        let [a, b, c, d, _, _, _, _, sector @ ..] = header;
        let sector = u64::from_le_bytes(sector);
        match u32::from_le_bytes([a, b, c, d]) {
            VIRTIO_BLK_T_IN => {
                Ok(Action::Read { sector, segments: only(&mut self.writable, &self.readable)? })
            }
            VIRTIO_BLK_T_OUT => {
                Ok(Action::Write { sector, segments: only(&mut self.readable, &self.writable)? })
            }
            // "the device SHOULD ignore" a sector, and there is no data (5.2.6.2).
            VIRTIO_BLK_T_FLUSH => Ok(Action::Flush),
            VIRTIO_BLK_T_GET_ID => {
                Ok(Action::GetId { segments: only(&mut self.writable, &self.readable)? })
            }
            VIRTIO_BLK_T_DISCARD => Ok(Action::Discard { ranges: self.ranges(ram)? }),
            VIRTIO_BLK_T_WRITE_ZEROES => Ok(Action::WriteZeroes { ranges: self.ranges(ram)? }),
            _ => Err(BadRequest::Unsupported),
        }
    }

    fn ranges(&mut self, ram: &GuestRam) -> Result<Vec<SectorRange>, BadRequest> {
        if !self.writable.is_empty() {
            return Err(BadRequest::Direction);
        }
        let length = usize::try_from(length_of(&self.readable)).unwrap_or(usize::MAX);
        if !length.is_multiple_of(RANGE) || length > RANGE * MAX_DISCARD_RANGES {
            return Err(BadRequest::Length);
        }
        let mut ranges = Vec::new();
        for _ in 0..length / RANGE {
            let bytes: [u8; RANGE] = self.take(ram).ok_or(BadRequest::Memory)?;
            let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = bytes;
            let flags = u32::from_le_bytes(flags);
            if flags & !UNMAP != 0 {
                return Err(BadRequest::Unsupported);
            }
            ranges.push(SectorRange {
                sector: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
                sectors: u32::from_le_bytes([n0, n1, n2, n3]),
                unmap: flags & UNMAP != 0,
            });
        }
        Ok(ranges)
    }
}

fn only(wanted: &mut Vec<Segment>, other: &[Segment]) -> Result<Vec<Segment>, BadRequest> {
    if other.is_empty() { Ok(std::mem::take(wanted)) } else { Err(BadRequest::Direction) }
}

/// Reads a chain. Touches nothing but the header and the ranges of a discard.
pub(super) fn parse(
    head: u16,
    descriptors: impl Iterator<Item = Descriptor>,
    ram: &GuestRam,
    rules: &Rules,
) -> Result<Request, Reject> {
    let mut parts = Parts::of(descriptors, ram).ok_or(Reject::Unanswerable)?;
    let status = parts.status;
    let checked = parts.action(ram).and_then(|action| {
        action.check(ram, rules)?;
        Ok(Request { head, status, action })
    });
    checked.map_err(|reason| Reject::Answered { status, code: reason.code(), reason })
}

/// Guest addresses as numbers.
mod address {
    use serde::{Deserialize, Deserializer, Serializer};
    use vm_memory::GuestAddress;

    pub(super) fn serialize<S: Serializer>(
        address: &GuestAddress,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(address.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<GuestAddress, D::Error> {
        u64::deserialize(deserializer).map(GuestAddress)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::guest_ram;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const RULES: Rules = Rules {
        capacity: 64,
        block_size: 512,
        read_only: false,
        discard: true,
        write_zeroes: true,
    };

    fn header(ram: &GuestRam, kind: u32, sector: u64) {
        ram.write_obj(kind, GuestAddress(0x100)).unwrap();
        ram.write_obj(sector, GuestAddress(0x108)).unwrap();
    }

    /// Linked in order, but for the last.
    fn chain(buffers: &[(u64, u32, u16)]) -> Vec<Descriptor> {
        let last = buffers.len().saturating_sub(1);
        let link = |(at, (address, length, flags)): (usize, &(u64, u32, u16))| {
            let next = if at == last { 0 } else { NEXT };
            Descriptor::new(*address, *length, flags | next, 0)
        };
        buffers.iter().enumerate().map(link).collect()
    }

    fn parsed(
        ram: &GuestRam,
        buffers: &[(u64, u32, u16)],
        rules: &Rules,
    ) -> Result<Action, Reject> {
        parse(7, chain(buffers).into_iter(), ram, rules).map(|request| request.action)
    }

    fn reason(result: &Result<Action, Reject>) -> Option<BadRequest> {
        match result {
            Err(Reject::Answered { reason, .. }) => Some(*reason),
            _ => None,
        }
    }

    #[test]
    fn framing_says_nothing() {
        let ram = guest_ram();
        header(&ram, VIRTIO_BLK_T_IN, 3);
        let one = [(0x100, 16, 0), (0x2000, 512, WRITE), (0x3000, 1, WRITE)];
        let split = [
            (0x100, 5, 0),
            (0x105, 0, 0),
            (0x105, 11, 0),
            (0x2000, 500, WRITE),
            (0x2200, 13, WRITE),
        ];
        let first = parse(7, chain(&one).into_iter(), &ram, &RULES).unwrap();
        assert_eq!((first.head, first.status), (7, GuestAddress(0x3000)));
        assert!(matches!(first.action, Action::Read { sector: 3, .. }));
        let second = parse(7, chain(&split).into_iter(), &ram, &RULES).unwrap();
        assert_eq!(second.status, GuestAddress(0x220c));
        assert_eq!(second.action.length(), 512);
    }

    #[test]
    fn chains_without_a_place_for_the_status_fail_the_queue() {
        let ram = guest_ram();
        header(&ram, VIRTIO_BLK_T_IN, 0);
        for buffers in [
            &[][..],
            &[(0x100, 16, 0)],
            &[(0x100, 16, 0), (0x3000, 0, WRITE)],
            &[(0x100, 16, 0), (0x3000, 1, 0)],
            &[(0x100, 16, 0), (0x1_0000, 1, WRITE)],
            &[(0x100, 16, 0), (u64::MAX, 2, WRITE)],
            &[(0x100, 1, 0); 300],
        ] {
            assert_eq!(parsed(&ram, buffers, &RULES), Err(Reject::Unanswerable), "{buffers:?}");
        }
        let broken =
            [Descriptor::new(0x100, 16, NEXT, 1), Descriptor::new(0x3000, 1, NEXT | WRITE, 9)];
        assert_eq!(parse(0, broken.into_iter(), &ram, &RULES), Err(Reject::Unanswerable));
    }

    #[test]
    fn wrong_requests_are_told_why() {
        let ram = guest_ram();
        let status = (0x3000, 1, WRITE);
        let head = (0x100, 16, 0);
        let read = |length| (0x2000, length, WRITE);
        let write = |length| (0x2000, length, 0);
        let read_only = Rules { read_only: true, ..RULES };
        let large_blocks = Rules { block_size: 4096, ..RULES };
        let none = Rules { discard: false, write_zeroes: false, ..RULES };
        let (read_kind, write_kind) = (VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT);
        let discard = VIRTIO_BLK_T_DISCARD;
        for (kind, sector, buffers, rules, expected) in [
            (read_kind, 0, vec![(0x100, 15, 0), status], RULES, BadRequest::Header),
            (read_kind, 0, vec![(0x100, 16, WRITE), status], RULES, BadRequest::Header),
            (read_kind, 0, vec![(0xfff8, 16, 0), status], RULES, BadRequest::Header),
            (read_kind, 0, vec![read(512), head, status], RULES, BadRequest::Order),
            (read_kind, 0, vec![head, write(512), status], RULES, BadRequest::Direction),
            (write_kind, 0, vec![head, read(512), status], RULES, BadRequest::Direction),
            (read_kind, 0, vec![head, read(511), status], RULES, BadRequest::Length),
            (read_kind, 64, vec![head, read(512), status], RULES, BadRequest::Range),
            (read_kind, 63, vec![head, read(1024), status], RULES, BadRequest::Range),
            (read_kind, u64::MAX, vec![head, read(512), status], RULES, BadRequest::Range),
            (read_kind, 65, vec![head, status], RULES, BadRequest::Range),
            (read_kind, 1, vec![head, read(4096), status], large_blocks, BadRequest::Alignment),
            (read_kind, 0, vec![head, read(512), status], large_blocks, BadRequest::Alignment),
            (read_kind, 0, vec![head, (0xff00, 512, WRITE), status], RULES, BadRequest::Memory),
            (write_kind, 0, vec![head, write(512), status], read_only, BadRequest::ReadOnly),
            (discard, 0, vec![head, write(16), status], read_only, BadRequest::ReadOnly),
            (discard, 0, vec![head, write(16), status], none, BadRequest::Unsupported),
            (discard, 0, vec![head, write(15), status], RULES, BadRequest::Length),
            (discard, 0, vec![head, status], RULES, BadRequest::Length),
            (discard, 0, vec![head, write(17 * 16), status], RULES, BadRequest::Length),
            (discard, 0, vec![head, read(16), status], RULES, BadRequest::Direction),
            (77, 0, vec![head, status], RULES, BadRequest::Unsupported),
        ] {
            header(&ram, kind, sector);
            let result = parsed(&ram, &buffers, &rules);
            assert_eq!(reason(&result), Some(expected), "{kind} {sector} {buffers:?}");
        }
    }

    #[test]
    fn ranges_have_flags_and_bounds() {
        let ram = guest_ram();
        for (kind, sector, sectors, flags, expected) in [
            (VIRTIO_BLK_T_DISCARD, 0_u64, 64_u32, 0_u32, None),
            (VIRTIO_BLK_T_DISCARD, 0, 65, 0, Some(BadRequest::Range)),
            (VIRTIO_BLK_T_DISCARD, u64::MAX, 2, 0, Some(BadRequest::Range)),
            (VIRTIO_BLK_T_DISCARD, 0, u32::MAX, 0, Some(BadRequest::Length)),
            (VIRTIO_BLK_T_DISCARD, 0, 1, 1, Some(BadRequest::Unsupported)),
            (VIRTIO_BLK_T_DISCARD, 0, 1, 2, Some(BadRequest::Unsupported)),
            (VIRTIO_BLK_T_WRITE_ZEROES, 1, 63, 1, None),
            (VIRTIO_BLK_T_WRITE_ZEROES, 1, 63, 3, Some(BadRequest::Unsupported)),
        ] {
            header(&ram, kind, 0);
            ram.write_obj(sector, GuestAddress(0x2000)).unwrap();
            ram.write_obj(sectors, GuestAddress(0x2008)).unwrap();
            ram.write_obj(flags, GuestAddress(0x200c)).unwrap();
            let buffers = [(0x100, 16, 0), (0x2000, 16, 0), (0x3000, 1, WRITE)];
            assert_eq!(reason(&parsed(&ram, &buffers, &RULES)), expected, "{sector} {sectors}");
        }
    }

    proptest! {
        #[test]
        fn any_chain_is_a_request_that_can_be_or_none(
            kind in prop_oneof![0_u32..15, any::<u32>()],
            sector in prop_oneof![0_u64..70, any::<u64>()],
            bytes in prop::collection::vec(any::<u8>(), 64),
            buffers in prop::collection::vec(
                (
                    prop_oneof![Just(0x100_u64), 0_u64..0x1_0100, any::<u64>()],
                    prop_oneof![Just(16_u32), Just(512_u32), 0_u32..0x600, any::<u32>()],
                    0_u16..4,
                ),
                0..6,
            ),
        ) {
            let ram = guest_ram();
            ram.write_slice(&bytes, GuestAddress(0x110)).unwrap();
            header(&ram, kind, sector);
            let descriptors = buffers.iter().map(|(address, length, flags)| {
                Descriptor::new(*address, *length, *flags, 0)
            });
            match parse(3, descriptors, &ram, &RULES) {
                Ok(request) => {
                    prop_assert_eq!(request.action.check(&ram, &RULES), Ok(()));
                    prop_assert!(ram.read_obj::<u8>(request.status).is_ok());
                }
                Err(Reject::Answered { status, code, .. }) => {
                    prop_assert!(ram.read_obj::<u8>(status).is_ok());
                    prop_assert!(code == 1 || code == 2);
                }
                Err(Reject::Unanswerable) => {}
            }
        }
    }
}
