//! How the fields of an object are read and written, alike for all of them.

use super::left_out::{UNKNOWN, keep};
use super::{ConditionStatus, MigrationPhase, OtherFields, Phase};
use crate::Quantity;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Declares objects: what is written in them are their fields, with KubeVirt's names in camel case unless renamed.
///
/// Each field may be missing or `null`, and is written only if it says something, or was there before. A value that a user
/// forgot must be told by validation, with its path, and must not keep a whole list of objects from being read. What no
/// field stands for goes into `other`, and what was written and says nothing into `left_out`.
///
/// Serde's and schemars' code is made for structs inside of functions, which have the same fields: so each impl can do more
/// than what is derived.
macro_rules! object {
    ($(
        $(#[doc = $about:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $about_field:literal])*
                $(#[serde($($how:tt)*)])?
                pub $field:ident: $kind:ty,
            )*
        }
    )+) => { $(
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[doc = $about_field])* pub $field: $kind, )*
            /// What is not named here.
            pub other: crate::types::OtherFields,
            /// What was written and says nothing.
            pub left_out: crate::types::LeftOut,
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase", expecting = "an object")]
                struct Read {
                    $(
                        $(#[serde($($how)*)])?
                        #[serde(default, deserialize_with = "crate::types::fields::null_as_default")]
                        $field: $kind,
                    )*
                    #[serde(flatten)]
                    other: crate::types::OtherFields,
                }
                let mut left_out = crate::types::LeftOut::default();
                let watched = crate::types::left_out::Watched::new(deserializer, &mut left_out);
                let Read { $( $field, )* other } =
                    <Read as serde::Deserialize>::deserialize(watched)?;
                Ok(Self { $( $field, )* other, left_out })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[derive(serde::Serialize)]
                #[serde(rename_all = "camelCase")]
                struct Written<'a> {
                    $(
                        $(#[serde($($how)*)])?
                        #[serde(skip_serializing_if = "crate::types::fields::is_silent")]
                        $field: &'a $kind,
                    )*
                    #[serde(flatten)]
                    other: &'a crate::types::OtherFields,
                }
                let written = Written { $( $field: &self.$field, )* other: &self.other };
                self.left_out.write(&written, serializer)
            }
        }

        #[cfg(feature = "cluster")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $(#[doc = $about])*
                #[derive(schemars::JsonSchema)]
                // By it the schemas of definitions tell one type from another; it is taken out there.
                #[schemars(extend("x-corten-type" = stringify!($name)))]
                #[serde(rename_all = "camelCase")]
                #[expect(dead_code, reason = "it is there to be described")]
                struct Described {
                    $(
                        $(#[doc = $about_field])*
                        $(#[serde($($how)*)])?
                        #[serde(
                            default,
                            deserialize_with = "crate::types::fields::null_as_default",
                            skip_serializing_if = "crate::types::fields::says_nothing"
                        )]
                        $field: $kind,
                    )*
                    #[serde(flatten)]
                    other: crate::types::OtherFields,
                }
                <Described as schemars::JsonSchema>::json_schema(generator)
            }
        }

        impl crate::types::fields::Field for $name {
            /// One that was not there. An object that was there, but empty, is a choice: `masquerade: {}`.
            fn nothing(&self) -> Option<serde_json::Value> {
                let is_nothing = !self.left_out.is_written() && *self == Self::default();
                is_nothing.then(|| serde_json::json!({}))
            }

            fn holds(path: &[&str]) -> bool {
                crate::types::fields::holds_in(path, &[
                    $( (
                        crate::types::fields::json_name!($field, $($($how)*)?).to_owned(),
                        <$kind as crate::types::fields::Field>::holds,
                    ), )*
                ])
            }
        }
    )+ };
}
pub(super) use object;

/// What a field is called in JSON.
macro_rules! json_name {
    ($field:ident, rename = $name:literal) => {
        $name
    };
    ($field:ident,) => {
        crate::types::fields::camel_case(stringify!($field))
    };
}
pub(super) use json_name;

/// A member of an object, and what tells of fields in it.
pub(super) type Member = (String, fn(&[&str]) -> bool);

/// Such a field is among these members, or in one of them.
pub(super) fn holds_in(path: &[&str], members: &[Member]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    members.iter().any(|(name, holds)| name == first && holds(rest))
}

/// As serde writes the names of members.
pub(super) fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// `null` is what a client may write for "nothing".
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + Field,
{
    let Some(value) = T::read(deserializer)? else {
        keep(Value::Null);
        return Ok(T::default());
    };
    if let Some(nothing) = value.nothing() {
        keep(nothing);
    }
    Ok(value)
}

/// It need not be described as what is there by default.
#[cfg(feature = "cluster")]
pub(super) fn says_nothing<T: Field>(field: &T) -> bool {
    field.nothing().is_some()
}

/// It need not be written.
pub(super) fn is_silent<T: Field>(field: &&T) -> bool {
    field.nothing().is_some()
}

/// A value of a field.
///
/// A text that is needed but empty, and a list or map without members, say no more than one that is missing, so they are
/// written only if they were there.
pub(super) trait Field: Sized {
    /// How it is written, if it says no more than a missing field.
    fn nothing(&self) -> Option<Value> {
        None
    }

    /// There is such a field in it: one of its members, of theirs, and so on. Members of lists are not numbered. What is
    /// passed on as it came may hold any.
    fn holds(path: &[&str]) -> bool {
        path.is_empty()
    }

    /// Reads it; nothing for `null`.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error>
    where
        Self: Deserialize<'de>,
    {
        Option::<Self>::deserialize(deserializer)
    }
}

impl<T: Field> Field for Option<T> {
    fn nothing(&self) -> Option<Value> {
        self.is_none().then_some(Value::Null)
    }

    fn holds(path: &[&str]) -> bool {
        T::holds(path)
    }
}

impl<T: Field> Field for Vec<T> {
    fn nothing(&self) -> Option<Value> {
        self.is_empty().then(|| json!([]))
    }

    fn holds(path: &[&str]) -> bool {
        T::holds(path)
    }
}

impl<T: Field> Field for BTreeMap<String, T> {
    fn nothing(&self) -> Option<Value> {
        self.is_empty().then(|| json!({}))
    }

    fn holds(path: &[&str]) -> bool {
        path.split_first().is_none_or(|(_, rest)| T::holds(rest))
    }
}

impl Field for String {
    fn nothing(&self) -> Option<Value> {
        self.is_empty().then(|| json!(""))
    }
}

/// Words of which a later release may have more.
macro_rules! words {
    ($( $name:ty: $nothing:expr; )+) => { $(
        impl Field for $name {
            fn nothing(&self) -> Option<Value> {
                let is_nothing: fn(&$name) -> bool = $nothing;
                is_nothing(self).then(|| json!(""))
            }

            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
                let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
                let known = Self::deserialize(word.as_str().into_deserializer())?;
                if known == Self::Unknown && word != UNKNOWN {
                    keep(Value::String(word));
                }
                Ok(Some(known))
            }
        }
    )+ };
}

words! {
    Phase: Phase::is_unset;
    MigrationPhase: MigrationPhase::is_unset;
    ConditionStatus: |_| false;
}

impl Field for OtherFields {
    fn holds(_: &[&str]) -> bool {
        true
    }
}

impl Field for Quantity {}
impl Field for bool {}
impl Field for i32 {}
impl Field for i64 {}
impl Field for f64 {}
