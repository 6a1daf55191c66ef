//! Which field asks for a port of this machine that cannot be had.

use corten_net::Port;
use corten_net::standalone::StandaloneError;
use corten_resources::types::VirtualMachineInstance;
use corten_resources::validate::Finding;

use super::networks::NetworkError;

/// The error with the path of the field, if a field is what it is about.
pub(super) fn located(vmi: &VirtualMachineInstance, error: StandaloneError) -> NetworkError {
    let (StandaloneError::PortTaken(port)
    | StandaloneError::PortTwice(port)
    | StandaloneError::Port { port, .. }) = &error
    else {
        return error.into();
    };
    match path(vmi, *port) {
        Some(path) => {
            let message = corten_launcher::log::chain(&error);
            let message = format!("{message}; take another one, or --no-network for no network");
            Finding::invalid(path, message).into()
        }
        None => error.into(),
    }
}

/// Where a port is asked for, the last time it is.
fn path(vmi: &VirtualMachineInstance, port: Port) -> Option<String> {
    let wanted = port.to_string();
    let mut found = None;
    for (at, interface) in vmi.spec.domain.devices.interfaces.iter().enumerate() {
        for (number, named) in interface.ports.iter().enumerate() {
            let protocol = named.protocol.as_deref().filter(|it| !it.is_empty()).unwrap_or("TCP");
            if wanted.eq_ignore_ascii_case(&format!("{}/{protocol}", named.port)) {
                found = Some(format!("spec.domain.devices.interfaces[{at}].ports[{number}].port"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use corten_net::Protocol;
    use serde_json::json;

    use super::*;

    #[test]
    fn port_that_is_taken_is_told_by_its_path() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {"domain": {"devices": {
            "interfaces": [{"name": "a", "ports": [{"port": 53, "protocol": "UDP"}, {"port": 8080}]}]}}}}))
        .unwrap();
        let told = |protocol, number| {
            located(&vmi, StandaloneError::PortTaken(Port { protocol, number })).to_string()
        };
        let path = "spec.domain.devices.interfaces[0].ports";
        assert_eq!(
            told(Protocol::Tcp, 8080),
            format!(
                "{path}[1].port: port 8080/tcp of the host is taken by another program; \
                 take another one, or --no-network for no network"
            )
        );
        assert!(told(Protocol::Udp, 53).starts_with(&format!("{path}[0].port: ")));
        assert!(told(Protocol::Udp, 8080).starts_with("the network cannot be made"));
    }
}
