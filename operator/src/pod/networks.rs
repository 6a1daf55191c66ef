//! What a Pod asks for its guest's networks: of Multus, by annotations, those beside its own; and ports, which are for show and
//! for Services that name them.

use corten_resources::names::{
    DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, attachment, pod_interface_name,
};
use corten_resources::types::{Interface, VirtualMachineInstanceSpec};
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;
use std::collections::BTreeSet;

/// What a Pod's port may be called (RFC 6335).
const PORT_NAME: usize = 15;

/// An entry of the annotation, as the Network Plumbing Working Group's specification has it.
#[derive(Debug, Serialize)]
struct Attachment<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    interface: String,
}

/// Annotations for Multus; none if nothing is asked of it.
pub(super) fn annotations(
    spec: &VirtualMachineInstanceSpec,
    namespace: &str,
) -> Result<Vec<(String, String)>, Finding> {
    let (mut attachments, mut annotations) = (Vec::new(), Vec::new());
    for interface in present(spec) {
        let network = spec.network(&interface.name);
        let Some(multus) = network.and_then(|network| network.multus.as_ref()) else { continue };
        if multus.default == Some(true) {
            annotations.push((DEFAULT_NETWORK_ANNOTATION.to_owned(), multus.network_name.clone()));
            continue;
        }
        let (namespace, name) = attachment(&multus.network_name, namespace);
        let mac = interface.mac().map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        let interface = pod_interface_name(&interface.name);
        attachments.push(Attachment { name, namespace, mac, interface });
    }
    if !attachments.is_empty() {
        let list = serde_json::to_string(&attachments)
            .map_err(|error| Finding::invalid("spec.networks", error.to_string()))?;
        annotations.push((NETWORKS_ANNOTATION.to_owned(), list));
    }
    Ok(annotations)
}

/// Ports that lead to the guest, each once and each name once. A name that a Pod's port cannot have is left out.
pub(super) fn ports(spec: &VirtualMachineInstanceSpec) -> Vec<core::ContainerPort> {
    let (mut taken, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut ports = Vec::new();
    for port in present(spec).flat_map(|interface| &interface.ports) {
        let protocol = port.protocol.as_deref().filter(|text| !text.is_empty()).unwrap_or("TCP");
        if !taken.insert((port.port, protocol)) {
            continue;
        }
        let name = port.name.as_deref().filter(|name| is_port_name(name) && names.insert(*name));
        ports.push(core::ContainerPort {
            name: name.map(str::to_owned),
            container_port: port.port,
            protocol: Some(protocol.to_owned()),
            ..core::ContainerPort::default()
        });
    }
    ports
}

fn present(spec: &VirtualMachineInstanceSpec) -> impl Iterator<Item = &Interface> {
    let interfaces = spec.domain.devices.interfaces.iter();
    interfaces.filter(|interface| interface.state.as_deref() != Some("absent"))
}

fn is_port_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=PORT_NAME).contains(&name.len())
        && name.bytes().all(inner)
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}
