//! The manifests that install Corten, as data. `resources/manifests`, `resources/openshift` and `resources/chart` hold them
//! as YAML, written by the program `manifests` and compared by a test.
//!
//! | what | who applies it |
//! |---|---|
//! | [`install`]: namespace, definitions, roles, the operator | whoever installs Corten |
//! | [`kubevirt`]: the KubeVirt object | the same, once the definitions are known |
//! | [`installed`]: node agents and policies | the operator, as long as there is a KubeVirt object |
//!
//! The node agents' account and role are with the first: so the operator need not be able to make roles.

mod agent;
mod chart;
mod openshift;
mod operator;
mod policy;
mod roles;

use super::{GROUP, VERSION, YamlError, definitions, to_yaml};
use crate::Kind;
use crate::names::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

/// Service account of the operator, and the name of its Deployment, Service and Lease.
pub const OPERATOR: &str = "corten-operator";
/// The webhook configuration that keeps the definitions while there are VMs. The others are called as the operator is.
pub const DEFINITIONS_GUARD: &str = "corten-definitions";
/// Service account of the node agents, and the name of their DaemonSet.
pub const NODE_AGENT: &str = "corten-node-agent";
/// The Secret with the certificates of the operator's webhooks.
pub const CERTIFICATES: &str = "corten-operator-certs";

/// Which images the manifests name.
#[derive(Clone, Debug)]
pub struct Images {
    /// What stands before the name: a registry, and a path in it.
    pub prefix: String,
    /// The tag of all.
    pub tag: String,
}

impl Default for Images {
    /// Those that the lab makes.
    fn default() -> Self {
        Self { prefix: "corten.test".to_owned(), tag: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl Images {
    fn name(&self, program: &str) -> String {
        format!("{}/{program}:{}", self.prefix, self.tag)
    }
}

/// How Corten is installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The images.
    pub images: Images,
    /// Namespace of Corten's own Pods.
    pub namespace: String,
    /// When nodes fetch the images: `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// How many operators there are: a number, or what stands for it in a chart.
    replicas: Value,
    /// `spec.configuration` of the KubeVirt object, likewise.
    configuration: Value,
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            images: Images::default(),
            namespace: SYSTEM_NAMESPACE.to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
            replicas: json!(2),
            configuration: json!({}),
        }
    }
}

/// What is applied to install Corten, in this order.
pub fn install(installation: &Installation) -> Vec<Value> {
    let mut objects = vec![namespace(&installation.namespace)];
    objects.extend(definitions());
    objects.extend(roles::objects(&installation.namespace));
    objects.extend(operator::objects(installation));
    objects
}

/// The KubeVirt object, from which the operator applies the rest.
pub fn kubevirt(installation: &Installation) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": Kind::KubeVirt.name(),
        "metadata": metadata("kubevirt", &installation.namespace),
        "spec": {
            "configuration": installation.configuration,
            "imagePullPolicy": installation.pull_policy,
        },
    })
}

/// What the operator applies as long as there is a KubeVirt object: the node agents, and the policies that guard what is
/// Corten's. Webhooks come from the operator itself, which has their certificates.
pub fn installed(images: &Images) -> Vec<Value> {
    installed_in(images, SYSTEM_NAMESPACE)
}

/// The same of an installation in another namespace.
pub fn installed_in(images: &Images, namespace: &str) -> Vec<Value> {
    let mut objects = policy::objects(namespace);
    objects.push(agent::daemon_set(images, namespace));
    objects
}

/// Every file below `resources`, and its text.
pub fn files(images: &Images) -> Result<Vec<(String, String)>, YamlError> {
    let installation = Installation { images: images.clone(), ..Installation::default() };
    let mut files = vec![
        ("manifests/corten.yaml".to_owned(), text("", &install(&installation))?),
        ("manifests/kubevirt.yaml".to_owned(), text("", &[kubevirt(&installation)])?),
        (
            "openshift/constraints.yaml".to_owned(),
            text(
                "# For OpenShift only, on top of manifests/corten.yaml. Untested.\n",
                &openshift::objects(&installation.namespace),
            )?,
        ),
    ];
    files.extend(chart::files(images)?);
    Ok(files)
}

/// A file's text: its objects, one document each.
fn text(about: &str, objects: &[Value]) -> Result<String, YamlError> {
    let documents: Result<Vec<_>, _> = objects.iter().map(to_yaml).collect();
    Ok(format!("{GENERATED}{about}{}", documents?.join("---\n")))
}

const GENERATED: &str =
    "# Generated by `cargo run -p corten-resources --features cluster --bin manifests`.\n";

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            // The node agent opens devices of its node. Namespaces with VMs need no such label: launchers keep to
            // "restricted".
            "labels": {
                "app.kubernetes.io/part-of": "corten",
                "kubevirt.io": "",
                "pod-security.kubernetes.io/enforce": "privileged",
            },
        },
    })
}

/// Metadata of an object of the system.
fn metadata(name: &str, namespace: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": labels(name) })
}

/// The empty one is how KubeVirt marks what belongs to it.
fn labels(name: &str) -> Value {
    json!({
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": "corten",
        "kubevirt.io": "",
    })
}

#[cfg(test)]
mod tests;
