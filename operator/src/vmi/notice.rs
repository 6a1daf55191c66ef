//! Events, as they are planned.

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether something went wrong. Tools take every warning for a failure.
    pub severity: Severity,
    /// In one word, as KubeVirt's.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Whether something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It did not.
    Normal,
    /// It did.
    Warning,
}

impl Notice {
    /// Of something that went as it should.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    /// Of something that went wrong.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}
