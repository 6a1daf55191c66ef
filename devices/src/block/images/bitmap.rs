//! Which clusters of a disk are in its overlay.

use std::ops::Range;

const WORD: u64 = 64;

/// A bit for each cluster. Bits are set and never cleared: what the guest discards reads as zeroes, not as the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    length: u64,
}

impl Bitmap {
    /// One of `length` bits, none of which is set.
    pub(super) fn new(length: u64) -> Self {
        let words = usize::try_from(length.div_ceil(WORD)).unwrap_or(usize::MAX);
        Self { words: vec![0; words], length }
    }

    /// How many bits there are.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    fn word(&self, bit: u64) -> u64 {
        let index = usize::try_from(bit / WORD).unwrap_or(usize::MAX);
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Whether this bit is set.
    pub(super) fn is_set(&self, bit: u64) -> bool {
        self.word(bit) >> (bit % WORD) & 1 != 0
    }

    /// Sets bits; those that there are not are left alone.
    pub(super) fn set(&mut self, bits: Range<u64>) {
        let end = bits.end.min(self.length);
        let mut bit = bits.start;
        while bit < end {
            let index = usize::try_from(bit / WORD).unwrap_or(usize::MAX);
            let count = (WORD - bit % WORD).min(end - bit);
            let mask = u64::MAX >> (WORD - count) << (bit % WORD);
            if let Some(word) = self.words.get_mut(index) {
                *word |= mask;
            }
            bit += count;
        }
    }

    /// The bits from `bit` on that are as this one is: whether set, and where they end, `limit` at the latest.
    pub(super) fn run(&self, bit: u64, limit: u64) -> (bool, u64) {
        let is_set = self.is_set(bit);
        let limit = limit.min(self.length);
        let mut end = bit;
        while end < limit {
            let word = self.word(end) >> (end % WORD);
            let same = if is_set { word.trailing_ones() } else { word.trailing_zeros() };
            let left = WORD - end % WORD;
            let count = u64::from(same).min(left);
            end += count;
            if count < left {
                break;
            }
        }
        (is_set, end.min(limit))
    }

    /// Lengths of its runs, from bit 0 on: first of bits that are not set (which may be none), then of those that are,
    /// and so on. None if there are more than `most`.
    pub(super) fn runs(&self, most: usize) -> Option<Vec<u64>> {
        let mut runs = Vec::new();
        let mut bit = 0;
        if self.is_set(0) {
            runs.push(0);
        }
        while bit < self.length {
            let (_, end) = self.run(bit, self.length);
            runs.push(end - bit);
            bit = end;
            if runs.len() > most {
                return None;
            }
        }
        Some(runs)
    }

    /// What [`Self::runs`] was of; none if that is not `length` bits.
    pub(super) fn from_runs(runs: &[u64], length: u64) -> Option<Self> {
        let mut bitmap = Self::new(length);
        let (mut bit, mut is_set) = (0_u64, false);
        for run in runs {
            let is_first = bit == 0 && !is_set;
            let end = bit.checked_add(*run).filter(|end| *end <= length)?;
            if *run == 0 && !is_first {
                return None;
            }
            if is_set {
                bitmap.set(bit..end);
            }
            (bit, is_set) = (end, !is_set);
        }
        (bit == length).then_some(bitmap)
    }

    /// Eight bits a byte, the first in the lowest.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(usize::try_from(self.length.div_ceil(8)).unwrap_or(usize::MAX));
        bytes
    }

    /// What [`Self::bytes`] was of; none if that is not `length` bits.
    pub(super) fn from_bytes(bytes: &[u8], length: u64) -> Option<Self> {
        if bytes.len() as u64 != length.div_ceil(8) {
            return None;
        }
        let word = |part: &[u8]| {
            let mut word = [0; 8];
            for (place, byte) in word.iter_mut().zip(part) {
                *place = *byte;
            }
            u64::from_le_bytes(word)
        };
        let bitmap = Self { words: bytes.chunks(8).map(word).collect(), length };
        let behind = length % WORD;
        let is_clean = behind == 0 || bitmap.word(length) >> behind == 0;
        is_clean.then_some(bitmap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(bits: &[bool]) -> Bitmap {
        let mut bitmap = Bitmap::new(bits.len() as u64);
        for (bit, _) in (0..).zip(bits).filter(|(_, is_set)| **is_set) {
            bitmap.set(bit..bit + 1);
        }
        bitmap
    }

    #[test]
    fn runs_begin_with_what_is_not_set() {
        assert_eq!(of(&[false; 70]).runs(9), Some(vec![70]));
        assert_eq!(of(&[true; 70]).runs(9), Some(vec![0, 70]));
        assert_eq!(of(&[false, true, true, false]).runs(9), Some(vec![1, 2, 1]));
        assert_eq!(of(&[false, true, true, false]).runs(2), None);
    }

    #[test]
    fn runs_that_cannot_be_are_refused() {
        for runs in [&[3][..], &[5], &[1, 0, 3], &[0, 0, 4], &[4, 0], &[u64::MAX, 2], &[]] {
            assert_eq!(Bitmap::from_runs(runs, 4), None, "{runs:?}");
        }
    }

    #[test]
    fn bytes_that_cannot_be_are_refused() {
        assert!(Bitmap::from_bytes(&[0x0f], 4).is_some());
        assert_eq!(Bitmap::from_bytes(&[0x10], 4), None);
        assert_eq!(Bitmap::from_bytes(&[0], 9), None);
        assert_eq!(Bitmap::from_bytes(&[0, 0], 8), None);
        assert!(Bitmap::from_bytes(&[0xff; 8], 64).is_some());
    }

    proptest! {
        #[test]
        fn ranges_are_set_and_found(
            length in 1_u64..300,
            ranges in prop::collection::vec((0_u64..300, 0_u64..300), 0..6),
        ) {
            let mut bitmap = Bitmap::new(length);
            let mut model = vec![false; 300];
            for (start, end) in ranges {
                bitmap.set(start..end);
                for bit in start..end {
                    model[usize::try_from(bit).unwrap()] = true;
                }
            }
            model.truncate(usize::try_from(length).unwrap());
            prop_assert_eq!(&bitmap, &of(&model));
            for (bit, is_set) in (0..).zip(&model) {
                prop_assert_eq!(bitmap.is_set(bit), *is_set);
                let rest = model.iter().skip(usize::try_from(bit).unwrap());
                let same = rest.take_while(|other| *other == is_set).count() as u64;
                prop_assert_eq!(bitmap.run(bit, length), (*is_set, bit + same));
                prop_assert_eq!(bitmap.run(bit, bit + 1), (*is_set, bit + 1));
            }
            let runs = bitmap.runs(300).unwrap();
            prop_assert_eq!(Bitmap::from_runs(&runs, length), Some(bitmap.clone()));
            prop_assert_eq!(Bitmap::from_bytes(&bitmap.bytes(), length), Some(bitmap));
        }
    }
}
