//! Files by which clients find the API server and prove who they are.

use base64::Engine;
use serde_json::{Value, json};

use crate::pki::Identity;

/// A kubeconfig: JSON, which is YAML too.
pub fn kubeconfig(server: &str, authority: &str, identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "corten",
        "contexts": [{ "name": "corten", "context": { "cluster": "corten", "user": "corten" } }],
        "clusters": [{
            "name": "corten",
            "cluster": {
                "server": server,
                "certificate-authority-data": base64(authority.as_bytes()),
            },
        }],
        "users": [{
            "name": "corten",
            "user": {
                "client-certificate-data": base64(identity.certificate.as_bytes()),
                "client-key-data": base64(identity.key.as_bytes()),
            },
        }],
    })
}

/// As Kubernetes wants bytes in JSON.
pub fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
