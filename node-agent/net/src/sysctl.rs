//! Settings of a network namespace: files in /proc/sys/net, where a thread finds those of the namespace it is in.

use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

/// Why a setting is not as it has to be.
#[derive(Debug, Error)]
#[error("cannot set {} to {value}", path.display())]
pub struct SettingError {
    path: PathBuf,
    value: String,
    #[source]
    source: io::Error,
}

/// A setting's value, or nothing where the kernel has no such.
pub(crate) fn get(name: &str) -> Option<String> {
    Some(fs::read_to_string(path(name)).ok()?.trim_end().to_owned())
}

/// Sets it; one that is already so is not written, so that it may be read-only. Returns whether it was another.
pub(crate) fn set(name: &str, value: &str) -> Result<bool, SettingError> {
    if get(name).as_deref() == Some(value) {
        return Ok(false);
    }
    let path = path(name);
    match fs::write(&path, value) {
        Ok(()) => Ok(true),
        Err(source) => Err(SettingError { path, value: value.into(), source }),
    }
}

/// Whether the namespace speaks IPv6.
pub(crate) fn has_ipv6() -> bool {
    get("ipv6/conf/all/disable_ipv6").as_deref() == Some("0")
}

/// Has the namespace forward IPv4. Returns whether it did not.
pub(crate) fn forward_ipv4() -> Result<bool, SettingError> {
    set("ipv4/ip_forward", "1")
}

/// Has the namespace forward IPv6. Returns whether it did not.
///
/// A host that becomes a router no longer heeds other routers' advertisements and would lose its own way out. So every
/// link that heeds them is told first to go on with it.
pub(crate) fn forward_ipv6() -> Result<bool, SettingError> {
    if get("ipv6/conf/all/forwarding").as_deref() == Some("1") {
        return Ok(false);
    }
    for link in fs::read_dir(path("ipv6/conf")).into_iter().flatten().flatten() {
        let Ok(link) = link.file_name().into_string() else { continue };
        let name = format!("ipv6/conf/{link}/accept_ra");
        if !matches!(link.as_str(), "all" | "default") && get(&name).as_deref() == Some("1") {
            set(&name, "2")?;
        }
    }
    set("ipv6/conf/all/forwarding", "1")
}

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(name)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::namespace::Namespace;

    #[test]
    fn settings_are_those_of_the_thread_s_namespace() {
        let namespace = Namespace::create().unwrap();
        let outside = get("ipv4/ip_forward").unwrap();
        Namespace::enter(namespace.as_fd(), || {
            set("ipv4/ip_forward", "0").unwrap();
            assert!(forward_ipv4().unwrap());
            assert!(!forward_ipv4().unwrap());
            assert_eq!(get("ipv4/ip_forward").unwrap(), "1");
        })
        .unwrap();
        assert_eq!(get("ipv4/ip_forward").unwrap(), outside);
    }

    #[test]
    fn router_still_heeds_advertisements_where_the_host_did() {
        let namespace = Namespace::create().unwrap();
        Namespace::enter(namespace.as_fd(), || {
            assert!(has_ipv6());
            set("ipv6/conf/lo/accept_ra", "1").unwrap();
            assert!(forward_ipv6().unwrap());
            assert_eq!(get("ipv6/conf/lo/accept_ra").as_deref(), Some("2"));
            assert!(!forward_ipv6().unwrap());
        })
        .unwrap();
    }

    #[test]
    fn setting_that_is_not_there_is_named() {
        let error = set("ipv4/conf/no-such-link/route_localnet", "1").unwrap_err();
        let wanted = "cannot set /proc/sys/net/ipv4/conf/no-such-link/route_localnet to 1";
        assert_eq!(error.to_string(), wanted);
    }
}
