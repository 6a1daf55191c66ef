//! The Helm chart: the same objects, with places for values in them.
//!
//! Its namespace is the release's; definitions are in `crds`, which Helm applies before everything else and never again: with a
//! new release of Corten they are applied from `manifests/corten.yaml`.

use super::{GENERATED, Images, Installation, YamlError, kubevirt, operator, roles, text};
use crate::cluster::definitions;
use serde_json::{Value, json};

/// Numbers and objects, which stand in YAML without quotes; and what Helm puts there.
const UNQUOTED: [(&str, &str); 2] = [
    ("\"{{ .Values.replicas }}\"", "{{ .Values.replicas }}"),
    ("\"{{ .Values.configuration }}\"", "{{- toYaml .Values.configuration | nindent 4 }}"),
];

/// The chart's files below `resources`.
pub(super) fn files(images: &Images) -> Result<Vec<(String, String)>, YamlError> {
    let installation = Installation {
        images: Images {
            prefix: "{{ .Values.images.prefix }}".to_owned(),
            tag: "{{ .Values.images.tag }}".to_owned(),
        },
        namespace: "{{ .Release.Namespace }}".to_owned(),
        pull_policy: "{{ .Values.images.pullPolicy }}".to_owned(),
        replicas: json!("{{ .Values.replicas }}"),
        configuration: json!("{{ .Values.configuration }}"),
    };
    let templates = [
        ("roles", roles::objects(&installation.namespace)),
        ("operator", operator::objects(&installation)),
        ("kubevirt", vec![kubevirt(&installation)]),
    ];
    let mut files = vec![
        ("chart/Chart.yaml".to_owned(), text("", &[chart()])?),
        ("chart/values.yaml".to_owned(), values(images)),
        ("chart/crds/definitions.yaml".to_owned(), text("", &definitions())?),
    ];
    for (name, objects) in templates {
        files.push((format!("chart/templates/{name}.yaml"), template(&objects)?));
    }
    Ok(files)
}

fn template(objects: &[Value]) -> Result<String, YamlError> {
    let quoted = text("", objects)?;
    Ok(UNQUOTED.iter().fold(quoted, |text, (from, to)| text.replace(from, to)))
}

fn chart() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "apiVersion": "v2",
        "name": "corten",
        "description": "Virtual machines as Pods, on KVM, with KubeVirt's API",
        "type": "application",
        "version": version,
        "appVersion": version,
        // Image volumes are on by default from here on.
        "kubeVersion": ">= 1.33.0-0",
    })
}

/// By hand, for the comments.
fn values(images: &Images) -> String {
    let Images { prefix, tag } = images;
    format!(
        "{GENERATED}\
images:
  # Registry, and a path in it.
  prefix: {prefix}
  tag: \"{tag}\"
  # Always, IfNotPresent or Never.
  pullPolicy: IfNotPresent
# How many operators there are. All answer the API server, one leads.
replicas: 2
# spec.configuration of the KubeVirt object: what becomes of each field is in docs/fields.md.
configuration: {{}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::install;
    use super::*;

    /// What Helm makes of a template of ours, in the namespace `kubevirt` and without values of one's own.
    fn rendered(template: &str) -> Vec<Value> {
        let images = Images::default();
        let text = [
            ("{{ .Values.images.prefix }}", images.prefix.as_str()),
            ("{{ .Values.images.tag }}", &images.tag),
            ("{{ .Values.images.pullPolicy }}", "IfNotPresent"),
            ("{{ .Release.Namespace }}", "kubevirt"),
            ("{{ .Values.replicas }}", "2"),
            ("{{- toYaml .Values.configuration | nindent 4 }}", "{}"),
        ]
        .iter()
        .fold(template.to_owned(), |text, (from, to)| text.replace(from, to));
        assert!(!text.contains("{{"), "a place that nothing fills");
        serde_saphyr::from_multiple(&text).unwrap()
    }

    #[test]
    fn without_values_the_chart_is_what_the_manifests_are() {
        let mut found = Vec::new();
        for (name, text) in files(&Images::default()).unwrap() {
            if name.starts_with("chart/templates/") || name.starts_with("chart/crds/") {
                found.extend(rendered(&text));
            }
        }
        let installation = Installation::default();
        let mut wanted = install(&installation);
        wanted.push(kubevirt(&installation));
        // The release's namespace is Helm's.
        wanted.retain(|object| object["kind"] != "Namespace");
        assert_eq!(found.len(), wanted.len());
        for object in wanted {
            assert!(found.contains(&object), "{} {}", object["kind"], object["metadata"]["name"]);
        }
    }

    #[test]
    fn values_are_read_as_they_are_meant() {
        let values: Value = serde_saphyr::from_str(&values(&Images::default())).unwrap();
        assert_eq!(values["images"]["prefix"], "corten.test");
        assert_eq!(values["images"]["tag"], env!("CARGO_PKG_VERSION"));
        assert_eq!(values["replicas"], 2);
        assert_eq!(values["configuration"], json!({}));
    }
}
