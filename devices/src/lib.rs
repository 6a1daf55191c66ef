//! Devices of the machine: PCI, the virtio transport, one folder for each device, serial and other small ones.
//!
//! A device never sees KVM, a path or another device: guest memory, interrupts, doorbells and its backend's descriptor
//! are handed to it. No device is here yet.
