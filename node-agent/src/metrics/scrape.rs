//! Asks the launchers of this node for what they count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use corten_resources::types::Phase;
use futures::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tracing::debug;

use super::{SILENCES, Vm, VmAnswer, text};
use crate::cluster::Cluster;
use crate::door::{AskError, Asker, Launchers};

/// Prometheus waits for 10 s, unless it is told otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Whoever asks sooner gets what was told before: two Prometheus beside each other cost launchers as much as one.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// Makes the text, one at a time.
#[derive(Clone)]
pub struct Scraper {
    node: String,
    cluster: Cluster,
    launchers: Launchers,
    usable: watch::Receiver<bool>,
    last: Arc<Mutex<Option<(Instant, String)>>>,
}

/// Why the launcher of a VM that runs told nothing. Reasons are labels: there are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// There is no link to it.
    Disconnected,
    /// It did not answer in time.
    Late,
    /// It answered that it does not, or something else than was asked.
    Refused,
}

impl Silence {
    fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Late => "late",
            Self::Refused => "refused",
        }
    }
}

impl From<AskError> for Silence {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Gone => Self::Disconnected,
            AskError::Silent => Self::Late,
            AskError::Refused(_) | AskError::Other => Self::Refused,
        }
    }
}

impl Scraper {
    /// Asks `launchers` of the VMIs that `cluster` knows of; `usable` is whether VMs can be started.
    pub fn new(
        node: &str,
        cluster: Cluster,
        launchers: Launchers,
        usable: watch::Receiver<bool>,
    ) -> Self {
        Self { node: node.into(), cluster, launchers, usable, last: Arc::default() }
    }

    /// What Prometheus reads.
    pub async fn text(&self) -> String {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH_FOR
        {
            return text.clone();
        }
        let vms = self.vms().await;
        let ready = *self.usable.borrow();
        let text = text(&self.node, ready, &vms);
        *last = Some((Instant::now(), text.clone()));
        text
    }

    /// The VMs of this node that run by their objects, with what their launchers say.
    async fn vms(&self) -> Vec<Vm> {
        // Nothing is held while launchers are asked.
        let running: Vec<(Vm, Option<Asker>)> = {
            let known = self.cluster.known();
            let known = known.borrow();
            let running = known.vmis.values().filter(|vmi| vmi.status.phase == Phase::Running);
            let of = |uid: &str| self.launchers.of(uid).map(|launcher| launcher.asker);
            running.map(|vmi| (Vm::of(vmi), of(&vmi.metadata.uid))).collect()
        };
        let asked = running.into_iter().map(|(vm, asker)| self.completed(vm, asker));
        join_all(asked).await
    }

    async fn completed(&self, vm: Vm, asker: Option<Asker>) -> Vm {
        match answer(asker, ANSWER_WITHIN).await {
            Ok(answer) => vm.answered(answer),
            Err(silence) => {
                let reason = silence.as_str();
                debug!(vmi = vm.name, namespace = vm.namespace, reason, "no numbers");
                SILENCES.add(&[&self.node, reason]);
                vm
            }
        }
    }
}

async fn answer(asker: Option<Asker>, within: Duration) -> Result<VmAnswer, Silence> {
    let asker = asker.ok_or(Silence::Disconnected)?;
    let ask = async {
        let info = asker.info().await?;
        let counters = *asker.counters().await?;
        let memory = asker.memory().await?;
        Ok::<_, AskError>(VmAnswer { info, counters, memory })
    };
    match timeout(within, ask).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Silence::Late),
    }
}

#[cfg(test)]
mod tests {
    use corten_link::launcher::Answer;
    use corten_link::{Counters, Info, Memory, RunState};

    use super::*;
    use crate::door::Question;

    fn info() -> Info {
        let (state, open_ports) = (RunState::Running, Vec::new());
        Info {
            machine_version: 1,
            state,
            vcpus: 1,
            memory: 7,
            resets: 0,
            open_ports,
            boot: None,
            button_waits: false,
        }
    }

    /// An asker whose launcher answers so.
    fn launcher(answers: impl Fn(Question) -> Option<Answer> + Send + 'static) -> Option<Asker> {
        let (asker, mut questions) = Asker::new();
        tokio::spawn(async move {
            let mut unanswered = Vec::new();
            while let Some(asked) = questions.recv().await {
                match answers(asked.question) {
                    Some(answer) => drop(asked.answer.send(answer)),
                    None => unanswered.push(asked),
                }
            }
        });
        Some(asker)
    }

    fn whole(question: Question) -> Option<Answer> {
        match question {
            Question::Info => Some(Answer::Info { info: info() }),
            Question::Counters => Some(Answer::Counters { counters: Box::default() }),
            Question::Memory => Some(Answer::Memory { memory: Memory::default() }),
            _ => None,
        }
    }

    #[tokio::test]
    async fn launcher_is_asked_for_everything() {
        let told = answer(launcher(whole), Duration::from_secs(60)).await.unwrap();
        assert_eq!((told.info, told.counters), (info(), Counters::default()));
        assert_eq!(told.memory, Memory::default());
    }

    #[tokio::test]
    async fn launcher_that_tells_nothing_is_told_by_its_reason() {
        let (soon, long) = (Duration::from_millis(50), Duration::from_secs(60));
        let silent = launcher(|question| whole(question).filter(|_| question == Question::Info));
        assert_eq!(answer(silent, soon).await.unwrap_err(), Silence::Late);
        let refusal = launcher(|_| Some(Answer::Refused { reason: "no VM yet".into() }));
        assert_eq!(answer(refusal, long).await.unwrap_err(), Silence::Refused);
        let other = launcher(|_| Some(Answer::Done));
        assert_eq!(answer(other, long).await.unwrap_err(), Silence::Refused);
        assert_eq!(answer(None, long).await.unwrap_err(), Silence::Disconnected);
        let (gone, questions) = Asker::new();
        drop(questions);
        assert_eq!(answer(Some(gone), long).await.unwrap_err(), Silence::Disconnected);
    }
}
