//! A function's configuration space: identity, command, BARs and capabilities as bytes, each with a mask of what the
//! guest can write. Sizing a BAR needs no code of its own: the bits below its size cannot be written.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vm_memory::GuestAddress;

use crate::{Range, read_nothing};

/// Bytes of a conventional function's configuration.
pub(super) const SIZE: usize = 256;

const VENDOR: usize = 0x00;
const DEVICE: usize = 0x02;
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const REVISION: usize = 0x08;
const CLASS: usize = 0x09;
const CACHE_LINE_SIZE: usize = 0x0c;
const BARS: usize = 0x10;
const SUBSYSTEM_VENDOR: usize = 0x2c;
const SUBSYSTEM: usize = 0x2e;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const FIRST_CAPABILITY: usize = 0x40;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_NO_INTERRUPT_LINE: u16 = 1 << 10;
const COMMAND_WRITABLE: u16 = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_NO_INTERRUPT_LINE;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const BAR_WIDE: u32 = 0b100;

/// Who a function says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who made the interface.
    pub vendor: u16,
    /// Which interface.
    pub device: u16,
    /// Who made the device.
    pub subsystem_vendor: u16,
    /// Which device.
    pub subsystem: u16,
    /// Class, subclass and programming interface: 24 bits.
    pub class: u32,
    /// Revision of the interface.
    pub revision: u8,
}

/// How many address bits a BAR has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarWidth {
    /// 32.
    Narrow,
    /// 64: it takes the next BAR's place, too.
    Wide,
}

/// A memory BAR, not prefetchable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarLayout {
    /// Its number.
    pub index: u8,
    /// Bytes: a power of two, 16 at least.
    pub size: u64,
    /// Address bits.
    pub width: BarWidth,
}

/// Why a configuration space cannot be laid out or loaded.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigurationError {
    /// No such BAR, or not of that size.
    #[error("there is no BAR {index} of {size:#x} bytes")]
    NoBar {
        /// Its number.
        index: u8,
        /// Its size.
        size: u64,
    },
    /// The address is not one for this BAR.
    #[error("BAR {index} cannot be at {address:#x}", address = .address.0)]
    BarAddress {
        /// Its number.
        index: u8,
        /// Where it should be.
        address: GuestAddress,
    },
    /// No room is left.
    #[error("no room is left for the capability {id:#x}")]
    NoRoom {
        /// Which one.
        id: u8,
    },
    /// A saved value has bits that the guest cannot have written.
    #[error("the register {register:#x} cannot hold what was saved")]
    Unwritable {
        /// Where.
        register: usize,
    },
}

/// What a guest can change in every function's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationState {
    /// Command register.
    pub command: u16,
    /// Cache line size: read by nobody but the guest.
    pub cache_line_size: u8,
    /// Interrupt line: read by nobody but the guest.
    pub interrupt_line: u8,
    /// All six base address registers.
    pub bars: [u32; 6],
}

/// A configuration space.
#[derive(Clone, Debug)]
pub struct Configuration {
    bytes: [u8; SIZE],
    writable: [u8; SIZE],
    bars: Vec<BarLayout>,
    /// Where the list's end is linked from, and the first free byte.
    link: usize,
    free: usize,
}

impl Configuration {
    /// One with an identity and nothing else: no BARs, no capabilities, no interrupt pin.
    pub fn new(identity: Identity) -> Self {
        let mut new = Self {
            bytes: [0; SIZE],
            writable: [0; SIZE],
            bars: Vec::new(),
            link: CAPABILITIES,
            free: FIRST_CAPABILITY,
        };
        new.set(VENDOR, &identity.vendor.to_le_bytes());
        new.set(DEVICE, &identity.device.to_le_bytes());
        new.set(REVISION, &[identity.revision]);
        new.set(CLASS, &identity.class.to_le_bytes()[..3]);
        new.set(SUBSYSTEM_VENDOR, &identity.subsystem_vendor.to_le_bytes());
        new.set(SUBSYSTEM, &identity.subsystem.to_le_bytes());
        new.open(COMMAND, &COMMAND_WRITABLE.to_le_bytes());
        new.open(CACHE_LINE_SIZE, &[0xff]);
        new.open(INTERRUPT_LINE, &[0xff]);
        new
    }

    /// Adds a BAR at an address; with memory decoding off, as after power-on.
    pub fn add_bar(
        &mut self,
        bar: BarLayout,
        address: GuestAddress,
    ) -> Result<(), ConfigurationError> {
        let BarLayout { index, size, width } = bar;
        let registers = match width {
            BarWidth::Narrow => 1,
            BarWidth::Wide => 2,
        };
        let taken = |other: &BarLayout| {
            let other_registers = if other.width == BarWidth::Wide { 2 } else { 1 };
            index < other.index + other_registers && other.index < index.saturating_add(registers)
        };
        let fits = match width {
            BarWidth::Narrow => size <= 1 << 31,
            BarWidth::Wide => true,
        };
        if index > 6 - registers
            || size < 16
            || !size.is_power_of_two()
            || !fits
            || self.bars.iter().any(taken)
        {
            return Err(ConfigurationError::NoBar { index, size });
        }
        let narrow_address = u32::try_from(address.0).is_ok();
        if address.0 & (size - 1) != 0 || (width == BarWidth::Narrow && !narrow_address) {
            return Err(ConfigurationError::BarAddress { index, address });
        }
        let at = BARS + 4 * usize::from(index);
        let mask = !(size - 1);
        let (flags, bytes) = match width {
            BarWidth::Narrow => (0, 4),
            BarWidth::Wide => (u64::from(BAR_WIDE), 8),
        };
        self.set(at, &(address.0 | flags).to_le_bytes()[..bytes]);
        self.open(at, &mask.to_le_bytes()[..bytes]);
        self.bars.push(bar);
        Ok(())
    }

    /// Adds a capability behind those that are there: what follows its id and link, and which bits of that the guest
    /// can write. Gives the register at which it starts.
    pub fn add_capability(
        &mut self,
        id: u8,
        body: &[u8],
        writable: &[u8],
    ) -> Result<usize, ConfigurationError> {
        let at = self.free;
        let end = at + 2 + body.len().max(writable.len());
        let (Ok(link), true) = (u8::try_from(at), end <= SIZE) else {
            return Err(ConfigurationError::NoRoom { id });
        };
        self.set(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.set(self.link, &[link]);
        self.set(at, &[id, 0]);
        self.set(at + 2, body);
        self.open(at + 2, writable);
        self.link = at + 1;
        self.free = end.next_multiple_of(4);
        Ok(at)
    }

    /// Answers a guest's read.
    pub fn read(&self, register: usize, data: &mut [u8]) {
        match self.bytes.get(register..register.saturating_add(data.len())) {
            Some(bytes) => data.copy_from_slice(bytes),
            None => read_nothing(data),
        }
    }

    /// Takes a guest's write, and says whether [`Self::decoded`] has changed by it.
    pub fn write(&mut self, register: usize, data: &[u8]) -> bool {
        if register.saturating_add(data.len()) > SIZE {
            return false;
        }
        let before = self.decoded();
        for (at, byte) in (register..).zip(data) {
            let mask = self.writable[at];
            self.bytes[at] = (self.bytes[at] & !mask) | (byte & mask);
        }
        before != self.decoded()
    }

    /// The BARs that answer, and where: none as long as memory decoding is off.
    pub fn decoded(&self) -> Vec<(u8, Range)> {
        if self.u16_at(COMMAND) & COMMAND_MEMORY == 0 {
            return Vec::new();
        }
        let address = |bar: &BarLayout| {
            let at = BARS + 4 * usize::from(bar.index);
            let high = match bar.width {
                BarWidth::Narrow => 0,
                BarWidth::Wide => self.u32_at(at + 4),
            };
            (u64::from(high) << 32 | u64::from(self.u32_at(at))) & !(bar.size - 1)
        };
        self.bars.iter().map(|bar| (bar.index, Range::new(address(bar), bar.size))).collect()
    }

    /// What the guest has changed, capabilities left out: whoever added one knows what it means.
    pub fn save(&self) -> ConfigurationState {
        ConfigurationState {
            command: self.u16_at(COMMAND),
            cache_line_size: self.bytes[CACHE_LINE_SIZE],
            interrupt_line: self.bytes[INTERRUPT_LINE],
            bars: std::array::from_fn(|index| self.u32_at(BARS + 4 * index)),
        }
    }

    /// Takes over what [`Self::save`] gave. After an error, nothing has changed.
    pub fn load(&mut self, state: &ConfigurationState) -> Result<(), ConfigurationError> {
        let mut loaded = self.clone();
        loaded.restore(COMMAND, &state.command.to_le_bytes())?;
        loaded.restore(CACHE_LINE_SIZE, &[state.cache_line_size])?;
        loaded.restore(INTERRUPT_LINE, &[state.interrupt_line])?;
        for (at, bar) in (BARS..).step_by(4).zip(state.bars) {
            loaded.restore(at, &bar.to_le_bytes())?;
        }
        *self = loaded;
        Ok(())
    }

    /// Sets bytes to what the guest once read there.
    pub(crate) fn restore(&mut self, at: usize, data: &[u8]) -> Result<(), ConfigurationError> {
        for (register, byte) in (at..).zip(data) {
            if (self.bytes[register] ^ byte) & !self.writable[register] != 0 {
                return Err(ConfigurationError::Unwritable { register });
            }
        }
        self.set(at, data);
        Ok(())
    }

    pub(crate) fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from(self.u16_at(at + 2)) << 16 | u32::from(self.u16_at(at))
    }

    fn set(&mut self, at: usize, data: &[u8]) {
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn open(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn configuration() -> Configuration {
        let mut new = Configuration::new(Identity {
            vendor: 0x1af4,
            device: 0x1042,
            subsystem_vendor: 0x1af4,
            subsystem: 0x1042,
            class: 0x01_80_00,
            revision: 1,
        });
        let narrow = BarLayout { index: 0, size: 0x8000, width: BarWidth::Narrow };
        new.add_bar(narrow, GuestAddress(0xc000_0000)).unwrap();
        let wide = BarLayout { index: 2, size: 1 << 33, width: BarWidth::Wide };
        new.add_bar(wide, GuestAddress(0x40_0000_0000)).unwrap();
        new
    }

    #[test]
    fn identity_is_where_drivers_look() {
        let new = configuration();
        assert_eq!(new.u32_at(0), 0x1042_1af4);
        assert_eq!(new.u32_at(8), 0x0180_0001);
        assert_eq!(new.u32_at(0x2c), 0x1042_1af4);
        assert_eq!(new.u32_at(0x3c), 0);
    }

    #[test]
    fn sizing_a_bar_gives_its_mask() {
        let mut new = configuration();
        for at in [0x10, 0x14, 0x18, 0x1c] {
            assert!(!new.write(at, &[0xff; 4]));
        }
        let masks = [0x10, 0x14, 0x18, 0x1c].map(|at| new.u32_at(at));
        assert_eq!(masks, [0xffff_8000, 0, 4, 0xffff_fffe]);
    }

    #[test]
    fn bars_are_decoded_only_while_the_guest_says_so() {
        let mut new = configuration();
        assert_eq!(new.decoded(), []);
        assert!(new.write(4, &[2, 0]));
        let at = |base| Range::new(base, 0x8000);
        let wide = (2, Range::new(0x40_0000_0000, 1 << 33));
        assert_eq!(new.decoded(), [(0, at(0xc000_0000)), wide]);
        assert!(new.write(0x10, &0xd000_0000_u32.to_le_bytes()));
        assert_eq!(new.decoded(), [(0, at(0xd000_0000)), wide]);
        assert!(!new.write(4, &[6, 4]));
        assert!(new.write(4, &[0]));
        assert_eq!(new.decoded(), []);
    }

    #[test]
    fn bars_that_cannot_be_are_refused() {
        use BarWidth::{Narrow, Wide};
        let mut new = configuration();
        for (index, size, width) in [
            (1, 8, Narrow),
            (1, 0x1001, Narrow),
            (1, 1 << 32, Narrow),
            (0, 0x1000, Narrow),
            (1, 0x1000, Wide),
            (3, 0x1000, Narrow),
            (5, 0x1000, Wide),
            (6, 0x1000, Narrow),
            (255, 0x1000, Wide),
        ] {
            let added = new.add_bar(BarLayout { index, size, width }, GuestAddress(0));
            assert_eq!(added, Err(ConfigurationError::NoBar { index, size }));
        }
        for address in [GuestAddress(0x800), GuestAddress(1 << 32)] {
            let bar = BarLayout { index: 1, size: 0x1000, width: Narrow };
            let added = new.add_bar(bar, address);
            assert_eq!(added, Err(ConfigurationError::BarAddress { index: 1, address }));
        }
    }

    #[test]
    fn capabilities_are_linked_until_no_room_is_left() {
        let mut new = configuration();
        assert_eq!(new.u16_at(STATUS), 0);
        assert_eq!(new.add_capability(0x11, &[1, 2, 3], &[0xff]), Ok(0x40));
        assert_eq!(new.add_capability(0x09, &[4], &[]), Ok(0x48));
        assert_eq!(new.u16_at(STATUS), STATUS_CAPABILITIES);
        assert_eq!(new.bytes[CAPABILITIES], 0x40);
        assert_eq!(new.bytes[0x40..0x4c], [0x11, 0x48, 1, 2, 3, 0, 0, 0, 0x09, 0, 4, 0]);
        let refused = new.add_capability(0x05, &[0; 200], &[]);
        assert_eq!(refused, Err(ConfigurationError::NoRoom { id: 5 }));
    }

    #[test]
    fn state_with_bits_no_guest_can_write_is_refused() {
        let mut new = configuration();
        let good = new.save();
        let io_decode = ConfigurationState { command: 1, ..good.clone() };
        assert_eq!(new.load(&io_decode), Err(ConfigurationError::Unwritable { register: 4 }));
        let mut misaligned = good.clone();
        misaligned.bars[0] |= 0x100;
        assert_eq!(new.load(&misaligned), Err(ConfigurationError::Unwritable { register: 0x11 }));
        assert_eq!(new.save(), good);
    }

    proptest! {
        #[test]
        fn read_only_bits_stay_and_state_survives(
            writes in prop::collection::vec((0_usize..300, prop::collection::vec(any::<u8>(), 0..9)), 0..40)
        ) {
            let first = configuration();
            let mut new = configuration();
            for (register, data) in writes {
                new.write(register, &data);
            }
            for at in 0..SIZE {
                prop_assert_eq!((new.bytes[at] ^ first.bytes[at]) & !new.writable[at], 0);
            }
            let mut loaded = first;
            loaded.load(&new.save()).unwrap();
            prop_assert_eq!(loaded.bytes, new.bytes);
        }
    }
}
