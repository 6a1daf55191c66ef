//! CustomResourceDefinitions, made from the types.

use super::{GROUP, VERSION};
use crate::types::{
    VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineInstanceStatus,
};
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Value, json};

/// The definition of VirtualMachineInstance.
///
/// It has no status subresource, as KubeVirt's has none: label and status move in one write, and clients write the
/// object as one. Fields that no type stands for are kept by the API server (`x-kubernetes-preserve-unknown-fields`), so
/// that the operator can refuse them by name; without it they would be gone before anybody sees them.
pub fn virtual_machine_instance_crd() -> Value {
    let plural = VirtualMachineInstance::PLURAL;
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "categories": ["all"],
                "kind": VirtualMachineInstance::KIND,
                "listKind": format!("{}List", VirtualMachineInstance::KIND),
                "plural": plural,
                "singular": VirtualMachineInstance::KIND.to_lowercase(),
                "shortNames": ["vmi", "vmis"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    column("Age", "date", ".metadata.creationTimestamp"),
                    column("Phase", "string", ".status.phase"),
                    column("IP", "string", ".status.interfaces[0].ipAddress"),
                    column("NodeName", "string", ".status.nodeName"),
                    column("Ready", "string", &condition_path("Ready")),
                    wide_column("Live-Migratable", &condition_path("LiveMigratable")),
                    wide_column("Paused", &condition_path("Paused")),
                ],
                "schema": { "openAPIV3Schema": {
                    "description": "A virtual machine that runs, or is about to, or has run.",
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": schema::<VirtualMachineInstanceSpec>(),
                        "status": schema::<VirtualMachineInstanceStatus>(),
                    },
                } },
            }],
        },
    })
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

/// One that is shown with `-o wide` only.
fn wide_column(name: &str, path: &str) -> Value {
    json!({ "name": name, "type": "string", "jsonPath": path, "priority": 1 })
}

fn condition_path(kind: &str) -> String {
    format!(".status.conditions[?(@.type=='{kind}')].status")
}

/// The schema of a type, in the shape that Kubernetes takes.
fn schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .with_transform(RecursiveTransform(Tidy))
        .into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// Takes out what a structural schema has no use for.
#[derive(Clone, Debug)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut schemars::Schema) {
        // Names of Rust types, and defaults that say "nothing": the API server would write the latter into objects.
        schema.remove("title");
        schema.remove("default");
        // Fields are as optional as null is.
        schema.remove("nullable");
        // An object of which nothing is known: only so does the API server keep what is in it.
        if schema.get("additionalProperties") == Some(&json!(true)) {
            schema.remove("additionalProperties");
            schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        // A phase or status of a later release must be readable by this one, and the other way round.
        if schema.get("enum").is_some() {
            schema.remove("enum");
            schema.remove("oneOf");
            schema.insert("type".to_owned(), json!("string"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSONSchemaProps,
    };

    fn root_schema() -> JSONSchemaProps {
        let crd: CustomResourceDefinition =
            serde_json::from_value(virtual_machine_instance_crd()).unwrap();
        crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
    }

    #[test]
    fn the_definition_is_one_and_has_no_status_subresource() {
        let value = virtual_machine_instance_crd();
        let crd: CustomResourceDefinition = serde_json::from_value(value.clone()).unwrap();
        assert!(crd.spec.versions[0].subresources.is_none());
        assert_eq!(
            serde_json::to_value(crd).unwrap(),
            value,
            "a field of the definition is not Kubernetes'"
        );
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
        let formats = ["int32", "int64", "double", "date-time"];
        assert!(
            schema.format.as_deref().is_none_or(|format| formats.contains(&format)),
            "{path}: {:?}",
            schema.format
        );
        for (name, property) in schema.properties.iter().flatten() {
            check(&format!("{path}.{name}"), property);
        }
        if let Some(items) = &schema.items {
            let items: JSONSchemaProps =
                serde_json::from_value(serde_json::to_value(items).unwrap()).unwrap();
            check(&format!("{path}[]"), &items);
        }
    }

    #[test]
    fn the_schema_is_structural() {
        check("", &root_schema());
    }

    #[test]
    fn unknown_fields_are_kept_at_every_level_of_the_specification() {
        let spec = root_schema().properties.unwrap()["spec"].clone();
        let domain = spec.properties.as_ref().unwrap()["domain"].clone();
        let devices = domain.properties.as_ref().unwrap()["devices"].clone();
        for schema in [spec, domain, devices] {
            assert_eq!(schema.x_kubernetes_preserve_unknown_fields, Some(true));
        }
    }

    #[test]
    fn what_is_inside_types_of_kubernetes_own_is_kept() {
        let spec = root_schema().properties.unwrap()["spec"].clone();
        let affinity = spec.properties.unwrap()["affinity"].clone();
        assert_eq!(affinity.x_kubernetes_preserve_unknown_fields, Some(true));
        assert!(affinity.additional_properties.is_none());
    }

    #[test]
    fn the_definition_fits_into_an_object_and_its_annotation() {
        // kubectl keeps what was applied in an annotation, and annotations have 256 KiB.
        let size = virtual_machine_instance_crd().to_string().len();
        assert!(size < 256 << 10, "{size} bytes");
    }

    #[test]
    fn amounts_may_be_numbers_or_strings() {
        let spec = root_schema().properties.unwrap()["spec"].clone();
        let memory =
            spec.properties.unwrap()["domain"].clone().properties.unwrap()["memory"].clone();
        assert_eq!(memory.properties.unwrap()["guest"].x_kubernetes_int_or_string, Some(true));
    }
}
