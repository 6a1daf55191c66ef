//! An interface by its name: the name's rules, taking the interface up, giving it an address.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use thiserror::Error;

nix::ioctl_readwrite_bad!(get_flags, libc::SIOCGIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_flags, libc::SIOCSIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_address, libc::SIOCSIFADDR, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_netmask, libc::SIOCSIFNETMASK, libc::ifreq);

/// IFF_UP as it stands in an interface request.
const UP: libc::c_short = 1;

/// Why an interface was not taken up.
#[derive(Debug, Error)]
pub enum InterfaceError {
    /// The kernel takes no such name.
    #[error("{0:?} is not the name of an interface")]
    Name(String),
    /// A step failed.
    #[error("cannot {step} of interface {name}")]
    Io {
        /// The interface.
        name: String,
        /// What was tried.
        step: &'static str,
        /// Its error.
        #[source]
        source: Errno,
    },
}

/// Takes interface `name` up, as `ip link set NAME up` does.
pub fn set_up(name: &str) -> Result<(), InterfaceError> {
    let mut request = request(name).ok_or_else(|| InterfaceError::Name(name.into()))?;
    let failed = |step| move |source| InterfaceError::Io { name: name.into(), step, source };
    let socket = any_socket().map_err(failed("open a socket for the flags"))?;
    // SAFETY: the request is valid for reads and writes, and names its interface with a final NUL.
    unsafe { get_flags(socket.as_raw_fd(), &raw mut request) }.map_err(failed("read the flags"))?;
    // SAFETY: SIOCGIFFLAGS has just filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | UP;
    // SAFETY: as above; the kernel only reads it.
    unsafe { set_flags(socket.as_raw_fd(), &raw const request) }
        .map_err(failed("set the flags"))?;
    Ok(())
}

/// Gives interface `name` its IPv4 address, as `ip address add ADDRESS/PREFIX dev NAME` does for the first one.
pub fn set_ipv4(name: &str, address: Ipv4Addr, prefix: u8) -> Result<(), InterfaceError> {
    let mut request = request(name).ok_or_else(|| InterfaceError::Name(name.into()))?;
    let failed = |step| move |source| InterfaceError::Io { name: name.into(), step, source };
    let socket = any_socket().map_err(failed("open a socket for the address"))?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    // SAFETY: the request is valid for reads, and names its interface with a final NUL.
    unsafe { set_address(socket.as_raw_fd(), &raw const request) }
        .map_err(failed("set the address"))?;
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from(mask));
    // SAFETY: as above.
    unsafe { set_netmask(socket.as_raw_fd(), &raw const request) }
        .map_err(failed("set the prefix"))?;
    Ok(())
}

fn any_socket() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
}

/// An IPv4 address where any family's can be: port, then address.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut sa_data = [0; 14];
    for (to, from) in sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from.cast_signed();
    }
    libc::sockaddr { sa_family: AddressFamily::Inet as libc::sa_family_t, sa_data }
}

/// A request for interface `name`, or nothing where no interface can have that name (dev_valid_name in the kernel) or
/// where it would be a pattern (`tap%d`).
pub(crate) fn request(name: &str) -> Option<libc::ifreq> {
    let mut ifr_name = [0; libc::IFNAMSIZ];
    let allowed = |byte: u8| byte.is_ascii_graphic() && !b"/:%".contains(&byte);
    let valid = (1..libc::IFNAMSIZ).contains(&name.len())
        && name.bytes().all(allowed)
        && !matches!(name, "." | "..");
    if !valid {
        return None;
    }
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Some(libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_ifindex: 0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_kernel_refuses_or_expands_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", "a:b", "tap%d", "sixteen-letters-", "ä"] {
            assert!(request(name).is_none(), "{name:?}");
        }
        assert!(request("fifteen-letters").is_some());
    }

    #[test]
    fn absent_interface_is_named_in_the_error() {
        let error = set_up("no-such-link").unwrap_err();
        assert_eq!(error.to_string(), "cannot read the flags of interface no-such-link");
    }
}
