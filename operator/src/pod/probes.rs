//! How kubelet asks the guest whether it is well: at the Pod's address, which is the guest's.

use super::embedded;
use corten_resources::types::Probe;
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;

/// The probe as kubelet runs it. One that asks inside the guest cannot be run by kubelet.
pub(super) fn probe(path: &str, probe: Option<&Probe>) -> Result<Option<core::Probe>, Finding> {
    let Some(probe) = probe else { return Ok(None) };
    for (field, is_given) in
        [("exec", probe.exec.is_some()), ("guestAgentPing", probe.guest_agent_ping.is_some())]
    {
        if is_given {
            let message =
                "probes inside the guest come with a later release: use httpGet or tcpSocket";
            return Err(Finding::not_served(format!("{path}.{field}"), message));
        }
    }
    let http_get = probe.http_get.as_ref();
    let http_get: Option<core::HTTPGetAction> =
        http_get.map(|action| embedded(&format!("{path}.httpGet"), action)).transpose()?;
    let tcp_socket = probe.tcp_socket.as_ref();
    let tcp_socket: Option<core::TCPSocketAction> =
        tcp_socket.map(|action| embedded(&format!("{path}.tcpSocket"), action)).transpose()?;
    // Pod Security refuses it: with it kubelet could be made to ask anybody on the node's network.
    let hosts = [
        ("httpGet", http_get.as_ref().and_then(|action| action.host.as_deref())),
        ("tcpSocket", tcp_socket.as_ref().and_then(|action| action.host.as_deref())),
    ];
    for (field, host) in hosts {
        if host.is_some_and(|host| !host.is_empty()) {
            let message = "the guest is asked at its own address: leave it out";
            return Err(Finding::not_served(format!("{path}.{field}.host"), message));
        }
    }
    Ok(Some(core::Probe {
        http_get,
        tcp_socket,
        failure_threshold: probe.failure_threshold,
        initial_delay_seconds: probe.initial_delay_seconds,
        period_seconds: probe.period_seconds,
        success_threshold: probe.success_threshold,
        timeout_seconds: probe.timeout_seconds,
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<Option<core::Probe>, Finding> {
        let given: Probe = serde_json::from_value(value).unwrap();
        probe("spec.livenessProbe", Some(&given))
    }

    #[test]
    fn what_kubelet_can_ask_is_passed_on() {
        let http = read(json!({ "httpGet": { "port": 80, "path": "/well" }, "periodSeconds": 3 }));
        let http = http.unwrap().unwrap();
        assert_eq!(http.http_get.unwrap().path.as_deref(), Some("/well"));
        assert_eq!(http.period_seconds, Some(3));
        let tcp = read(json!({ "tcpSocket": { "port": "ssh" } })).unwrap().unwrap();
        assert!(tcp.tcp_socket.is_some() && tcp.http_get.is_none());
        assert_eq!(probe("spec.livenessProbe", None), Ok(None));
    }

    #[test]
    fn what_it_cannot_is_refused_by_path() {
        let table = [
            (json!({ "exec": { "command": ["true"] } }), "spec.livenessProbe.exec"),
            (json!({ "guestAgentPing": {} }), "spec.livenessProbe.guestAgentPing"),
            (
                json!({ "httpGet": { "port": 80, "host": "10.0.0.1" } }),
                "spec.livenessProbe.httpGet.host",
            ),
            (
                json!({ "tcpSocket": { "port": 80, "host": "node" } }),
                "spec.livenessProbe.tcpSocket.host",
            ),
            (json!({ "httpGet": { "port": {} } }), "spec.livenessProbe.httpGet"),
        ];
        for (value, path) in table {
            assert_eq!(read(value).unwrap_err().path, path);
        }
    }
}
