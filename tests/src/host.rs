//! Where /dev/kvm, /dev/userfaultfd and TAPs come from.
//!
//! A test in the cage of a launcher Pod has no device nodes: all it has came over a link whose descriptor
//! [`LINK_FD`] names. Elsewhere the nodes are opened. The two never mix: a grant without a role is an error, so a
//! test in the cage cannot pass by a node that should not be there.

use std::env::{self, VarError};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use corten_link::{Grant, Link, Role};
use kvm_ioctls::Kvm;
use thiserror::Error;

/// The environment variable with the number of an inherited link.
pub const LINK_FD: &str = "CORTEN_LINK_FD";

/// Why a device is not to be had.
#[derive(Debug, Error)]
pub enum HostError {
    /// No such node, or no permission.
    #[error("cannot open {path}")]
    Open {
        /// The device node.
        path: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The link gave no usable grant. It is read once, so each later caller gets the same text.
    #[error("no grant over {LINK_FD}: {0}")]
    NoGrant(String),
    /// The grant lacks a device.
    #[error("the grant over {LINK_FD} has no {0}")]
    NotGranted(Role),
    /// The granted descriptor cannot be duplicated.
    #[error("cannot duplicate the granted {role}")]
    Duplicate {
        /// Its role.
        role: Role,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What came over the link. The link stays open as long as the process: to the peer, its end is our end.
struct Granted {
    grant: Grant,
    _link: Link,
}

/// KVM.
pub fn kvm() -> Result<Kvm, HostError> {
    let fd = kvm_descriptor()?;
    // SAFETY: the descriptor is open, of the KVM device, and owned by nobody else after into_raw_fd.
    Ok(unsafe { Kvm::from_raw_fd(fd.into_raw_fd()) })
}

/// An open /dev/kvm.
pub fn kvm_descriptor() -> Result<OwnedFd, HostError> {
    device(&Role::kvm(), "/dev/kvm")
}

/// The device whose userfaultfds may also serve faults of the kernel, which KVM's are.
pub fn userfaultfd() -> Result<OwnedFd, HostError> {
    device(&Role::userfaultfd(), "/dev/userfaultfd")
}

/// What only the cage grants: queues of TAPs, vhost-net.
pub fn granted_as(role: &Role) -> Result<OwnedFd, HostError> {
    granted()?.ok_or_else(|| HostError::NotGranted(role.clone()))?.get(role)
}

fn device(role: &Role, path: &'static str) -> Result<OwnedFd, HostError> {
    let Some(granted) = granted()? else {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        return opened.map(File::into).map_err(|source| HostError::Open { path, source });
    };
    granted.get(role)
}

impl Granted {
    fn get(&self, role: &Role) -> Result<OwnedFd, HostError> {
        let fd = self.grant.get(role).ok_or_else(|| HostError::NotGranted(role.clone()))?;
        fd.try_clone().map_err(|source| HostError::Duplicate { role: role.clone(), source })
    }
}

/// The grant of this process, if it has a link.
fn granted() -> Result<Option<&'static Granted>, HostError> {
    static GRANTED: OnceLock<Result<Option<Granted>, String>> = OnceLock::new();
    let granted = GRANTED.get_or_init(|| match env::var(LINK_FD) {
        Ok(number) => receive(&number).map(Some),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err("its value is no text".into()),
    });
    granted.as_ref().map(Option::as_ref).map_err(|text| HostError::NoGrant(text.clone()))
}

fn receive(number: &str) -> Result<Granted, String> {
    let raw: RawFd = number.parse().map_err(|error| format!("{number:?}: {error}"))?;
    // SAFETY: this query takes any number and touches no memory.
    if unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0 {
        return Err(format!("descriptor {raw} is not open"));
    }
    // SAFETY: whoever set the variable left this descriptor to us, and only this function, which runs once, takes it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let link = Link::from_fd(fd).map_err(|error| error.to_string())?;
    let grant = link.receive_grant().map_err(|error| error.to_string())?;
    Ok(Granted { grant, _link: link })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn granted_device_is_found_by_its_role() {
        let (theirs, ours) = Link::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        theirs.send_grant(&[(Role::kvm(), writer.as_fd())]).unwrap();
        let granted = receive(&ours.into_fd().into_raw_fd().to_string()).unwrap();
        drop(writer);

        let device = granted.grant[&Role::kvm()].try_clone().unwrap();
        File::from(device).write_all(b"x").unwrap();
        assert!(!granted.grant.contains_key(&Role::userfaultfd()));
        drop(granted);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn value_that_names_no_link_is_refused() {
        for number in ["", "kvm", "-1", "1000000"] {
            assert!(receive(number).is_err(), "{number:?}");
        }
    }
}
