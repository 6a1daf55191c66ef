//! Admission: what is written to the API server is filled in, checked and, if it cannot be honoured, refused by path.
//!
//! | path | does |
//! |---|---|
//! | `/mutate/{plural}` | defaults, finalizer, first phase: what would need a write of its own later |
//! | `/validate/{plural}` | refusals by path, warnings; what may not change; what may not be deleted yet |
//!
//! The rules themselves are in `corten_resources`: here reviews are read and answered. Nothing is remembered and nothing
//! written, so a dry run is like any other. Whatever arrives, the answer is a refusal or an error status, never a panic.
//!
//! | file | holds |
//! |---|---|
//! | `review` | reviews as the API server writes them, and answers as it reads them |
//! | `mutate`, `validate` | the answers; pure |
//! | `patch` | changes as the API server wants them |

mod mutate;
mod patch;
mod review;
mod validate;

use crate::install::elected;
use corten_resources::Kind;
use corten_resources::cluster::{KubeVirt, VirtualMachineInstance};
use jiff::Timestamp;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client, ResourceExt};
use review::{Answer, Operation, Request, Review};
use std::time::Instant;

/// What a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// An object of ours.
    Object(Kind),
    /// A definition of such objects.
    Definition,
}

/// What stands for CustomResourceDefinitions in paths.
const DEFINITIONS: &str = "customresourcedefinitions";

/// Which question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Mutate,
    Validate,
}

/// The question of a path, what it is about, and the path as it is counted.
fn route(path: &str) -> Option<(Question, Subject, &'static str)> {
    let (question, plural) = path.strip_prefix('/')?.split_once('/')?;
    let question = match question {
        "mutate" => Question::Mutate,
        "validate" => Question::Validate,
        _ => return None,
    };
    if plural == DEFINITIONS {
        return Some((question, Subject::Definition, DEFINITIONS));
    }
    let kind = Kind::of_plural(plural)?;
    Some((question, Subject::Object(kind), kind.plural()))
}

/// Something is answered at this path.
#[cfg(test)]
pub(crate) fn is_path(path: &str) -> bool {
    route(path).is_some()
}

/// Answers reviews.
pub struct Admission {
    client: Client,
}

/// An answer for HTTP.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status.
    pub code: u16,
    /// Body; JSON if the status is 200.
    pub body: Vec<u8>,
}

impl Reply {
    fn error(code: u16, message: impl Into<String>) -> Self {
        Self { code, body: message.into().into_bytes() }
    }
}

impl Admission {
    /// Reads with this client what a review does not say.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Answers what was posted to a path.
    pub async fn answer(&self, path: &str, body: &[u8]) -> Reply {
        let asked = Instant::now();
        let Some((question, subject, plural)) = route(path) else {
            return Reply::error(404, "not a path of a webhook");
        };
        let request = match Review::read(body) {
            Ok(request) => request,
            Err(error) => return Reply::error(400, error.to_string()),
        };
        let machines = match (question, subject, request.operation) {
            (Question::Validate, Subject::Object(Kind::KubeVirt), Operation::Delete) => {
                match self.installations().await {
                    Ok(all) if !counts(&request, &all) => None,
                    Ok(_) => Some(self.machines().await),
                    Err(why) => Some(Err(why)),
                }
            }
            (Question::Validate, Subject::Definition, Operation::Delete) => {
                Some(self.machines().await)
            }
            _ => None,
        };
        let answer = decide(question, subject, &request, machines, Timestamp::now());
        crate::metrics::reviewed(plural, request.operation.as_str(), answer.is_allowed());
        crate::metrics::answered(
            if question == Question::Mutate { "mutate" } else { "validate" },
            asked,
        );
        if let Answer::Refused(refusal) = &answer {
            tracing::info!(
                resource = plural,
                object = request.object_name(),
                operation = request.operation.as_str(),
                reason = refusal.message,
                "refused"
            );
        }
        Reply { code: 200, body: answer.written(&request) }
    }

    /// All KubeVirt objects.
    async fn installations(&self) -> Result<Vec<PartialObjectMeta<KubeVirt>>, String> {
        let api: Api<KubeVirt> = Api::all(self.client.clone());
        let list = api.list_metadata(&ListParams::default()).await;
        list.map(|list| list.items).map_err(|error| crate::failure::chain(&error))
    }

    /// How many VirtualMachineInstances there are, and the name of one.
    async fn machines(&self) -> Result<Existing, String> {
        let api: Api<VirtualMachineInstance> = Api::all(self.client.clone());
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(list) => Ok(existing(
                list.items
                    .first()
                    .map(|it| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any())),
                list.metadata.remaining_item_count,
            )),
            // The definition is gone, and all objects with it.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(crate::failure::chain(&error)),
        }
    }
}

/// Whether the KubeVirt object that is deleted is the one that counts, and stays so far. Nothing hangs on others: one would
/// keep its namespace for as long as there are VMs.
fn counts(request: &Request, all: &[PartialObjectMeta<KubeVirt>]) -> bool {
    let metadata = &request.old_object["metadata"];
    let stays = metadata["deletionTimestamp"].is_null();
    // Where a whole collection is deleted, the request has no name.
    stays && elected(all).is_none_or(|it| it.uid().as_deref() == metadata["uid"].as_str())
}

/// How many there are and the name of one, if there is one.
type Existing = Option<(i64, String)>;

fn existing(first: Option<String>, more: Option<i64>) -> Existing {
    first.map(|name| (more.unwrap_or(0).saturating_add(1), name))
}

/// The answer to a request.
fn decide(
    question: Question,
    subject: Subject,
    request: &Request,
    machines: Option<Result<Existing, String>>,
    now: Timestamp,
) -> Answer {
    let result = match (question, request.operation) {
        (Question::Mutate, Operation::Create | Operation::Update) => {
            mutate::mutate(subject, request, now)
        }
        (Question::Validate, Operation::Create | Operation::Update) => {
            validate::validate(subject, request)
        }
        (Question::Validate, Operation::Delete) => {
            validate::deletion(subject, request, machines.unwrap_or(Ok(None)))
        }
        _ => Ok(Answer::allowed()),
    };
    result.unwrap_or_else(Answer::Refused)
}

#[cfg(test)]
mod tests;
