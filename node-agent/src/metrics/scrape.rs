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
        match answer(asker).await {
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

async fn answer(asker: Option<Asker>) -> Result<VmAnswer, Silence> {
    let asker = asker.ok_or(Silence::Disconnected)?;
    let ask = async {
        let info = asker.info().await?;
        let counters = *asker.counters().await?;
        let memory = asker.memory().await?;
        Ok::<_, AskError>(VmAnswer { info, counters, memory })
    };
    match timeout(ANSWER_WITHIN, ask).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Silence::Late),
    }
}
