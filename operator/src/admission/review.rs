//! Reviews as the API server writes them, and answers as it reads them (`admission.k8s.io/v1`).

use corten_resources::validate::{Finding, Reason};
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

/// The most causes that an answer lists.
const MOST_CAUSES: usize = 50;
/// The most findings that the message of a refusal lists.
const MOST_TOLD: usize = 10;
/// The most warnings of an answer.
const MOST_WARNINGS: usize = 16;
/// The longest warning: the API server may cut longer ones.
const LONGEST_WARNING: usize = 256;
/// The longest text of anything else.
const LONGEST_TEXT: usize = 2048;

/// What the API server posts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

/// The request that is under review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) operation: Operation,
    #[serde(default)]
    pub(super) kind: GroupKind,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    /// As it would be stored. Null if it is deleted.
    #[serde(default)]
    pub(super) object: Value,
    /// As it is stored. Null if it is created.
    #[serde(default)]
    pub(super) old_object: Value,
}

/// What kind of object it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupKind {
    group: String,
    kind: String,
}

/// What is to be done with the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
    /// Something that no webhook of ours is asked for.
    #[serde(other)]
    Other,
}

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Other => "OTHER",
        }
    }
}

/// A review that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("not an AdmissionReview: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("not an AdmissionReview of admission.k8s.io/v1 with a request")]
    Other,
}

impl Review {
    /// Reads what was posted.
    pub(super) fn read(body: &[u8]) -> Result<Request, ReviewError> {
        let review: Self = serde_json::from_slice(body)?;
        if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
            return Err(ReviewError::Other);
        }
        review.request.ok_or(ReviewError::Other)
    }
}

impl Request {
    /// Namespace and name, for logs.
    pub(super) fn object_name(&self) -> String {
        let name = match self.stored_name() {
            "" => self
                .object
                .pointer("/metadata/generateName")
                .and_then(Value::as_str)
                .unwrap_or_default(),
            name => name,
        };
        cut(&format!("{}/{name}", self.namespace), LONGEST_TEXT)
    }

    /// The object's name. Where a whole collection is deleted only the object itself tells it.
    pub(super) fn stored_name(&self) -> &str {
        match self.name.as_str() {
            "" => self.old_object["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        }
    }
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// It may be done, with these changes (a JSON patch).
    Allowed { patch: Vec<Value>, warnings: Vec<Finding> },
    /// It may not.
    Refused(Refusal),
}

/// Why it may not be done.
#[derive(Debug)]
pub(super) struct Refusal {
    code: u16,
    reason: &'static str,
    pub(super) message: String,
    causes: Vec<Value>,
}

impl Refusal {
    /// The object cannot be as it is.
    pub(super) fn invalid(findings: &[Finding]) -> Self {
        let told: Vec<_> = findings.iter().take(MOST_TOLD).map(ToString::to_string).collect();
        let mut message = cut(&told.join("; "), LONGEST_TEXT);
        if findings.len() > MOST_TOLD {
            message = format!("{message}; and {} more", findings.len() - MOST_TOLD);
        }
        let causes = findings.iter().take(MOST_CAUSES).map(|finding| {
            let reason = match finding.reason {
                Reason::Missing => "FieldValueRequired",
                Reason::NotServed => "FieldValueNotSupported",
                Reason::Invalid | Reason::NoEffect => "FieldValueInvalid",
            };
            json!({
                "reason": reason,
                "field": cut(&finding.path, LONGEST_TEXT),
                "message": cut(&finding.message, LONGEST_TEXT),
            })
        });
        Self { code: 422, reason: "Invalid", message, causes: causes.collect() }
    }

    /// It must not be done, at least not now.
    pub(super) fn forbidden(message: String) -> Self {
        Self { code: 403, reason: "Forbidden", message, causes: Vec::new() }
    }

    /// It cannot be judged now.
    pub(super) fn unavailable(message: String) -> Self {
        Self { code: 503, reason: "ServiceUnavailable", message, causes: Vec::new() }
    }
}

impl Answer {
    /// As it is, without a word.
    pub(super) fn allowed() -> Self {
        Self::Allowed { patch: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// As the API server reads it.
    pub(super) fn written(&self, request: &Request) -> Vec<u8> {
        let mut response = json!({ "uid": request.uid, "allowed": self.is_allowed() });
        match self {
            Self::Allowed { patch, warnings } => {
                if !patch.is_empty() {
                    let patch = Value::from(patch.clone()).to_string();
                    response["patchType"] = json!("JSONPatch");
                    response["patch"] = json!(ByteString(patch.into_bytes()));
                }
                let told: Vec<_> = warnings
                    .iter()
                    .take(MOST_WARNINGS)
                    .map(|finding| cut(&finding.to_string(), LONGEST_WARNING))
                    .collect();
                if !told.is_empty() {
                    response["warnings"] = json!(told);
                }
            }
            Self::Refused(refusal) => {
                response["status"] = json!({
                    "metadata": {},
                    "status": "Failure",
                    "reason": refusal.reason,
                    "code": refusal.code,
                    "message": refusal.message,
                    "details": {
                        "name": request.name,
                        "group": request.kind.group,
                        "kind": request.kind.kind,
                        "causes": refusal.causes,
                    },
                });
            }
        }
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        review.to_string().into_bytes()
    }
}

/// A text of at most so many bytes. One that was cut says so.
fn cut(text: &str, length: usize) -> String {
    const MORE: &str = "...";
    if text.len() <= length {
        return text.to_owned();
    }
    let mut end = length - MORE.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MORE}", &text[..end])
}
