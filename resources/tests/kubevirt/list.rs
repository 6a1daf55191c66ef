//! KubeVirt's own list of types and fields, `fields.tsv`: type, field, JSON type, whether it is required, values.

use serde_json::{Map, Value, json};
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

impl List {
    /// An object of this type in which any field may be missing, `null`, empty or set, and some are not KubeVirt's.
    pub(crate) fn any(&self, kind: &str, chance: &mut Chance) -> Value {
        let mut members = Map::new();
        for field in self.fields(kind).unwrap() {
            let value = match chance.below(6) {
                0 | 1 => continue,
                2 => Value::Null,
                // An empty word is none of a condition's.
                _ if field.name == "status" && kind.ends_with("Condition") => json!("Perhaps"),
                _ => self.any_value(field.kind, chance),
            };
            members.insert(field.name.to_owned(), value);
        }
        if chance.below(4) == 0 {
            let later = [json!(null), json!([]), json!({}), json!(""), json!({ "a": [1, {}] })];
            members.insert("ofALaterRelease".to_owned(), later[chance.below(5)].clone());
        }
        Value::Object(members)
    }

    fn any_value(&self, kind: &str, chance: &mut Chance) -> Value {
        if let Some(member) = kind.strip_prefix("list of ") {
            return (0..chance.below(3)).map(|_| self.any_value(member, chance)).collect();
        }
        if let Some(member) = kind.strip_prefix("map of ") {
            let members =
                (0..chance.below(3)).map(|n| (n.to_string(), self.any_value(member, chance)));
            return Value::Object(members.collect());
        }
        match kind {
            "string" | "string|null" => json!(["", "text", "Running", "True"][chance.below(4)]),
            "boolean" => json!(chance.below(2) == 0),
            "integer:int32" => json!([0, -1, i32::MAX][chance.below(3)]),
            "integer:int64" => json!([0, -1, i64::MAX][chance.below(3)]),
            "integer:byte" => json!([0, u8::MAX][chance.below(2)]),
            "number:float" => json!([0.0, 1.5, -2.25][chance.below(3)]),
            "k8s.io.apimachinery.pkg.api.resource.Quantity" => {
                [json!("1Gi"), json!(""), json!(2), json!(0.5), json!(-1)][chance.below(5)].clone()
            }
            "k8s.io.apimachinery.pkg.apis.meta.v1.Time"
            | "k8s.io.apimachinery.pkg.apis.meta.v1.Duration" => json!(["", "1h"][chance.below(2)]),
            _ if kind.starts_with("k8s.io.") => {
                [json!({}), json!({ "deep": { "in": ["it", null, {}] } })][chance.below(2)].clone()
            }
            _ => self.any(kind, chance),
        }
    }
}

/// Numbers that are the same for the same seed (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) >> 33).unwrap() % bound
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
