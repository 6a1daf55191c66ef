//! What a guest's reads and writes reach.

/// A device's registers, behind a range of ports or of memory.
///
/// Called on vCPU threads, by several at once. A call takes the device's own lock at most and never waits for anything
/// else: what needs the machine is said by an [`Effect`]. Every access a guest can make is answered: reads outside of
/// any register give all ones, writes there do nothing.
pub trait Registers: Send + Sync {
    /// Fills `data` from `offset` bytes into the range.
    fn read(&self, offset: u64, data: &mut [u8]);

    /// Takes `data` at `offset` bytes into the range.
    fn write(&self, offset: u64, data: &[u8]) -> Effect;
}

/// What a write asks of the machine. The vCPU posts it to the machine's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "an effect that nobody posts is lost"]
pub enum Effect {
    /// Nothing.
    #[default]
    None,
    /// The guest wants to start anew.
    Reset,
    /// The guest is done.
    PowerOff,
    /// The guest says that its kernel panicked.
    Panicked,
    /// The guest says that its kernel panicked and that it goes on to write a crash dump.
    CrashLoaded,
    /// An interrupt of the real-time clock is due sooner than the owner knows: it asks [`Rtc::tick`] when.
    ///
    /// [`Rtc::tick`]: crate::legacy::Rtc::tick
    Rearm,
    /// The driver of the PCI device in `slot` is ready: its queues go to work.
    Activate {
        /// Device number on bus 0.
        slot: u8,
    },
    /// The driver of the PCI device in `slot` gave up its queues and waits until the device has, too.
    Deactivate {
        /// Device number on bus 0.
        slot: u8,
    },
    /// Where the PCI device in `slot` answers has changed. The vCPU must not go on before the bus has, too.
    MoveBars {
        /// Device number on bus 0.
        slot: u8,
    },
    /// The guest lets go of the PCI devices in these slots.
    Eject {
        /// One bit for each slot.
        slots: u32,
    },
}

/// What a read finds where nothing is.
pub fn read_nothing(data: &mut [u8]) {
    data.fill(0xff);
}
