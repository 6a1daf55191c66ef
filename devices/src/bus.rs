//! Which device answers at an address.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Effect, Registers, read_nothing};

/// A range of addresses: ports, or memory without RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Its first address.
    pub base: u64,
    /// How many.
    pub size: u64,
}

impl Range {
    /// `size` addresses from `base` on.
    pub const fn new(base: u64, size: u64) -> Self {
        Self { base, size }
    }

    /// The last address, if the range has one.
    fn last(self) -> Option<u64> {
        self.base.checked_add(self.size.checked_sub(1)?)
    }

    fn overlaps(self, other: Self) -> bool {
        match (self.last(), other.last()) {
            (Some(last), Some(other_last)) => self.base <= other_last && other.base <= last,
            _ => false,
        }
    }
}

/// Why a device is not put on a bus.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BusError {
    /// No addresses, or beyond the last one.
    #[error("{size:#x} addresses from {base:#x} are no range", base = .0.base, size = .0.size)]
    NoRange(Range),
    /// Another device answers there.
    #[error("the range at {:#x} overlaps the one at {:#x}", .new.base, .old.base)]
    Overlap {
        /// The one to be added.
        new: Range,
        /// The one that is there.
        old: Range,
    },
}

/// The devices of one address space, sorted by address.
///
/// It does not change while vCPUs look things up in it: a change makes a new one, which takes its place.
#[derive(Clone, Default)]
pub struct Bus(Vec<(Range, Arc<dyn Registers>)>);

impl Bus {
    /// Adds a device.
    pub fn insert(&mut self, range: Range, device: Arc<dyn Registers>) -> Result<(), BusError> {
        if range.last().is_none() {
            return Err(BusError::NoRange(range));
        }
        if let Some((old, _)) = self.0.iter().find(|(old, _)| old.overlaps(range)) {
            return Err(BusError::Overlap { new: range, old: *old });
        }
        let at = self.0.partition_point(|(old, _)| old.base < range.base);
        self.0.insert(at, (range, device));
        Ok(())
    }

    /// Answers a guest's read. One that leaves its device's range goes nowhere.
    pub fn read(&self, address: u64, data: &mut [u8]) {
        match self.find(address, data.len()) {
            Some((offset, device)) => device.read(offset, data),
            None => read_nothing(data),
        }
    }

    /// Takes a guest's write. One that leaves its device's range goes nowhere.
    pub fn write(&self, address: u64, data: &[u8]) -> Effect {
        match self.find(address, data.len()) {
            Some((offset, device)) => device.write(offset, data),
            None => Effect::None,
        }
    }

    fn find(&self, address: u64, length: usize) -> Option<(u64, &dyn Registers)> {
        let at = self.0.partition_point(|(range, _)| range.base <= address).checked_sub(1)?;
        let (range, device) = &self.0[at];
        let offset = address - range.base;
        let end = offset.checked_add(length as u64)?;
        (end <= range.size).then_some((offset, &**device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);

    impl Registers for Fixed {
        fn read(&self, offset: u64, data: &mut [u8]) {
            data.fill(self.0 + u8::try_from(offset).unwrap());
        }

        fn write(&self, _offset: u64, _data: &[u8]) -> Effect {
            Effect::Reset
        }
    }

    fn bus() -> Bus {
        let mut bus = Bus::default();
        bus.insert(Range::new(0x60, 5), Arc::new(Fixed(10))).unwrap();
        bus.insert(Range::new(0x10, 8), Arc::new(Fixed(20))).unwrap();
        bus
    }

    fn read(address: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        bus().read(address, &mut data);
        data
    }

    #[test]
    fn device_answers_in_its_range_by_offset() {
        assert_eq!(read(0x60, 1), [10]);
        assert_eq!(read(0x64, 1), [14]);
        assert_eq!(read(0x12, 2), [22, 22]);
        assert_eq!(bus().write(0x10, &[1]), Effect::Reset);
    }

    #[test]
    fn access_outside_or_across_the_end_of_a_range_goes_nowhere() {
        for (address, length) in [(0, 1), (0x5f, 1), (0x65, 1), (0x64, 2), (0x17, 2), (u64::MAX, 4)]
        {
            assert_eq!(read(address, length), vec![0xff; length], "{address:#x}");
            assert_eq!(bus().write(address, &vec![0; length]), Effect::None, "{address:#x}");
        }
    }

    #[test]
    fn overlapping_and_impossible_ranges_are_refused() {
        let add = |base, size| bus().insert(Range::new(base, size), Arc::new(Fixed(0)));
        for (base, size) in [(0x5f, 2), (0x64, 1), (0, u64::MAX), (0x62, 1), (0x17, 0x100)] {
            assert!(matches!(add(base, size), Err(BusError::Overlap { .. })), "{base:#x}");
        }
        for (base, size) in [(0x100, 0), (u64::MAX, 2)] {
            assert!(matches!(add(base, size), Err(BusError::NoRange(_))), "{base:#x}");
        }
        assert_eq!(add(0x65, 1), Ok(()));
    }
}
