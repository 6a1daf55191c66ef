//! A port by which the guest's kernel tells of its panic: without it a panic looks like a reset, or like nothing.
//!
//! As QEMU's (`docs/specs/pvpanic`): a read says which events are known, a write is an event.

use serde::{Deserialize, Serialize};

use super::ports::{read_each, write_each};
use crate::{Effect, RecordError, Registers, State};

const PANICKED: u8 = 1;
const CRASH_LOADED: u8 = 2;

/// The device.
#[derive(Debug, Default)]
pub struct Pvpanic;

/// State of a [`Pvpanic`]: none. What it tells of is kept by the machine's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PvpanicState {}

impl State for PvpanicState {
    const KIND: &'static str = "pvpanic";
    const VERSION: u16 = 1;
}

impl Pvpanic {
    /// Its state.
    pub fn save(&self) -> PvpanicState {
        PvpanicState {}
    }

    /// Takes a state.
    pub fn load(&self, PvpanicState {}: PvpanicState) -> Result<(), RecordError> {
        Ok(())
    }
}

impl Registers for Pvpanic {
    fn read(&self, offset: u64, data: &mut [u8]) {
        read_each(offset, data, |port| if port == 0 { PANICKED | CRASH_LOADED } else { 0xff });
    }

    /// Both events at once are a panic, as in QEMU.
    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        write_each(offset, data, |port, byte| match port {
            0 if byte & PANICKED != 0 => Effect::Panicked,
            0 if byte & CRASH_LOADED != 0 => Effect::CrashLoaded,
            _ => Effect::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{accesses, apply, read, read_byte};
    use super::*;

    #[test]
    fn read_says_which_events_are_known() {
        assert_eq!(read_byte(&Pvpanic, 0), 3);
        assert_eq!(read(&Pvpanic, 0, 2), [3, 0xff]);
    }

    #[test]
    fn events_become_effects() {
        for (byte, effect) in [
            (0, Effect::None),
            (1, Effect::Panicked),
            (2, Effect::CrashLoaded),
            (3, Effect::Panicked),
            (4, Effect::None),
            (0xfe, Effect::CrashLoaded),
        ] {
            assert_eq!(Pvpanic.write(0, &[byte]), effect, "{byte}");
        }
        assert_eq!(Pvpanic.write(1, &[1]), Effect::None);
    }

    #[test]
    fn state_of_version_1_is_golden() {
        assert_eq!(serde_json::to_string(&Pvpanic.save()).unwrap(), "{}");
        Pvpanic.load(serde_json::from_str("{}").unwrap()).unwrap();
        serde_json::from_str::<PvpanicState>(r#"{"x":1}"#).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_access_is_answered_and_leaves_no_trace(accesses in accesses(1)) {
            apply(&Pvpanic, &accesses);
            prop_assert_eq!(read_byte(&Pvpanic, 0), 3);
        }
    }
}
