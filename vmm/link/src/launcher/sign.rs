//! What a launcher sees of its guest that whoever looks after the VM should know.

use serde::{Deserialize, Serialize};

/// What a launcher sees of its guest. It is told when it is so, and to each agent that connects while it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Sign {
    /// The guest's serial console has said nothing since the guest was started.
    ConsoleSilent {
        /// For how long.
        seconds: u32,
    },
    /// It has said something since that was told.
    ConsoleHeard,
    /// The guest's power button was pressed, as the VM is to end.
    PowerButton {
        /// Whether something in the guest has taken notice of it; not known where the VM process does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noticed: Option<bool>,
    },
    /// What a later release tells.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_version_1_read_as_recorded_and_later_ones_are_passed_over() {
        let table = [
            (r#"{"what":"console-silent","seconds":60}"#, Sign::ConsoleSilent { seconds: 60 }),
            (r#"{"what":"console-heard"}"#, Sign::ConsoleHeard),
            (
                r#"{"what":"power-button","noticed":false}"#,
                Sign::PowerButton { noticed: Some(false) },
            ),
            (r#"{"what":"power-button"}"#, Sign::PowerButton { noticed: None }),
        ];
        for (recorded, sign) in table {
            assert_eq!(serde_json::from_str::<Sign>(recorded).unwrap(), sign);
            assert_eq!(serde_json::to_string(&sign).unwrap(), recorded);
        }
        let later = serde_json::from_str::<Sign>(r#"{"what":"from-the-future","how":1}"#);
        assert_eq!(later.unwrap(), Sign::Unknown);
    }
}
