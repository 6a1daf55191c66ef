//! KVM: the only place that knows its calls.

pub mod cpu_time;
mod exit;
mod kick;
mod tsc;
mod vcpu;
mod vm;

use thiserror::Error;

pub use exit::{Access, Exit, Failure};
pub use kick::Kick;
pub use vcpu::Vcpu;
pub use vm::{KvmPages, Vm};

/// KVM refused something.
#[derive(Debug, Error)]
#[error("KVM cannot {what}")]
pub struct KvmError {
    what: String,
    #[source]
    source: kvm_ioctls::Error,
}

/// For `map_err`: what was asked for.
fn cannot(what: impl Into<String>) -> impl FnOnce(kvm_ioctls::Error) -> KvmError {
    let what = what.into();
    move |source| KvmError { what, source }
}
