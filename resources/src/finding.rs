//! What is to be said of a field of an object.

use crate::shown::{shown, with_cut_quotes};
use std::fmt;

/// Something about a field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field: `spec.domain.devices.disks[2].name`.
    pub path: String,
    /// Whether the object can be run all the same.
    pub severity: Severity,
    /// What kind of finding it is.
    pub reason: Reason,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Whether an object can be run all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot.
    Refused,
    /// It can, but its user should know this.
    Warning,
}

/// What kind of finding it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The value cannot be.
    Invalid,
    /// A value is needed.
    Missing,
    /// Corten does not do this.
    NotServed,
    /// It makes no difference, or not the one that was asked for.
    NoEffect,
}

impl Reason {
    /// As a condition names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidField",
            Self::Missing => "MissingField",
            Self::NotServed => "FieldNotServed",
            Self::NoEffect => "FieldHasNoEffect",
        }
    }
}

impl Finding {
    /// A value that cannot be.
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::refused(path, Reason::Invalid, message)
    }

    /// A value that is needed.
    pub fn missing(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::refused(path, Reason::Missing, message)
    }

    /// Something that Corten does not do.
    pub fn not_served(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::refused(path, Reason::NotServed, message)
    }

    /// Something that makes no difference, or not the one that was asked for.
    pub fn no_effect(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(path, Severity::Warning, Reason::NoEffect, message)
    }

    fn refused(path: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self::new(path, Severity::Refused, reason, message)
    }

    /// The one place where they are made: whatever a message repeats, it stays a message.
    fn new(
        path: impl Into<String>,
        severity: Severity,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        let (path, message) = (with_cut_quotes(path.into()), with_cut_quotes(message.into()));
        Self { path, severity, reason, message }
    }

    /// The object cannot be run.
    pub fn is_refusal(&self) -> bool {
        self.severity == Severity::Refused
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both may repeat what a user wrote.
        write!(f, "{}: {}", shown(&self.path), shown(&self.message))
    }
}
