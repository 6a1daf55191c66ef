//! Small devices at fixed ports.
//!
//! | Device           | Where                  | Interrupt  | What it is for                           | What it saves                          |
//! |------------------|------------------------|------------|------------------------------------------|----------------------------------------|
//! | [`Serial`]       | ports 0x3f8 to 0x3ff   | 4, edge    | 16550A, the console                      | every register, input not yet read     |
//! | [`Rtc`]          | ports 0x70, 0x71       | 8, edge    | MC146818, the time of day and an alarm   | index, registers, offset to our clock  |
//! | [`I8042`]        | ports 0x60 to 0x64     | none       | the old way to reset                     | nothing: it has no state               |
//! | [`Pvpanic`]      | port 0x505             | none       | a guest kernel tells of its panic        | nothing: it has no state               |
//! | [`Acpi`]         | ports 0x600 to 0x61f   | 9, edge    | power off, reset, power button, hotplug  | events and slots not yet read          |
//! | [`GenerationId`] | 16 bytes of RAM        | by `Acpi`  | tells the guest that it was copied       | the id                                 |
//!
//! None has a thread: registers are answered on vCPU threads under the device's own lock, the rest is called by the
//! machine's owner, and [`SerialInput`] by an I/O worker. There is nothing for a pause to wait for. With all vCPUs parked and
//! no input pushed, what `save` returns stays true. `load` takes a state whole or not at all, and raises the interrupt anew
//! where one is due: a guest can live with one too many, not with one too few.
//!
//! Registers of one byte are ports: a wider access reaches the ports that follow, low byte first, as on the ISA bus.
//! The registers of [`Acpi`] are wider and have rules of their own.

mod acpi;
mod generation_id;
mod i8042;
mod ports;
mod pvpanic;
mod rtc;
mod serial;
mod serial_input;
#[cfg(test)]
mod testing;
mod uart;

pub use acpi::{Acpi, AcpiState, events as acpi_events, offsets as acpi_offsets};
pub use generation_id::{GenerationId, GenerationIdError, GenerationIdState, WriteMemory};
pub use i8042::{I8042, I8042State};
pub use pvpanic::{Pvpanic, PvpanicState};
pub use rtc::{CENTURY as RTC_CENTURY, Clock, Rtc, RtcState, system_clock};
pub use serial::{Serial, nonblocking};
pub use serial_input::SerialInput;
pub use uart::{INPUT_SIZE as SERIAL_INPUT_SIZE, SerialState};

use crate::{RecordError, RecordName, State};

/// The error for a state that no device can be in. There is one of each of these devices, hence no instance.
fn impossible<S: State>(reason: String) -> RecordError {
    let name = RecordName { kind: S::KIND.into(), instance: String::new() };
    RecordError::Impossible { name, reason }
}
