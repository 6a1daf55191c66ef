//! Facts by VM, and the one task that writes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corten_resources::types::VirtualMachineInstance;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};
use tracing::{info, warn};

use super::budget::Budget;
use super::facts::Facts;
use super::report::{Report, report};
use crate::cluster::Cluster;
use crate::ledger::Entry;

/// Between two rounds of writes: whoever changes its word all the time is heard this often.
const ROUND: Duration = Duration::from_secs(1);

/// What is known of a VM, and by which of its Pods.
#[derive(Debug)]
struct Record {
    pod_uid: String,
    facts: Facts,
    budget: Budget,
    /// There may be something to write.
    open: bool,
}

/// What is known of one VM by one of its Pods.
#[derive(Clone, Debug)]
pub struct Case {
    cases: Cases,
    entry: Entry,
}

impl Case {
    /// Takes note of something.
    pub fn note(&self, note: impl FnOnce(&mut Facts)) {
        self.cases.note(&self.entry.vmi_uid, &self.entry.pod_uid, note);
    }
}

/// Facts by the uid of their VMI. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Cases {
    all: Arc<Mutex<BTreeMap<String, Record>>>,
    news: Arc<Notify>,
}

impl Cases {
    /// That of a VM and its Pod.
    pub fn of(&self, entry: &Entry) -> Case {
        Case { cases: self.clone(), entry: entry.clone() }
    }

    /// Takes note of something. The VMI must be known to have the Pod: what a launcher says of itself is not enough.
    pub fn note(&self, vmi_uid: &str, pod_uid: &str, note: impl FnOnce(&mut Facts)) {
        let mut all = self.list();
        let case = all.entry(vmi_uid.to_owned()).or_insert_with(|| Record {
            pod_uid: pod_uid.to_owned(),
            facts: Facts::default(),
            budget: Budget::new(Instant::now()),
            open: true,
        });
        if case.pod_uid != pod_uid {
            // Another attempt: what was in the way of the one before is not known of this one.
            (case.pod_uid, case.facts) = (pod_uid.to_owned(), Facts::default());
        }
        note(&mut case.facts);
        case.open = true;
        drop(all);
        self.news.notify_one();
    }

    /// A map is whole after each change of it, so one whose holder panicked is as good.
    fn list(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be written of open cases, by VMI; those that need no write are closed, and those of VMIs that are gone
    /// forgotten.
    fn open(
        &self,
        vmis: &BTreeMap<String, VirtualMachineInstance>,
        now: (Instant, Timestamp),
    ) -> Vec<(VirtualMachineInstance, Report)> {
        let mut reports = Vec::new();
        self.list().retain(|uid, case| {
            let Some(vmi) = vmis.get(uid) else { return false };
            if case.open {
                match report(vmi, &case.pod_uid, &case.facts, now) {
                    Some(report) => reports.push((vmi.clone(), report)),
                    None => case.open = case.facts.due().is_some_and(|due| due > now.0),
                }
            }
            true
        });
        reports
    }

    /// When the next of them has more to tell although nothing changes.
    fn due(&self, now: Instant) -> Option<Instant> {
        let list = self.list();
        list.values().filter_map(|case| case.facts.due()).filter(|due| *due > now).min()
    }

    /// Whether a VM may cause one more event.
    fn may_tell(&self, vmi_uid: &str) -> bool {
        let mut list = self.list();
        list.get_mut(vmi_uid).is_some_and(|case| case.budget.take(Instant::now()))
    }
}

/// Writes what is known, without end.
pub async fn tell(cases: Cases, cluster: Cluster) {
    let mut known = cluster.known();
    loop {
        let now = (Instant::now(), Timestamp::now());
        let reports = cases.open(&known.borrow_and_update().vmis, now);
        let is_written = reports.is_empty();
        for (vmi, report) in reports {
            write(&cases, &cluster, &vmi, &report).await;
        }
        sleep(ROUND).await;
        if is_written {
            let due = cases.due(now.0);
            tokio::select! {
                () = cases.news.notified() => {}
                () = sleep_until(due.unwrap_or(now.0).into()), if due.is_some() => {}
            }
        }
    }
}

/// What is not written now is written in the next round: the object is looked at anew.
async fn write(cases: &Cases, cluster: &Cluster, vmi: &VirtualMachineInstance, report: &Report) {
    const CONFLICT: u16 = 409;
    const NOT_FOUND: u16 = 404;
    let metadata = &vmi.metadata;
    match cluster.patch_vmi(vmi, &report.patch).await {
        Ok(()) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, CONFLICT | NOT_FOUND) => return,
        Err(error) => {
            let error = anyhow::Error::from(error);
            warn!(vmi = metadata.name, "conditions cannot be written: {error:#}");
            return;
        }
    }
    for notice in &report.notices {
        info!(
            vmi = metadata.name,
            namespace = metadata.namespace,
            "{}: {}",
            notice.reason,
            notice.message
        );
        if !cases.may_tell(&metadata.uid) {
            continue;
        }
        let (reason, message) = (notice.reason, &notice.message);
        // One that is lost, as in a namespace that is being deleted, is no reason to do anything again.
        if let Err(error) = cluster.tell(vmi, notice.warns, reason, message).await {
            let error = anyhow::Error::from(error);
            warn!(vmi = metadata.name, reason, "an event was lost: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_link::launcher::Sign;
    use serde_json::json;

    use super::*;

    fn vmi(uid: &str, pod: &str) -> (String, VirtualMachineInstance) {
        let object = json!({
            "metadata": {"namespace": "n", "name": "v", "uid": uid, "resourceVersion": "41"},
            "status": {"phase": "Running", "activePods": {pod: "node1"}},
        });
        (uid.to_owned(), serde_json::from_value(object).unwrap())
    }

    fn open(cases: &Cases, vmis: &BTreeMap<String, VirtualMachineInstance>) -> usize {
        cases.open(vmis, (Instant::now(), Timestamp::now())).len()
    }

    #[test]
    fn a_case_is_open_until_its_object_says_it_and_forgotten_with_that() {
        let cases = Cases::default();
        let vmis: BTreeMap<_, _> = [vmi("u", "p")].into();
        cases.note("u", "p", |facts| facts.see(Sign::ConsoleSilent { seconds: 60 }));
        // A write that failed is tried again.
        assert_eq!((open(&cases, &vmis), open(&cases, &vmis)), (1, 1));
        cases.note("u", "p", |facts| facts.see(Sign::ConsoleHeard));
        assert_eq!(open(&cases, &vmis), 0);
        assert!(!cases.list()["u"].open);
        assert_eq!(open(&cases, &BTreeMap::new()), 0);
        assert!(cases.list().is_empty());
    }

    #[test]
    fn facts_of_another_attempt_are_others() {
        let cases = Cases::default();
        cases.note("u", "p", |facts| facts.see(Sign::ConsoleSilent { seconds: 60 }));
        cases.note("u", "q", |_| ());
        assert_eq!(open(&cases, &[vmi("u", "q")].into()), 0);
    }

    #[test]
    fn a_vm_causes_so_many_events_and_no_more() {
        let cases = Cases::default();
        cases.note("u", "p", |_| ());
        assert_eq!((0..100).filter(|_| cases.may_tell("u")).count(), 10);
        assert!(!cases.may_tell("unknown"));
    }
}
