//! What is true of an object.

use crate::types::fields::object;
use serde::{Deserialize, Serialize};

object! {
    /// Something that is, or is not, true of an object.
    pub struct Condition {
        /// When it was last looked at, as RFC 3339 writes it.
        pub last_probe_time: Option<String>,
        /// When its status last changed, as RFC 3339 writes it.
        pub last_transition_time: Option<String>,
        /// Why, for people.
        pub message: Option<String>,
        /// Why, in one word.
        pub reason: Option<String>,
        /// Whether it is.
        pub status: ConditionStatus,
        /// What is said to be true.
        #[serde(rename = "type")]
        pub kind: String,
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    #[default]
    #[serde(other)]
    Unknown,
}
