//! What is refused. Pure; the rules of each kind are those of `corten_resources`.

use super::review::{Answer, Operation, Refusal, Request};
use super::{Existing, Subject};
use corten_resources::Kind;
use corten_resources::cluster::GROUP;
use corten_resources::served::Scope;
use corten_resources::validate::{Finding, admit};

/// Whether an object may be as it is.
pub(super) fn validate(subject: Subject, request: &Request) -> Result<Answer, Refusal> {
    let Subject::Object(kind) = subject else { return Ok(Answer::allowed()) };
    if !request.object.is_object() {
        return Err(Refusal::invalid(&[Finding::missing("metadata", "this is no object")]));
    }
    let old = (request.operation == Operation::Update).then_some(&request.old_object);
    let findings = admit(kind, old, &request.object, Scope::Cluster);
    let (refused, warnings): (Vec<_>, Vec<_>) = findings.into_iter().partition(Finding::is_refusal);
    if refused.is_empty() {
        return Ok(Answer::Allowed { patch: Vec::new(), warnings });
    }
    Err(Refusal::invalid(&refused))
}

/// Whether what VMs need may be taken away. `machines` is how many there are, or why nobody knows.
pub(super) fn deletion(
    subject: Subject,
    request: &Request,
    machines: Result<Existing, String>,
) -> Result<Answer, Refusal> {
    let name = request.stored_name();
    let is_ours = || name.split_once('.').is_some_and(|(_, group)| group == GROUP);
    let what = match subject {
        Subject::Object(Kind::KubeVirt) => {
            format!("the KubeVirt object {}/{name}", request.namespace)
        }
        Subject::Definition if is_ours() => format!("the definition {name}"),
        _ => return Ok(Answer::allowed()),
    };
    match machines {
        Ok(None) => Ok(Answer::allowed()),
        Ok(Some((count, one))) => Err(Refusal::forbidden(format!(
            "{what} cannot be deleted while VirtualMachineInstances exist: there are {count}, one is {one}; \
             delete VirtualMachines and VirtualMachineInstances first"
        ))),
        Err(why) => Err(Refusal::unavailable(format!(
            "{what} cannot be deleted: it is not known whether VirtualMachineInstances exist: {why}; try again"
        ))),
    }
}
