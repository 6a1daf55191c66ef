//! Why a driver of the guest gave up.

use crate::protocol::{
    FAILURE_BAR, FAILURE_CAPACITY, FAILURE_CONTENT, FAILURE_FEATURES, FAILURE_NEEDS_RESET,
    FAILURE_NO_DEVICE, FAILURE_QUEUE, FAILURE_SETTING, FAILURE_STATUS, FAILURE_STRUCTURE,
    FAILURE_USED_ID, FAILURE_USED_LENGTH, FAILURE_VECTOR,
};

/// Where a driver gave up. The codes, and what it tells with each, stand in [`crate::protocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each stands documented as a code of the protocol")]
pub enum DriverFailure {
    Setting,
    NoDevice,
    Bar,
    Structure,
    Features,
    Vector,
    Queue,
    Capacity,
    Status,
    UsedId,
    UsedLength,
    NeedsReset,
    Content,
}

impl DriverFailure {
    pub(crate) fn decode(code: u8) -> Option<Self> {
        Some(match code {
            FAILURE_SETTING => Self::Setting,
            FAILURE_NO_DEVICE => Self::NoDevice,
            FAILURE_BAR => Self::Bar,
            FAILURE_STRUCTURE => Self::Structure,
            FAILURE_FEATURES => Self::Features,
            FAILURE_VECTOR => Self::Vector,
            FAILURE_QUEUE => Self::Queue,
            FAILURE_CAPACITY => Self::Capacity,
            FAILURE_STATUS => Self::Status,
            FAILURE_USED_ID => Self::UsedId,
            FAILURE_USED_LENGTH => Self::UsedLength,
            FAILURE_NEEDS_RESET => Self::NeedsReset,
            FAILURE_CONTENT => Self::Content,
            _ => return None,
        })
    }
}
