//! What is told in the status of a KubeVirt object. Pure.

use corten_resources::cluster::KubeVirt;
use corten_resources::types::{Condition, ConditionStatus, GenerationStatus};
use jiff::Timestamp;
use serde_json::Value;

/// This release, as KubeVirt writes versions.
pub(super) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const CREATED: &str = "Created";

/// How it stands with what an object installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Another object is older.
    Superfluous { elected: String },
    /// There are no certificates yet.
    Waiting,
    /// Something could not be applied.
    Failed(String),
    /// Something was just applied.
    Applied,
    /// All is there; this is how it stands with the agents.
    Complete(Rollout),
    /// It goes, or would if these VirtualMachineInstances did not exist.
    Leaving { blocked_by: Option<i64> },
}

/// How it stands with the node agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rollout {
    /// The API server's controllers have seen the present DaemonSet.
    pub(super) seen: bool,
    pub(super) wanted: i64,
    pub(super) updated: i64,
    pub(super) available: i64,
}

impl Rollout {
    /// Read from what there is.
    pub(super) fn of(live: &[Value]) -> Self {
        let Some(agents) = live.iter().find(|object| object["kind"] == "DaemonSet") else {
            return Self::default();
        };
        let number = |name: &str| agents["status"][name].as_i64().unwrap_or(0);
        let generation = agents["metadata"]["generation"].as_i64().unwrap_or(0);
        Self {
            seen: number("observedGeneration") >= generation && agents["status"].is_object(),
            wanted: number("desiredNumberScheduled"),
            updated: number("updatedNumberScheduled"),
            available: number("numberAvailable"),
        }
    }

    fn is_done(self) -> bool {
        self.seen && self.updated >= self.wanted && self.available >= self.wanted
    }
}

/// What is to be installed, for those who want to know which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: String,
    pub(super) registry: String,
    pub(super) version: String,
}

/// The object with its status as it should be.
pub(super) fn with_status(
    object: &KubeVirt,
    state: &State,
    target: Option<&Target>,
    live: &[Value],
    now: Timestamp,
) -> KubeVirt {
    let mut object = object.clone();
    let was_available = object
        .status
        .condition(AVAILABLE)
        .is_some_and(|condition| condition.status == ConditionStatus::True);
    let told = Told::of(state, was_available);
    let status = &mut object.status;
    status.phase = told.phase.map(str::to_owned).or(status.phase.take());
    status.operator_version = Some(VERSION.to_owned());
    status.observed_generation = object.metadata.generation;
    status.default_architecture = Some("amd64".to_owned());
    if let Some(target) = target {
        status.target_deployment_id = Some(target.id.clone());
        status.target_kube_virt_registry = Some(target.registry.clone());
        status.target_kube_virt_version = Some(target.version.clone());
        if matches!(state, State::Complete(rollout) if rollout.is_done()) {
            status.observed_deployment_id = Some(target.id.clone());
            status.observed_kube_virt_registry = Some(target.registry.clone());
            status.observed_kube_virt_version = Some(target.version.clone());
        }
        status.generations = generations(live);
    }
    for (kind, holds) in [
        (CREATED, told.created),
        (AVAILABLE, told.available),
        (PROGRESSING, told.progressing),
        (DEGRADED, told.degraded),
    ] {
        set(&mut status.conditions, kind, holds, told.reason, &told.message, now);
    }
    object
}

/// What a state means.
struct Told {
    phase: Option<&'static str>,
    created: bool,
    available: bool,
    progressing: bool,
    degraded: bool,
    reason: &'static str,
    message: String,
}

impl Told {
    fn of(state: &State, was_available: bool) -> Self {
        let going_on = Self {
            phase: Some("Deploying"),
            created: false,
            available: was_available,
            progressing: true,
            degraded: false,
            reason: if was_available { "UpdateInProgress" } else { "DeploymentInProgress" },
            message: "objects are being applied".to_owned(),
        };
        match state {
            State::Superfluous { elected } => Self {
                phase: None,
                available: false,
                progressing: false,
                degraded: true,
                reason: "ExistingDeployment",
                message: format!(
                    "the older KubeVirt object {elected} counts, this one does not: delete one of the two"
                ),
                ..going_on
            },
            State::Waiting => Self {
                message: "waiting for the certificates of the webhooks".to_owned(),
                ..going_on
            },
            State::Failed(why) => Self {
                phase: Some("Error"),
                degraded: true,
                reason: "DeploymentFailed",
                message: why.clone(),
                ..going_on
            },
            State::Applied => going_on,
            State::Complete(rollout) if rollout.is_done() => Self {
                phase: Some("Deployed"),
                created: true,
                available: true,
                progressing: false,
                reason: "AllComponentsReady",
                message: agents(*rollout),
                ..going_on
            },
            // Not all nodes: those that have an agent can be used.
            State::Complete(rollout) => Self {
                phase: Some(if was_available { "Deployed" } else { "Deploying" }),
                created: true,
                available: was_available && rollout.available > 0,
                progressing: !rollout.seen || rollout.updated < rollout.wanted || !was_available,
                degraded: was_available && rollout.available < rollout.wanted,
                message: agents(*rollout),
                ..going_on
            },
            State::Leaving { blocked_by } => Self {
                phase: Some("Deleting"),
                available: was_available && blocked_by.is_some_and(|count| count > 0),
                degraded: blocked_by.is_some_and(|count| count > 0),
                reason: "DeletionInProgress",
                message: match blocked_by {
                    Some(count) if *count > 0 => format!(
                        "{count} VirtualMachineInstances exist: everything stays until they are deleted"
                    ),
                    _ => "what was installed is being removed".to_owned(),
                },
                ..going_on
            },
        }
    }
}

fn agents(rollout: Rollout) -> String {
    let Rollout { wanted, updated, available, .. } = rollout;
    if !rollout.seen {
        return "the node agents' DaemonSet was not looked at yet".to_owned();
    }
    if rollout.is_done() {
        return format!("node agents run on all {wanted} nodes");
    }
    format!("node agents: {available} of {wanted} available, {updated} up to date")
}

/// Sets a condition; its time changes only with its status.
fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
    let index = conditions.iter().position(|condition| condition.kind == kind);
    let condition = match index.and_then(|index| conditions.get_mut(index)) {
        Some(condition) => condition,
        None => conditions.push_mut(Condition { kind: kind.to_owned(), ..Condition::default() }),
    };
    if condition.status != status || condition.last_transition_time.is_none() {
        condition.status = status;
        condition.last_transition_time = Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message.to_owned());
}

/// Which generation of the agents there is.
fn generations(live: &[Value]) -> Vec<GenerationStatus> {
    let text = |object: &Value, path: &str| {
        object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    live.iter()
        .filter(|object| object["kind"] == "DaemonSet")
        .map(|object| GenerationStatus {
            group: "apps".to_owned(),
            resource: "daemonsets".to_owned(),
            namespace: Some(text(object, "/metadata/namespace")),
            name: text(object, "/metadata/name"),
            last_generation: object["metadata"]["generation"].as_i64().unwrap_or(0),
            ..GenerationStatus::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    fn object() -> KubeVirt {
        serde_json::from_value(json!({ "metadata": { "name": "kubevirt", "generation": 4 } }))
            .unwrap()
    }

    fn target() -> Target {
        Target { id: "abc".into(), registry: "corten.test".into(), version: "v1".into() }
    }

    fn rollout(wanted: i64, updated: i64, available: i64) -> State {
        State::Complete(Rollout { seen: true, wanted, updated, available })
    }

    /// Phase, and which of Created, Available, Progressing, Degraded hold.
    fn told(object: &KubeVirt) -> (String, String) {
        let holds = |kind| {
            let condition = object.status.condition(kind).unwrap();
            if condition.status == ConditionStatus::True { &kind[..1] } else { "-" }
        };
        let conditions = [CREATED, AVAILABLE, PROGRESSING, DEGRADED].map(holds).concat();
        (object.status.phase.clone().unwrap_or_default(), conditions)
    }

    #[test]
    fn states_and_what_is_told_of_them() {
        let new = object();
        let up = with_status(&new, &rollout(2, 2, 2), Some(&target()), &[], at(0));
        let failed = State::Failed("no".into());
        let cases = [
            ("no certificates", &new, State::Waiting, "Deploying", "--P-"),
            ("just applied", &new, State::Applied, "Deploying", "--P-"),
            ("cannot be applied", &new, failed.clone(), "Error", "--PD"),
            ("agents are starting", &new, rollout(2, 2, 1), "Deploying", "C-P-"),
            ("no node yet", &new, rollout(0, 0, 0), "Deployed", "CA--"),
            ("all is up", &new, rollout(2, 2, 2), "Deployed", "CA--"),
            ("not seen yet", &new, State::Complete(Rollout::default()), "Deploying", "C-P-"),
            ("update", &up, State::Applied, "Deploying", "-AP-"),
            ("update under way", &up, rollout(2, 1, 1), "Deployed", "CAPD"),
            ("a node is lost", &up, rollout(2, 2, 1), "Deployed", "CA-D"),
            ("every node is lost", &up, rollout(2, 2, 0), "Deployed", "C--D"),
            ("update fails", &up, failed, "Error", "-APD"),
            ("another is older", &new, State::Superfluous { elected: "a/b".into() }, "", "---D"),
            ("deleted, with VMs", &up, State::Leaving { blocked_by: Some(3) }, "Deleting", "-APD"),
            ("deleted", &up, State::Leaving { blocked_by: None }, "Deleting", "--P-"),
        ];
        for (case, object, state, phase, conditions) in cases {
            let after = with_status(object, &state, Some(&target()), &[], at(1));
            assert_eq!(told(&after), (phase.to_owned(), conditions.to_owned()), "{case}");
            assert_eq!(after.status.observed_generation, Some(4), "{case}");
            assert_eq!(after.status.operator_version.as_deref(), Some(VERSION), "{case}");
            assert_eq!(after.status.target_deployment_id.as_deref(), Some("abc"), "{case}");
        }
    }

    #[test]
    fn what_is_observed_follows_when_all_is_up() {
        let started = with_status(&object(), &rollout(2, 2, 1), Some(&target()), &[], at(0));
        assert_eq!(started.status.observed_deployment_id, None);
        let up = with_status(&started, &rollout(2, 2, 2), Some(&target()), &[], at(0));
        assert_eq!(up.status.observed_deployment_id.as_deref(), Some("abc"));
        assert_eq!(up.status.observed_kube_virt_version.as_deref(), Some("v1"));
        assert_eq!(up.status.observed_kube_virt_registry.as_deref(), Some("corten.test"));
    }

    #[test]
    fn times_of_conditions_change_with_their_status_only() {
        let first = with_status(&object(), &State::Applied, None, &[], at(0));
        let second = with_status(&first, &rollout(1, 1, 0), None, &[], at(5));
        let third = with_status(&second, &rollout(1, 1, 1), None, &[], at(9));
        let time = |object: &KubeVirt, kind| {
            object.status.condition(kind).unwrap().last_transition_time.clone().unwrap()
        };
        assert_eq!(time(&second, PROGRESSING), "2026-01-01T00:00:00Z");
        assert_eq!(time(&third, PROGRESSING), "2026-01-01T00:00:09Z");
        assert_eq!(third.status.conditions.len(), 4);
        assert_eq!(with_status(&third, &rollout(1, 1, 1), None, &[], at(20)), third);
    }

    #[test]
    fn agents_are_counted_from_their_daemon_set() {
        let live = [
            json!({ "kind": "DaemonSet", "metadata": { "generation": 2, "name": "a", "namespace": "n" }, "status": {
            "observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 2, "numberAvailable": 1 } }),
        ];
        let expected = Rollout { seen: true, wanted: 3, updated: 2, available: 1 };
        assert_eq!(Rollout::of(&live), expected);
        let newer = [
            json!({ "kind": "DaemonSet", "metadata": { "generation": 3 }, "status": { "observedGeneration": 2 } }),
        ];
        assert!(!Rollout::of(&newer).seen && !Rollout::of(&[]).seen);
        let object = with_status(&object(), &State::Applied, Some(&target()), &live, at(0));
        assert_eq!(object.status.generations[0].last_generation, 2);
    }
}
