//! The actor of one device: whoever holds it is visited, again after each loss of the link.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corten_link::LinkError;
use corten_link::launcher::State;
use corten_resources::types::VirtualMachineInstance;
use jiff::Timestamp;
use tokio::time::sleep;
use tracing::{info, warn};

use super::attendance::{Around, Attendance};
use super::network::Wiring;
use super::visits::{Visits, excerpt};
use super::{
    Asker, ConnectError, Greeting, Handover, Launcher, Launchers, OpenUp, Session, SessionError,
    connect,
};
use crate::cluster::Cluster;
use crate::diagnosis::{Cases, Facts, Trouble, reason_of};
use crate::doors::{DeviceId, Doors};
use crate::grant::Devices;
use crate::identity::{Holder, Identity, identify};
use crate::kubelet::PodResources;
use crate::ledger::{Entry, Ledger};
use crate::networks::{Connected, ShownNamespace};
use crate::status::Reports;

/// How soon a launcher that has just started is found. It is looked for only while a Pod holds the device.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// From a minute on: its image is being pulled, or it has ended.
const LOOK_LATER: Duration = Duration::from_millis(500);
const SOON_ENDS_AFTER: Duration = Duration::from_secs(60);
/// Between questions nobody answers by a change.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What keepers share.
#[derive(Clone)]
pub struct Surroundings {
    /// Devices and their directories.
    pub doors: Arc<Doors>,
    /// Who was given what.
    pub ledger: Ledger,
    /// kubelet.
    pub pod_resources: Arc<PodResources>,
    /// The API server.
    pub cluster: Cluster,
    /// What launchers are given.
    pub devices: Devices,
    /// What is told of VMs that do not get on.
    pub cases: Cases,
    /// Those that can be asked.
    pub launchers: Launchers,
    /// What is written on their VMIs.
    pub reports: Reports,
    /// Makes launchers' what they cannot open.
    pub open_up: OpenUp,
}

/// The actor of one device.
pub struct Keeper {
    device: DeviceId,
    around: Surroundings,
}

impl Keeper {
    /// The keeper of `device`.
    pub fn new(device: DeviceId, around: Surroundings) -> Self {
        Self { device, around }
    }

    /// Visits whoever holds the device, without end.
    pub async fn run(self) {
        let Some(mut holding) = self.around.doors.watch(&self.device) else { return };
        loop {
            let Ok(held) = holding.wait_for(|holding| holding.held).await.map(|held| *held) else {
                return;
            };
            let over = holding.wait_for(|now| !now.held || now.generation != held.generation);
            tokio::select! {
                () = self.keep() => {}
                _ = over => {}
            }
        }
    }

    /// Visits the present holder, again and again.
    async fn keep(&self) {
        let directory = self.around.doors.path(&self.device);
        let mut visits = Visits::default();
        let mut shown = ShownNamespace::default();
        loop {
            let begun = Instant::now();
            let failure = self.visit(&directory, &mut shown).await.err();
            let word = failure.as_ref().map(reason_of);
            let failure = failure.map(|error| excerpt(&format!("{error:#}")));
            let (is_news, pause) = visits.ended(failure.as_deref(), begun.elapsed());
            match failure {
                _ if !is_news => {}
                None => info!(device = %self.device, "the launcher has closed its link"),
                Some(failure) => {
                    warn!(device = %self.device, "{failure}");
                    self.diagnose(word.unwrap_or_default(), failure).await;
                }
            }
            sleep(pause).await;
        }
    }

    /// Tells on its object what keeps a launcher from being served, if it is known whose it is.
    async fn diagnose(&self, reason: &'static str, message: String) {
        let holder = self.holder(Instant::now()).await;
        let Ok(identity) = identify(&holder, &self.around.cluster.known().borrow()) else { return };
        let Identity { pod_uid, vmi } = identity;
        let trouble = Trouble { reason, message };
        self.around.cases.note(&vmi.metadata.uid, &pod_uid, |facts| {
            facts.meet(trouble, Instant::now());
        });
    }

    /// One visit: from the launcher's first answer to the end of its link.
    async fn visit(&self, directory: &Path, shown: &mut ShownNamespace) -> Result<()> {
        let since = Instant::now();
        let link = loop {
            match connect(directory) {
                Ok(link) => break link,
                Err(ConnectError::NotThere(_)) => {}
                Err(error) => return Err(error.into()),
            }
            sleep(if since.elapsed() < SOON_ENDS_AFTER { LOOK_SOON } else { LOOK_LATER }).await;
        };
        let (connected, scheduled) = (Instant::now(), Timestamp::now());
        let (mut session, greeting) = Session::begin(link).await?;
        let Some(identity) = self.identity(&mut session, connected).await? else {
            return Ok(());
        };
        self.serve(session, greeting, shown, &identity, scheduled).await
    }

    /// Waits until it is known who is behind the door, and until that one may have what it wants. None if it left.
    async fn identity(
        &self,
        session: &mut Session,
        connected: Instant,
    ) -> Result<Option<Identity>> {
        let mut known = self.around.cluster.known();
        let mut said = String::new();
        loop {
            let holder = self.holder(connected).await;
            let outcome = identify(&holder, &known.borrow_and_update());
            let reason = match outcome {
                Ok(identity) if session.state() != State::Waiting => return Ok(Some(identity)),
                Ok(identity) => match why_not_start(&identity.vmi) {
                    None => return Ok(Some(identity)),
                    Some(reason) => reason.to_owned(),
                },
                Err(reason) => reason.to_string(),
            };
            if reason != said {
                info!(device = %self.device, "the launcher gets nothing yet: {reason}");
                said = reason;
            }
            tokio::select! {
                _ = known.changed() => {}
                () = sleep(AGAIN_AFTER) => {}
                message = session.next() => match message {
                    Err(SessionError::Link(LinkError::Closed)) => return Ok(None),
                    // By whom it is told is not known yet; what it tells when it is connected to it tells once.
                    other => session.keep(other?),
                },
            }
        }
    }

    /// Who has the device, by kubelet, or while that does not answer by the ledger.
    async fn holder(&self, connected: Instant) -> Holder {
        match self.around.pod_resources.allocations(connected).await {
            Ok(mut allocations) => {
                Holder::Pods(allocations.remove(&self.device).unwrap_or_default())
            }
            Err(error) => {
                warn!(device = %self.device, "{:#}; the ledger is asked", anyhow::Error::from(error));
                let entry = self.around.ledger.entry(&self.device);
                entry.map_or(Holder::Unknown, |entry| Holder::Recorded(entry.pod_uid))
            }
        }
    }

    /// Gives an identified launcher what it needs and listens to it to its end.
    async fn serve(
        &self,
        mut session: Session,
        mut greeting: Greeting,
        shown: &mut ShownNamespace,
        identity: &Identity,
        scheduled: Timestamp,
    ) -> Result<()> {
        let metadata = &identity.vmi.metadata;
        let name = format!("{}/{}", metadata.namespace, metadata.name);
        info!(
            device = %self.device, vmi = name, uid = metadata.uid, pod = identity.pod_uid,
            launcher = excerpt(&greeting.launcher), state = ?greeting.state, "connected to a launcher"
        );
        if greeting.vmi.as_ref().is_some_and(|uid| *uid != metadata.uid) {
            bail!("the launcher of VMI {name} runs another one, of uid {:?}", greeting.vmi);
        }
        let entry = Entry {
            pod_uid: identity.pod_uid.clone(),
            vmi_namespace: metadata.namespace.clone(),
            vmi_name: metadata.name.clone(),
            vmi_uid: metadata.uid.clone(),
        };
        let mut interfaces = None;
        if session.state() == State::Waiting {
            let Surroundings { ledger, devices, cluster, .. } = &self.around;
            // What was started before is dismissed, and needs nothing.
            let connected = if ledger.was_started(&entry.pod_uid)? {
                Connected::default()
            } else {
                let case = self.around.cases.of(&entry);
                let mut wiring = Wiring { device: &self.device, cluster, case, shown };
                let namespace = greeting.network_namespace.take();
                match wiring.connect(&mut session, identity, namespace).await? {
                    Some(connected) => connected,
                    None => return Ok(()),
                }
            };
            interfaces = Some(connected.facts());
            let handover = Handover { device: &self.device, ledger, devices };
            let started = handover.start(session, &identity.vmi, &entry, connected).await;
            session = started.with_context(|| format!("VMI {name} is not handed over"))?;
        } else {
            // A launcher of this Pod that waits is then a second one.
            self.around.ledger.start_once(&self.device, &entry)?;
            self.around.ledger.record(&self.device, &entry)?;
        }
        let case = self.around.cases.of(&entry);
        case.note(Facts::is_served);
        let report = self.around.reports.of(&entry);
        if let Some(interfaces) = interfaces {
            report.update(|facts| facts.interfaces = interfaces);
        }
        let (asker, questions) = Asker::new();
        let _listed = self.around.launchers.list_one(Launcher {
            entry: entry.clone(),
            asker,
            facts: report.facts(),
        });
        let attendance = Attendance::new(
            session,
            report,
            &identity.vmi,
            Around {
                known: self.around.cluster.known(),
                open_up: self.around.open_up.clone(),
                case,
                applied: greeting.applied.clone(),
                scheduled,
            },
        );
        attendance.run(questions).await
    }
}

/// Why a VMI is not to be started any more.
pub(super) fn why_not_start(vmi: &VirtualMachineInstance) -> Option<&'static str> {
    if vmi.metadata.deletion_timestamp.is_some() {
        return Some("its VirtualMachineInstance is being deleted");
    }
    vmi.status.phase.is_final().then_some("its VirtualMachineInstance is over")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn vmi_that_is_over_or_being_deleted_is_not_started() {
        let cases = [
            (json!({}), "Scheduling", true),
            (json!({}), "Scheduled", true),
            (json!({}), "Failed", false),
            (json!({}), "Succeeded", false),
            (json!({"deletionTimestamp": "2026-11-16T10:00:00Z"}), "Scheduling", false),
        ];
        for (metadata, phase, starts) in cases {
            let vmi = json!({"metadata": metadata, "status": {"phase": phase}});
            let vmi = serde_json::from_value(vmi).unwrap();
            assert_eq!(why_not_start(&vmi).is_none(), starts, "{metadata} {phase}");
        }
    }
}
