//! A transfer as a sequence of system calls: what to ask next, and what an answer means.

use std::collections::VecDeque;
use std::io;

use libc::{
    EAGAIN, EINTR, EIO, EOPNOTSUPP, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_ZERO_RANGE, c_int, iovec,
};

use super::buffers::{AlignedBuffer, Alignment, GuestBuffers, are_aligned};
use crate::block::request::{Action, SECTOR, SectorRange};

/// Buffers in one call, the kernel's UIO_MAXIOV.
const MAX_VECTORS: usize = 1024;
/// Bytes that go through memory of our own at a time.
pub(super) const BOUNCE: usize = 128 * 1024;
/// Bytes of zeroes that are written at a time.
const ZEROES: usize = 128 * 1024;

/// One system call on the disk.
#[derive(Debug)]
pub(in crate::block) enum Step<'a> {
    /// preadv.
    Read { vectors: &'a [iovec], offset: u64 },
    /// pwritev.
    Write { vectors: &'a [iovec], offset: u64 },
    /// fdatasync.
    Sync,
    /// fallocate.
    Allocate { mode: c_int, offset: u64, length: u64 },
}

/// What a request asks of the disk, with all memory that it needs.
#[derive(Debug)]
pub(in crate::block) struct Transfer {
    token: u64,
    work: VecDeque<Work>,
    /// Where guest memory comes and goes without a copy: kept until the kernel is done with it.
    kept: Option<GuestBuffers>,
    is_read: bool,
    is_bounced: bool,
}

// SAFETY: what is not Send are the addresses in `iovec`. They are of guest memory, which `GuestBuffers` keeps and any
// thread may use, and of memory that the transfer owns.
unsafe impl Send for Transfer {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

#[derive(Debug)]
enum Work {
    Direct(Move),
    Bounced(Bounce),
    Zeroes { left: u64, moving: Move, zeroes: AlignedBuffer },
    Allocate { mode: c_int, offset: u64, length: u64, otherwise: Otherwise },
    Sync,
}

/// What to do where the file system cannot make holes or zeroes.
#[derive(Clone, Copy, Debug)]
enum Otherwise {
    /// It was a hint.
    Nothing,
    /// Zeroes were promised.
    Zeroes(Alignment),
}

/// Bytes on their way between disk and memory.
#[derive(Debug)]
struct Move {
    direction: Direction,
    vectors: Vec<iovec>,
    first: usize,
    offset: u64,
    left: u64,
}

impl Move {
    fn new(direction: Direction, vectors: Vec<iovec>, offset: u64) -> Self {
        let left = vectors.iter().map(|vector| vector.iov_len as u64).sum();
        Self { direction, vectors, first: 0, offset, left }
    }

    fn step(&self) -> Step<'_> {
        let rest = &self.vectors[self.first..];
        let vectors = &rest[..rest.len().min(MAX_VECTORS)];
        match self.direction {
            Direction::Read => Step::Read { vectors, offset: self.offset },
            Direction::Write => Step::Write { vectors, offset: self.offset },
        }
    }

    /// The kernel has moved this many. Part of what was asked for is no error; nothing is: the end of the file.
    fn advance(&mut self, moved: usize) -> Result<(), c_int> {
        let count = moved as u64;
        if count == 0 || count > self.left {
            return Err(EIO);
        }
        self.left -= count;
        self.offset += count;
        let mut rest = moved;
        while rest > 0 {
            let Some(vector) = self.vectors.get_mut(self.first) else { return Err(EIO) };
            let part = rest.min(vector.iov_len);
            vector.iov_base = vector.iov_base.wrapping_byte_add(part);
            vector.iov_len -= part;
            rest -= part;
            if vector.iov_len == 0 {
                self.first += 1;
            }
        }
        Ok(())
    }
}

/// A move through aligned memory of our own, in parts.
#[derive(Debug)]
struct Bounce {
    buffers: GuestBuffers,
    own: AlignedBuffer,
    moving: Move,
    /// Of the part that is moving, in the buffers.
    position: u64,
    length: usize,
}

impl Bounce {
    fn new(
        direction: Direction,
        buffers: GuestBuffers,
        offset: u64,
        alignment: Alignment,
    ) -> io::Result<Self> {
        let longest = usize::try_from(buffers.length()).unwrap_or(BOUNCE).min(BOUNCE);
        let own = AlignedBuffer::new(longest, alignment.memory.max(alignment.length));
        let moving = Move::new(direction, Vec::new(), offset);
        let mut bounce = Self { buffers, own, moving, position: 0, length: 0 };
        bounce.next()?;
        Ok(bounce)
    }

    /// Prepares the next part. False if there is none.
    fn next(&mut self) -> io::Result<bool> {
        let left = self.buffers.length() - self.position;
        self.length = usize::try_from(left).unwrap_or(BOUNCE).min(BOUNCE);
        if self.length == 0 {
            return Ok(false);
        }
        let direction = self.moving.direction;
        if direction == Direction::Write {
            let bytes = &mut self.own.bytes()[..self.length];
            self.buffers.read(self.position, bytes).map_err(io::Error::other)?;
        }
        let vector = self.own.vector(self.length);
        self.moving = Move::new(direction, vec![vector], self.moving.offset);
        Ok(true)
    }

    /// The part has moved.
    fn finish_part(&mut self) -> io::Result<bool> {
        if self.moving.direction == Direction::Read {
            let bytes = &self.own.bytes()[..self.length];
            self.buffers.write(self.position, bytes).map_err(io::Error::other)?;
        }
        self.position += self.length as u64;
        self.next()
    }
}

impl Transfer {
    /// What `action` asks of a disk with this alignment, done when it is done; with `sync`, when it is on the disk for
    /// good. Reading the serial number asks nothing.
    pub(in crate::block) fn new(
        token: u64,
        action: &Action,
        buffers: Option<GuestBuffers>,
        alignment: Alignment,
        sync: bool,
    ) -> io::Result<Self> {
        let mut transfer =
            Self { token, work: VecDeque::new(), kept: None, is_read: false, is_bounced: false };
        match (action, buffers) {
            (Action::Read { sector, .. }, Some(buffers)) => {
                transfer.transfer(Direction::Read, buffers, *sector, alignment)?;
            }
            (Action::Write { sector, .. }, Some(buffers)) => {
                transfer.transfer(Direction::Write, buffers, *sector, alignment)?;
            }
            (Action::Flush, _) => transfer.work.push_back(Work::Sync),
            (Action::Discard { ranges }, _) => {
                transfer.work.extend(ranges.iter().map(|range| hole(range, Otherwise::Nothing)));
            }
            (Action::WriteZeroes { ranges }, _) => {
                transfer.work.extend(ranges.iter().map(|range| zeroes(range, alignment)));
            }
            (Action::Read { .. } | Action::Write { .. } | Action::GetId { .. }, _) => {}
        }
        let changes = !matches!(action, Action::Read { .. } | Action::GetId { .. } | Action::Flush);
        if sync && changes {
            transfer.work.push_back(Work::Sync);
        }
        transfer.work.retain(|work| !work.is_empty());
        Ok(transfer)
    }

    fn transfer(
        &mut self,
        direction: Direction,
        buffers: GuestBuffers,
        sector: u64,
        alignment: Alignment,
    ) -> io::Result<()> {
        let offset = sector * SECTOR;
        let vectors = buffers.vectors().map_err(io::Error::other)?;
        if are_aligned(&vectors, alignment) {
            self.work.push_back(Work::Direct(Move::new(direction, vectors, offset)));
            self.kept = Some(buffers);
            self.is_read = direction == Direction::Read;
        } else {
            let bounce = Bounce::new(direction, buffers, offset, alignment)?;
            self.work.push_back(Work::Bounced(bounce));
            self.is_bounced = true;
        }
        Ok(())
    }

    /// What it was made with.
    pub(in crate::block) fn token(&self) -> u64 {
        self.token
    }

    /// Whether it goes through memory of our own.
    pub(in crate::block) fn is_bounced(&self) -> bool {
        self.is_bounced
    }

    /// What to ask the kernel, if there is anything left to ask.
    pub(in crate::block) fn step(&self) -> Option<Step<'_>> {
        Some(match self.work.front()? {
            Work::Direct(moving) | Work::Zeroes { moving, .. } => moving.step(),
            Work::Bounced(bounce) => bounce.moving.step(),
            Work::Allocate { mode, offset, length, .. } => {
                Step::Allocate { mode: *mode, offset: *offset, length: *length }
            }
            Work::Sync => Step::Sync,
        })
    }

    /// Takes the kernel's answer to [`Self::step`]: a number of bytes, or an error number. The result of the whole, if
    /// it is done.
    pub(in crate::block) fn advance(
        &mut self,
        answer: Result<usize, c_int>,
    ) -> Option<io::Result<()>> {
        let result = match answer {
            // A ring may say EAGAIN where a system call would have waited.
            Err(EINTR | EAGAIN) => return None,
            answer => self.take(answer),
        };
        if result.is_ok() && !self.work.is_empty() {
            return None;
        }
        // Also after an error: what was read before it is in memory all the same.
        if let Some(buffers) = self.kept.take().filter(|_| self.is_read) {
            buffers.mark_written();
        }
        Some(result)
    }

    fn take(&mut self, answer: Result<usize, c_int>) -> io::Result<()> {
        let Some(work) = self.work.front_mut() else { return Ok(()) };
        let finished = match (work, answer) {
            (Work::Allocate { offset, length, otherwise, .. }, Err(EOPNOTSUPP)) => {
                let instead = match otherwise {
                    Otherwise::Nothing => None,
                    Otherwise::Zeroes(alignment) => Some(written(*offset, *length, *alignment)),
                };
                self.work.pop_front();
                if let Some(instead) = instead {
                    self.work.push_front(instead);
                }
                false
            }
            (_, Err(number)) => return Err(io::Error::from_raw_os_error(number)),
            (Work::Direct(moving), Ok(moved)) => {
                moving.advance(moved).map_err(io::Error::from_raw_os_error)?;
                moving.left == 0
            }
            (Work::Bounced(bounce), Ok(moved)) => {
                bounce.moving.advance(moved).map_err(io::Error::from_raw_os_error)?;
                bounce.moving.left == 0 && !bounce.finish_part()?
            }
            (Work::Zeroes { left, moving, zeroes }, Ok(moved)) => {
                moving.advance(moved).map_err(io::Error::from_raw_os_error)?;
                *left -= moved as u64;
                if moving.left == 0 && *left > 0 {
                    *moving = part_of_zeroes(zeroes, moving.offset, *left);
                }
                *left == 0
            }
            (Work::Allocate { .. } | Work::Sync, Ok(_)) => true,
        };
        if finished {
            self.work.pop_front();
        }
        Ok(())
    }
}

impl Work {
    fn is_empty(&self) -> bool {
        match self {
            Self::Direct(moving) => moving.left == 0,
            Self::Bounced(bounce) => bounce.length == 0,
            Self::Zeroes { left, .. } => *left == 0,
            Self::Allocate { length, .. } => *length == 0,
            Self::Sync => false,
        }
    }
}

fn hole(range: &SectorRange, otherwise: Otherwise) -> Work {
    Work::Allocate {
        mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        offset: range.sector * SECTOR,
        length: u64::from(range.sectors) * SECTOR,
        otherwise,
    }
}

/// A hole reads as zeroes, but gives its space back: only where the guest allows it.
fn zeroes(range: &SectorRange, alignment: Alignment) -> Work {
    if range.unmap {
        return hole(range, Otherwise::Zeroes(alignment));
    }
    Work::Allocate {
        mode: FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
        offset: range.sector * SECTOR,
        length: u64::from(range.sectors) * SECTOR,
        otherwise: Otherwise::Zeroes(alignment),
    }
}

fn written(offset: u64, length: u64, alignment: Alignment) -> Work {
    let mut zeroes = AlignedBuffer::new(ZEROES, alignment.memory.max(alignment.length));
    let moving = part_of_zeroes(&mut zeroes, offset, length);
    Work::Zeroes { left: length, moving, zeroes }
}

fn part_of_zeroes(zeroes: &mut AlignedBuffer, offset: u64, left: u64) -> Move {
    let length = usize::try_from(left).unwrap_or(ZEROES).min(ZEROES);
    Move::new(Direction::Write, vec![zeroes.vector(length)], offset)
}

#[cfg(test)]
mod tests {
    use libc::{EINVAL, ENOSPC};
    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::block::request::Segment;
    use crate::testing::guest_ram;
    use crate::virtio::GuestRam;

    fn segments(parts: &[(u64, u32)]) -> Vec<Segment> {
        let segment = |(address, length): &(u64, u32)| Segment {
            address: GuestAddress(*address),
            length: *length,
        };
        parts.iter().map(segment).collect()
    }

    fn read(ram: &GuestRam, parts: &[(u64, u32)], alignment: Alignment) -> Transfer {
        let segments = segments(parts);
        let buffers = Some(GuestBuffers::new(ram.clone(), segments.clone()));
        Transfer::new(1, &Action::Read { sector: 2, segments }, buffers, alignment, true).unwrap()
    }

    /// The step in short: what, where, how many bytes.
    fn step(transfer: &Transfer) -> Option<(char, u64, u64)> {
        let length = |vectors: &[iovec]| vectors.iter().map(|vector| vector.iov_len as u64).sum();
        transfer.step().map(|step| match step {
            Step::Read { vectors, offset } => ('r', offset, length(vectors)),
            Step::Write { vectors, offset } => ('w', offset, length(vectors)),
            Step::Sync => ('s', 0, 0),
            Step::Allocate { mode: FALLOC_ZEROES, offset, length } => ('z', offset, length),
            Step::Allocate { offset, length, .. } => ('h', offset, length),
        })
    }

    const FALLOC_ZEROES: c_int = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;

    /// The result if it is done, with the error's number.
    fn advance(transfer: &mut Transfer, answer: Result<usize, c_int>) -> Option<Option<i32>> {
        transfer.advance(answer).map(|result| result.err().and_then(|error| error.raw_os_error()))
    }

    #[test]
    fn part_of_a_read_is_continued() {
        let ram = guest_ram();
        let mut transfer = read(&ram, &[(0x1000, 100), (0x2000, 412)], Alignment::NONE);
        assert_eq!(step(&transfer), Some(('r', 1024, 512)));
        assert_eq!(advance(&mut transfer, Err(EINTR)), None);
        assert_eq!(advance(&mut transfer, Err(EAGAIN)), None);
        assert_eq!(step(&transfer), Some(('r', 1024, 512)));
        assert_eq!(advance(&mut transfer, Ok(99)), None);
        assert_eq!(step(&transfer), Some(('r', 1123, 413)));
        assert_eq!(advance(&mut transfer, Ok(2)), None);
        assert_eq!(step(&transfer), Some(('r', 1125, 411)));
        assert_eq!(advance(&mut transfer, Ok(411)), Some(None));
        assert_eq!(step(&transfer), None);
    }

    #[test]
    fn answers_that_cannot_be_are_errors() {
        let ram = guest_ram();
        for (answer, number) in [(Ok(0), EIO), (Ok(513), EIO), (Err(ENOSPC), ENOSPC)] {
            let mut transfer = read(&ram, &[(0x1000, 512)], Alignment::NONE);
            assert_eq!(advance(&mut transfer, answer), Some(Some(number)));
        }
    }

    #[test]
    fn writethrough_syncs_what_changes_the_disk() {
        let ranges = vec![SectorRange { sector: 1, sectors: 2, unmap: false }];
        let buffers = || Some(GuestBuffers::new(guest_ram(), segments(&[(0x1000, 512)])));
        let write = Action::Write { sector: 0, segments: segments(&[(0x1000, 512)]) };
        for (action, buffers, moved) in [
            (write, buffers(), 512),
            (Action::Discard { ranges: ranges.clone() }, None, 0),
            (Action::WriteZeroes { ranges }, None, 0),
        ] {
            let new =
                |sync| Transfer::new(1, &action, buffers.clone(), Alignment::NONE, sync).unwrap();
            let mut through = new(true);
            assert_eq!(advance(&mut through, Ok(moved)), None);
            assert_eq!(step(&through), Some(('s', 0, 0)));
            assert_eq!(advance(&mut through, Ok(0)), Some(None));
            assert_eq!(advance(&mut new(false), Ok(moved)), Some(None));
        }
    }

    #[test]
    fn misaligned_buffers_move_in_parts() {
        let ram = guest_ram();
        let alignment = Alignment { memory: 512, length: 512 };
        ram.write_slice(&[1; 16], GuestAddress(0x1000)).unwrap();
        // More than one part, most of it at the same place.
        let parts = [&[(0x1001, 0x8000); 4][..], &[(0xa000, 0x200)]].concat();
        let mut transfer = read(&ram, &parts, alignment);
        assert!(transfer.is_bounced());
        assert_eq!(step(&transfer), Some(('r', 1024, BOUNCE as u64)));
        assert_eq!(advance(&mut transfer, Ok(512)), None);
        assert_eq!(ram.read_obj::<u8>(GuestAddress(0x1001)).unwrap(), 1, "not before it is there");
        assert_eq!(advance(&mut transfer, Ok(BOUNCE - 512)), None);
        assert_eq!(ram.read_obj::<u16>(GuestAddress(0x1000)).unwrap(), 1);
        assert_eq!(step(&transfer), Some(('r', 1024 + BOUNCE as u64, 512)));
        assert_eq!(advance(&mut transfer, Ok(512)), Some(None));
    }

    #[test]
    fn zeroes_are_written_where_they_cannot_be_made() {
        for (unmap, first) in [(false, 'z'), (true, 'h')] {
            let ranges = vec![SectorRange { sector: 8, sectors: 300, unmap }];
            let action = Action::WriteZeroes { ranges };
            let alignment = Alignment { memory: 512, length: 512 };
            let mut transfer = Transfer::new(1, &action, None, alignment, false).unwrap();
            assert_eq!(step(&transfer), Some((first, 4096, 153_600)));
            assert_eq!(advance(&mut transfer, Err(EOPNOTSUPP)), None);
            assert_eq!(step(&transfer), Some(('w', 4096, ZEROES as u64)));
            assert_eq!(advance(&mut transfer, Ok(ZEROES)), None);
            assert_eq!(step(&transfer), Some(('w', 4096 + ZEROES as u64, 22_528)));
            assert_eq!(advance(&mut transfer, Ok(22_528)), Some(None));
        }
    }

    #[test]
    fn discard_that_cannot_be_is_no_error() {
        let range = |sector| SectorRange { sector, sectors: 8, unmap: false };
        let action = Action::Discard { ranges: vec![range(0), range(16)] };
        let mut transfer = Transfer::new(1, &action, None, Alignment::NONE, false).unwrap();
        assert_eq!(advance(&mut transfer, Err(EOPNOTSUPP)), None);
        assert_eq!(step(&transfer), Some(('h', 8192, 4096)));
        assert_eq!(advance(&mut transfer, Err(EINVAL)), Some(Some(EINVAL)));
    }
}
