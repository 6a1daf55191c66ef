//! How much was written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// It is created.
    Create,
    /// It is patched.
    Patch,
    /// Its status is patched, where that is a subresource.
    PatchStatus,
    /// It is deleted.
    Delete,
}

impl Verb {
    /// In one word, as a metric names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Patch => "patch",
            Self::PatchStatus => "patch_status",
            Self::Delete => "delete",
        }
    }
}

/// How many writes were sent, by kind of object and verb; also those that were refused.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<(String, Verb), u64>>);

impl Counts {
    pub(super) fn add(&self, kind: &str, verb: Verb) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((kind.to_owned(), verb)).or_default() += 1;
    }

    /// All of them, as they are now.
    pub fn all(&self) -> BTreeMap<(String, Verb), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those of one kind and verb.
    pub fn of(&self, kind: &str, verb: Verb) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(kind.to_owned(), verb)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, ((kind, verb), count)) in self.all().into_iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{kind} {}: {count}", verb.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_kind_and_verb() {
        let counts = Counts::default();
        counts.add("Pod", Verb::Create);
        counts.add("Pod", Verb::Create);
        counts.add("VirtualMachine", Verb::PatchStatus);
        assert_eq!(counts.of("Pod", Verb::Create), 2);
        assert_eq!(counts.of("Pod", Verb::Delete), 0);
        assert_eq!(counts.to_string(), "Pod create: 2, VirtualMachine patch_status: 1");
    }
}
