//! One writer for each VMI: the latest facts win, one write is under way at a time, and what has not changed is not written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use corten_resources::types::VirtualMachineInstance;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::facts::Facts;
use super::pace::Pace;
use super::wanted::patch;
use crate::cluster::Cluster;
use crate::identity::{Known, KnownPod};
use crate::ledger::Entry;

/// What a launcher says at once comes in several messages: they make one write.
const SETTLES_WITHIN: Duration = Duration::from_millis(10);
/// How long an answer of the API server is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// After a write that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long the watch may take to show what was written. Then it is written anew, should it still be news.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);

/// Where facts of one VMI go. Its writer ends with the last of them.
#[derive(Clone, Debug)]
pub struct Report(Arc<Place>);

#[derive(Debug)]
struct Place {
    pod_uid: String,
    facts: watch::Sender<Facts>,
}

impl Report {
    /// Changes what is known.
    pub fn update(&self, change: impl FnOnce(&mut Facts)) {
        self.0.facts.send_if_modified(|facts| {
            let before = facts.clone();
            change(facts);
            before != *facts
        });
    }

    /// What is known, and tells when that changes.
    pub fn facts(&self) -> watch::Receiver<Facts> {
        self.0.facts.subscribe()
    }
}

/// The writers of this node, by the uid of their VMI. Clones are the same ones.
#[derive(Clone)]
pub struct Reports {
    cluster: Cluster,
    places: Arc<Mutex<BTreeMap<String, Weak<Place>>>>,
}

impl Reports {
    /// No writers yet.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, places: Arc::default() }
    }

    /// That of the VMI that `entry` names. There is one as long as somebody has it.
    pub fn of(&self, entry: &Entry) -> Report {
        // The map is whole after each change of it.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let present = places.get(&entry.vmi_uid).and_then(Weak::upgrade);
        // Another Pod of the same VMI is another VM, of which nothing is known.
        if let Some(place) = present.filter(|place| place.pod_uid == entry.pod_uid) {
            return Report(place);
        }
        places.retain(|_, place| place.strong_count() > 0);
        let facts = watch::Sender::new(Facts::default());
        let writer = Writer {
            cluster: self.cluster.clone(),
            entry: entry.clone(),
            facts: facts.subscribe(),
            written: None,
            settled: None,
        };
        tokio::spawn(writer.run());
        let place = Arc::new(Place { pod_uid: entry.pod_uid.clone(), facts });
        places.insert(entry.vmi_uid.clone(), Arc::downgrade(&place));
        Report(place)
    }
}

/// Writes what is known of one VMI.
struct Writer {
    cluster: Cluster,
    entry: Entry,
    facts: watch::Receiver<Facts>,
    /// The version that the last write was made for, and when. Until the watch shows a later one, what was written is not seen.
    written: Option<(Value, Instant)>,
    /// For what there was nothing to write. Most of what becomes known is of other VMs.
    settled: Option<Observed>,
}

/// What is looked at besides facts: the object's version, and its Pod.
type Observed = (Option<Value>, Option<KnownPod>);

impl Writer {
    async fn run(mut self) {
        let mut known = self.cluster.known();
        let mut pace = Pace::default();
        loop {
            let now = Instant::now();
            let due = self.due(&known.borrow_and_update(), now);
            let wait = match (&due, pace.next().filter(|next| *next > now)) {
                (Some(_), None) => None,
                (Some(_), next) => next,
                (None, _) => self.written.as_ref().map(|(_, at)| *at + SHOWN_WITHIN),
            };
            let Some((vmi, patch)) = due.filter(|_| wait.is_none()) else {
                tokio::select! {
                    changed = self.facts.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        self.settled = None;
                    }
                    _ = known.changed() => {}
                    () = sleep_until(wait.unwrap_or(now).into()), if wait.is_some() => {}
                }
                if wait.is_none() {
                    sleep(SETTLES_WITHIN).await;
                }
                continue;
            };
            pace.written(now);
            if !self.write(&vmi, &patch).await {
                sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// What is to be written, and on what, as far as is known.
    fn due(&mut self, known: &Known, now: Instant) -> Option<(VirtualMachineInstance, Value)> {
        let vmi = known.vmis.get(&self.entry.vmi_uid)?;
        let version = vmi.metadata.other.get("resourceVersion");
        if let Some((written, at)) = &self.written {
            let is_shown = version != Some(written);
            if !is_shown && now.saturating_duration_since(*at) < SHOWN_WITHIN {
                return None;
            }
            self.written = None;
        }
        let observed = (version.cloned(), known.pod(&self.entry.pod_uid).cloned());
        let is_same = self.settled.as_ref() == Some(&observed);
        if is_same && self.facts.has_changed().is_ok_and(|changed| !changed) {
            return None;
        }
        let facts = self.facts.borrow_and_update();
        match patch(vmi, &self.entry.pod_uid, known, &facts, Timestamp::now()) {
            Some(patch) => Some((vmi.clone(), patch)),
            None => {
                self.settled = Some(observed);
                None
            }
        }
    }

    /// Writes once. Whether there is no need to wait before the next try.
    async fn write(&mut self, vmi: &VirtualMachineInstance, patch: &Value) -> bool {
        const CONFLICT: u16 = 409;
        const NOT_FOUND: u16 = 404;
        let (name, namespace) = (&self.entry.vmi_name, &self.entry.vmi_namespace);
        let answer = timeout(ANSWER_WITHIN, self.cluster.patch_vmi(vmi, patch)).await;
        let is_over = match answer {
            Ok(Ok(_)) => {
                if let Some(phase) = patch["status"].get("phase") {
                    info!(vmi = name, namespace, %phase, "phase written");
                }
                true
            }
            // Somebody else has written meanwhile, or deleted it; the watch brings what.
            Ok(Err(kube::Error::Api(status))) if [CONFLICT, NOT_FOUND].contains(&status.code) => {
                true
            }
            Ok(Err(error)) => {
                let error = anyhow::Error::from(error);
                warn!(vmi = name, namespace, "status cannot be written: {error:#}");
                false
            }
            Err(_) => {
                warn!(vmi = name, namespace, "status cannot be written: no answer");
                false
            }
        };
        if is_over {
            let version = vmi.metadata.other.get("resourceVersion").cloned();
            self.written = version.map(|version| (version, Instant::now()));
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use corten_link::RunState;
    use corten_link::launcher::ToAgent;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::{mpsc, oneshot};
    use tonic::codegen::http::{Request, Response};
    use tower::service_fn;

    use super::*;

    /// Long, for a machine under load.
    const SOON: Duration = Duration::from_secs(60);

    /// A patch that the API server has got, and where its answer goes.
    type Write = (Value, oneshot::Sender<(u16, Value)>);

    /// An API server that answers when the test does.
    fn api() -> (Cluster, mpsc::UnboundedReceiver<Write>) {
        let (sender, writes) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            let sender = sender.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let (answer, answered) = oneshot::channel();
                sender.send((serde_json::from_slice(&body).unwrap(), answer)).unwrap();
                let (status, body): (u16, Value) = answered.await.unwrap();
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        (Cluster::new(kube::Client::new(service, "default"), "node1"), writes)
    }

    fn object(version: u32, phase: &str) -> VirtualMachineInstance {
        let vmi = json!({
            "metadata": {
                "namespace": "n", "name": "v", "uid": "u", "resourceVersion": version.to_string()},
            "status": {"phase": phase, "activePods": {"p": "node1"}},
        });
        serde_json::from_value(vmi).unwrap()
    }

    fn learn(cluster: &Cluster, vmi: VirtualMachineInstance) {
        cluster.learn(|known| drop(known.vmis.insert("u".into(), vmi)));
    }

    fn entry() -> Entry {
        Entry {
            pod_uid: "p".into(),
            vmi_namespace: "n".into(),
            vmi_name: "v".into(),
            vmi_uid: "u".into(),
        }
    }

    fn runs(report: &Report) {
        let now = Timestamp::now();
        report.update(|facts| facts.runs(now, now));
    }

    fn is(report: &Report, state: RunState) {
        report.update(|facts| facts.hear(&ToAgent::Vm { state, cause: String::new() }));
    }

    async fn next(writes: &mut mpsc::UnboundedReceiver<Write>) -> Write {
        timeout(SOON, writes.recv()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn what_is_told_at_once_is_one_write_and_what_comes_meanwhile_another_one() {
        let (cluster, mut writes) = api();
        learn(&cluster, object(1, "Scheduling"));
        let report = Reports::new(cluster.clone()).of(&entry());
        runs(&report);
        is(&report, RunState::Paused);
        let (first, answer) = next(&mut writes).await;
        assert_eq!(first["status"]["phase"], "Running");
        assert_eq!(first["status"]["conditions"][0]["type"], "Paused");

        // One is under way: however often facts change, it is written once when that is over, and only the last of them.
        for state in [RunState::Running, RunState::Paused, RunState::Running] {
            is(&report, state);
        }
        assert!(writes.try_recv().is_err());
        let mut after = serde_json::to_value(object(2, "Running")).unwrap();
        after["status"]["conditions"] = first["status"]["conditions"].clone();
        answer.send((200, after.clone())).unwrap();
        learn(&cluster, serde_json::from_value(after).unwrap());
        let (second, _answer) = next(&mut writes).await;
        assert_eq!(second["metadata"]["resourceVersion"], "2");
        let conditions = &second["status"]["conditions"];
        assert!(conditions.is_null() || conditions == &json!([]), "{second}");
        assert!(writes.try_recv().is_err());
    }

    #[tokio::test]
    async fn conflict_waits_for_what_somebody_else_has_written() {
        let (cluster, mut writes) = api();
        learn(&cluster, object(1, "Scheduling"));
        let report = Reports::new(cluster.clone()).of(&entry());
        runs(&report);
        let (first, answer) = next(&mut writes).await;
        assert_eq!(first["metadata"]["resourceVersion"], "1");
        let conflict = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": "Conflict", "message": "changed", "code": 409});
        answer.send((409, conflict)).unwrap();
        learn(&cluster, object(2, "Scheduled"));
        let (second, _answer) = next(&mut writes).await;
        assert_eq!(second["metadata"]["resourceVersion"], "2");
    }

    #[tokio::test]
    async fn what_was_written_is_not_written_again_before_the_watch_shows_it() {
        let (cluster, _writes) = api();
        learn(&cluster, object(1, "Scheduling"));
        let facts = watch::Sender::new(Facts::default());
        let mut writer = Writer {
            cluster,
            entry: entry(),
            facts: facts.subscribe(),
            written: None,
            settled: None,
        };
        let mut known = Known { node: "node1".into(), ..Known::default() };
        let now = Instant::now();
        assert!(writer.due(&known, now).is_none(), "the object is not known");
        known.vmis.insert("u".into(), object(1, "Scheduling"));
        assert!(writer.due(&known, now).is_none(), "there is nothing to say");
        assert!(writer.due(&known, now).is_none(), "and nothing has changed");
        facts.send_modify(|facts| facts.runs(Timestamp::now(), Timestamp::now()));
        assert!(writer.due(&known, now).is_some());
        writer.written = Some((json!("1"), now));
        assert!(writer.due(&known, now).is_none());
        known.vmis.insert("u".into(), object(2, "Scheduled"));
        assert!(writer.due(&known, now).is_some());
        // A watch that shows nothing does not silence it for good.
        writer.written = Some((json!("2"), now));
        assert!(writer.due(&known, now + SHOWN_WITHIN).is_some());
    }

    #[tokio::test]
    async fn one_vm_has_one_writer_and_another_pod_is_another_vm() {
        let (cluster, _writes) = api();
        let reports = Reports::new(cluster);
        let first = reports.of(&entry());
        runs(&first);
        assert!(reports.of(&entry()).facts().borrow().times.is_some());
        let other = Entry { pod_uid: "p2".into(), ..entry() };
        assert!(reports.of(&other).facts().borrow().times.is_none());
        drop(first);
        assert!(reports.of(&entry()).facts().borrow().times.is_none());
    }
}
