//! Hands a VMI to a launcher that waits. Once: a VM never runs twice.
//!
//! The ledger notes the start before it is sent. A launcher that waits in a Pod that was started before (somebody ran a
//! second one there, kubelet restarted the container, or the agent ended between note and message) cannot be told from
//! one whose VM runs elsewhere, so it is dismissed: it ends as not started, and the operator sees that.

use corten_resources::types::VirtualMachineInstance;
use thiserror::Error;

use super::visits::excerpt;
use super::{Session, SessionError};
use crate::doors::DeviceId;
use crate::grant::{Devices, GrantError};
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::networks::Connected;

/// Why a launcher was not started.
#[derive(Debug, Error)]
pub enum HandoverError {
    /// It was told to end.
    #[error("the launcher was dismissed: {0}")]
    Dismissed(String),
    /// The start cannot be noted.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The node's devices.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The conversation. Whether the start arrived is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What a start needs besides the launcher.
#[derive(Clone, Copy, Debug)]
pub struct Handover<'a> {
    /// The device whose door it is.
    pub device: &'a DeviceId,
    /// Where the start is noted.
    pub ledger: &'a Ledger,
    /// What the launcher is given.
    pub devices: &'a Devices,
}

impl Handover<'_> {
    /// Starts `vmi` with what is connected for it in the Pod of `entry`, whose launcher waits; or dismisses that.
    pub async fn start(
        self,
        mut session: Session,
        vmi: &VirtualMachineInstance,
        entry: &Entry,
        connected: Connected,
    ) -> Result<Session, HandoverError> {
        let mut descriptors = self.devices.open()?;
        descriptors.extend(connected.descriptors);
        let first = self.ledger.start_once(self.device, entry)?;
        self.ledger.record(self.device, entry)?;
        if !first {
            let reason = "its Pod was handed the VMI before, and a VM is never run twice";
            return Err(dismiss(session, reason.into()).await);
        }
        match session.start(vmi, &connected.interfaces, &descriptors).await {
            Ok(()) => Ok(session),
            // The same object would be refused for ever.
            Err(error @ (SessionError::Refused(_) | SessionError::TooLarge(_))) => {
                let reason = format!("{:#}", anyhow::Error::from(error));
                Err(dismiss(session, excerpt(&reason)).await)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether it really goes matters to nobody but its own Pod.
async fn dismiss(session: Session, reason: String) -> HandoverError {
    match session.dismiss(&reason).await {
        Ok(()) => HandoverError::Dismissed(reason),
        Err(error) => HandoverError::Dismissed(format!("{reason} ({error})")),
    }
}
