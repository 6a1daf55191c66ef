//! Every strategy, every state of the instance, every request.

use super::*;
use crate::vm::testing::{VMI_UID, ended, going, running, starting};
use crate::vmi::testing::now;
use serde_json::{Value, json};

const ALL: [Strategy; 5] = [
    Strategy::Always,
    Strategy::Halted,
    Strategy::Manual,
    Strategy::RerunOnFailure,
    Strategy::Once,
];

const NOTHING: Step = Step::Nothing;
const STOP_IT: Step = Step::Stop;
const START_IT: Step = Step::Start { paused: false };
const ALWAYS: Step = Step::BecomeAlways;

fn states() -> Vec<(&'static str, Option<VirtualMachineInstance>)> {
    vec![
        ("absent", None),
        ("starting", Some(starting())),
        ("running", Some(running(|_| ()))),
        ("succeeded", Some(ended(Phase::Succeeded, |_| ()))),
        ("failed", Some(ended(Phase::Failed, |_| ()))),
        ("going", Some(going(&running(|_| ())))),
        ("failed and going", Some(going(&ended(Phase::Failed, |_| ())))),
    ]
}

/// One that has acted on its strategy before.
fn status(strategy: Strategy, requests: &Value) -> VirtualMachineStatus {
    serde_json::from_value(
        json!({ "runStrategy": strategy.as_str(), "stateChangeRequests": requests }),
    )
    .unwrap()
}

fn decided(
    strategy: Strategy,
    instance: Option<&VirtualMachineInstance>,
    requests: &Value,
) -> Decision {
    decide(strategy, instance, &status(strategy, requests), now(0))
}

/// The steps of each strategy, in the order of `ALL`, for each state in the order of `states`.
fn table(requests: &Value, expected: &[[Step; 5]; 7]) {
    for ((state, instance), row) in states().iter().zip(expected) {
        for (strategy, step) in ALL.iter().zip(row) {
            let decision = decided(*strategy, instance.as_ref(), requests);
            assert_eq!(decision.step, *step, "{strategy:?}, {state}, {requests}");
        }
    }
}

#[test]
fn without_requests() {
    table(
        &json!([]),
        &[
            // Always, Halted, Manual, RerunOnFailure, Once
            [START_IT, NOTHING, NOTHING, NOTHING, NOTHING],
            [NOTHING, STOP_IT, NOTHING, NOTHING, NOTHING],
            [NOTHING, STOP_IT, NOTHING, NOTHING, NOTHING],
            [STOP_IT, STOP_IT, NOTHING, NOTHING, NOTHING],
            [STOP_IT, STOP_IT, NOTHING, STOP_IT, NOTHING],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
        ],
    );
}

#[test]
fn with_a_start() {
    table(
        &json!([{ "action": "Start" }]),
        &[
            [START_IT, NOTHING, START_IT, START_IT, START_IT],
            [NOTHING, STOP_IT, NOTHING, NOTHING, NOTHING],
            [NOTHING, STOP_IT, NOTHING, NOTHING, NOTHING],
            [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
            [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
        ],
    );
}

#[test]
fn with_a_stop_of_this_instance() {
    for uid in [json!(VMI_UID), Value::Null] {
        table(
            &json!([{ "action": "Stop", "uid": uid }]),
            &[
                [START_IT, NOTHING, NOTHING, NOTHING, NOTHING],
                [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
                [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
                [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
                [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
                [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
                [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
            ],
        );
    }
}

#[test]
fn with_a_stop_of_another_instance() {
    table(
        &json!([{ "action": "Stop", "uid": "an earlier one" }]),
        &[
            [START_IT, NOTHING, NOTHING, NOTHING, NOTHING],
            [NOTHING, STOP_IT, NOTHING, NOTHING, NOTHING],
            [NOTHING, STOP_IT, NOTHING, NOTHING, NOTHING],
            [STOP_IT, STOP_IT, NOTHING, NOTHING, NOTHING],
            [STOP_IT, STOP_IT, NOTHING, STOP_IT, NOTHING],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
        ],
    );
}

#[test]
fn with_a_restart() {
    table(
        &json!([{ "action": "Stop", "uid": VMI_UID }, { "action": "Start" }]),
        &[
            [START_IT, NOTHING, START_IT, START_IT, START_IT],
            [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
            [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
            [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
            [STOP_IT, STOP_IT, STOP_IT, STOP_IT, STOP_IT],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
            [NOTHING, NOTHING, NOTHING, NOTHING, NOTHING],
        ],
    );
}

#[test]
fn a_restart_keeps_its_start_until_there_is_a_new_instance() {
    let requests = json!([{ "action": "Stop", "uid": VMI_UID }, { "action": "Start" }]);
    let actions = |vmi: Option<&VirtualMachineInstance>| -> Vec<String> {
        let decision = decided(Strategy::Manual, vmi, &requests);
        decision.requests.into_iter().map(|request| request.action).collect()
    };
    let old = running(|_| ());
    assert_eq!(actions(Some(&old)), ["Stop", "Start"]);
    assert_eq!(actions(Some(&going(&old))), ["Start"]);
    assert!(actions(None).is_empty(), "it is served with the start");
    let new = running(|vmi| vmi["metadata"]["uid"] = json!("new"));
    assert!(actions(Some(&new)).is_empty());
}

#[test]
fn strategies_that_run_from_the_beginning_start_what_is_new_to_them() {
    for strategy in [Strategy::RerunOnFailure, Strategy::Once] {
        for before in [Value::Null, json!("Halted"), json!("Manual")] {
            let status = serde_json::from_value(json!({ "runStrategy": before })).unwrap();
            let decision = decide(strategy, None, &status, now(0));
            assert_eq!(decision.step, START_IT, "{strategy:?} after {before}");
        }
    }
    let status = VirtualMachineStatus::default();
    assert_eq!(decide(Strategy::Manual, None, &status, now(0)).step, NOTHING);
}

#[test]
fn a_failed_run_asks_for_its_rerun_unless_it_was_to_stop() {
    let failed = ended(Phase::Failed, |_| ());
    let rerun = decided(Strategy::RerunOnFailure, Some(&failed), &json!([]));
    assert_eq!(rerun.requests.len(), 1);
    assert_eq!(rerun.requests[0].action, "Start");
    let stop = decided(Strategy::RerunOnFailure, Some(&failed), &json!([{ "action": "Stop" }]));
    assert_eq!(stop.requests.iter().filter(|request| request.action == "Start").count(), 0);
    let succeeded = ended(Phase::Succeeded, |_| ());
    assert!(decided(Strategy::RerunOnFailure, Some(&succeeded), &json!([])).requests.is_empty());
}

#[test]
fn a_start_waits_for_the_end_of_the_pause() {
    let mut status = status(Strategy::Always, &json!([]));
    status.start_failure =
        serde_json::from_value(json!({ "retryAfterTimestamp": now(10).to_string() })).unwrap();
    let step = |at| decide(Strategy::Always, None, &status, now(at)).step;
    assert_eq!(step(9), Step::Wait(now(10)));
    assert_eq!(step(10), START_IT);
}

#[test]
fn a_paused_start_is_paused() {
    let requests = json!([{ "action": "Start", "data": { "paused": "true" } }]);
    assert_eq!(decided(Strategy::Manual, None, &requests).step, Step::Start { paused: true });
    let kept = decided(Strategy::Halted, None, &requests);
    assert_eq!(
        (kept.step, kept.requests.len()),
        (ALWAYS, 1),
        "it is served by the start that follows"
    );
}

#[test]
fn whoever_halts_it_takes_back_a_paused_start_that_cannot_be_served() {
    let requests = json!([{ "action": "Start", "data": { "paused": "true" } }]);
    let mut requests: Vec<StateChangeRequest> = serde_json::from_value(requests).unwrap();
    let spec = |strategy: &str| serde_json::from_value(json!({ "runStrategy": strategy })).unwrap();
    take_up(&mut requests, &spec("Halted"));
    let asked = json!(requests);
    assert_eq!(decided(Strategy::Halted, None, &asked).step, ALWAYS);
    take_up(&mut requests, &spec("Always"));
    let seen = json!(requests);
    assert_eq!(decided(Strategy::Always, None, &seen).step, Step::Start { paused: true });
    let taken_back = Decision { step: NOTHING, requests: Vec::new() };
    assert_eq!(decided(Strategy::Halted, None, &seen), taken_back);
}

#[test]
fn a_stop_takes_back_the_starts_before_it() {
    let requests = json!([{ "action": "Start" }, { "action": "Stop", "uid": "an earlier one" }]);
    let taken_back = Decision { step: NOTHING, requests: Vec::new() };
    assert_eq!(decided(Strategy::Manual, None, &requests), taken_back);
    assert_eq!(decided(Strategy::RerunOnFailure, None, &requests), taken_back);
}

#[test]
fn whoever_halts_it_takes_back_a_rerun() {
    let decision = decided(Strategy::Halted, None, &json!([{ "action": "Start" }]));
    assert_eq!(decision, Decision { step: NOTHING, requests: Vec::new() });
}

#[test]
fn requests_of_a_kind_that_nobody_knows_are_dropped() {
    let decision = decided(Strategy::Manual, None, &json!([{ "action": "Dance" }]));
    assert_eq!(decision, Decision { step: NOTHING, requests: Vec::new() });
}

#[test]
fn the_strategy_is_read_and_running_is_the_older_way_to_say_it() {
    let of = |spec: Value| {
        Strategy::of(&serde_json::from_value(spec).unwrap()).map_err(|finding| finding.path)
    };
    assert_eq!(of(json!({ "running": true })), Ok(Strategy::Always));
    assert_eq!(of(json!({ "running": false })), Ok(Strategy::Halted));
    assert_eq!(of(json!({})), Ok(Strategy::Halted));
    for strategy in ALL {
        assert_eq!(of(json!({ "runStrategy": strategy.as_str() })), Ok(strategy));
    }
    assert_eq!(of(json!({ "runStrategy": "Always", "running": true })), Err("spec.running".into()));
    assert_eq!(of(json!({ "runStrategy": "WaitAsReceiver" })), Err("spec.runStrategy".into()));
}
