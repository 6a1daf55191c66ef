//! What is said to one launcher, once connected.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::mem::discriminant;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use corten_link::launcher::{
    AgentEnd, Answer, ConnectedInterface, State, ToAgent, ToLauncher, VERSION, agreed,
};
use corten_link::{Grant, LinkError, MessageError, Role};
use corten_resources::spec_hash;
use corten_resources::types::{ObjectMeta, VirtualMachineInstance};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::allowance::Allowance;
use super::asker::Asked;

const NAME: &str = concat!("corten-node-agent ", env!("CARGO_PKG_VERSION"));
/// A launcher has one loop that never waits; it answers at once unless the node is overloaded.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// What may come while an answer is waited for; a launcher says two things then.
const MAX_EARLY: usize = 16;
/// Questions that the launcher has not answered. There are few who ask, each at most two things at a time.
const MAX_ASKED: usize = 64;

/// Why a conversation ended or did not begin.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The link.
    #[error("the link to the launcher failed")]
    Link(#[from] LinkError),
    /// It cannot be waited for.
    #[error("cannot wait for the launcher")]
    Wait(#[from] io::Error),
    /// No answer.
    #[error("the launcher did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent,
    /// Something else than a hello.
    #[error("the launcher began with {0:?} instead of a hello")]
    NoHello(Box<ToAgent>),
    /// It does not do what is asked.
    #[error("the launcher refused: {0}")]
    Refused(String),
    /// It says more than it has to say.
    #[error("the launcher floods the agent with messages")]
    Flood,
    /// What it needs does not fit into a message.
    #[error("the VirtualMachineInstance is too large to be handed over")]
    TooLarge(#[source] MessageError),
    /// The VMI cannot be sent.
    #[error("the VirtualMachineInstance cannot be written as JSON")]
    Object(#[source] serde_json::Error),
}

/// How a launcher presented itself. What it says of its VMI is compared, never believed.
#[derive(Debug)]
pub struct Greeting {
    /// Its release.
    pub launcher: String,
    /// How far it is.
    pub state: State,
    /// Uid of the VMI that it was started with.
    pub vmi: Option<String>,
    /// Hash of the spec that it heeds.
    pub applied: Option<String>,
    /// What it says is its network namespace. It may be any descriptor.
    pub network_namespace: Option<OwnedFd>,
}

/// What a launcher told, and the descriptors that came with it.
pub type Told = (ToAgent, Grant);

/// A conversation with one launcher.
#[derive(Debug)]
pub struct Session {
    link: AsyncFd<AgentEnd>,
    /// Came while an answer was waited for.
    early: VecDeque<Told>,
    /// Came before it was known who is behind the door.
    kept: Vec<Told>,
    /// Where answers to others' questions go.
    asked: BTreeMap<u64, oneshot::Sender<Answer>>,
    last_id: u64,
    state: State,
    allowance: Allowance,
}

impl Session {
    /// Says hello and waits for the launcher's.
    pub async fn begin(link: AgentEnd) -> Result<(Self, Greeting), SessionError> {
        // SAFETY: a channel owns its socket, gives out no other than that, and does not close it before it is dropped.
        let link = unsafe { AsyncFd::register_with_interest(link, Interest::READABLE) };
        let link = link.map_err(io::Error::from)?;
        let (state, allowance) = (State::Waiting, Allowance::new(Instant::now()));
        let mut session = Self {
            link,
            early: VecDeque::new(),
            kept: Vec::new(),
            asked: BTreeMap::new(),
            last_id: 0,
            state,
            allowance,
        };
        session.send(&ToLauncher::Hello { version: VERSION, agent: NAME.into() }, &[])?;
        let hello = timeout(ANSWER_WITHIN, session.receive()).await;
        match hello.map_err(|_| SessionError::Silent)?? {
            (ToAgent::Hello { version, launcher, state, vmi, applied, .. }, mut grant) => {
                agreed(version).map_err(LinkError::from)?;
                session.state = state;
                let network_namespace = grant.remove(&Role::network_namespace());
                Ok((session, Greeting { launcher, state, vmi, applied, network_namespace }))
            }
            (other, _) => Err(SessionError::NoHello(Box::new(other))),
        }
    }

    /// How far the launcher is, by what it said last.
    pub fn state(&self) -> State {
        self.state
    }

    /// Hands over a VMI with the descriptors for it and what is to be known of its interfaces.
    pub async fn start(
        &mut self,
        vmi: &VirtualMachineInstance,
        interfaces: &BTreeMap<String, ConnectedInterface>,
        descriptors: &[(Role, File)],
    ) -> Result<(), SessionError> {
        let grace = vmi.spec.grace_period().as_secs();
        let roles = descriptors.iter().map(|(role, _)| role.clone()).collect();
        let object = object(vmi)?;
        self.last_id += 1;
        let start = ToLauncher::Start {
            id: self.last_id,
            vmi: object,
            grace_seconds: u32::try_from(grace).unwrap_or(u32::MAX),
            interfaces: interfaces.clone(),
            capacities: vmi.claim_capacities(),
            node: vmi.status.node_name.clone(),
            roles,
        };
        match self.send(&start, descriptors) {
            Err(SessionError::Link(LinkError::Message(error @ MessageError::TooLong(_)))) => {
                return Err(SessionError::TooLarge(error));
            }
            sent => sent?,
        }
        match timeout(ANSWER_WITHIN, self.answer(self.last_id)).await {
            Ok(Ok(Answer::Refused { reason })) => Err(SessionError::Refused(reason)),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SessionError::Silent),
        }
    }

    /// Tells a launcher that waits that it gets nothing, and waits until it has gone.
    pub async fn dismiss(mut self, reason: &str) -> Result<(), SessionError> {
        self.send(&ToLauncher::Dismiss { reason: reason.into() }, &[])?;
        let gone = async {
            loop {
                match self.receive().await {
                    Ok(_) => {}
                    Err(SessionError::Link(LinkError::Closed)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        timeout(ANSWER_WITHIN, gone).await.map_err(|_| SessionError::Silent)?
    }

    /// Passes on a question. Its answer goes where it belongs while [`Self::next`] is waited for.
    pub(super) fn ask(&mut self, asked: Asked) -> Result<(), SessionError> {
        self.asked.retain(|_, answer| !answer.is_closed());
        if self.asked.len() < MAX_ASKED {
            self.last_id += 1;
            self.send(&asked.question.message(self.last_id), &[])?;
            self.asked.insert(self.last_id, asked.answer);
        }
        Ok(())
    }

    /// Hands over a VMI that has changed, under the number that the reply repeats.
    pub(super) fn apply(&mut self, vmi: &VirtualMachineInstance) -> Result<u64, SessionError> {
        let vmi_object = object(vmi)?;
        self.last_id += 1;
        let (id, grace) = (self.last_id, vmi.spec.grace_period().as_secs());
        let grace_seconds = u32::try_from(grace).unwrap_or(u32::MAX);
        self.send(&ToLauncher::Apply { id, vmi: vmi_object, grace_seconds }, &[])?;
        Ok(id)
    }

    /// Says what came of what the launcher could not open.
    pub(super) fn opened_up(
        &mut self,
        ticket: u64,
        refused: Option<String>,
    ) -> Result<(), SessionError> {
        self.send(&ToLauncher::OpenedUp { ticket, refused }, &[])
    }

    /// Keeps what was told before it is known by whom: of each kind the last, until [`Self::give_back`].
    pub(super) fn keep(&mut self, told: Told) {
        let kind = discriminant(&told.0);
        self.kept.retain(|(message, _)| discriminant(message) != kind);
        self.kept.push(told);
    }

    /// From now on, what was kept comes next.
    pub(super) fn give_back(&mut self) {
        self.early.extend(self.kept.drain(..));
    }

    /// What the launcher says next. To be dropped at any time: nothing is lost.
    pub async fn next(&mut self) -> Result<Told, SessionError> {
        match self.early.pop_front() {
            Some(told) => Ok(told),
            None => self.receive().await,
        }
    }

    async fn answer(&mut self, wanted: u64) -> Result<Answer, SessionError> {
        loop {
            match self.receive().await? {
                (ToAgent::Reply { id, reply }, _) if id == wanted => return Ok(reply),
                // Nothing that comes before an answer has descriptors.
                (_, grant) if self.early.len() == MAX_EARLY || !grant.is_empty() => {
                    return Err(SessionError::Flood);
                }
                other => self.early.push_back(other),
            }
        }
    }

    async fn receive(&mut self) -> Result<Told, SessionError> {
        loop {
            let (message, grant) = {
                let mut ready = self.link.readable().await?;
                match ready.get_inner().receive()? {
                    Some(told) => told,
                    None => {
                        ready.clear_ready();
                        continue;
                    }
                }
            };
            let message = match message {
                ToAgent::Reply { id, reply } => match self.asked.remove(&id) {
                    Some(answer) => {
                        // Whoever asked may have stopped waiting.
                        let _ = answer.send(reply);
                        continue;
                    }
                    None => ToAgent::Reply { id, reply },
                },
                other => other,
            };
            if !self.allowance.take(Instant::now()) {
                return Err(SessionError::Flood);
            }
            if let ToAgent::State { state } = &message {
                self.state = *state;
            }
            return Ok((message, grant));
        }
    }

    fn send(&self, message: &ToLauncher, descriptors: &[(Role, File)]) -> Result<(), SessionError> {
        let descriptors: Vec<_> = descriptors.iter().map(|(_, file)| file.as_fd()).collect();
        Ok(self.link.get_ref().send(message, &descriptors)?)
    }
}

/// What the launcher compares the spec of a VMI by.
pub(super) fn hash_of(vmi: &VirtualMachineInstance) -> Option<String> {
    object(vmi).ok()?.get("spec").map(spec_hash)
}

/// The object as a launcher gets it: who it is and what its user wants. Annotations alone may be longer than a message.
fn object(vmi: &VirtualMachineInstance) -> Result<Map<String, Value>, SessionError> {
    let ObjectMeta { name, namespace, uid, .. } = vmi.metadata.clone();
    let metadata = ObjectMeta { name, namespace, uid, ..ObjectMeta::default() };
    let vmi = VirtualMachineInstance {
        metadata,
        spec: vmi.spec.clone(),
        ..VirtualMachineInstance::default()
    };
    match serde_json::to_value(vmi).map_err(SessionError::Object)? {
        Value::Object(object) => Ok(object),
        _ => Ok(Map::new()),
    }
}

#[cfg(test)]
mod tests {
    use corten_link::launcher::LauncherEnd;
    use corten_link::{Link, Memory};
    use serde_json::json;

    use super::super::Question;
    use super::*;

    fn pair() -> (AgentEnd, LauncherEnd) {
        let (agent, launcher) = Link::pair().unwrap();
        (
            AgentEnd::from_fd(agent.into_fd()).unwrap(),
            LauncherEnd::from_fd(launcher.into_fd()).unwrap(),
        )
    }

    fn hello(state: State, vmi: Option<String>) -> ToAgent {
        let launcher = "l".into();
        ToAgent::Hello { version: VERSION, launcher, state, vmi, applied: None, roles: Vec::new() }
    }

    fn vmi() -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": "v", "uid": "u", "managedFields": [{}],
                "labels": {"l": "v"}, "annotations": {"a": "x".repeat(70_000)},
            },
            "spec": {"terminationGracePeriodSeconds": 7, "hostname": "kept"},
            "status": {
                "phase": "Scheduling", "nodeName": "node-1",
                "volumeStatus": [{"name": "data", "target": "", "persistentVolumeClaimInfo": {
                    "capacity": {"storage": "2Gi"}, "requests": {"storage": "1Gi"}}}],
            },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn launcher_gets_the_vmi_and_its_grace_but_nothing_that_is_not_for_it() {
        let (agent, launcher) = pair();
        let hello = hello(State::Waiting, None);
        launcher.send(&hello, &[]).unwrap();
        let (mut session, greeting) = Session::begin(agent).await.unwrap();
        assert_eq!((greeting.state, greeting.vmi), (State::Waiting, None));
        let state = ToAgent::State { state: State::Preparing };
        launcher.send(&state, &[]).unwrap();
        launcher.send(&ToAgent::Reply { id: 1, reply: Answer::Done }, &[]).unwrap();
        let kvm = (Role::kvm(), tempfile::tempfile().unwrap());
        session.start(&vmi(), &BTreeMap::new(), &[kvm]).await.unwrap();
        assert_eq!(session.next().await.unwrap().0, state);
        assert_eq!(session.state(), State::Preparing);

        let (ToLauncher::Hello { .. }, _) = launcher.receive().unwrap().unwrap() else {
            unreachable!()
        };
        let (start, grant) = launcher.receive().unwrap().unwrap();
        let ToLauncher::Start { vmi, grace_seconds, capacities, node, .. } = start else {
            unreachable!()
        };
        assert_eq!((grace_seconds, node.as_deref()), (7, Some("node-1")));
        assert_eq!(capacities, BTreeMap::from([("data".to_owned(), 1 << 30)]));
        assert_eq!(vmi["metadata"], json!({"namespace": "n", "name": "v", "uid": "u"}));
        assert_eq!((&vmi["spec"]["hostname"], vmi.get("status")), (&json!("kept"), None));
        assert!(grant.contains_key(&Role::kvm()));
    }

    /// A session with a launcher that waits.
    async fn waiting() -> (Session, LauncherEnd) {
        let (agent, launcher) = pair();
        let hello = hello(State::Waiting, None);
        launcher.send(&hello, &[]).unwrap();
        let (session, _) = Session::begin(agent).await.unwrap();
        launcher.receive().unwrap().unwrap();
        (session, launcher)
    }

    #[tokio::test]
    async fn vmi_that_fits_into_no_message_is_told_and_nothing_is_sent() {
        let (mut session, launcher) = waiting().await;
        let mut large = vmi();
        large.spec.other.insert("large".into(), "x".repeat(70_000).into());
        let error = session.start(&large, &BTreeMap::new(), &[]).await.unwrap_err();
        assert!(matches!(error, SessionError::TooLarge(_)), "{error}");
        assert!(launcher.receive().unwrap().is_none());
    }

    #[tokio::test]
    async fn dismissed_launcher_is_told_why_and_waited_for() {
        let (session, launcher) = waiting().await;
        let dismissed = tokio::spawn(session.dismiss("it was started before"));
        let told = loop {
            match launcher.receive().unwrap() {
                Some((told, _)) => break told,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!(told, ToLauncher::Dismiss { reason: "it was started before".into() });
        drop(launcher);
        dismissed.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn launcher_that_floods_an_agent_that_waits_for_an_answer_is_let_go() {
        let (mut session, launcher) = waiting().await;
        let state = ToAgent::State { state: State::Preparing };
        for _ in 0..=MAX_EARLY {
            launcher.send(&state, &[]).unwrap();
        }
        let error = session.start(&vmi(), &BTreeMap::new(), &[]).await.unwrap_err();
        assert!(matches!(error, SessionError::Flood), "{error}");
    }

    #[tokio::test]
    async fn launcher_that_floods_an_agent_that_listens_is_let_go() {
        let (mut session, launcher) = waiting().await;
        let mut ended = None;
        for _ in 0..10_000 {
            launcher.send(&ToAgent::State { state: State::Running }, &[]).unwrap();
            ended = session.next().await.err();
            if ended.is_some() {
                break;
            }
        }
        assert!(matches!(ended, Some(SessionError::Flood)), "{ended:?}");
    }

    #[tokio::test]
    async fn questions_of_others_are_answered_while_the_session_listens() {
        let (mut session, launcher) = waiting().await;
        let (answer, answered) = oneshot::channel();
        session.ask(Asked { question: Question::Memory, answer }).unwrap();
        let (asked, _) = launcher.receive().unwrap().unwrap();
        assert_eq!(asked, ToLauncher::Memory { id: 1 });
        // Answers that were asked for are no flood.
        let memory = Memory { allocated: 4096, ..Memory::default() };
        let state = ToAgent::State { state: State::Preparing };
        for message in [ToAgent::Reply { id: 1, reply: Answer::Memory { memory } }, state.clone()] {
            launcher.send(&message, &[]).unwrap();
        }
        assert_eq!(session.next().await.unwrap().0, state);
        assert_eq!(answered.await.unwrap(), Answer::Memory { memory });
    }

    #[tokio::test]
    async fn launcher_that_does_not_answer_is_asked_so_much_and_no_more() {
        let (mut session, launcher) = waiting().await;
        let mut waiting: Vec<_> = (0..=MAX_ASKED)
            .map(|_| {
                let (answer, answered) = oneshot::channel();
                session.ask(Asked { question: Question::Info, answer }).unwrap();
                answered
            })
            .collect();
        let last = waiting.pop().unwrap();
        assert!(last.await.is_err(), "it is told at once that it gets no answer");
        drop(waiting);
        let (answer, _answered) = oneshot::channel();
        session.ask(Asked { question: Question::Info, answer }).unwrap();
        let sent = std::iter::from_fn(|| launcher.receive().unwrap()).count();
        assert_eq!(sent, MAX_ASKED + 1, "nobody waits any more, so there is room again");
    }

    #[tokio::test]
    async fn greeting_brings_the_network_namespace_and_what_is_applied() {
        let (agent, launcher) = pair();
        let greeting = ToAgent::Hello {
            version: VERSION,
            launcher: "l".into(),
            state: State::Running,
            vmi: Some("u".into()),
            applied: Some("0f".into()),
            roles: vec![Role::network_namespace()],
        };
        let namespace = tempfile::tempfile().unwrap();
        launcher.send(&greeting, &[namespace.as_fd()]).unwrap();
        let (_session, greeting) = Session::begin(agent).await.unwrap();
        assert_eq!(greeting.applied.as_deref(), Some("0f"));
        assert!(greeting.network_namespace.is_some());
    }

    #[tokio::test]
    async fn refusal_is_told_with_its_reason() {
        let (agent, launcher) = pair();
        let hello = hello(State::Running, Some("other".to_owned()));
        launcher.send(&hello, &[]).unwrap();
        let (mut session, _) = Session::begin(agent).await.unwrap();
        let reply = Answer::Refused { reason: "another VMI".into() };
        launcher.send(&ToAgent::Reply { id: 1, reply }, &[]).unwrap();
        let error = session.start(&vmi(), &BTreeMap::new(), &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "the launcher refused: another VMI");
        drop(launcher);
        let closed = session.next().await.unwrap_err();
        assert!(matches!(closed, SessionError::Link(LinkError::Closed)), "{closed}");
    }

    #[tokio::test]
    async fn peer_that_is_no_launcher_is_told_apart() {
        let (agent, launcher) = pair();
        launcher.send(&ToAgent::State { state: State::Running }, &[]).unwrap();
        assert!(matches!(Session::begin(agent).await, Err(SessionError::NoHello(_))));
    }
}
