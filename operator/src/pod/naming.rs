//! Host name and name servers. A guest is told those of its Pod.

use super::{given, some};
use corten_resources::cluster::VirtualMachineInstance;
use k8s_openapi::api::core::v1 as core;

pub(super) fn name(pod: &mut core::PodSpec, vmi: &VirtualMachineInstance) {
    let spec = &vmi.spec;
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    pod.hostname = Some(spec.guest_hostname(name)).filter(|name| !name.is_empty());
    pod.subdomain = given(spec.subdomain.as_ref());
    pod.dns_policy = given(spec.dns_policy.as_ref());
    pod.dns_config = spec.dns_config.as_ref().map(|dns| core::PodDNSConfig {
        nameservers: some(dns.nameservers.clone()),
        searches: some(dns.searches.clone()),
        options: some(
            dns.options
                .iter()
                .map(|option| core::PodDNSConfigOption {
                    name: option.name.clone(),
                    value: option.value.clone(),
                })
                .collect(),
        ),
    });
}
