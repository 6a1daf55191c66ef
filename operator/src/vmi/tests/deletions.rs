//! Deletion in every phase, with the operator there or coming back later.

use super::*;
use kube::ResourceExt;

#[test]
fn deletion_deletes_the_pod_and_waits_for_its_end() {
    let vmi = deleted(&running());
    let first = planned(&vmi, Some(running_pod(&vmi)), 60);
    assert!(first.vmi.is_none());
    assert_eq!((first.delete.len(), first.notices[0].reason), (1, "SuccessfulDelete"));

    let mut going = running_pod(&vmi);
    going.metadata.deletion_timestamp = vmi.metadata.deletion_timestamp.clone();
    let waiting = planned(&vmi, Some(going), 61);
    assert!(waiting.vmi.is_none() && waiting.delete.is_empty() && waiting.notices.is_empty());

    let ended = planned(&vmi, Some(ended_pod(&vmi, 0)), 70);
    assert_eq!(after(&ended).status.phase, Phase::Succeeded);
    assert_eq!((ended.release.len(), ended.delete.len()), (1, 0));
    assert!(!after(&ended).finalizers().is_empty(), "the Pod is let go first");

    let vmi = after(&ended).clone();
    for pod in [None, Some(free(ended_pod(&vmi, 0)))] {
        let last = planned(&vmi, pod, 71);
        assert!(after(&last).finalizers().is_empty() && last.release.is_empty());
    }
}

#[test]
fn deletion_with_the_pod_already_gone_lets_go() {
    let plan = planned(&deleted(&running()), None, 60);
    assert!(after(&plan).finalizers().is_empty() && plan.create.is_none());
    assert_eq!(after(&plan).status.phase, Phase::Failed);
}

#[test]
fn deletion_waits_for_pods_of_earlier_attempts_too() {
    let vmi = deleted(&bound());
    let mut observed = observed(None, Some(node("node1", |_| ())));
    observed.earlier = vec![Arc::new(running_pod(&vmi))];
    let plan = plan(&vmi, &observed, &settings(), now(60));
    assert!(plan.vmi.is_none() && plan.delete.len() == 1);
}

/// As the garbage collector leaves it after `kubectl delete --cascade=orphan`.
fn stripped(mut pod: Pod) -> Pod {
    pod.owner_references_mut().clear();
    pod
}

#[test]
fn deletion_without_dependents_waits_for_the_pod_all_the_same() {
    let vmi = deleted(&running());
    let first = planned(&vmi, Some(stripped(running_pod(&vmi))), 60);
    assert!(first.vmi.is_none() && first.delete.len() == 1);
    let waiting = planned(&vmi, Some(going(stripped(running_pod(&vmi)))), 61);
    assert!(waiting.vmi.is_none() && waiting.again.is_some());
    let ended = planned(&vmi, Some(stripped(ended_pod(&vmi, 0))), 70);
    assert!(!after(&ended).finalizers().is_empty() && ended.release.len() == 1);
}

#[test]
fn a_pod_of_somebody_elses_in_the_name_of_ours_does_not_hide_that_ours_may_run() {
    let vmi = deleted(&running());
    let foreign = |pod: Pod| {
        let mut pod = free(stripped(pod));
        pod.metadata.uid = Some("another".to_owned());
        pod
    };
    let silent = node("node1", |node| node["status"]["conditions"][0]["status"] = json!("Unknown"));
    let plan = planned_on(&vmi, Some(foreign(running_pod(&vmi))), Some(silent), 60);
    assert!(plan.again.is_some() && plan.delete.is_empty());
    assert!(!after(&plan).finalizers().is_empty(), "its node may run it");
}

#[test]
fn what_an_earlier_object_of_the_name_left_ends_before_this_one_starts() {
    let earlier = minimal_vmi(|vmi| vmi["metadata"]["uid"] = json!("an-earlier-one"));
    let vmi = accepted(|_| ());
    let with = |pod: Pod| {
        let mut observed = observed(None, Some(node("node1", |_| ())));
        observed.left = vec![Arc::new(pod)];
        plan(&vmi, &observed, &settings(), now(60))
    };
    let waiting = with(running_pod(&earlier));
    assert!(waiting.create.is_none() && waiting.again.is_some());
    let condition = after(&waiting).status.condition(status::SYNCHRONIZED).unwrap();
    assert_eq!(condition.reason.as_deref(), Some("EarlierPodRuns"));
    assert!(with(ended_pod(&earlier, 0)).create.is_some());
}

#[test]
fn deletion_of_an_ended_object_keeps_its_end() {
    let vmi = running();
    let ended = deleted(after(&planned(&vmi, Some(ended_pod(&vmi, 81)), 9)));
    let first = planned(&ended, Some(ended_pod(&vmi, 81)), 60);
    assert!(first.vmi.is_none() && first.release.len() == 1);
    let plan = planned(&ended, Some(free(ended_pod(&vmi, 81))), 60);
    let wanted = after(&plan);
    assert!(wanted.finalizers().is_empty());
    assert_eq!(wanted.status, ended.status);
}

#[test]
fn an_object_that_was_never_accepted_is_left_alone_in_its_deletion() {
    let vmi = deleted(&minimal_vmi(|vmi| vmi["metadata"]["finalizers"] = json!(["other/one"])));
    let plan = planned(&vmi, None, 60);
    assert!(plan.vmi.is_none() && plan.create.is_none());
}

/// The same Pod without our finalizer.
fn free(mut pod: Pod) -> Pod {
    pod.finalizers_mut().clear();
    pod
}

/// What becomes of an object and its Pod if plans are carried out and kubelet does what it is told.
fn play(mut vmi: VirtualMachineInstance, mut pod: Option<Pod>) -> Vec<&'static str> {
    let mut story = Vec::new();
    for step in 0..12 {
        let plan = planned(&vmi, pod.clone(), 60 + step);
        assert!(plan.create.is_none(), "nothing is begun in a deletion");
        if let Some(wanted) = plan.vmi {
            vmi = *wanted;
            if vmi.finalizers().is_empty() {
                assert!(pod.as_ref().is_none_or(|pod| pod.finalizers().is_empty()), "{story:?}");
                story.push("let go");
                return story;
            }
        }
        if !plan.release.is_empty() {
            story.push("Pod let go");
            pod = pod.map(free).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        } else if !plan.delete.is_empty() {
            story.push("Pod deleted");
            pod = pod.map(going);
        } else if let Some(there) = pod.take() {
            // kubelet's turn.
            let mut ended = serde_json::to_value(there).unwrap();
            ended["status"]["phase"] = json!("Succeeded");
            ended["status"]["containerStatuses"] =
                container(&json!({ "terminated": { "exitCode": 0 } }));
            pod = Some(serde_json::from_value(ended).unwrap());
        }
    }
    panic!("it is never let go: {story:?}")
}

#[test]
fn deletion_in_every_phase_ends_with_the_pod_let_go_and_then_the_object() {
    let pending = accepted(|_| ());
    let scheduled = |mut vmi: VirtualMachineInstance| {
        status::enter(&mut vmi, Phase::Scheduled, now(2));
        vmi
    };
    let whole = vec!["Pod deleted", "Pod let go", "let go"];
    let table = [
        ("Pending without a Pod", pending.clone(), None, vec!["let go"]),
        ("Pending with a Pod", pending.clone(), Some(pod(&pending, 0, |_| ())), whole.clone()),
        (
            "its Pod has a node, and nobody wrote it",
            pending.clone(),
            Some(running_pod(&pending)),
            whole.clone(),
        ),
        ("Scheduling", bound(), Some(bound_pod(&bound(), |_| ())), whole.clone()),
        ("Scheduled", scheduled(bound()), Some(running_pod(&bound())), whole.clone()),
        ("Running", running(), Some(running_pod(&running())), whole),
        (
            "its Pod is going already",
            running(),
            Some(going(running_pod(&running()))),
            vec!["Pod let go", "let go"],
        ),
        (
            "its Pod ended meanwhile",
            running(),
            Some(ended_pod(&running(), 0)),
            vec!["Pod let go", "let go"],
        ),
        ("its Pod is gone", running(), None, vec!["let go"]),
    ];
    for (case, vmi, pod, story) in table {
        assert_eq!(play(deleted(&vmi), pod), story, "{case}");
    }
}

#[test]
fn a_pod_that_never_had_a_node_is_let_go_at_once() {
    let vmi = deleted(&accepted(|_| ()));
    let waiting = going(pod(&vmi, 0, |_| ()));
    assert_eq!(planned(&vmi, Some(waiting), 61).release.len(), 1);
}
