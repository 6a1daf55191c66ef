//! Name servers and domains that a guest is told with its address.
//!
//! In a Pod they are the Pod's own: kubelet has read `dnsPolicy` and `dnsConfig` when it wrote the Pod's file. On a machine
//! without a cluster they are read here:
//!
//! | `dnsPolicy` | begins with |
//! |---|---|
//! | none, `Default`, `ClusterFirst`, `ClusterFirstWithHostNet` | what this machine uses: there is no cluster to ask first |
//! | `None` | nothing |
//!
//! `dnsConfig` comes behind it, as kubelet has it. In both places `subdomain` makes the first search domain, the guest's own.

use corten_link::Resolver;
use corten_resources::types::VirtualMachineInstanceSpec;
use corten_resources::validate::Finding;

const PATH: &str = "spec.dnsConfig";

/// What a guest is told in a Pod that uses what `pods` says.
pub fn in_pod(spec: &VirtualMachineInstanceSpec, mut pods: Resolver) -> Resolver {
    enter_subdomain(spec, &mut pods);
    pods
}

/// What a guest is told, on a machine that uses what `of_host` says.
pub fn on_host(
    spec: &VirtualMachineInstanceSpec,
    of_host: impl FnOnce() -> Resolver,
) -> Result<Resolver, Finding> {
    let mut resolver = match spec.dns_policy.as_deref() {
        Some("None") => Resolver::default(),
        _ => of_host(),
    };
    let config = spec.dns_config.clone().unwrap_or_default();
    for (number, server) in config.nameservers.iter().enumerate() {
        if !resolver.add_server(server) {
            let message = format!("{server:?} is no IP address");
            return Err(Finding::invalid(format!("{PATH}.nameservers[{number}]"), message));
        }
    }
    for (number, domain) in config.searches.iter().enumerate() {
        if !resolver.add_domain(domain) {
            let message = format!("{domain:?} is no domain name");
            return Err(Finding::invalid(format!("{PATH}.searches[{number}]"), message));
        }
    }
    enter_subdomain(spec, &mut resolver);
    Ok(resolver)
}

fn enter_subdomain(spec: &VirtualMachineInstanceSpec, resolver: &mut Resolver) {
    if let Some(subdomain) = spec.subdomain.as_deref().filter(|name| !name.is_empty()) {
        resolver.enter_subdomain(subdomain);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn host() -> Resolver {
        Resolver::parse("nameserver 192.0.2.1\nsearch host.example\n")
    }

    fn told(spec: Value) -> Result<Resolver, Finding> {
        on_host(&serde_json::from_value(spec).unwrap(), host)
    }

    fn servers(resolver: &Resolver) -> Vec<String> {
        resolver.servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn guest_is_told_what_the_machine_uses_and_what_the_object_adds() {
        for policy in [json!(null), json!("Default"), json!("ClusterFirst")] {
            let told = told(json!({"dnsPolicy": policy, "dnsConfig": {
                "nameservers": ["192.0.2.2"], "searches": ["own.example"],
            }}))
            .unwrap();
            assert_eq!(servers(&told), ["192.0.2.1", "192.0.2.2"], "{policy}");
            assert_eq!(told.search, ["host.example", "own.example"]);
        }
        assert_eq!(told(json!({})).unwrap(), host());
    }

    #[test]
    fn policy_none_leaves_out_what_the_machine_uses() {
        let spec = json!({"dnsPolicy": "None", "subdomain": "web", "dnsConfig": {
            "nameservers": ["2001:db8::53"], "searches": ["own.example"],
        }});
        let told = told(spec).unwrap();
        assert_eq!(servers(&told), ["2001:db8::53"]);
        assert_eq!(told.search, ["web.own.example", "own.example"]);
    }

    #[test]
    fn guest_in_a_pod_is_told_what_the_pod_uses_and_has_its_own_domain() {
        let pods = Resolver::parse(
            "search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n",
        );
        let spec = json!({"dnsPolicy": "None", "subdomain": "web",
            "dnsConfig": {"nameservers": ["192.0.2.9"], "searches": ["twice.example"]}});
        let told = in_pod(&serde_json::from_value(spec).unwrap(), pods.clone());
        assert_eq!(servers(&told), ["10.96.0.10"]);
        assert_eq!(told.search[..2], ["web.ns.svc.cluster.local", "ns.svc.cluster.local"]);
        let plain = serde_json::from_value(json!({})).unwrap();
        assert_eq!(in_pod(&plain, pods.clone()), pods);
    }

    #[test]
    fn what_is_none_is_refused_by_its_path() {
        let cases = [
            (json!({"nameservers": ["192.0.2.2", "x"]}), "spec.dnsConfig.nameservers[1]: "),
            (json!({"searches": ["a b"]}), "spec.dnsConfig.searches[0]: "),
        ];
        for (config, path) in cases {
            let error = told(json!({"dnsConfig": config})).unwrap_err().to_string();
            assert!(error.starts_with(path), "{error}");
        }
    }
}
