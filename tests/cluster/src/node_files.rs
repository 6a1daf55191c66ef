//! What makes a node one of this cluster: kubelet's, kube-proxy's and CNI's configuration, and its credentials.

use anyhow::Result;
use serde_json::{Value, json};

use crate::addresses::{self, DNS_SERVICE, DOMAIN, PODS, PODS_6};
use crate::credentials::Credentials;

/// The files as a tar archive of /.
pub fn archive(number: u8, credentials: &Credentials, routes: &str) -> Result<Vec<u8>> {
    let (identity, kubelet) = credentials.kubelet(number)?;
    let proxy = credentials.client("system:kube-proxy", None)?;
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in [
        ("etc/kubernetes/ca.crt", credentials.authority()),
        ("etc/kubernetes/kubelet.crt", identity.certificate),
        ("etc/kubernetes/kubelet.key", identity.key),
        ("etc/kubernetes/kubelet.conf", kubelet),
        ("etc/kubernetes/kubelet.json", kubelet_configuration().to_string()),
        ("etc/kubernetes/kube-proxy.conf", proxy),
        ("etc/kubernetes/kube-proxy.json", proxy_configuration().to_string()),
        ("etc/kubernetes/routes", routes.to_owned()),
        ("etc/cni/net.d/10-corten.conflist", pod_network(number).to_string()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes())?;
    }
    Ok(archive.into_inner()?)
}

/// Nothing but what a kubelet has to be told, and what an emulated node has no time for: all else is as shipped.
fn kubelet_configuration() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "x509": { "clientCAFile": "/etc/kubernetes/ca.crt" },
            "webhook": { "enabled": true },
            "anonymous": { "enabled": false },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "tlsCertFile": "/etc/kubernetes/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/kubelet.key",
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": DOMAIN,
        // There is no name server outside the cluster.
        "resolvConf": "",
        // Nobody asks how full volumes are.
        "volumeStatsAggPeriod": "-1s",
    })
}

fn proxy_configuration() -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": format!("{PODS},{PODS_6}"),
        "clientConnection": { "kubeconfig": "/etc/kubernetes/kube-proxy.conf" },
    })
}

fn pod_network(number: u8) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "corten",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [
                        [{ "subnet": addresses::pods(number) }],
                        [{ "subnet": addresses::pods_6(number) }],
                    ],
                    "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_holds_what_the_configurations_name() {
        let directory = tempfile::tempdir().unwrap();
        let credentials =
            Credentials::make(&directory.path().join("pki"), "https://127.0.0.1:1").unwrap();
        let archive = archive(2, &credentials, "").unwrap();
        let mut paths = Vec::new();
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            paths.push(format!("/{}", entry.unwrap().path().unwrap().display()));
        }
        let kubelet = kubelet_configuration();
        for named in [
            &kubelet["tlsCertFile"],
            &kubelet["tlsPrivateKeyFile"],
            &kubelet["authentication"]["x509"]["clientCAFile"],
            &proxy_configuration()["clientConnection"]["kubeconfig"],
        ] {
            assert!(paths.iter().any(|path| named == path), "{named} is not in {paths:?}");
        }
    }

    #[test]
    fn pods_of_a_node_have_its_addresses_of_both_families() {
        let ranges = &pod_network(3)["plugins"][0]["ipam"]["ranges"];
        assert_eq!(ranges[0][0]["subnet"], "10.244.3.0/24");
        assert_eq!(ranges[1][0]["subnet"], "fd00:10:244:3::/64");
    }
}
