//! Where things are in the BAR and in configuration space. Part of the guest's ABI: a change is a new machine version.
//!
//! ```text
//! 0x0000  common configuration      0x3000  doorbells, 4 bytes for each queue
//! 0x1000  interrupt status          0x4000  MSI-X table
//! 0x2000  device configuration      0x5000  MSI-X pending bits
//! ```

use vm_memory::GuestAddress;

use crate::pci::{
    BarLayout, BarWidth, Configuration, ConfigurationError, Identity, MSIX_CAPABILITY, Msix,
};

/// Number of the only BAR: of 32 address bits.
pub const BAR: u8 = 0;
/// Bytes of the BAR.
pub const BAR_SIZE: u64 = 0x8000;
/// As many queues as a device can have: each has a vector, and so has the configuration.
pub const MAX_QUEUES: usize = 255;

/// Bytes of each part.
const PART: u64 = 0x1000;
const ISR: u32 = 0x1000;
const DEVICE: u32 = 0x2000;
pub(super) const NOTIFY: u32 = 0x3000;
const MSIX_TABLE: u32 = 0x4000;
const MSIX_PENDING: u32 = 0x5000;
/// From one queue's doorbell to the next.
pub(super) const NOTIFY_STEP: u32 = 4;
/// Bytes of the common configuration, up to queue_reset and rounded up.
pub(super) const COMMON_SIZE: u8 = 0x40;

/// The vendor of all virtio devices.
const VENDOR: u16 = 0x1af4;
/// Device types are numbered from here on.
const FIRST_DEVICE: u16 = 0x1040;
/// The subsystem that QEMU's modern devices have, and that Windows drivers look for.
const SUBSYSTEM: u16 = 0x1100;

/// Id of vendor specific capabilities.
const VENDOR_CAPABILITY: u8 = 0x09;
const COMMON_CFG: u8 = 1;
const NOTIFY_CFG: u8 = 2;
const ISR_CFG: u8 = 3;
const DEVICE_CFG: u8 = 4;
const PCI_CFG: u8 = 5;

/// A part of the BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Common,
    Isr,
    Device,
    Notify,
    MsixTable,
    MsixPending,
}

/// The part that an access of `length` bytes is for, and the offset in it.
pub(super) fn part_at(offset: u64, length: usize) -> Option<(Part, u64)> {
    let part = match offset / PART {
        0 => Part::Common,
        1 => Part::Isr,
        2 => Part::Device,
        3 => Part::Notify,
        4 => Part::MsixTable,
        5 => Part::MsixPending,
        _ => return None,
    };
    let within = offset % PART;
    let end = within.checked_add(length as u64)?;
    (end <= PART).then_some((part, within))
}

/// The queue whose doorbell is at `offset` of its part.
pub(super) fn queue_of_doorbell(offset: u64) -> Option<usize> {
    let step = u64::from(NOTIFY_STEP);
    if offset.is_multiple_of(step) { usize::try_from(offset / step).ok() } else { None }
}

/// Where in configuration space the transport's own registers are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// MSI-X message control.
    pub(super) msix_control: usize,
    /// The window into the BAR: its BAR number, offset, length and data.
    pub(super) window_bar: usize,
    pub(super) window_offset: usize,
    pub(super) window_length: usize,
    pub(super) window_data: usize,
}

/// The configuration space of a device of that type.
pub(super) fn configuration(
    device_type: u16,
    msix: &Msix,
    bar: GuestAddress,
) -> Result<(Configuration, Places), ConfigurationError> {
    let mut new = Configuration::new(Identity {
        vendor: VENDOR,
        device: FIRST_DEVICE.saturating_add(device_type),
        subsystem_vendor: VENDOR,
        subsystem: SUBSYSTEM,
        class: class_of(device_type),
        revision: 1,
    });
    new.add_bar(BarLayout { index: BAR, size: BAR_SIZE, width: BarWidth::Narrow }, bar)?;
    let part = |kind, offset, length| capability(kind, offset, length, &[]);
    let (body, writable) = msix.capability(BAR, MSIX_TABLE, MSIX_PENDING);
    let msix_at = new.add_capability(MSIX_CAPABILITY, &body, &writable)?;
    new.add_capability(VENDOR_CAPABILITY, &part(COMMON_CFG, 0, COMMON_SIZE.into()), &[])?;
    new.add_capability(VENDOR_CAPABILITY, &part(ISR_CFG, ISR, 4), &[])?;
    new.add_capability(VENDOR_CAPABILITY, &part(DEVICE_CFG, DEVICE, 0x1000), &[])?;
    let notify = capability(NOTIFY_CFG, NOTIFY, 0x1000, &NOTIFY_STEP.to_le_bytes());
    new.add_capability(VENDOR_CAPABILITY, &notify, &[])?;
    let window = capability(PCI_CFG, 0, 0, &[0; 4]);
    // The BAR's number, the offset and the length can be written; the data is not kept here.
    let mut writable = [0; 14];
    writable[2] = 0xff;
    writable[6..].fill(0xff);
    let window_at = new.add_capability(VENDOR_CAPABILITY, &window, &writable)?;
    let places = Places {
        msix_control: msix_at + 2,
        window_bar: window_at + 4,
        window_offset: window_at + 8,
        window_length: window_at + 12,
        window_data: window_at + 16,
    };
    Ok((new, places))
}

/// A virtio capability's body: its length and kind, where it is in the BAR, and what some kinds add.
fn capability(kind: u8, offset: u32, length: u32, more: &[u8]) -> Vec<u8> {
    let size = if more.is_empty() { 16 } else { 20 };
    let mut body = vec![size, kind, BAR, 0, 0, 0];
    body.extend(offset.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(more);
    body
}

/// Class, subclass and interface by which tools call a device type; drivers go by its number.
fn class_of(device_type: u16) -> u32 {
    match device_type {
        1 => 0x02_00_00,
        2 | 8 => 0x01_00_00,
        3 | 19 => 0x07_80_00,
        26 | 27 => 0x01_80_00,
        _ => 0x00_ff_00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_across_parts_are_for_none() {
        assert_eq!(part_at(0, 4), Some((Part::Common, 0)));
        assert_eq!(part_at(0x3ffc, 4), Some((Part::Notify, 0xffc)));
        for (offset, length) in [(0x0fff, 2), (0x6000, 1), (0x7fff, 1), (u64::MAX, 8)] {
            assert_eq!(part_at(offset, length), None, "{offset:#x}");
        }
    }

    #[test]
    fn doorbells_are_four_bytes_apart() {
        assert_eq!(queue_of_doorbell(0), Some(0));
        assert_eq!(queue_of_doorbell(8), Some(2));
        assert_eq!(queue_of_doorbell(6), None);
    }
}
