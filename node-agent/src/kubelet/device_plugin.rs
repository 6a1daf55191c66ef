//! What kubelet asks of a device plugin, whatever its devices are.

use tokio::sync::watch;

use super::api::{AllocateRequest, AllocateResponse, HEALTHY, ListAndWatchResponse, UNHEALTHY};
use crate::doors::DoorsError;
use crate::ledger::LedgerError;

/// Why a device is not given out.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// kubelet asked for a device that does not exist.
    #[error("{0:?} is no device of this node")]
    Unknown(String),
    /// Its directory.
    #[error(transparent)]
    Doors(#[from] DoorsError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A resource of the node's, in devices that containers are given. kubelet calls at any time and from several tasks.
pub trait DevicePlugin: Send + Sync + 'static {
    /// What Pods ask for.
    fn resource(&self) -> &'static str;

    /// Name of its socket in kubelet's directory.
    fn endpoint(&self) -> &'static str;

    /// Tells whether devices can be used, now and whenever that changes.
    fn health(&self) -> watch::Receiver<bool>;

    /// All devices, while they can be used or while they cannot.
    fn devices(&self, usable: bool) -> ListAndWatchResponse;

    /// Gives devices to the containers of a Pod. Which Pod it is kubelet does not say.
    fn allocate(&self, request: &AllocateRequest) -> Result<AllocateResponse, AllocateError>;
}

/// kubelet's word for a device that can be used, or cannot.
pub(super) fn health_word(usable: bool) -> String {
    if usable { HEALTHY } else { UNHEALTHY }.into()
}
