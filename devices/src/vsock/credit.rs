//! How much may be sent, by each side to the other (virtio 1.2, section 5.10.6.3).

use std::collections::VecDeque;

/// Bytes of one connection that are kept for a host end that does not take them: what the guest is told as its buffer.
pub(super) const KEPT: usize = 64 << 10;
/// The same, as packets say it.
pub(super) const KEPT_TOLD: u32 = 64 << 10;
/// The guest is told unasked when this much of its buffer has become free. Were it more than what the guest still
/// believes to be used when all is free, a guest without credit could wait for ever.
const UPDATE: u32 = KEPT_TOLD / 4;

/// How many bytes the guest takes.
#[derive(Debug, Default)]
pub(super) struct GuestCredit {
    /// Bytes it keeps at most, as it said last.
    buffer: u32,
    /// Bytes it has passed on, as it said last.
    forwarded: u32,
    /// Bytes it was sent. All counts wrap around.
    sent: u32,
}

impl GuestCredit {
    /// Takes what a packet of the guest's says.
    pub(super) fn update(&mut self, buffer: u32, forwarded: u32) {
        self.buffer = buffer;
        self.forwarded = forwarded;
    }

    /// Bytes that may be sent now. A guest that has passed on more than it got takes nothing.
    pub(super) fn left(&self) -> u32 {
        self.buffer.saturating_sub(self.sent.wrapping_sub(self.forwarded))
    }

    pub(super) fn send(&mut self, bytes: u32) {
        self.sent = self.sent.wrapping_add(bytes);
    }
}

/// What the guest has sent and the host end has not taken.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: VecDeque<u8>,
    /// Bytes that the host end took, or that nobody will; wraps around.
    forwarded: u32,
    /// How many of them the guest was told of.
    told: u32,
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether so many more may be kept. A guest that sends more ignores its credit.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= KEPT - self.bytes.len()
    }

    /// Keeps bytes, for which there is room.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // All at once and no more: growing by doubling would end above the limit.
        self.bytes.reserve_exact(KEPT - self.bytes.len());
        self.bytes.extend(bytes);
    }

    /// The first of the bytes kept, as many as lie in one piece.
    pub(super) fn front(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// The first `count` bytes are kept no more.
    pub(super) fn pop(&mut self, count: usize) {
        let count = count.min(self.bytes.len());
        self.bytes.drain(..count);
        self.pass(count);
        if self.bytes.is_empty() {
            // A connection at rest has no memory.
            self.bytes = VecDeque::new();
        }
    }

    /// Keeps nothing any more: nobody will take it.
    pub(super) fn clear(&mut self) {
        self.pop(self.bytes.len());
    }

    /// Bytes went past it, to where they belong.
    pub(super) fn pass(&mut self, count: usize) {
        // No more than KEPT at a time.
        self.forwarded = self.forwarded.wrapping_add(u32::try_from(count).unwrap_or(KEPT_TOLD));
    }

    /// Whether the guest has to be told that there is room again.
    pub(super) fn owes_update(&self) -> bool {
        self.forwarded.wrapping_sub(self.told) >= UPDATE
    }

    /// What the next packet tells the guest.
    pub(super) fn tell(&mut self) -> u32 {
        self.told = self.forwarded;
        self.told
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_gets_what_it_has_room_for() {
        let mut credit = GuestCredit::default();
        assert_eq!(credit.left(), 0);
        credit.update(100, 0);
        credit.send(70);
        assert_eq!(credit.left(), 30);
        credit.update(100, 70);
        assert_eq!(credit.left(), 100);
        credit.update(20, 20);
        assert_eq!(credit.left(), 0);
    }

    #[test]
    fn counts_wrap_around() {
        let mut credit = GuestCredit::default();
        credit.send(u32::MAX - 9);
        credit.update(100, u32::MAX - 9);
        credit.send(30);
        assert_eq!(credit.left(), 70);
        credit.update(100, 20);
        assert_eq!(credit.left(), 100);
    }

    #[test]
    fn guest_that_passed_on_more_than_it_got_gets_nothing() {
        let mut credit = GuestCredit::default();
        credit.send(10);
        credit.update(1000, 11);
        assert_eq!(credit.left(), 0);
    }

    #[test]
    fn no_more_is_kept_than_was_told() {
        let mut kept = Kept::default();
        assert!(kept.has_room(KEPT));
        kept.push(&vec![1; KEPT - 1]);
        assert!(kept.has_room(1));
        assert!(!kept.has_room(2));
        assert_eq!(kept.memory(), KEPT);
        kept.pop(10);
        kept.push(&[2; 11]);
        assert!(!kept.has_room(1));
        assert_eq!(kept.memory(), KEPT);
        kept.clear();
        assert_eq!(kept.memory(), 0);
    }

    #[test]
    fn guest_without_credit_is_told_once_all_is_taken() {
        let mut kept = Kept::default();
        kept.push(&vec![1; KEPT]);
        assert!(!kept.owes_update());
        kept.pop(UPDATE as usize - 1);
        assert!(!kept.owes_update());
        kept.pop(1);
        assert!(kept.owes_update());
        assert_eq!(kept.tell(), UPDATE);
        assert!(!kept.owes_update());
        kept.clear();
        assert!(kept.owes_update());
        assert_eq!(kept.tell(), KEPT_TOLD);
    }
}
