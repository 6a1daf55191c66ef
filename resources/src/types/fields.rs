//! How the fields of an object are read and written, alike for all of them.

use super::{ConditionStatus, MigrationPhase, OtherFields, Phase};
use crate::Quantity;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Declares objects: what is written in them are their fields, with KubeVirt's names in camel case unless renamed.
///
/// Each field may be missing or `null`, and is written only if it says something. A value that a user forgot must be told
/// by validation, with its path, and must not keep a whole list of objects from being read. What no field stands for
/// goes into `other`.
macro_rules! object {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $( $(#[$about_field:meta])* pub $field:ident: $kind:ty, )*
        }
    )+) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
        // By it the schemas of definitions tell one type from another; it is taken out there.
        #[cfg_attr(feature = "cluster", schemars(extend("x-corten-type" = stringify!($name))))]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(
                $(#[$about_field])*
                #[serde(
                    default,
                    deserialize_with = "crate::types::fields::null_as_default",
                    skip_serializing_if = "crate::types::fields::Field::says_nothing"
                )]
                pub $field: $kind,
            )*
            /// What is not named here.
            #[serde(flatten)]
            pub other: crate::types::OtherFields,
        }

        impl crate::types::fields::Field for $name {}
    )+ };
}
pub(super) use object;

/// `null` is what a client may write for "nothing".
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A value of a field.
///
/// A text that is needed but empty, and a list or map without members, say no more than one that is missing, so they are
/// not written. An object without members does: `masquerade: {}` is a choice.
pub(super) trait Field {
    /// It need not be written.
    fn says_nothing(&self) -> bool {
        false
    }
}

impl<T> Field for Option<T> {
    fn says_nothing(&self) -> bool {
        self.is_none()
    }
}

impl<T> Field for Vec<T> {
    fn says_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Field for BTreeMap<String, T> {
    fn says_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Field for String {
    fn says_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Field for Phase {
    fn says_nothing(&self) -> bool {
        self.is_unset()
    }
}

impl Field for MigrationPhase {
    fn says_nothing(&self) -> bool {
        self.is_unset()
    }
}

impl Field for OtherFields {}
impl Field for ConditionStatus {}
impl Field for Quantity {}
impl Field for bool {}
impl Field for i32 {}
impl Field for i64 {}
impl Field for f64 {}
