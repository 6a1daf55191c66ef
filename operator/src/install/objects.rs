//! What is installed, as the KubeVirt object says. Pure.

use super::webhooks::{guard_of_definitions, webhooks};
use crate::Settings;
use crate::settings::given;
use corten_resources::cluster::manifests::{Images, installed_in};
use corten_resources::types::{ComponentConfig, KubeVirtSpec};
use serde_json::{Value, json};

/// On every object that is applied: only these are ever removed.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "corten-operator");

/// What the objects are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) namespace: &'a str,
    pub(super) spec: &'a KubeVirtSpec,
    pub(super) settings: &'a Settings,
    /// Image of the node agents, if it is not the launcher's neighbour.
    pub(super) agent_image: Option<&'a str>,
    /// Authorities that webhooks trust, as PEM.
    pub(super) bundle: &'a str,
}

/// Everything that is to be there, in the order in which it is applied: webhooks last, when what they need is there.
pub(super) fn objects(source: Source<'_>) -> Vec<Value> {
    let image = agent_image(source);
    let mut objects = installed_in(&Images::default(), source.namespace);
    objects.extend(webhooks(source.namespace, source.bundle));
    for object in &mut objects {
        mark(object);
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = json!(source.namespace);
        }
        if object["kind"] == "DaemonSet" {
            customize(object, source, &image);
        }
    }
    objects
}

/// What is to be there as long as there are VirtualMachineInstances, although there is no KubeVirt object.
pub(super) fn without_installation(namespace: &str, bundle: &str) -> Vec<Value> {
    let mut guard = guard_of_definitions(namespace, bundle);
    mark(&mut guard);
    vec![guard]
}

fn mark(object: &mut Value) {
    object["metadata"]["labels"][MANAGED_BY.0] = json!(MANAGED_BY.1);
}

/// What stands for all of it but the certificates, which change without anything else.
pub(super) fn deployment_id(source: Source<'_>) -> String {
    let text = Value::from(objects(Source { bundle: "", ..source })).to_string();
    // FNV-1a: the same in every release, and nobody gains by finding two that are alike.
    let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{digest:016x}")
}

fn agent_image(source: Source<'_>) -> String {
    if let Some(image) = source.agent_image {
        return crate::settings::renamed(
            image,
            given(&source.spec.image_registry),
            given(&source.spec.image_tag),
        );
    }
    let launcher = &source.settings.launcher_image;
    let (prefix, last) = launcher.rsplit_once('/').unwrap_or(("", launcher));
    let tag = last.find([':', '@']).map_or("", |start| &last[start..]);
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    format!("{prefix}node-agent{tag}")
}

/// The node agents as the object wants them.
fn customize(object: &mut Value, source: Source<'_>, image: &str) {
    let spec = &mut object["spec"]["template"]["spec"];
    if let Some(containers) = spec["containers"].as_array_mut() {
        for container in containers {
            container["image"] = json!(image);
            container["imagePullPolicy"] = json!(source.settings.launcher_pull_policy);
        }
    }
    if !source.settings.image_pull_secrets.is_empty() {
        let secrets = source.settings.image_pull_secrets.iter();
        spec["imagePullSecrets"] = secrets.map(|name| json!({ "name": name })).collect();
    }
    place(spec, source.spec.workloads.as_ref());
}

/// Where they run. What the object says replaces what they come with.
fn place(spec: &mut Value, component: Option<&ComponentConfig>) {
    let placement = component.and_then(|component| component.node_placement.as_ref());
    let Some(Value::Object(placement)) =
        placement.and_then(|placement| serde_json::to_value(placement).ok())
    else {
        return;
    };
    for name in ["nodeSelector", "tolerations", "affinity"] {
        if let Some(value) = placement.get(name) {
            spec[name] = value.clone();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::kinds::kind_of;
    use super::*;
    use crate::Config;

    pub(in super::super) fn settings() -> Settings {
        Settings::new(&Config {
            launcher_image: "corten.test/launcher:1".to_owned(),
            launcher_pull_policy: "IfNotPresent".to_owned(),
        })
    }

    pub(in super::super) fn made(spec: &KubeVirtSpec, bundle: &str) -> Vec<Value> {
        let settings = settings();
        objects(Source {
            namespace: "kubevirt",
            spec,
            settings: &settings,
            agent_image: None,
            bundle,
        })
    }

    fn agents(objects: &[Value]) -> &Value {
        objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap()
    }

    #[test]
    fn every_object_has_a_known_kind_our_label_and_a_name() {
        for object in made(&KubeVirtSpec::default(), "pem") {
            let kind = kind_of(&object).unwrap();
            assert_eq!(object["metadata"]["labels"][MANAGED_BY.0], MANAGED_BY.1);
            assert!(object["metadata"]["name"].is_string());
            assert_eq!(
                object["metadata"]["namespace"].is_string(),
                kind.namespaced,
                "{}",
                kind.kind
            );
        }
    }

    #[test]
    fn agents_are_where_and_what_the_object_says() {
        let spec: KubeVirtSpec = serde_json::from_value(json!({
            "workloads": { "nodePlacement": { "nodeSelector": { "vms": "yes" } } },
        }))
        .unwrap();
        let settings = Settings { image_pull_secrets: vec!["s".to_owned()], ..settings() };
        let source = Source {
            namespace: "elsewhere",
            spec: &spec,
            settings: &settings,
            agent_image: None,
            bundle: "",
        };
        let objects = objects(source);
        let agents = agents(&objects);
        let pod = &agents["spec"]["template"]["spec"];
        assert_eq!(agents["metadata"]["namespace"], "elsewhere");
        assert_eq!(pod["nodeSelector"], json!({ "vms": "yes" }));
        assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]));
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "s" }]));
        assert_eq!(pod["containers"][0]["image"], "corten.test/node-agent:1");
    }

    #[test]
    fn the_agents_image_is_the_launchers_neighbour_or_what_was_said() {
        let spec = KubeVirtSpec { image_tag: Some("9".to_owned()), ..Default::default() };
        let image = |launcher: &str, agent| {
            let settings = Settings { launcher_image: launcher.to_owned(), ..settings() };
            agent_image(Source {
                namespace: "",
                spec: &spec,
                settings: &settings,
                agent_image: agent,
                bundle: "",
            })
        };
        assert_eq!(image("r:5/a/launcher:1", None), "r:5/a/node-agent:1");
        assert_eq!(image("launcher", None), "node-agent");
        assert_eq!(image("r/launcher:1", Some("q/agent:1")), "q/agent:9");
    }

    #[test]
    fn the_id_follows_the_objects_and_not_the_certificates() {
        let id = |spec: &KubeVirtSpec, bundle| {
            let settings = settings();
            deployment_id(Source {
                namespace: "kubevirt",
                spec,
                settings: &settings,
                agent_image: None,
                bundle,
            })
        };
        let plain = KubeVirtSpec::default();
        let placed: KubeVirtSpec = serde_json::from_value(json!({
            "workloads": { "nodePlacement": { "nodeSelector": { "vms": "yes" } } } }))
        .unwrap();
        assert_eq!(id(&plain, "one"), id(&plain, "two"));
        assert_ne!(id(&plain, "one"), id(&placed, "one"));
    }
}
