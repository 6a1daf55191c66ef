//! Grace period, start, probes, names.

use super::Findings;
use super::text::{is_label, is_search_domain, is_subdomain};
use crate::finding::Finding;
use crate::types::{Probe, VirtualMachineInstanceSpec};
use std::net::IpAddr;

/// Seconds in a year. From some value on the API server's clock runs over, and a guest would be killed at once.
const MOST_GRACE: i64 = 365 * 24 * 60 * 60;
/// What a resolver takes.
const MOST_NAMESERVERS: usize = 3;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let grace = spec.termination_grace_period_seconds;
    if let Some(seconds) = grace.filter(|seconds| !(0..=MOST_GRACE).contains(seconds)) {
        let message = format!("{seconds} seconds are not between 0 and {MOST_GRACE}");
        findings.push(Finding::invalid("spec.terminationGracePeriodSeconds", message));
    }
    if spec.starts_paused() && spec.liveness_probe.is_some() {
        let message = "a machine that starts paused would be found dead: leave out livenessProbe";
        findings.push(Finding::invalid("spec.startStrategy", message));
    }
    for (name, probe) in
        [("livenessProbe", &spec.liveness_probe), ("readinessProbe", &spec.readiness_probe)]
    {
        findings.extend(probe.as_ref().and_then(|it| one_handler(&format!("spec.{name}"), it)));
    }
    names(spec, findings);
    name_servers(spec, findings);
    let searches = spec.dns_config.as_ref().map(|dns| dns.searches.as_slice()).unwrap_or_default();
    for (index, domain) in searches.iter().enumerate().filter(|(_, it)| !is_search_domain(it)) {
        let message = format!("{domain:?} is no domain name");
        findings.push(Finding::invalid(format!("spec.dnsConfig.searches[{index}]"), message));
    }
}

fn one_handler(path: &str, probe: &Probe) -> Option<Finding> {
    let handlers = [
        probe.exec.is_some(),
        probe.guest_agent_ping.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
    ];
    let wanted = "one of exec, guestAgentPing, httpGet and tcpSocket";
    match handlers.iter().filter(|given| **given).count() {
        0 => Some(Finding::missing(path, format!("it needs {wanted}"))),
        1 => None,
        _ => Some(Finding::invalid(path, format!("it may have only {wanted}"))),
    }
}

fn names(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(name) = given(&spec.hostname).filter(|name| !is_label(name)) {
        let message = format!(
            "{name:?} is no host name: it has at most 63 small letters, digits and dashes, and no dash at its ends"
        );
        findings.push(Finding::invalid("spec.hostname", message));
    }
    if let Some(name) = given(&spec.subdomain).filter(|name| !is_subdomain(name)) {
        let message =
            format!("{name:?} is no domain: it has small letters, digits, dashes and dots");
        findings.push(Finding::invalid("spec.subdomain", message));
    }
}

fn name_servers(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    const PATH: &str = "spec.dnsConfig.nameservers";
    let servers =
        spec.dns_config.as_ref().map(|dns| dns.nameservers.as_slice()).unwrap_or_default();
    for (index, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            let message = format!("{server:?} is no IP address");
            findings.push(Finding::invalid(format!("{PATH}[{index}]"), message));
        }
    }
    if servers.len() > MOST_NAMESERVERS {
        let message = format!("a guest takes {MOST_NAMESERVERS} name servers at most");
        findings.push(Finding::invalid(PATH, message));
    }
    if spec.dns_policy.as_deref() == Some("None") && servers.is_empty() {
        let message = "with the policy None, name servers come from here: name one";
        findings.push(Finding::missing(PATH, message));
    }
}
