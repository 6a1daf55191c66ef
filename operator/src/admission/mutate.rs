//! What is filled in. Pure.

use super::Subject;
use super::patch::patch;
use super::review::{Answer, Operation, Refusal, Request};
use crate::vmi;
use corten_resources::Kind;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::defaults::{Identity, with_defaults};
use corten_resources::names::label_value;
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstanceStatus;
use corten_resources::validate::{Finding, decode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// On migrations: the VirtualMachineInstance that is to move. Tools select by it.
const VMI_NAME_LABEL: &str = "kubevirt.io/vmi-name";

/// The object with what its user left out.
pub(super) fn mutate(
    subject: Subject,
    request: &Request,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let sent = &request.object;
    let Subject::Object(kind) = subject else { return Ok(Answer::allowed()) };
    let after = match (kind, request.operation) {
        (Kind::Instance, Operation::Create) => return instance(request, now),
        (Kind::Machine, _) => template(sent.clone()),
        (Kind::ReplicaSet, _) => counted(template(sent.clone())),
        (Kind::Migration, Operation::Create) => labelled(sent),
        _ => return Ok(Answer::allowed()),
    };
    Ok(Answer::Allowed { patch: patch(sent, sent, &after), warnings: Vec::new() })
}

/// Defaults, and what the controller would otherwise have to write first: finalizer, phase Pending.
fn instance(request: &Request, now: Timestamp) -> Result<Answer, Refusal> {
    let sent = &request.object;
    if !is_ours(&sent["status"]) {
        let message = "leave it out: it is what Corten reports";
        return Err(Refusal::invalid(&[Finding::invalid("status", message)]));
    }
    let mut vmi = read(sent)?;
    let before = written(&vmi)?;
    // Made anew, so that nothing of it can be somebody else's; a policy lets only the operator name a revision.
    vmi.status = VirtualMachineInstanceStatus {
        virtual_machine_revision_name: vmi.status.virtual_machine_revision_name,
        ..Default::default()
    };
    let name = vmi.metadata.name.clone().unwrap_or_default();
    let namespace = vmi.metadata.namespace.clone().unwrap_or_else(|| request.namespace.clone());
    // It has no uid yet. What is derived from its name stays the same when it is made again; one whose name is generated
    // later has no name yet either, but every request is another.
    let uid = if name.is_empty() { request.uid.as_str() } else { "" };
    with_defaults(
        &mut vmi.spec,
        Identity { namespace: &namespace, name: &name, uid },
        Scope::Cluster,
    );
    vmi::accept(&mut vmi, now);
    let patch = patch(sent, &before, &written(&vmi)?);
    Ok(Answer::Allowed { patch, warnings: Vec::new() })
}

/// There is no status, or one such as is made here: the API server asks again when another webhook has changed the object.
/// An instance of a VirtualMachine comes with the revision that it is made from.
fn is_ours(status: &Value) -> bool {
    const FIELDS: [&str; 4] = ["conditions", "phase", "phaseTransitionTimestamps", "runtimeUser"];
    let Some(status) = status.as_object() else { return status.is_null() };
    let said = || {
        status
            .iter()
            .filter(|(name, value)| *name != "virtualMachineRevisionName" && !says_nothing(value))
    };
    said().all(|(name, _)| FIELDS.contains(&name.as_str()))
        && (said().next().is_none() || status.get("phase") == Some(&json!("Pending")))
}

/// Clients send fields that nobody has filled in: KubeVirt's own an empty `guestOSInfo`, others an empty phase.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The object as our types have it.
fn read(sent: &Value) -> Result<VirtualMachineInstance, Refusal> {
    decode(sent).whole().map_err(|findings| Refusal::invalid(&findings))
}

fn written(vmi: &VirtualMachineInstance) -> Result<Value, Refusal> {
    serde_json::to_value(vmi)
        .map_err(|error| Refusal::invalid(&[Finding::invalid("spec", error.to_string())]))
}

/// What must stay the same from one start to the next, whatever later releases take for it. The rest is filled in when a
/// VirtualMachineInstance is made of it: what its user wrote stays what is seen.
fn template(mut object: Value) -> Value {
    let Some(spec) = object.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut)
    else {
        return object;
    };
    fill(spec, "architecture", "amd64");
    if let Some(domain) = spec.get_mut("domain").and_then(Value::as_object_mut) {
        let machine = domain.entry("machine").or_insert(Value::Null);
        if machine.is_null() {
            *machine = json!({});
        }
        if let Some(machine) = machine.as_object_mut() {
            fill(machine, "type", "q35");
        }
    }
    object
}

/// An empty text is as good as none. What is no text is left to validation.
fn fill(object: &mut Map<String, Value>, name: &str, value: &str) {
    let field = object.entry(name).or_insert(Value::Null);
    if field.is_null() || field.as_str() == Some("") {
        *field = json!(value);
    }
}

/// The scale subresource cannot show a number that is not there.
fn counted(mut object: Value) -> Value {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let replicas = spec.entry("replicas").or_insert(Value::Null);
        if replicas.is_null() {
            *replicas = json!(1);
        }
    }
    object
}

fn labelled(sent: &Value) -> Value {
    let mut object = sent.clone();
    let name = sent["spec"]["vmiName"].as_str().filter(|name| !name.is_empty()).map(label_value);
    if let (Some(name), Some(metadata)) =
        (name, object.get_mut("metadata").and_then(Value::as_object_mut))
    {
        let labels = metadata.entry("labels").or_insert(Value::Null);
        if labels.is_null() {
            *labels = json!({});
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(VMI_NAME_LABEL.to_owned(), json!(name));
        }
    }
    object
}
