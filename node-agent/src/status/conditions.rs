//! Conditions of a VMI that the agent writes.

use corten_link::{AgentReport, RunState};
use corten_resources::types::{Condition, ConditionStatus, VirtualMachineInstanceStatus};
use jiff::Timestamp;

use super::facts::{Facts, Heeds, Run};
use super::guest::short;
use super::phase::seconds;

/// Condition: the guest stands still. As in KubeVirt it is there only while it does.
pub const PAUSED: &str = "Paused";
/// Condition: the agent in the guest answers. It is there only while it does.
pub const AGENT_CONNECTED: &str = "AgentConnected";
/// Condition: the agent in the guest does not know all that is wanted of it.
pub const AGENT_UNSUPPORTED: &str = "AgentVersionNotSupported";
/// Condition: what was changed in the object is not heeded before the guest is started anew.
pub const RESTART_REQUIRED: &str = "RestartRequired";

/// A condition as it is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people. Cut if it is long.
    pub message: String,
}

impl Claim {
    /// That it holds.
    pub fn holds(reason: &str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::True, reason: reason.into(), message: message.into() }
    }
}

/// Says what is known, and leaves alone what is not, and all of others'.
pub(super) fn write(
    status: &mut VirtualMachineInstanceStatus,
    facts: &Facts,
    runs: bool,
    now: Timestamp,
) {
    if runs {
        if let Some(run) = &facts.run {
            say(status, PAUSED, paused(run).as_ref(), now);
        }
        if let Some(report) = &facts.guest {
            say(status, AGENT_CONNECTED, connected(report).as_ref(), now);
            say(status, AGENT_UNSUPPORTED, unsupported(report).as_ref(), now);
        }
        if let Some(heeds) = &facts.heeds {
            say(status, RESTART_REQUIRED, restart(heeds).as_ref(), now);
        }
    }
    for (kind, claim) in &facts.conditions {
        say(status, kind, claim.as_ref(), now);
    }
}

fn paused(run: &Run) -> Option<Claim> {
    match (run.state, run.cause.as_str()) {
        (RunState::Running, _) => None,
        (RunState::Paused, "") => Some(Claim::holds("PausedByUser", "VMI was paused by user")),
        (RunState::Paused, cause) => {
            let message = format!("VMI was paused, IO error: {cause}");
            Some(Claim::holds("PausedIOError", message))
        }
    }
}

fn connected(report: &AgentReport) -> Option<Claim> {
    report.connected.then(|| Claim::holds("", ""))
}

fn unsupported(report: &AgentReport) -> Option<Claim> {
    // Before it has said which commands it knows, none is missing.
    if !report.connected || report.guest.supported_commands.is_empty() {
        return None;
    }
    let missing = report.guest.missing_commands();
    let message = || format!("the agent in the guest does not know {}", missing.join(", "));
    (!missing.is_empty()).then(|| Claim::holds("CommandsMissing", message()))
}

fn restart(heeds: &Heeds) -> Option<Claim> {
    match heeds {
        Heeds::All => None,
        Heeds::Refuses(reason) => Some(Claim::holds("ChangeRefused", reason)),
    }
}

/// Sets a condition, whose time changes only with its status, or takes it away.
fn say(
    status: &mut VirtualMachineInstanceStatus,
    kind: &str,
    claim: Option<&Claim>,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    let Some(claim) = claim else {
        conditions.retain(|condition| condition.kind != kind);
        return;
    };
    let (reason, message) = (short(&claim.reason), short(&claim.message));
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.kind == kind) {
        if condition.status != claim.status {
            condition.status = claim.status;
            condition.last_transition_time = Some(seconds(now));
        }
        condition.reason = reason;
        condition.message = message;
        return;
    }
    conditions.push(Condition {
        kind: kind.to_owned(),
        status: claim.status,
        last_transition_time: Some(seconds(now)),
        reason,
        message,
        ..Condition::default()
    });
}
