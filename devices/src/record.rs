//! Saved state: what changes while a machine runs, as self-describing records.
//!
//! A record says what it is of (kind), of which one (instance) and in which form (version). Loading is strict: a record
//! that is missing, unknown, of another version or left over is an error, so that nothing is ever forgotten silently.
//!
//! What a record says stays text until somebody takes it as a state of a certain kind. So records that are damaged, or made to do
//! harm, take no more memory than a small multiple of their length: any other form is many times as large for some text.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

/// State of one kind of thing, in one form. A change of its fields is a new version.
pub trait State: Serialize + DeserializeOwned {
    /// Name of the kind, for all time.
    const KIND: &'static str;
    /// Version of the form.
    const VERSION: u16;
}

/// One saved state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    kind: String,
    instance: String,
    version: u16,
    payload: Box<RawValue>,
}

/// By what they say, not by how it is written. For tests: it takes memory.
impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        let value =
            |record: &Self| serde_json::from_str::<serde_json::Value>(record.payload.get()).ok();
        self.name() == other.name()
            && self.version == other.version
            && (self.payload.get() == other.payload.get() || value(self) == value(other))
    }
}

/// Why a record cannot be made or used.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The state has no JSON form.
    #[error("cannot write the record {name}")]
    Write {
        /// Which one.
        name: RecordName,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The payload is not that of its version.
    #[error("the record {name} is damaged")]
    Damaged {
        /// Which one.
        name: RecordName,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The payload is well formed but says what cannot be.
    #[error("the record {name} is impossible: {reason}")]
    Impossible {
        /// Which one.
        name: RecordName,
        /// What is wrong with it.
        reason: String,
    },
    /// Saved by another release.
    #[error("the record {name} has version {found}, this build reads {known}")]
    Version {
        /// Which one.
        name: RecordName,
        /// Its version.
        found: u16,
        /// Ours.
        known: u16,
    },
    /// Not among the records.
    #[error("the record {0} is missing")]
    Missing(RecordName),
    /// Among the records twice.
    #[error("the record {0} is there twice")]
    Twice(RecordName),
    /// Nothing in the machine takes it.
    #[error("nothing in this machine takes the record {0}")]
    LeftOver(RecordName),
}

/// Kind and instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordName {
    /// What it is of.
    pub kind: String,
    /// Of which one.
    pub instance: String,
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.instance.is_empty() {
            write!(f, "{}", self.kind)
        } else {
            write!(f, "{} {}", self.kind, self.instance)
        }
    }
}

impl Record {
    /// The record of `state`; `instance` tells it from others of its kind.
    pub fn of<S: State>(instance: &str, state: &S) -> Result<Self, RecordError> {
        let name = name_of::<S>(instance);
        let payload = to_raw_value(state)
            .map_err(|source| RecordError::Write { name: name.clone(), source })?;
        Ok(Self { kind: name.kind, instance: name.instance, version: S::VERSION, payload })
    }

    /// What it is of.
    pub fn name(&self) -> RecordName {
        RecordName { kind: self.kind.clone(), instance: self.instance.clone() }
    }

    fn state<S: State>(self) -> Result<S, RecordError> {
        if self.version != S::VERSION {
            let (name, found) = (self.name(), self.version);
            return Err(RecordError::Version { name, found, known: S::VERSION });
        }
        let name = self.name();
        serde_json::from_str(self.payload.get())
            .map_err(|source| RecordError::Damaged { name, source })
    }
}

fn name_of<S: State>(instance: &str) -> RecordName {
    RecordName { kind: S::KIND.into(), instance: instance.into() }
}

/// All records of one machine, each to be taken once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Records(Vec<Record>);

impl Records {
    /// Adds the record of `state`.
    pub fn put<S: State>(&mut self, instance: &str, state: &S) -> Result<(), RecordError> {
        let record = Record::of(instance, state)?;
        if self.0.iter().any(|other| other.name() == record.name()) {
            return Err(RecordError::Twice(record.name()));
        }
        self.0.push(record);
        Ok(())
    }

    /// Takes the state of that kind and instance out.
    pub fn take<S: State>(&mut self, instance: &str) -> Result<S, RecordError> {
        let name = name_of::<S>(instance);
        let mut found: Vec<Record> =
            self.0.extract_if(.., |record| record.name() == name).collect();
        match (found.pop(), found.is_empty()) {
            (Some(record), true) => record.state(),
            (Some(_), false) => Err(RecordError::Twice(name)),
            (None, _) => Err(RecordError::Missing(name)),
        }
    }

    /// Each of them, in the order in which they were put.
    pub fn iter(&self) -> std::slice::Iter<'_, Record> {
        self.0.iter()
    }

    /// To be called when everything has taken its own: nothing may be left.
    pub fn finish(self) -> Result<(), RecordError> {
        match self.0.first() {
            Some(record) => Err(RecordError::LeftOver(record.name())),
            None => Ok(()),
        }
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = &'a Record;
    type IntoIter = std::slice::Iter<'a, Record>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Taken as they are: one that is there twice is found by who takes it, or left over.
impl FromIterator<Record> for Records {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        Self(records.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Lamp {
        lit: bool,
    }

    impl State for Lamp {
        const KIND: &'static str = "lamp";
        const VERSION: u16 = 3;
    }

    fn records(json: &str) -> Records {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_put_is_taken_once() {
        let mut records = Records::default();
        records.put("hall", &Lamp { lit: true }).unwrap();
        records.put("attic", &Lamp { lit: false }).unwrap();
        assert_eq!(records.take::<Lamp>("hall").unwrap(), Lamp { lit: true });
        let again = records.take::<Lamp>("hall").unwrap_err();
        assert_eq!(again.to_string(), "the record lamp hall is missing");
        assert_eq!(records.take::<Lamp>("attic").unwrap(), Lamp { lit: false });
        records.finish().unwrap();
    }

    #[test]
    fn one_name_is_put_once() {
        let mut records = Records::default();
        records.put("hall", &Lamp { lit: true }).unwrap();
        assert!(matches!(records.put("hall", &Lamp { lit: true }), Err(RecordError::Twice(_))));
    }

    #[test]
    fn record_that_nothing_takes_is_an_error() {
        let left = records(r#"[{"kind":"door","instance":"","version":1,"payload":{}}]"#);
        let error = left.finish().unwrap_err();
        assert_eq!(error.to_string(), "nothing in this machine takes the record door");
    }

    #[test]
    fn other_versions_and_damage_are_named() {
        let newer = r#"[{"kind":"lamp","instance":"hall","version":4,"payload":{"lit":true}}]"#;
        let error = records(newer).take::<Lamp>("hall").unwrap_err();
        assert_eq!(error.to_string(), "the record lamp hall has version 4, this build reads 3");
        let damaged = r#"[{"kind":"lamp","instance":"hall","version":3,"payload":{"lit":7}}]"#;
        assert!(matches!(records(damaged).take::<Lamp>("hall"), Err(RecordError::Damaged { .. })));
        let extra =
            r#"[{"kind":"lamp","instance":"hall","version":3,"payload":{"lit":true,"x":1}}]"#;
        assert!(matches!(records(extra).take::<Lamp>("hall"), Err(RecordError::Damaged { .. })));
    }

    #[test]
    fn what_a_record_says_stays_text_until_it_is_taken() {
        let json = r#"[{"kind":"lamp","instance":"","version":3,"payload":[[],[ {} ],1e2]}]"#;
        let mut unread = records(json);
        assert_eq!(serde_json::to_string(&unread).unwrap(), json);
        let other = json.replace("[ {} ]", "[{}]");
        assert_eq!(unread, records(&other), "it says the same");
        assert_ne!(unread, records(&json.replace("1e2", "1e3")));
        assert!(matches!(unread.take::<Lamp>(""), Err(RecordError::Damaged { .. })));
    }

    #[test]
    fn two_records_of_one_name_are_refused() {
        let lamp = r#"{"kind":"lamp","instance":"hall","version":3,"payload":{"lit":true}}"#;
        let mut twice = records(&format!("[{lamp},{lamp}]"));
        assert!(matches!(twice.take::<Lamp>("hall"), Err(RecordError::Twice(_))));
    }
}
