//! One interface of a guest's, connected to an uplink in a network namespace.

use std::os::fd::BorrowedFd;

use corten_link::{Addressing, Ipv4Addressing, Ipv6Addressing, Role};

use crate::error::{Context, WiringError};
use crate::names::Names;
use crate::namespace::Namespace;
use crate::plan::{Binding, InterfacePlan, Wired};
use crate::rtnl::{Link, Rtnl};
use crate::tap::Tap;
use crate::{bridge, masquerade, sockets};

/// Connects the interface that `plan` describes to `uplink` in `namespace`, which must not be the caller's own.
///
/// Doing it again, after the descriptors of the first time are closed, gives the same: whoever dies in the middle of it
/// can be followed by another.
///
/// Needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE over the namespace, and /dev/net/tun.
pub fn wire(
    namespace: BorrowedFd<'_>,
    uplink: &str,
    plan: &InterfacePlan,
) -> Result<Wired, WiringError> {
    if Namespace::is_current(namespace)? {
        return Err(WiringError::OwnNamespace);
    }
    check_name(&plan.name)?;
    let names = Names::of(uplink)?;
    Namespace::enter(namespace, || match &plan.binding {
        Binding::Masquerade(masquerade) => masquerade::wire(uplink, &names, plan, masquerade),
        Binding::Bridge => bridge::wire(uplink, &names, plan),
    })?
}

/// Whether `uplink` is in `namespace`, as it came or as one that was wired before, also if whoever did that died on the way.
pub fn has_uplink(namespace: BorrowedFd<'_>, uplink: &str) -> Result<bool, WiringError> {
    let names = Names::of(uplink)?;
    Namespace::enter(namespace, || {
        let mut rtnl = Rtnl::open().at("list the interfaces beside", uplink)?;
        let mut is_there = |name| {
            let link = rtnl.link(name).at("look for interface", name)?;
            Ok::<_, WiringError>(link.is_some())
        };
        Ok(is_there(uplink)? || is_there(&names.port)?)
    })?
}

/// Whether descriptors can be named after the interface.
pub(crate) fn check_name(name: &str) -> Result<(), WiringError> {
    let source = |source| WiringError::Name { name: name.into(), source };
    Role::tap(name, 0).map(drop).map_err(source)
}

/// The link `name`, which has to be there.
pub(crate) fn find(rtnl: &mut Rtnl, name: &str) -> Result<Link, WiringError> {
    let link = rtnl.link(name).at("look for interface", name)?;
    link.ok_or_else(|| WiringError::NoLink(name.into()))
}

/// The MTU of the guest's side: what is wanted, as far as the uplink carries it.
pub(crate) fn mtu_of(plan: &InterfacePlan, uplink: &Link) -> u16 {
    let most = u16::try_from(uplink.mtu).unwrap_or(u16::MAX);
    plan.mtu.map_or(most, |wanted| wanted.min(most))
}

/// The interface with the sockets that `addressing` needs, on `link`.
pub(crate) fn wired(
    plan: &InterfacePlan,
    tap: Tap,
    addressing: Addressing,
    link: &Link,
    mac: Option<[u8; 6]>,
    mtu: u16,
) -> Result<Wired, WiringError> {
    let has_ipv4 = addressing.ipv4.is_some();
    let has_ipv6 = addressing.ipv6.is_some();
    Ok(Wired {
        name: plan.name.clone(),
        tap: tap.name().into(),
        queues: tap.into_queues(),
        dhcp4: has_ipv4.then(|| sockets::dhcp4(link)).transpose()?,
        dhcp6: has_ipv6.then(|| sockets::dhcp6(link)).transpose()?,
        router: has_ipv6.then(|| sockets::router(link)).transpose()?,
        addressing,
        mac,
        mtu,
    })
}

/// What the guest is told, with names and servers as `plan` has them.
pub(crate) fn addressing(
    plan: &InterfacePlan,
    ipv4: Option<Ipv4Addressing>,
    ipv6: Option<Ipv6Addressing>,
    mtu: u16,
) -> Addressing {
    let mut addressing = Addressing {
        ipv4,
        ipv6,
        hostname: plan.hostname.clone(),
        mtu: Some(mtu),
        options: plan.options.clone(),
        ..Addressing::default()
    };
    plan.resolver.tell(&mut addressing);
    addressing
}
