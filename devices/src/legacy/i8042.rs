//! Keyboard controller without a keyboard: what is left of it is the line that resets the machine.
//!
//! The port in its middle, 0x61, is not the controller's but answers here, since it lies in its range.

use serde::{Deserialize, Serialize};

use super::ports::{read_each, write_each};
use crate::{Effect, RecordError, Registers, State};

const DATA: u64 = 0;
const SYSTEM_CONTROL: u64 = 1;
const COMMAND: u64 = 4;

/// Pulses the reset line of the processors.
const COMMAND_RESET: u8 = 0xfe;

/// Output buffer full, always; input buffer full, never.
///
/// A driver that looks for the controller first empties the output buffer: Linux gives up after 16 bytes ("No
/// controller found"), while with an empty buffer it would wait half a second for the answer to each test command. One
/// that resets by it first waits, up to 65536 times, until the input buffer is empty: it is.
const STATUS: u8 = 0b01;

/// Timer 2 has run out, so that no calibration waits for it. The two bits that explain an NMI (7: SERR, 6: I/O check)
/// are clear: all ones would make Linux blame any NMI on a PCI system error.
const SYSTEM_CONTROL_VALUE: u8 = 0b10_0000;

/// The device.
#[derive(Debug, Default)]
pub struct I8042;

/// State of an [`I8042`]: none. The record says that the machine has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct I8042State {}

impl State for I8042State {
    const KIND: &'static str = "i8042";
    const VERSION: u16 = 1;
}

impl I8042 {
    /// Its state.
    pub fn save(&self) -> I8042State {
        I8042State {}
    }

    /// Takes a state.
    pub fn load(&self, I8042State {}: I8042State) -> Result<(), RecordError> {
        Ok(())
    }
}

impl Registers for I8042 {
    fn read(&self, offset: u64, data: &mut [u8]) {
        read_each(offset, data, |port| match port {
            DATA => 0,
            SYSTEM_CONTROL => SYSTEM_CONTROL_VALUE,
            COMMAND => STATUS,
            _ => 0xff,
        });
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        write_each(offset, data, |port, byte| match (port, byte) {
            (COMMAND, COMMAND_RESET) => Effect::Reset,
            _ => Effect::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Access, accesses, apply, read, read_byte};
    use super::*;

    #[test]
    fn reset_command_and_no_other_resets() {
        for byte in 0..=0xff {
            let wanted = if byte == 0xfe { Effect::Reset } else { Effect::None };
            assert_eq!(I8042.write(COMMAND, &[byte]), wanted, "{byte:#x}");
            assert_eq!(I8042.write(DATA, &[byte]), Effect::None, "{byte:#x}");
        }
    }

    #[test]
    fn driver_that_empties_the_output_buffer_gives_up_and_one_that_resets_waits_not() {
        assert!((0..17).all(|_| read_byte(&I8042, COMMAND) & 0b01 != 0));
        assert_eq!(read_byte(&I8042, COMMAND) & 0b10, 0);
    }

    #[test]
    fn system_control_port_explains_no_nmi() {
        assert_eq!(read_byte(&I8042, SYSTEM_CONTROL) & 0xc0, 0);
    }

    #[test]
    fn wide_read_finds_successive_ports() {
        assert_eq!(read(&I8042, 0, 8), [0, 0x20, 0xff, 0xff, 1, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn state_of_version_1_is_golden() {
        assert_eq!(serde_json::to_string(&I8042.save()).unwrap(), "{}");
        I8042.load(serde_json::from_str("{}").unwrap()).unwrap();
        serde_json::from_str::<I8042State>(r#"{"x":1}"#).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_access_is_answered_and_leaves_no_trace(accesses in accesses(5)) {
            apply(&I8042, &accesses);
            let reads: Vec<Access> =
                (0..5).map(|offset| Access::Read { offset, size: 1 }).collect();
            prop_assert_eq!(apply(&I8042, &reads), [0, 0x20, 0xff, 0xff, 1]);
        }
    }
}
