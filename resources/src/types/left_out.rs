//! What an object was written with and its members do not hold, so that it is written back as it came.
//!
//! A list without members, a text without letters and `null` say no more than a missing field, and members have one value
//! for all of them; a word of a later release is `Unknown` to this one. What stood there is remembered beside the members,
//! by name. A member that says something when the object is written goes first: what was remembered is then out of date.

use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserializer, Serialize, Serializer, ser};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// What members do not hold of the object that they were read from. Two objects that differ in it alone are equal: they ask
/// for the same.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// It was read, and not made here.
    is_written: bool,
    /// By name; most objects have none.
    fields: Option<Box<Map<String, Value>>>,
}

impl PartialEq for LeftOut {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl LeftOut {
    /// The object was there when what it is in was read, if only as `{}`.
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    fn insert(&mut self, name: String, value: Value) {
        self.fields.get_or_insert_default().insert(name, value);
    }

    /// Writes the members, and what is remembered beside them.
    pub(super) fn write<S: Serializer>(
        &self,
        members: &impl Serialize,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(fields) = &self.fields else { return members.serialize(serializer) };
        let mut value = serde_json::to_value(members).map_err(ser::Error::custom)?;
        if let Value::Object(members) = &mut value {
            for (name, kept) in fields.iter() {
                if is_open(members.get(name), kept) {
                    members.insert(name.clone(), kept.clone());
                }
            }
        }
        value.serialize(serializer)
    }
}

/// The member says nothing, or that it does not know the word, or is a number or switch that is written in any case.
fn is_open(member: Option<&Value>, kept: &Value) -> bool {
    let Some(member) = member else { return true };
    let is_unknown = member == UNKNOWN;
    match kept {
        Value::Null => is_unknown || *member == false || member.as_f64() == Some(0.0),
        kept => is_unknown && kept.as_str().is_some_and(|word| !word.is_empty()),
    }
}

/// What stands for a word that is not known.
pub(super) const UNKNOWN: &str = "Unknown";

thread_local! {
    /// What the field that is being read says beyond its member. A field is told of by whoever reads it, and taken note of
    /// by the object around it, which alone knows its name; serde has no other way between them.
    static KEPT: Cell<Option<Value>> = const { Cell::new(None) };
}

/// The field that is being read was written so.
pub(super) fn keep(value: Value) {
    KEPT.set(Some(value));
}

/// Reads an object, and notes what its fields [`keep`].
pub(super) struct Watched<'a, D> {
    inner: D,
    left_out: &'a mut LeftOut,
}

impl<'a, D> Watched<'a, D> {
    pub(super) fn new(inner: D, left_out: &'a mut LeftOut) -> Self {
        Self { inner, left_out }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Watched<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(Members { visitor, left_out: self.left_out })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct struct enum identifier ignored_any
    }
}

struct Members<'a, V> {
    visitor: V,
    left_out: &'a mut LeftOut,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Members<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.left_out.is_written = true;
        self.visitor.visit_map(Named { map, name: String::new(), left_out: self.left_out })
    }
}

struct Named<'a, A> {
    map: A,
    /// Of the field whose value comes next.
    name: String,
    left_out: &'a mut LeftOut,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.map.next_key::<String>()? else { return Ok(None) };
        self.name.clone_from(&name);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        KEPT.set(None);
        let value = self.map.next_value_seed(seed)?;
        if let Some(kept) = KEPT.take() {
            self.left_out.insert(std::mem::take(&mut self.name), kept);
        }
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint()
    }
}
