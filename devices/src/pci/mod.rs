//! PCI: one bus without bridges, reached by ECAM and by ports, functions with memory BARs and MSI-X.
//!
//! ```text
//!  vCPU ── ECAM (memory) ──┐
//!       └─ 0xcf8, 0xcfc ───┴─ Root ── slot 0: host bridge
//!                                  ├─ slot n: Function ── Configuration, Msix
//!  vCPU ── BAR (memory) ───────────┘         MoveBars ──▶ owner ── Root::bars() ──▶ new Bus, doorbells
//! ```
//!
//! There is no firmware: the machine gives every BAR its address before the guest starts. A guest that sizes or moves
//! BARs finds them behave as in hardware. Where a BAR is on the bus changes only when the machine's owner asks for
//! [`Root::bars`] after an [`Effect::MoveBars`](crate::Effect::MoveBars); a BAR moved out of the apertures or onto
//! another one is on the bus nowhere until it is moved again.
//!
//! Functions are conventional ones: 256 bytes of configuration, no extended space, function 0 only, no interrupt lines.
//! Errors, power states and bus mastering are not modelled: the bus-master bit can be set and is ignored.

mod configuration;
mod function;
mod msix;
mod root;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use configuration::{
    BarLayout, BarWidth, Configuration, ConfigurationError, ConfigurationState, Identity,
};
pub use function::{Doorbell, Function, MappedBar};
pub(crate) use msix::CAPABILITY as MSIX_CAPABILITY;
pub use msix::{Message, Msix, MsixState, VectorRoutes, VectorState};
pub use root::{Ecam, Ports, Root, RootError, RootState, SLOTS};

/// Takes a lock. A thread that panicked while it held one has ended the process or the test.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
