//! Attends to one launcher that was identified and started: hears what it tells, hands on what has changed, to the end of its
//! link. That a VM is over is the operator's to tell.

use anyhow::Result;
use corten_link::launcher::{Answer, State, ToAgent};
use corten_link::{Grant, LinkError};
use corten_resources::types::VirtualMachineInstance;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::asker::Asked;
use super::session::hash_of;
use super::visits::excerpt;
use super::{OpenUp, Session, SessionError, Told};
use crate::diagnosis::Case;
use crate::identity::Known;
use crate::status::{Heeds, Report};

/// What is around a launcher.
pub(super) struct Around {
    /// The cluster.
    pub(super) known: watch::Receiver<Known>,
    /// What makes files the launcher's.
    pub(super) open_up: OpenUp,
    /// What is told of a VM that does not get on.
    pub(super) case: Case,
    /// Hash of the spec that it said it heeds.
    pub(super) applied: Option<String>,
    /// When it was connected to.
    pub(super) scheduled: Timestamp,
}

/// One launcher in attendance.
pub(super) struct Attendance {
    session: Session,
    report: Report,
    around: Around,
    /// Its VMI, as it was last seen.
    vmi: VirtualMachineInstance,
    name: String,
    changes: Changes,
    /// What is being made the launcher's, by its ticket: one thing at a time.
    opening: JoinSet<(u64, Option<String>)>,
}

/// How far a launcher heeds its object.
#[derive(Debug, Default)]
struct Changes {
    /// Version of the object that was looked at.
    seen: Option<Value>,
    /// Hash of the spec that is heeded; none of a launcher that does not say so.
    applied: Option<String>,
    /// Number and hash of what was handed over last. It is not handed over again, whatever came of it.
    sent: Option<(u64, String)>,
}

/// What is to be done about an object.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Its spec is heeded.
    Heeded,
    /// The launcher does not have it yet.
    Send,
    /// It was handed over before.
    Nothing,
}

impl Changes {
    /// What is to be done for a spec of this hash.
    fn step(&self, hash: &str) -> Step {
        match (&self.applied, &self.sent) {
            // It may be of a release that takes no changes.
            (None, _) => Step::Nothing,
            (Some(applied), _) if applied == hash => Step::Heeded,
            (_, Some((_, sent))) if sent == hash => Step::Nothing,
            _ => Step::Send,
        }
    }
}

impl Attendance {
    /// For the launcher of `vmi` at the other end of `session`.
    pub(super) fn new(
        mut session: Session,
        report: Report,
        vmi: &VirtualMachineInstance,
        around: Around,
    ) -> Self {
        session.give_back();
        let name = format!("{}/{}", vmi.metadata.namespace, vmi.metadata.name);
        let changes = Changes { applied: around.applied.clone(), ..Changes::default() };
        let (vmi, opening) = (vmi.clone(), JoinSet::new());
        Self { session, report, around, vmi, name, changes, opening }
    }

    /// To the end of the link.
    pub(super) async fn run(mut self, mut questions: mpsc::Receiver<Asked>) -> Result<()> {
        if self.session.state() == State::Running {
            self.runs();
        }
        self.look()?;
        loop {
            tokio::select! {
                told = self.session.next() => match told {
                    Ok(told) => self.hear(told)?,
                    Err(SessionError::Link(LinkError::Closed)) => return Ok(()),
                    Err(error) => return Err(error.into()),
                },
                Some(asked) = questions.recv() => self.session.ask(asked)?,
                _ = self.around.known.changed() => self.look()?,
                Some(done) = self.opening.join_next() => {
                    let (ticket, refused) = done?;
                    self.session.opened_up(ticket, refused)?;
                }
            }
        }
    }

    fn runs(&self) {
        let (scheduled, running) = (self.around.scheduled, Timestamp::now());
        self.report.update(|facts| facts.runs(scheduled, running));
    }

    fn hear(&mut self, (message, grant): Told) -> Result<()> {
        self.report.update(|facts| facts.hear(&message));
        let vmi = &self.name;
        match message {
            ToAgent::State { state: State::Running } => {
                info!(vmi, "the VM runs");
                self.runs();
                self.look_again()?;
            }
            ToAgent::Ended { reason, detail, .. } => {
                let detail = excerpt(&detail);
                info!(vmi, ?reason, detail, "the VM has ended: {}", reason.text());
            }
            ToAgent::Applied { hash } => {
                self.changes.applied = Some(hash);
                self.look_again()?;
            }
            ToAgent::Reply { id, reply } => self.on_reply(id, reply),
            ToAgent::Unopenable { ticket, .. } => self.open_up(ticket, grant)?,
            ToAgent::Guest { report } => {
                let agent = report.connected;
                debug!(vmi, agent, "the launcher tells of its guest");
            }
            ToAgent::Sign { sign } => {
                info!(vmi, ?sign, "the launcher sees");
                self.around.case.note(|facts| facts.see(sign));
            }
            ToAgent::Event { event } => {
                info!(vmi, told = excerpt(&format!("{event:?}")), "the VM process tells");
                self.around.case.note(|facts| facts.hear(&event));
            }
            other => info!(vmi, told = excerpt(&format!("{other:?}")), "the launcher tells"),
        }
        Ok(())
    }

    fn look_again(&mut self) -> Result<()> {
        self.changes.seen = None;
        self.look()
    }

    /// Looks whether the object has changed, and hands over what the launcher does not heed.
    fn look(&mut self) -> Result<()> {
        if let Some(vmi) = self.around.known.borrow_and_update().vmis.get(&self.vmi.metadata.uid) {
            let version = vmi.metadata.other.get("resourceVersion");
            if self.changes.seen.is_some() && self.changes.seen.as_ref() == version {
                return Ok(());
            }
            self.changes.seen = version.cloned();
            self.vmi = vmi.clone();
        }
        if self.session.state() != State::Running {
            return Ok(());
        }
        let Some(hash) = hash_of(&self.vmi) else { return Ok(()) };
        match self.changes.step(&hash) {
            Step::Nothing => {}
            Step::Heeded => self.report.update(|facts| facts.heeds = Some(Heeds::All)),
            Step::Send => match self.session.apply(&self.vmi) {
                Ok(id) => self.changes.sent = Some((id, hash)),
                Err(SessionError::Link(LinkError::Message(error))) => {
                    let reason = excerpt(&format!("it cannot be handed over: {error}"));
                    self.changes.sent = Some((0, hash));
                    self.report.update(|facts| facts.heeds = Some(Heeds::Refuses(reason)));
                }
                Err(error) => return Err(error.into()),
            },
        }
        Ok(())
    }

    fn on_reply(&mut self, id: u64, reply: Answer) {
        let is_of_change = self.changes.sent.as_ref().is_some_and(|(sent, _)| *sent == id);
        match reply {
            Answer::Done if is_of_change => {
                info!(vmi = self.name, "the launcher heeds what was changed");
                self.report.update(|facts| facts.heeds = Some(Heeds::All));
            }
            Answer::Refused { reason } if is_of_change => {
                let reason = excerpt(&reason);
                warn!(vmi = self.name, reason, "the launcher does not heed what was changed");
                self.report.update(|facts| facts.heeds = Some(Heeds::Refuses(reason)));
            }
            // Whoever asked has stopped waiting.
            _ => {}
        }
    }

    fn open_up(&mut self, ticket: u64, shown: Grant) -> Result<()> {
        if !self.opening.is_empty() {
            let refused = "something else was shown before and is being looked at".to_owned();
            return Ok(self.session.opened_up(ticket, Some(refused))?);
        }
        let (open_up, vmi, name) =
            (self.around.open_up.clone(), self.vmi.clone(), self.name.clone());
        self.opening.spawn_blocking(move || {
            let roles: Vec<_> = shown.keys().map(ToString::to_string).collect();
            let roles = roles.join(", ");
            let refused = match open_up.open_up(&vmi, &shown) {
                Ok(()) => {
                    info!(vmi = name, roles, "made the launcher's");
                    None
                }
                Err(error) => {
                    let reason = excerpt(&format!("{:#}", anyhow::Error::from(error)));
                    warn!(vmi = name, roles, reason, "not made the launcher's");
                    Some(reason)
                }
            };
            (ticket, refused)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use corten_link::Link;
    use corten_link::launcher::{AgentEnd, LauncherEnd, ToLauncher, VERSION};
    use serde_json::json;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use tonic::codegen::http::{Request, Response};
    use tower::service_fn;

    use super::super::{AskError, Asker};
    use super::*;
    use crate::cluster::Cluster;
    use crate::diagnosis::Cases;
    use crate::ledger::Entry;
    use crate::status::{Facts, Reports};

    /// Long, for a machine under load.
    const SOON: Duration = Duration::from_secs(60);

    fn object(version: u32, hostname: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "v", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {"hostname": hostname},
        }))
        .unwrap()
    }

    /// A launcher of a VMI that runs, and an agent that has just come to it.
    struct Scene {
        launcher: LauncherEnd,
        cluster: Cluster,
        asker: Asker,
        facts: watch::Receiver<Facts>,
        agent: JoinHandle<Result<()>>,
    }

    impl Scene {
        async fn begin(applied: Option<String>) -> Self {
            let (agent, launcher) = Link::pair().unwrap();
            let launcher = LauncherEnd::from_fd(launcher.into_fd()).unwrap();
            let hello = ToAgent::Hello {
                version: VERSION,
                launcher: "l".into(),
                state: State::Running,
                vmi: Some("u".into()),
                applied,
                roles: Vec::new(),
            };
            launcher.send(&hello, &[]).unwrap();
            let link = AgentEnd::from_fd(agent.into_fd()).unwrap();
            let (session, greeting) = Session::begin(link).await.unwrap();
            launcher.receive().unwrap().unwrap();
            let nobody = service_fn(async |_: Request<kube::client::Body>| {
                Ok::<_, Infallible>(Response::new(kube::client::Body::empty()))
            });
            let cluster = Cluster::new(kube::Client::new(nobody, "default"), "node1");
            let entry = Entry {
                pod_uid: "p".into(),
                vmi_namespace: "n".into(),
                vmi_name: "v".into(),
                vmi_uid: "u".into(),
            };
            let report = Reports::new(cluster.clone()).of(&entry);
            let (facts, (asker, questions)) = (report.facts(), Asker::new());
            let around = Around {
                known: cluster.known(),
                open_up: OpenUp::new(107),
                case: Cases::default().of(&entry),
                applied: greeting.applied,
                scheduled: Timestamp::now(),
            };
            let attendance = Attendance::new(session, report, &object(1, "first"), around);
            let agent = tokio::spawn(attendance.run(questions));
            Self { launcher, cluster, asker, facts, agent }
        }

        async fn told(&self) -> ToLauncher {
            let told = async {
                loop {
                    match self.launcher.receive().unwrap() {
                        Some((told, _)) => return told,
                        None => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                }
            };
            timeout(SOON, told).await.unwrap()
        }

        fn tell(&self, message: &ToAgent) {
            self.launcher.send(message, &[]).unwrap();
        }

        async fn until(&mut self, is_so: impl FnMut(&Facts) -> bool) {
            timeout(SOON, self.facts.wait_for(is_so)).await.unwrap().unwrap();
        }

        fn learn(&self, vmi: VirtualMachineInstance) {
            self.cluster.learn(|known| drop(known.vmis.insert("u".into(), vmi)));
        }
    }

    #[tokio::test]
    async fn change_of_the_object_is_handed_over_once_and_what_comes_of_it_is_known() {
        let first = hash_of(&object(1, "first"));
        let mut scene = Scene::begin(first).await;
        scene.until(|facts| facts.heeds == Some(Heeds::All) && facts.times.is_some()).await;
        // Another version with the same spec is no change.
        scene.learn(object(2, "first"));
        scene.learn(object(3, "second"));
        let ToLauncher::Apply { id, vmi, .. } = scene.told().await else { unreachable!() };
        assert_eq!(vmi["spec"]["hostname"], "second");
        let reply = Answer::Refused { reason: "the host name\nis fixed".into() };
        scene.tell(&ToAgent::Reply { id, reply });
        let refused = Heeds::Refuses("the host name is fixed".into());
        scene.until(|facts| facts.heeds.as_ref() == Some(&refused)).await;
        // The same spec again is not asked for again.
        scene.learn(object(4, "second"));
        scene.learn(object(5, "third"));
        let ToLauncher::Apply { id, vmi, .. } = scene.told().await else { unreachable!() };
        assert_eq!(vmi["spec"]["hostname"], "third");
        scene.tell(&ToAgent::Reply { id, reply: Answer::Done });
        scene.tell(&ToAgent::Applied { hash: hash_of(&object(5, "third")).unwrap() });
        scene.until(|facts| facts.heeds == Some(Heeds::All)).await;
    }

    #[tokio::test]
    async fn launcher_of_an_earlier_release_is_handed_no_change() {
        let scene = Scene::begin(None).await;
        scene.learn(object(2, "second"));
        // What is asked afterwards is the first thing that it hears.
        let asker = scene.asker.clone();
        let asked = tokio::spawn(async move { asker.memory().await });
        let ToLauncher::Memory { id } = scene.told().await else { unreachable!() };
        scene.tell(&ToAgent::Reply { id, reply: Answer::Refused { reason: "no".into() } });
        assert!(matches!(asked.await.unwrap(), Err(AskError::Refused(_))));
    }

    #[tokio::test]
    async fn what_is_shown_without_being_the_vms_is_refused_with_the_reason() {
        use std::os::fd::AsFd;
        let scene = Scene::begin(None).await;
        let roles = vec!["disk/data".parse().unwrap()];
        let file = tempfile::tempfile().unwrap();
        let shown = ToAgent::Unopenable { ticket: 7, roles };
        scene.launcher.send(&shown, &[file.as_fd()]).unwrap();
        let ToLauncher::OpenedUp { ticket: 7, refused } = scene.told().await else {
            unreachable!()
        };
        assert!(refused.unwrap().contains("no claim"));
    }

    #[tokio::test]
    async fn end_of_the_link_is_the_end_and_those_who_ask_are_told() {
        let scene = Scene::begin(None).await;
        drop(scene.launcher);
        timeout(SOON, scene.agent).await.unwrap().unwrap().unwrap();
        assert!(matches!(scene.asker.info().await, Err(AskError::Gone)));
    }

    #[test]
    fn change_is_handed_over_once_and_only_to_launchers_that_take_any() {
        let changes = |applied: Option<&str>, sent: Option<&str>| Changes {
            seen: None,
            applied: applied.map(Into::into),
            sent: sent.map(|hash| (1, hash.into())),
        };
        let cases = [
            (changes(None, None), Step::Nothing),
            (changes(Some("new"), None), Step::Heeded),
            (changes(Some("old"), None), Step::Send),
            (changes(Some("old"), Some("new")), Step::Nothing),
            (changes(Some("old"), Some("another")), Step::Send),
            (changes(Some("new"), Some("another")), Step::Heeded),
        ];
        for (changes, expected) in cases {
            assert_eq!(changes.step("new"), expected, "{changes:?}");
        }
    }
}
