//! How the rest of the agent asks a launcher: the link is its session's, and that has one reader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corten_link::launcher::{Answer, ToLauncher};
use corten_link::{Counters, Info, Memory};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::visits::excerpt;
use crate::ledger::Entry;
use crate::status::Facts;

/// Questions that wait until the session takes them.
const WAITING: usize = 16;
/// A launcher answers at once, and passes on what the VM process answers at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What may be asked of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// How the VM is.
    Info,
    /// What was counted.
    Counters,
    /// How memory is used.
    Memory,
    /// Whether it stops the guest.
    Pause,
    /// Whether it lets the guest go on.
    Resume,
    /// Whether it presses the guest's power button.
    PowerButton,
}

impl Question {
    /// As a launcher is asked, under this number.
    pub(super) fn message(self, id: u64) -> ToLauncher {
        match self {
            Self::Info => ToLauncher::Info { id },
            Self::Counters => ToLauncher::Counters { id },
            Self::Memory => ToLauncher::Memory { id },
            Self::Pause => ToLauncher::Pause { id },
            Self::Resume => ToLauncher::Resume { id },
            Self::PowerButton => ToLauncher::PowerButton { id },
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The link was lost, or too much was asked before.
    #[error("the launcher cannot be asked: the link to it is lost, or busy")]
    Gone,
    /// It takes too long.
    #[error("the launcher did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent,
    /// It does not do what is asked.
    #[error("the launcher refused: {0}")]
    Refused(String),
    /// It answered something else.
    #[error("the launcher answered something else than was asked")]
    Other,
}

/// A question on its way, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// Asks one launcher, as long as there is a link to it. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<Asked>);

impl Asker {
    /// One with the end that the session reads.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: Question) -> Result<Answer, AskError> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.0.send(Asked { question, answer }).await.map_err(|_| AskError::Gone)?;
            answered.await.map_err(|_| AskError::Gone)
        };
        match timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(Answer::Refused { reason })) => Err(AskError::Refused(excerpt(&reason))),
            Ok(answered) => answered,
            Err(_) => Err(AskError::Silent),
        }
    }

    /// What was counted.
    pub async fn counters(&self) -> Result<Box<Counters>, AskError> {
        match self.ask(Question::Counters).await? {
            Answer::Counters { counters } => Ok(counters),
            _ => Err(AskError::Other),
        }
    }

    /// How memory is used.
    pub async fn memory(&self) -> Result<Memory, AskError> {
        match self.ask(Question::Memory).await? {
            Answer::Memory { memory } => Ok(memory),
            _ => Err(AskError::Other),
        }
    }

    /// How the VM is.
    pub async fn info(&self) -> Result<Info, AskError> {
        match self.ask(Question::Info).await? {
            Answer::Info { info } => Ok(info),
            _ => Err(AskError::Other),
        }
    }
}

/// A launcher that there is a link to, and that was given its VMI.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Its Pod and its VMI.
    pub entry: Entry,
    /// Asks it.
    pub asker: Asker,
    /// What is known of its VM without asking: what its guest's agent told among it.
    pub facts: watch::Receiver<Facts>,
}

/// Launchers that there is a link to, by the uid of their VMI. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Launchers(Arc<Mutex<BTreeMap<String, Launcher>>>);

impl Launchers {
    /// All of them.
    pub fn all(&self) -> Vec<Launcher> {
        self.list().values().cloned().collect()
    }

    /// That of a VMI.
    pub fn of(&self, vmi_uid: &str) -> Option<Launcher> {
        self.list().get(vmi_uid).cloned()
    }

    /// Lists one until what is returned is dropped.
    pub(super) fn list_one(&self, launcher: Launcher) -> Listed {
        let listed = Listed { launchers: self.clone(), launcher: launcher.clone() };
        self.list().insert(launcher.entry.vmi_uid.clone(), launcher);
        listed
    }

    /// A list is whole after each change of it, so one whose holder panicked is as good.
    fn list(&self) -> MutexGuard<'_, BTreeMap<String, Launcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A launcher's place in the list.
#[derive(Debug)]
pub(super) struct Listed {
    launchers: Launchers,
    launcher: Launcher,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let uid = &self.launcher.entry.vmi_uid;
        let mut list = self.launchers.list();
        // Another door may have taken the place meanwhile.
        let is_own = |other: &Launcher| other.asker.0.same_channel(&self.launcher.asker.0);
        if list.get(uid).is_some_and(is_own) {
            list.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(uid: &str) -> (Launcher, mpsc::Receiver<Asked>) {
        let (asker, questions) = Asker::new();
        let entry = Entry {
            pod_uid: "p".into(),
            vmi_namespace: "n".into(),
            vmi_name: "v".into(),
            vmi_uid: uid.into(),
        };
        (Launcher { entry, asker, facts: watch::channel(Facts::default()).1 }, questions)
    }

    #[test]
    fn launchers_are_listed_while_their_session_lasts_and_a_later_one_keeps_its_place() {
        let launchers = Launchers::default();
        let first = launchers.list_one(launcher("u").0);
        let second = launchers.list_one(launcher("u").0);
        drop(first);
        assert!(launchers.of("u").is_some());
        assert_eq!(launchers.all().len(), 1);
        drop(second);
        assert!(launchers.of("u").is_none());
    }

    #[tokio::test]
    async fn whoever_asks_a_launcher_that_is_gone_is_told() {
        let (launcher, questions) = launcher("u");
        drop(questions);
        assert!(matches!(launcher.asker.counters().await, Err(AskError::Gone)));
    }

    #[tokio::test]
    async fn refusals_and_answers_to_other_questions_are_errors() {
        let (launcher, mut questions) = launcher("u");
        let answers = [
            Answer::Refused { reason: "no VM\nyet".into() },
            Answer::Done,
            Answer::Memory { memory: Memory { allocated: 7, ..Memory::default() } },
        ];
        let replies = tokio::spawn(async move {
            for answer in answers {
                questions.recv().await.unwrap().answer.send(answer).unwrap();
            }
        });
        let refused = launcher.asker.memory().await.unwrap_err();
        assert_eq!(refused.to_string(), "the launcher refused: no VM yet");
        assert!(matches!(launcher.asker.memory().await, Err(AskError::Other)));
        assert_eq!(launcher.asker.memory().await.unwrap().allocated, 7);
        replies.await.unwrap();
    }
}
