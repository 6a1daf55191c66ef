//! Who writes what, from the API server's audit log: what a component costs the cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;

/// Number of requests by what they did, as `VERB RESOURCE` or `VERB RESOURCE/SUBRESOURCE`.
pub type Writes = BTreeMap<String, u32>;

/// The audit log from some moment on.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    start: u64,
}

/// A write that the API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Who asked for it.
    pub user: String,
    /// What was asked for, as `VERB RESOURCE` or `VERB RESOURCE/SUBRESOURCE`.
    pub what: String,
    /// The object's name, if it was known by then.
    pub name: String,
    /// Status of the answer.
    pub code: u16,
    /// When it was answered.
    pub answered: Timestamp,
}

/// The part of an audit event that is used here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: ResponseStatus,
    stage_timestamp: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

#[derive(Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

impl AuditLog {
    /// What is logged from now on. The API server logs a request before it answers it, so what was answered earlier
    /// does not count and what is answered later does.
    pub fn from_now(path: &Path) -> Result<Self> {
        let metadata =
            path.metadata().with_context(|| format!("no audit log {}", path.display()))?;
        Ok(Self { path: path.to_owned(), start: metadata.len() })
    }

    /// Writes to objects in `namespace` by component, which is the user that it presents itself as. Refused ones count
    /// too: they are work for the API server.
    pub fn writes_in(&self, namespace: &str) -> Result<BTreeMap<String, Writes>> {
        Ok(count(self.each_in(namespace)?))
    }

    /// Each write to an object in `namespace`, in the order of their answers.
    pub fn each_in(&self, namespace: &str) -> Result<Vec<Write>> {
        let mut log = File::open(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        // At 100 MB the API server begins another file.
        let shrunk = log.metadata()?.len() < self.start;
        ensure!(!shrunk, "{} was begun anew: count over a shorter time", self.path.display());
        log.seek(SeekFrom::Start(self.start))?;
        read(BufReader::new(log), namespace)
            .with_context(|| format!("cannot read {}", self.path.display()))
    }
}

fn count(writes: Vec<Write>) -> BTreeMap<String, Writes> {
    let mut components: BTreeMap<String, Writes> = BTreeMap::new();
    for write in writes {
        *components.entry(write.user).or_default().entry(write.what).or_default() += 1;
    }
    components
}

fn read(log: impl BufRead, namespace: &str) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    for line in log.lines() {
        let line = line?;
        // Most of a log is about something else; a name inside of another one is found out below.
        if !line.contains(namespace) {
            continue;
        }
        let event: Event = serde_json::from_str(&line).with_context(|| format!("event {line}"))?;
        let Some(object) = event.object_ref.filter(|object| object.namespace == namespace) else {
            continue;
        };
        if event.stage != "ResponseComplete" || !is_write(&event.verb, &object) {
            continue;
        }
        let slash = if object.subresource.is_empty() { "" } else { "/" };
        let what = format!("{} {}{slash}{}", event.verb, object.resource, object.subresource);
        writes.push(Write {
            user: event.user.username,
            what,
            name: object.name,
            code: event.response_status.code,
            answered: event.stage_timestamp.unwrap_or_default(),
        });
    }
    Ok(writes)
}

/// Whether something is stored. A review, a token and a stream are created, but only answered.
fn is_write(verb: &str, object: &ObjectRef) -> bool {
    let stores = matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection");
    let answered = object.resource.ends_with("reviews")
        || matches!(
            object.subresource.as_str(),
            "token" | "exec" | "attach" | "portforward" | "proxy"
        );
    stores && !answered
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::{Value, json};

    use super::*;

    fn event(user: &str, verb: &str, (resource, subresource): (&str, &str)) -> Value {
        json!({
            "kind": "Event",
            "stage": "ResponseComplete",
            "verb": verb,
            "user": { "username": user, "groups": [] },
            "objectRef": { "resource": resource, "subresource": subresource, "namespace": "ours" },
        })
    }

    fn counted(events: &[Value]) -> BTreeMap<String, Writes> {
        let log: String = events.iter().map(|event| format!("{event}\n")).collect();
        count(read(log.as_bytes(), "ours").unwrap())
    }

    #[test]
    fn writes_are_counted_by_component_and_kind() {
        let status = event("kubelet", "patch", ("pods", "status"));
        let binding = event("scheduler", "create", ("pods", "binding"));
        let counts = counted(&[status.clone(), binding, status]);
        assert_eq!(counts["kubelet"], Writes::from([("patch pods/status".into(), 2)]));
        assert_eq!(counts["scheduler"], Writes::from([("create pods/binding".into(), 1)]));
    }

    #[test]
    fn each_write_has_its_object_answer_and_time() {
        let mut created = event("somebody", "create", ("pods", ""));
        created["objectRef"]["name"] = json!("one");
        created["responseStatus"] = json!({ "metadata": {}, "code": 201 });
        created["stageTimestamp"] = json!("2026-11-16T10:00:01.500000Z");
        let writes = read(format!("{created}\n").as_bytes(), "ours").unwrap();
        let expected = Write {
            user: "somebody".into(),
            what: "create pods".into(),
            name: "one".into(),
            code: 201,
            answered: "2026-11-16T10:00:01.5Z".parse().unwrap(),
        };
        assert_eq!(writes, [expected]);
    }

    #[test]
    fn what_stores_nothing_is_not_a_write() {
        for (verb, what) in [
            ("get", ("pods", "")),
            ("watch", ("pods", "")),
            ("create", ("pods", "exec")),
            ("create", ("serviceaccounts", "token")),
            ("create", ("localsubjectaccessreviews", "")),
        ] {
            assert!(counted(&[event("somebody", verb, what)]).is_empty(), "{verb} {what:?}");
        }
    }

    #[test]
    fn other_namespaces_and_other_stages_do_not_count() {
        let mut elsewhere = event("somebody", "create", ("pods", ""));
        elsewhere["objectRef"]["namespace"] = json!("ours-not");
        let mut started = event("somebody", "create", ("pods", ""));
        started["stage"] = json!("ResponseStarted");
        let nowhere = json!({
            "stage": "ResponseComplete",
            "verb": "get",
            "user": { "username": "ours" },
        });
        assert!(counted(&[elsewhere, started, nowhere]).is_empty());
    }

    #[test]
    fn only_what_comes_after_the_moment_is_counted() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", event("early", "create", ("pods", ""))).unwrap();
        let log = AuditLog::from_now(file.path()).unwrap();
        writeln!(file, "{}", event("late", "create", ("pods", ""))).unwrap();
        assert_eq!(log.writes_in("ours").unwrap().into_keys().collect::<Vec<_>>(), ["late"]);
    }

    #[test]
    fn log_that_was_begun_anew_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", event("early", "create", ("pods", ""))).unwrap();
        let log = AuditLog::from_now(file.path()).unwrap();
        file.as_file().set_len(0).unwrap();
        let error = log.writes_in("ours").unwrap_err().to_string();
        assert!(error.contains("was begun anew"), "{error}");
    }
}
