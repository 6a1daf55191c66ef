//! Interfaces of guests, connected in the network namespaces of their Pods. It blocks: not for a thread that serves others.
//!
//! The launcher shows its namespace with its greeting; who it is has been found out before, and not by what it says. What is
//! wired there is held by descriptors alone, which go to the launcher with its start: if one interface cannot be connected, or
//! the agent dies, TAPs go, and the next try finds bridges and rules as they are.

mod room;
mod uplink;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use corten_link::launcher::ConnectedInterface;
use corten_link::{MAX_DESCRIPTORS, Role, RoleError};
use corten_net::{
    Namespace, NamespaceError, NamespaceId, Stage, VHOST_NET, WiringError, described, has_uplink,
    vhost, wire,
};
use corten_resources::types::VirtualMachineInstance;
use corten_resources::validate::Finding;
use thiserror::Error;

use self::room::Room;
use self::uplink::uplinks;
use crate::status;

/// Why a guest is not connected.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// A field of the object.
    #[error("{0}")]
    Field(Finding),
    /// It is of a release that does not.
    #[error(
        "the launcher has not shown its network namespace, which the guest's interfaces are made in"
    )]
    NoNamespace,
    /// It shows something else.
    #[error("what the launcher has shown as its network namespace is not taken")]
    Namespace(#[source] NamespaceError),
    /// It has another one each time.
    #[error("the launcher has shown another network namespace than before")]
    OtherNamespace,
    /// Multus, or whoever makes it, has not made it yet.
    #[error(
        "interface {interface}: {uplink}, which network {network} is to come by, is not in the Pod yet"
    )]
    NoUplink {
        /// The interface.
        interface: String,
        /// The network's name.
        network: String,
        /// The Pod's interface.
        uplink: String,
    },
    /// It got stuck.
    #[error("interface {interface} is not connected; it got stuck at the {stage}")]
    Wiring {
        /// The interface.
        interface: String,
        /// How far it is made.
        stage: Stage,
        /// Why.
        #[source]
        source: WiringError,
    },
    /// There are too many interfaces.
    #[error(
        "{0} interfaces need more than the {MAX_DESCRIPTORS} descriptors that a launcher can be given"
    )]
    TooMany(usize),
    /// A name that no role can have.
    #[error(transparent)]
    Role(#[from] RoleError),
}

impl From<Finding> for NetworkError {
    fn from(finding: Finding) -> Self {
        Self::Field(finding)
    }
}

impl NetworkError {
    /// The interface that it is about; none if it is about all of them.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::NoUplink { interface, .. } | Self::Wiring { interface, .. } => Some(interface),
            _ => None,
        }
    }

    /// How far the way to the guest is made.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Wiring { stage, .. } => *stage,
            _ => Stage::PodInterface,
        }
    }
}

/// The interfaces of a guest, connected.
#[derive(Debug, Default)]
pub struct Connected {
    /// What its launcher has to know of them, by the names that the object has for them.
    pub interfaces: BTreeMap<String, ConnectedInterface>,
    /// The Pod's interface behind each of them.
    pub uplinks: BTreeMap<String, String>,
    /// What goes with it.
    pub descriptors: Vec<(Role, File)>,
}

impl Connected {
    /// What the status shows of them.
    pub fn facts(&self) -> BTreeMap<String, status::Connected> {
        let of = |(name, interface): (&String, &ConnectedInterface)| {
            let uplink = self.uplinks.get(name).cloned();
            (name.clone(), status::Connected::new(interface, uplink))
        };
        self.interfaces.iter().map(of).collect()
    }
}

/// The namespace that the launchers of one allocation show: always the same, and not the node's.
#[derive(Debug, Default)]
pub struct ShownNamespace(Option<NamespaceId>);

impl ShownNamespace {
    /// What a launcher has shown, once it has proved to be what it should.
    pub fn check(&mut self, shown: Option<OwnedFd>) -> Result<Namespace, NetworkError> {
        let namespace = Namespace::of_stranger(shown.ok_or(NetworkError::NoNamespace)?)
            .map_err(NetworkError::Namespace)?;
        let id = namespace.id().map_err(NetworkError::Namespace)?;
        if *self.0.get_or_insert(id) != id {
            return Err(NetworkError::OtherNamespace);
        }
        Ok(namespace)
    }
}

/// Whether there is anything to connect for `vmi`.
pub fn has_interfaces(vmi: &VirtualMachineInstance) -> bool {
    !vmi.spec.domain.devices.interfaces.is_empty()
}

/// Connects the interfaces of `vmi` in `namespace`. `status` is what the Pod's annotation says of its networks.
pub fn connect(
    vmi: &VirtualMachineInstance,
    namespace: &Namespace,
    status: Option<&str>,
) -> Result<Connected, NetworkError> {
    let described = described(vmi)?;
    let uplinks = uplinks(vmi, &described, status)?;
    // All of them first: waiting for the last one, others need not be made and taken away again.
    for (one, uplink) in described.iter().zip(&uplinks) {
        let is_there = has_uplink(namespace.as_fd(), uplink);
        if !is_there.map_err(|source| stuck(&one.interface.name, uplink, source))? {
            let (interface, uplink) = (one.interface.name.clone(), uplink.clone());
            let network = uplink::shown_name(one);
            return Err(NetworkError::NoUplink { interface, network, uplink });
        }
    }
    let mut room = Room::for_interfaces(described.len())?;
    let mut connected = Connected::default();
    for (mut one, uplink) in described.into_iter().zip(uplinks) {
        one.plan.pairs = room.pairs(one.plan.pairs);
        let name = one.interface.name.clone();
        let wired = wire(namespace.as_fd(), &uplink, &one.plan)
            .map_err(|source| stuck(&name, &uplink, source))?;
        let (interface, grant) = one.connected(wired)?;
        if room.take(interface.pairs) {
            let devices = vhost(Path::new(VHOST_NET), &one.plan.name, interface.pairs)?;
            connected.descriptors.extend(devices.into_iter().map(file));
        }
        connected.descriptors.extend(grant.into_iter().map(file));
        connected.uplinks.insert(name.clone(), uplink);
        connected.interfaces.insert(name, interface);
    }
    Ok(connected)
}

fn stuck(interface: &str, uplink: &str, source: WiringError) -> NetworkError {
    let stage = source.stage(uplink);
    NetworkError::Wiring { interface: interface.into(), stage, source }
}

fn file((role, descriptor): (Role, OwnedFd)) -> (Role, File) {
    (role, descriptor.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(interfaces: usize) -> VirtualMachineInstance {
        let (mut devices, mut networks) = (Vec::new(), Vec::new());
        for number in 0..interfaces {
            let name = format!("net{number}");
            devices.push(json!({"name": name, "bridge": {}}));
            networks.push(json!({"name": name, "multus": {"networkName": name}}));
        }
        let domain = json!({"devices": {"interfaces": devices}});
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "v", "uid": "u"},
            "spec": {"domain": domain, "networks": networks},
        }))
        .unwrap()
    }

    #[test]
    fn what_is_no_namespace_or_our_own_or_another_each_time_is_not_taken() {
        let mut shown = ShownNamespace::default();
        assert!(matches!(shown.check(None), Err(NetworkError::NoNamespace)));
        let null = File::open("/dev/null").unwrap();
        let refused = shown.check(Some(null.into()));
        assert!(matches!(refused, Err(NetworkError::Namespace(NamespaceError::NotOne))));
        let own = Namespace::current().unwrap();
        let refused = shown.check(Some(own.into()));
        assert!(matches!(refused, Err(NetworkError::Namespace(NamespaceError::Own))));

        let (first, second) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        let again = first.as_fd().try_clone_to_owned().unwrap();
        shown.check(Some(first.into())).unwrap();
        shown.check(Some(again)).unwrap();
        let refused = shown.check(Some(second.into()));
        assert!(matches!(refused, Err(NetworkError::OtherNamespace)), "{refused:?}");
    }

    #[test]
    fn uplink_that_is_not_there_yet_is_told_with_interface_and_network() {
        let namespace = Namespace::create().unwrap();
        let error = connect(&vmi(1), &namespace, None).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("interface net0: pod"), "{said}");
        assert!(
            said.ends_with("which network net0 is to come by, is not in the Pod yet"),
            "{said}"
        );
        assert_eq!((error.interface(), error.stage()), (Some("net0"), Stage::PodInterface));
    }
}
