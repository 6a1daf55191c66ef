//! Whether there should be a VirtualMachineInstance. Pure.

use super::start_failure;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::{
    Phase, StateChangeRequest, VirtualMachineSpec, VirtualMachineStatus,
};
use corten_resources::validate::Finding;
use jiff::Timestamp;

/// When a VirtualMachine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Always: one that ends is started again.
    Always,
    /// Never.
    Halted,
    /// When it is asked for.
    Manual,
    /// From the start on; one that fails is started again.
    RerunOnFailure,
    /// One time, however it ends.
    Once,
}

impl Strategy {
    /// As objects name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Halted => "Halted",
            Self::Manual => "Manual",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Once => "Once",
        }
    }

    /// What the object says. `running` is the older way to say Always or Halted.
    pub fn of(spec: &VirtualMachineSpec) -> Result<Self, Finding> {
        match (spec.run_strategy.as_deref(), spec.running) {
            (Some(_), Some(_)) => Err(Finding::invalid(
                "spec.running",
                "running and runStrategy exclude each other: take one of them out",
            )),
            (None, Some(true)) | (Some("Always"), None) => Ok(Self::Always),
            (None, Some(false) | None) | (Some("Halted"), None) => Ok(Self::Halted),
            (Some("Manual"), None) => Ok(Self::Manual),
            (Some("RerunOnFailure"), None) => Ok(Self::RerunOnFailure),
            (Some("Once"), None) => Ok(Self::Once),
            (Some(other), None) => Err(Finding::not_served(
                "spec.runStrategy",
                format!(
                    "{other} is not served: write Always, Halted, Manual, RerunOnFailure or Once"
                ),
            )),
        }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is as it should be, or on its way there.
    Nothing,
    /// The instance is to be made.
    Start {
        /// Its processors wait to be told to go.
        paused: bool,
    },
    /// It is to be made, but not before this.
    Wait(Timestamp),
    /// The instance is to be deleted.
    Stop,
    /// The strategy itself is to become Always: somebody asked for a start of what is halted, which only `virtctl start
    /// --paused` does; any other start changes the strategy by itself.
    BecomeAlways,
}

/// What comes next, and which of the requests are still to be served after that.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) step: Step,
    pub(super) requests: Vec<StateChangeRequest>,
}

/// `status` has the failures up to now in it, see [`start_failure::after`].
pub(super) fn decide(
    strategy: Strategy,
    instance: Option<&VirtualMachineInstance>,
    status: &VirtualMachineStatus,
    now: Timestamp,
) -> Decision {
    let mut requests = pending(&status.state_change_requests, instance);
    if strategy == Strategy::Halted {
        // Whoever halts it takes back what was asked for before, by a rerun for example.
        requests.retain(|request| is_stop(request) || is_paused(request) && !is_taken_up(request));
    }
    let start = requests.iter().find(|request| is_start(request)).cloned();
    let Some(vmi) = instance else {
        let step = absent(strategy, start.as_ref(), status, now);
        if matches!(step, Step::Start { .. }) {
            requests.retain(|request| !is_start(request));
        }
        return Decision { step, requests };
    };
    if is_going(vmi) {
        return Decision { step: Step::Nothing, requests };
    }
    let (phase, stop) = (vmi.status.phase, requests.iter().any(is_stop));
    let failed = phase == Phase::Failed;
    let over = match strategy {
        Strategy::Halted => true,
        Strategy::Always => phase.is_final(),
        Strategy::RerunOnFailure => failed || phase.is_final() && start.is_some(),
        Strategy::Manual | Strategy::Once => phase.is_final() && start.is_some(),
    };
    if strategy == Strategy::RerunOnFailure && failed && !stop && start.is_none() {
        // Once it is deleted nothing else would tell that it had failed.
        requests.push(StateChangeRequest { action: START.to_owned(), ..Default::default() });
    }
    Decision { step: if over || stop { Step::Stop } else { Step::Nothing }, requests }
}

/// There is no instance.
fn absent(
    strategy: Strategy,
    start: Option<&StateChangeRequest>,
    status: &VirtualMachineStatus,
    now: Timestamp,
) -> Step {
    // What was last acted on is written only when the instance has been made.
    let is_new = status.run_strategy.as_deref() != Some(strategy.as_str());
    let wanted = match strategy {
        Strategy::Halted if start.is_some() => return Step::BecomeAlways,
        Strategy::Halted => false,
        Strategy::Always => true,
        Strategy::Manual => start.is_some(),
        Strategy::RerunOnFailure | Strategy::Once => start.is_some() || is_new,
    };
    match start_failure::retry(status) {
        _ if !wanted => Step::Nothing,
        Some(due) if now < due => Step::Wait(due),
        _ => Step::Start { paused: start.is_some_and(is_paused) },
    }
}

const START: &str = "Start";
const STOP: &str = "Stop";
/// Among a paused start's data: the strategy under which it was last seen.
const STRATEGY: &str = "runStrategy";

fn is_start(request: &StateChangeRequest) -> bool {
    request.action == START
}

fn is_stop(request: &StateChangeRequest) -> bool {
    request.action == STOP
}

/// A start with processors that wait to be told to go.
fn is_paused(request: &StateChangeRequest) -> bool {
    is_start(request) && request.data.get("paused").is_some_and(|paused| paused == "true")
}

/// Notes in paused starts that are still to be served under which strategy they were seen. Halted becomes Always for one of
/// them once: whoever halts it then means it.
pub(super) fn take_up(requests: &mut [StateChangeRequest], spec: &VirtualMachineSpec) {
    let Ok(strategy) = Strategy::of(spec) else { return };
    for request in requests.iter_mut().filter(|request| is_paused(request)) {
        if strategy != Strategy::Halted {
            request.data.insert(STRATEGY.to_owned(), strategy.as_str().to_owned());
        }
    }
}

fn is_taken_up(request: &StateChangeRequest) -> bool {
    request.data.contains_key(STRATEGY)
}

/// Its deletion has been asked for.
pub(super) fn is_going(vmi: &VirtualMachineInstance) -> bool {
    vmi.metadata.deletion_timestamp.is_some()
}

/// Without those that are served: a stop when its instance is on its way out or gone, a start when there is an instance
/// that is not about to be stopped. A stop stays until then, so that a deletion that fails is tried again; and it takes back
/// the starts before it.
fn pending(
    requests: &[StateChangeRequest],
    instance: Option<&VirtualMachineInstance>,
) -> Vec<StateChangeRequest> {
    let mut left: Vec<StateChangeRequest> = Vec::new();
    for request in requests {
        if is_stop(request) {
            left.retain(|earlier| !is_start(earlier));
        }
        let is_pending = match (request.action.as_str(), instance) {
            (STOP, Some(vmi)) => {
                let meant = request.uid.as_deref().filter(|uid| !uid.is_empty());
                !is_going(vmi) && meant.is_none_or(|uid| vmi.metadata.uid.as_deref() == Some(uid))
            }
            (START, Some(vmi)) => {
                is_going(vmi) || vmi.status.phase.is_final() || left.iter().any(is_stop)
            }
            (START, None) => true,
            _ => false,
        };
        if is_pending {
            left.push(request.clone());
        }
    }
    left
}

#[cfg(test)]
#[path = "strategy_tests.rs"]
mod tests;
