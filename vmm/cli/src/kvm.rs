//! Whether this machine can run the guest, before anything is prepared for it.

use std::io::ErrorKind;

use corten_probe::KvmUnusable;
use thiserror::Error;

/// The way out, on machines whose KVM is none.
const LAB: &str = "scripts/lab of Corten's sources makes a node whose KVM can: scripts/lab run -- corten run FILE";

/// Why this machine cannot.
#[derive(Debug, Error)]
pub enum KvmError {
    /// There is none.
    #[error(
        "this machine has no /dev/kvm: turn virtualization on in its firmware, or (in a VM) have its host nest it; {LAB}"
    )]
    Missing,
    /// It is another user's.
    #[error("/dev/kvm is not for this user: join the group that owns it (usually kvm), or be root")]
    Forbidden,
    /// It does not work.
    #[error("this machine's KVM cannot run the guest; {LAB}")]
    Unusable(#[source] KvmUnusable),
}

/// Runs a few instructions of the kind that every kernel has.
pub fn check() -> Result<(), KvmError> {
    corten_probe::try_kvm().map_err(explained)
}

fn explained(error: KvmUnusable) -> KvmError {
    match &error {
        KvmUnusable::Absent(source) => match source.kind() {
            ErrorKind::PermissionDenied => KvmError::Forbidden,
            ErrorKind::NotFound => KvmError::Missing,
            _ => KvmError::Unusable(error),
        },
        _ => KvmError::Unusable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_depends_on_what_is_wrong() {
        let absent = |kind: ErrorKind| explained(KvmUnusable::Absent(kind.into())).to_string();
        assert!(absent(ErrorKind::NotFound).contains("has no /dev/kvm"));
        assert!(absent(ErrorKind::PermissionDenied).contains("not for this user"));
        let interpreter = explained(KvmUnusable::Interpreter("exit Hlt".into()));
        assert!(interpreter.to_string().contains("scripts/lab"), "{interpreter}");
    }
}
