//! KubeVirt's own list of types and fields, `fields.tsv`: type, field, JSON type, whether it is required, values.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A field of a type.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) values: &'static str,
}

/// Types of KubeVirt's and their fields.
pub(crate) struct List(BTreeMap<&'static str, Vec<Field>>);

impl List {
    pub(crate) fn read() -> Self {
        let mut types: BTreeMap<_, Vec<Field>> = BTreeMap::new();
        for line in include_str!("fields.tsv").lines().skip(1) {
            let columns: Vec<&str> = line.split('\t').collect();
            let fields = types.entry(columns[0]).or_default();
            // "-" stands for a type without fields.
            if columns[1] != "-" {
                fields.push(Field { name: columns[1], kind: columns[2], values: columns[4] });
            }
        }
        Self(types)
    }

    /// Fields of this type, if it is KubeVirt's own.
    pub(crate) fn fields(&self, kind: &str) -> Option<&[Field]> {
        self.0.get(kind).map(Vec::as_slice)
    }

    /// An object of this type with every field set.
    pub(crate) fn whole(&self, kind: &str) -> Value {
        let members = self.fields(kind).unwrap().iter();
        members.map(|field| (field.name.to_owned(), self.value(kind, field))).collect()
    }

    fn value(&self, owner: &str, field: &Field) -> Value {
        match (owner, field.name) {
            // These are read as words that Corten knows.
            (_, "phase") if owner.contains("VirtualMachineInstance") => json!("Running"),
            (_, "status") if owner.ends_with("Condition") => json!("True"),
            _ => match field.values.split(' ').next() {
                Some(word) if !word.is_empty() => wrapped(field.kind, |_| json!(word)),
                _ => wrapped(field.kind, |kind| self.plain(kind)),
            },
        }
    }

    fn plain(&self, kind: &str) -> Value {
        match kind {
            "string" | "string|null" => json!("text"),
            "boolean" => json!(false),
            "integer:int32" => json!(i32::MAX),
            "integer:int64" => json!(i64::MAX),
            "integer:byte" => json!(u8::MAX),
            "number:float" => json!(1.5),
            "k8s.io.apimachinery.pkg.api.resource.Quantity" => json!("1Gi"),
            "k8s.io.apimachinery.pkg.apis.meta.v1.Time" => json!("2026-01-02T03:04:05Z"),
            "k8s.io.apimachinery.pkg.apis.meta.v1.Duration" => json!("168h0m0s"),
            // A type of Kubernetes' own: whatever is in it comes back.
            _ if kind.starts_with("k8s.io.") => json!({ "deep": { "in": ["it", null, {}] } }),
            _ => self.whole(kind),
        }
    }
}

fn wrapped(kind: &'static str, inner: impl Fn(&'static str) -> Value) -> Value {
    if let Some(member) = kind.strip_prefix("list of ") {
        json!([inner(member)])
    } else if let Some(member) = kind.strip_prefix("map of ") {
        json!({ "key": inner(member) })
    } else {
        inner(kind)
    }
}
