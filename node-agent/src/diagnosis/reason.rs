//! What kept a launcher from being served, in one word. Pure.

use crate::door::{ConnectError, HandoverError, SessionError};
use crate::grant::GrantError;
use crate::ledger::LedgerError;
use crate::networks::NetworkError;
use corten_net::Stage;

/// The word for an error on the way from the door to a VM that is handed over. An error that is of none of these has one, too.
pub fn reason_of(error: &anyhow::Error) -> &'static str {
    error.chain().find_map(one).unwrap_or("HandoverFailed")
}

fn one(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(error) = cause.downcast_ref::<HandoverError>() {
        return match error {
            HandoverError::Dismissed(_) => Some("LauncherDismissed"),
            HandoverError::Ledger(_) => Some("LedgerFailed"),
            HandoverError::Grant(_) => Some("NodeDeviceMissing"),
            HandoverError::Session(error) => Some(of_session(error)),
        };
    }
    if let Some(error) = cause.downcast_ref::<SessionError>() {
        return Some(of_session(error));
    }
    if cause.is::<ConnectError>() {
        return Some("LauncherNotReached");
    }
    if cause.is::<GrantError>() {
        return Some("NodeDeviceMissing");
    }
    if let Some(error) = cause.downcast_ref::<NetworkError>() {
        return Some(of_stage(error.stage()));
    }
    cause.is::<LedgerError>().then_some("LedgerFailed")
}

/// The word for a guest that is not connected: how far its network is made.
pub fn of_stage(stage: Stage) -> &'static str {
    match stage {
        Stage::PodInterface => "NetworkPodInterface",
        Stage::Bridge => "NetworkBridge",
        Stage::Tap => "NetworkTap",
        Stage::Dhcp => "NetworkDhcp",
    }
}

fn of_session(error: &SessionError) -> &'static str {
    match error {
        SessionError::Silent => "LauncherSilent",
        SessionError::Refused(_) | SessionError::TooLarge(_) => "LauncherRefused",
        _ => "LinkFailed",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn each_stage_has_its_word() {
        let path = PathBuf::from("/doors/kvm1");
        let handover = |error| anyhow::Error::from(error).context("VMI n/v is not handed over");
        let table = [
            (ConnectError::NotThere(path).into(), "LauncherNotReached"),
            (SessionError::Silent.into(), "LauncherSilent"),
            (SessionError::Flood.into(), "LinkFailed"),
            (handover(HandoverError::Dismissed("before".into())), "LauncherDismissed"),
            (handover(HandoverError::Session(SessionError::Silent)), "LauncherSilent"),
            (
                handover(HandoverError::Session(SessionError::Refused("no".into()))),
                "LauncherRefused",
            ),
            (NetworkError::NoNamespace.into(), "NetworkPodInterface"),
            (anyhow!("the launcher runs another VMI"), "HandoverFailed"),
        ];
        for (error, word) in table {
            assert_eq!(reason_of(&error), word, "{error:#}");
        }
    }

    #[test]
    fn a_device_that_the_node_lacks_has_its_word() {
        let missing = PathBuf::from("/nonexistent/kvm");
        let devices =
            crate::grant::Devices { kvm: missing, userfaultfd: PathBuf::from("/dev/null") };
        let error = devices.open().map_err(HandoverError::from).context("not handed over");
        assert_eq!(reason_of(&error.unwrap_err()), "NodeDeviceMissing");
    }
}
