//! A type as a schema that Kubernetes takes.

use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Value, json};

/// Types of Kubernetes' own. People know them, or ask Kubernetes: what is in them is not described.
const KUBERNETES: [&str; 10] = [
    "ClaimSource",
    "DnsConfig",
    "DnsOption",
    "DownwardApiFile",
    "FieldReference",
    "LabelRequirement",
    "LabelSelector",
    "LocalObjectReference",
    "ObjectMeta",
    "Toleration",
];

/// Where a schema has the name of its type, until it is done.
const TYPE: &str = "x-corten-type";

/// What makes the API server keep fields that are not in the schema.
const KEEP: &str = "x-kubernetes-preserve-unknown-fields";

/// The schema of a type.
pub(super) fn of<T: JsonSchema>() -> Value {
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
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    without_names(&mut schema);
    schema
}

/// Takes out what a structural schema has no use for.
#[derive(Clone, Debug)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut schemars::Schema) {
        // Defaults that say "nothing": the API server would write them into objects.
        schema.remove("default");
        // Fields are as optional as null is.
        schema.remove("nullable");
        if schema.get("additionalProperties") == Some(&json!(true)) {
            schema.remove("additionalProperties");
            schema.insert(KEEP.to_owned(), json!(true));
        }
        let name = schema.get(TYPE).and_then(Value::as_str).unwrap_or_default().to_owned();
        match name.as_str() {
            // An object of which nothing is known: only so does the API server keep what is in it.
            "" => {}
            // Of a template: labels and annotations, and whatever else there will be in Kubernetes. Clients write null
            // for what they have not.
            "ObjectMeta" => {
                schema.remove("properties");
                schema.insert("nullable".to_owned(), json!(true));
            }
            _ => {
                schema.remove(KEEP);
            }
        }
        if ["LabelSelector", "LocalObjectReference"].contains(&name.as_str()) {
            // Written by one owner at a time, as in Kubernetes' own schemas.
            schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        // A phase or status of a later release must be readable by this one, and the other way round.
        if schema.get("enum").is_some() {
            schema.remove("enum");
            schema.remove("oneOf");
            schema.insert("type".to_owned(), json!("string"));
        }
    }
}

/// Takes out the names of Rust types, and the descriptions of what is inside those of Kubernetes and of members of lists.
fn without_names(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    members.remove("title");
    let name = members.remove(TYPE);
    let is_foreign =
        name.as_ref().and_then(Value::as_str).is_some_and(|name| KUBERNETES.contains(&name));
    let is_condition = name.as_ref().and_then(Value::as_str) == Some("Condition");
    if let Some(fields) = members.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, field) in fields {
            without_names(field);
            // Clients of KubeVirt's write these as null.
            if is_condition && ["lastProbeTime", "lastTransitionTime"].contains(&name.as_str()) {
                field["nullable"] = json!(true);
            }
            if is_foreign {
                super::describe::strip(field);
            }
        }
    }
    for part in ["items", "additionalProperties"] {
        if let Some(member) = members.get_mut(part) {
            without_names(member);
            // The list says what they are.
            if let Some(member) = member.as_object_mut() {
                member.remove("description");
            }
        }
    }
}
