//! What the API server asks of a definition, and what people read in it.

use super::*;
use crate::Kind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use serde_json::Value;

fn read(kind: Kind) -> CustomResourceDefinition {
    serde_json::from_value(definition(kind)).unwrap()
}

/// The schema of a version: the stored one is the first.
fn root(kind: Kind, version: usize) -> JSONSchemaProps {
    read(kind).spec.versions[version].schema.clone().unwrap().open_api_v3_schema.unwrap()
}

/// The schema at a path below the root.
fn at<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(schema, |schema, name| {
        let schema = if schema["items"].is_object() { &schema["items"] } else { schema };
        &schema["properties"][name]
    })
}

fn stored(kind: Kind) -> Value {
    definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn every_definition_is_one() {
    for kind in Kind::ALL {
        let value = definition(kind);
        let crd: CustomResourceDefinition = serde_json::from_value(value.clone()).unwrap();
        let written = serde_json::to_value(crd).unwrap();
        assert!(written == value, "{}: a field that is not Kubernetes'", kind.name());
    }
}

#[test]
fn versions_and_subresources_are_those_of_kubevirt() {
    for kind in Kind::ALL {
        let versions = read(kind).spec.versions;
        let names: Vec<_> =
            versions.iter().map(|it| (it.name.as_str(), it.served, it.storage)).collect();
        assert_eq!(names, [("v1", true, true), ("v1alpha3", true, false)]);
        assert_eq!((versions[0].deprecated, versions[1].deprecated), (None, Some(true)));
        for version in versions {
            let subresources = version.subresources;
            let status = subresources.as_ref().is_some_and(|it| it.status.is_some());
            let scale = subresources.as_ref().is_some_and(|it| it.scale.is_some());
            assert_eq!(status, kind != Kind::Instance);
            assert_eq!(scale, kind == Kind::ReplicaSet);
        }
    }
}

/// Rules of a structural schema that the API server checks when the definition is made.
fn check(path: &str, schema: &JSONSchemaProps) {
    let free = schema.x_kubernetes_int_or_string == Some(true);
    assert!(free || schema.type_.is_some(), "{path}: no type");
    assert!(
        schema.properties.is_none() || schema.additional_properties.is_none(),
        "{path}: properties and additionalProperties"
    );
    for list in [&schema.one_of, &schema.all_of] {
        assert!(list.is_none(), "{path}: alternatives");
    }
    assert!(free || schema.any_of.is_none(), "{path}: alternatives");
    assert!(schema.default.is_none(), "{path}: default");
    let formats = ["int32", "int64", "double", "date-time"];
    assert!(
        schema.format.as_deref().is_none_or(|format| formats.contains(&format)),
        "{path}: {:?}",
        schema.format
    );
    for (name, property) in schema.properties.iter().flatten() {
        check(&format!("{path}.{name}"), property);
    }
    let inner = [
        schema.items.as_ref().map(|items| serde_json::to_value(items).unwrap()),
        schema.additional_properties.as_ref().map(|inner| serde_json::to_value(inner).unwrap()),
    ];
    for value in inner.into_iter().flatten() {
        check(&format!("{path}[]"), &serde_json::from_value(value).unwrap());
    }
}

#[test]
fn every_schema_is_structural() {
    for kind in Kind::ALL {
        check("", &root(kind, 0));
        check("", &root(kind, 1));
    }
}

#[test]
fn definitions_fit_into_an_object_and_its_annotation() {
    // kubectl keeps what was applied in an annotation, and annotations have 256 KiB together.
    for kind in Kind::ALL {
        let size = definition(kind).to_string().len();
        assert!(size < 250 << 10, "{}: {size} bytes", kind.name());
    }
}

#[test]
fn unknown_fields_are_kept_only_where_nothing_is_known() {
    let schema = stored(Kind::Instance);
    let keeps =
        |path| at(&schema, path)["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
    for path in ["spec.affinity", "spec.topologySpreadConstraints", "spec.livenessProbe.httpGet"] {
        let list = &at(&schema, path)["items"]["x-kubernetes-preserve-unknown-fields"];
        assert!(keeps(path) || list == &Value::Bool(true), "{path}");
    }
    for path in ["spec", "spec.domain", "spec.domain.devices", "spec.domain.devices.rng", "status"]
    {
        assert!(!keeps(path), "{path}");
    }
    let machine = stored(Kind::Machine);
    let metadata = at(&machine, "spec.template.metadata");
    assert_eq!(metadata["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(metadata["nullable"], true);
}

#[test]
fn amounts_may_be_numbers_or_strings() {
    let schema = stored(Kind::Instance);
    assert_eq!(at(&schema, "spec.domain.memory.guest")["x-kubernetes-int-or-string"], true);
    let requests = at(&schema, "spec.domain.resources.requests");
    assert_eq!(requests["additionalProperties"]["x-kubernetes-int-or-string"], true);
}

#[test]
fn times_of_conditions_may_be_null() {
    for kind in Kind::ALL {
        let schema = stored(kind);
        for name in ["lastProbeTime", "lastTransitionTime"] {
            assert_eq!(at(&schema, &format!("status.conditions.{name}"))["nullable"], true);
        }
    }
}

/// Every field is told of, but for what is inside types of Kubernetes' own.
fn told(path: &str, schema: &Value, found: &mut Vec<String>) {
    let schema = if schema["items"].is_object() { &schema["items"] } else { schema };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match field["description"].as_str() {
            None => found.push(path),
            Some(text) => {
                let outcome =
                    ["Served", "Not served", "No effect"].iter().any(|it| text.contains(it));
                assert!(text.ends_with('.') && !text.contains("  "), "{path}: {text}");
                // A template's metadata is Kubernetes' own.
                let is_spec = path.starts_with("spec") && path != "spec.template.metadata";
                assert!(outcome || !is_spec, "{path}: {text}");
                told(&path, field, found);
            }
        }
    }
}

#[test]
fn every_field_is_described_in_the_stored_version_and_none_in_the_old_one() {
    for kind in Kind::ALL {
        let mut bare = Vec::new();
        let schema = stored(kind);
        for part in ["spec", "status"] {
            told(part, &schema["properties"][part], &mut bare);
        }
        let embedded = |path: &String| {
            [
                "Selector",
                "tolerations",
                "dnsConfig",
                "Ref.",
                "ecretRef",
                "imagePullSecrets",
                "selector",
            ]
            .iter()
            .any(|part| path.contains(part))
                || path.contains(".persistentVolumeClaim.")
                || path.contains("downwardAPI.fields")
                || path.contains(".sysprep.")
        };
        bare.retain(|path| !embedded(path));
        assert_eq!(bare, [""; 0], "{}", kind.name());
        let old = definition(kind)["spec"]["versions"][1].to_string();
        assert!(!old.contains("\"description\":\""), "{}", kind.name());
    }
}

#[test]
fn what_is_served_is_told() {
    let schema = stored(Kind::Machine);
    let about = |path| at(&schema, path)["description"].as_str().unwrap();
    assert!(about("spec.running").ends_with(" Served."));
    assert!(about("spec.template.spec.domain.devices.gpus").contains(" Not served: "));
    assert_eq!(about("spec"), "What its user wants.");
}
