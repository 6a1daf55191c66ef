//! A driver that does what Linux does, one step at a time.

use std::sync::Arc;

use super::FakeRing;
use crate::pci::Function;
use crate::{Effect, Registers};

/// Drives a virtio function through its configuration space and its BAR.
pub struct FakeDriver {
    function: Arc<dyn Function>,
    bar: Arc<dyn Registers>,
    common: u64,
    notify: u64,
    isr: u64,
    device: u64,
    msix: usize,
    msix_table: u64,
}

impl FakeDriver {
    /// Status bit: the driver knows the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// Status bit: there is a driver.
    pub const DRIVER: u8 = 2;
    /// Status bit: the driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// Status bit: the features are settled.
    pub const FEATURES_OK: u8 = 8;
    /// Status bit: the device wants to be reset.
    pub const NEEDS_RESET: u8 = 64;
    /// Feature: not a legacy device. The one feature no driver can do without.
    pub const VERSION_1: u64 = 1 << 32;
    /// Feature: interrupts and doorbells by index.
    pub const EVENT_IDX: u64 = 1 << 29;

    /// Walks the capabilities of a function whose only BAR has these registers.
    pub fn new(function: Arc<dyn Function>, bar: Arc<dyn Registers>) -> Self {
        let mut driver = Self {
            function,
            bar,
            common: u64::MAX,
            notify: u64::MAX,
            isr: u64::MAX,
            device: u64::MAX,
            msix: 0,
            msix_table: u64::MAX,
        };
        for (id, at) in driver.capabilities() {
            let place = u64::from(driver.configuration(at + 8, 4));
            match (id, driver.configuration(at + 3, 1)) {
                (0x11, _) => {
                    driver.msix = at;
                    driver.msix_table = u64::from(driver.configuration(at + 4, 4) & !7);
                }
                (0x09, 1) => driver.common = place,
                (0x09, 2) => driver.notify = place,
                (0x09, 3) => driver.isr = place,
                (0x09, 4) => driver.device = place,
                _ => {}
            }
        }
        driver
    }

    /// Id and register of each capability.
    pub fn capabilities(&self) -> Vec<(u8, usize)> {
        let mut found = Vec::new();
        let mut at = self.configuration(0x34, 1);
        // As Linux does, no more than fit: a list may be a circle.
        while at != 0 && found.len() < 48 {
            let [id, next, ..] = self.configuration(at as usize, 2).to_le_bytes();
            found.push((id, at as usize));
            at = u32::from(next);
        }
        found
    }

    /// Reads configuration space.
    pub fn configuration(&self, register: usize, length: usize) -> u32 {
        let mut data = [0; 4];
        self.function.read_configuration(register, &mut data[..length]);
        u32::from_le_bytes(data)
    }

    /// Writes configuration space.
    pub fn configure(&self, register: usize, length: usize, value: u32) -> Effect {
        self.function.write_configuration(register, &value.to_le_bytes()[..length])
    }

    /// Reads a register of the common configuration.
    pub fn common(&self, register: u64, length: usize) -> u64 {
        let mut data = [0; 8];
        self.bar.read(self.common + register, &mut data[..length]);
        u64::from_le_bytes(data)
    }

    /// Writes a register of the common configuration.
    pub fn set_common(&self, register: u64, length: usize, value: u64) -> Effect {
        self.bar.write(self.common + register, &value.to_le_bytes()[..length])
    }

    /// Reads the device's configuration.
    pub fn config(&self, offset: u64, data: &mut [u8]) {
        self.bar.read(self.device + offset, data);
    }

    /// Writes the device's configuration.
    pub fn set_config(&self, offset: u64, data: &[u8]) {
        let effect = self.bar.write(self.device + offset, data);
        assert_eq!(effect, Effect::None, "configuration asks nothing of the machine");
    }

    /// Reads and thereby clears the interrupt status.
    pub fn take_isr(&self) -> u8 {
        let mut data = [0];
        self.bar.read(self.isr, &mut data);
        data[0]
    }

    /// The device's status.
    pub fn status(&self) -> u8 {
        self.common(0x14, 1).to_le_bytes()[0]
    }

    /// Adds bits to the status.
    pub fn add_status(&self, bits: u8) -> Effect {
        self.set_common(0x14, 1, u64::from(self.status() | bits))
    }

    /// Asks for a reset.
    pub fn reset(&self) -> Effect {
        self.set_common(0x14, 1, 0)
    }

    /// The features on offer.
    pub fn offered(&self) -> u64 {
        [0, 1].into_iter().fold(0, |features, half| {
            let _ = self.set_common(0x00, 4, half);
            features | self.common(0x04, 4) << (32 * half)
        })
    }

    /// Goes from reset to agreed features; false if the device does not agree.
    pub fn negotiate(&self, features: u64) -> bool {
        let _ = self.reset();
        let _ = self.add_status(Self::ACKNOWLEDGE);
        let _ = self.add_status(Self::DRIVER);
        for half in [0, 1] {
            let _ = self.set_common(0x08, 4, half);
            let _ = self.set_common(0x0c, 4, (features >> (32 * half)) & 0xffff_ffff);
        }
        let _ = self.add_status(Self::FEATURES_OK);
        self.status() & Self::FEATURES_OK != 0
    }

    /// Turns MSI-X on, with this many vectors open, their messages told apart by data.
    pub fn enable_msix(&self, vectors: u16) {
        let control = self.configuration(self.msix + 2, 2);
        let _ = self.configure(self.msix + 2, 2, control | 0xc000);
        for vector in 0..vectors {
            self.set_vector(vector, 0, 0xfee0_0000);
            self.set_vector(vector, 2, 0x40 + u32::from(vector));
            self.set_vector(vector, 3, 0);
        }
        let _ = self.configure(self.msix + 2, 2, control & !0x4000 | 0x8000);
    }

    /// Writes a field of an MSI-X table entry: 0 and 1 are the address, 2 the data, 3 the mask.
    pub fn set_vector(&self, vector: u16, field: u64, value: u32) {
        let at = self.msix_table + 16 * u64::from(vector) + 4 * field;
        let _ = self.bar.write(at, &value.to_le_bytes());
    }

    /// Sets a queue up with a ring and a vector and enables it; false if the device does not agree.
    pub fn set_up_queue(&self, queue: u16, ring: &FakeRing, vector: u16) -> bool {
        let _ = self.set_common(0x16, 2, queue.into());
        let _ = self.set_common(0x18, 2, ring.size().into());
        for (register, address) in
            [(0x20, ring.descriptors()), (0x28, ring.available()), (0x30, ring.used())]
        {
            let _ = self.set_common(register, 4, address.0 & 0xffff_ffff);
            let _ = self.set_common(register + 4, 4, address.0 >> 32);
        }
        let _ = self.set_common(0x1a, 2, vector.into());
        let _ = self.set_common(0x1c, 2, 1);
        self.common(0x1a, 2) == u64::from(vector) && self.common(0x1c, 2) == 1
    }

    /// Says that it is ready.
    pub fn ready(&self) -> Effect {
        self.add_status(Self::DRIVER_OK)
    }

    /// Rings for a queue by the register, as if no eventfd were bound to it.
    pub fn ring(&self, queue: u16) {
        let _ = self.bar.write(self.notify + 4 * u64::from(queue), &queue.to_le_bytes());
    }
}
