//! What is to be done for the KubeVirt object. Pure.

use super::kinds::KINDS;
use corten_resources::cluster::KubeVirt;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

/// Keeps the KubeVirt object until what it installed is gone.
pub(super) const FINALIZER: &str = "foregroundDeleteKubeVirt";

/// The object that counts: the oldest of those that stay. If all are being deleted, the oldest of them takes down what is
/// installed.
pub(crate) fn elected<K: ResourceExt>(objects: &[K]) -> Option<&K> {
    let age = |object: &K| {
        let meta = object.meta();
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        let is_going = meta.deletion_timestamp.is_some();
        (is_going, created.unwrap_or(Timestamp::MAX), object.namespace(), object.name_any())
    };
    objects.iter().min_by_key(|object| age(object))
}

/// Those that were installed for and are being deleted while another counts now: what they installed is its.
pub(super) fn handed_over<'a>(
    objects: &'a [KubeVirt],
    elected: Option<&'a KubeVirt>,
) -> impl Iterator<Item = &'a KubeVirt> {
    objects.iter().filter(move |object| {
        elected.is_some_and(|elected| elected.uid() != object.uid())
            && object.metadata.deletion_timestamp.is_some()
            && is_held(object)
    })
}

fn is_held(object: &KubeVirt) -> bool {
    object.finalizers().iter().any(|name| name == FINALIZER)
}

/// What was observed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    /// The object that counts, if there is one.
    pub(super) object: Option<&'a KubeVirt>,
    /// What should be there; without an object that stays, as long as there are VirtualMachineInstances. Nothing as long as it
    /// cannot be known, for want of certificates.
    pub(super) wanted: Option<&'a [Value]>,
    /// What is there and carries our label.
    pub(super) live: &'a [Value],
    /// How many VirtualMachineInstances there are. It is only asked for if there is no object that stays.
    pub(super) machines: Option<i64>,
}

/// What is to be done, in this order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Put our finalizer on the object.
    pub(super) hold: bool,
    /// Objects to apply.
    pub(super) apply: Vec<Value>,
    /// Objects to delete.
    pub(super) remove: Vec<Value>,
    /// Take our finalizer off the object.
    pub(super) release: bool,
    /// It cannot go on: so many VirtualMachineInstances exist.
    pub(super) blocked_by: Option<i64>,
}

/// Whether everything is to go: the object is deleted, or there is none.
pub(super) fn is_leaving(object: Option<&KubeVirt>) -> bool {
    object.is_none_or(|object| object.metadata.deletion_timestamp.is_some())
}

/// What is to be done.
pub(super) fn plan(observed: Observed<'_>) -> Plan {
    if is_leaving(observed.object) {
        return leave(observed);
    }
    let Some(wanted) = observed.wanted else { return Plan::default() };
    let held = observed.object.is_some_and(is_held);
    let unwanted = |live: &&Value| !wanted.iter().any(|wanted| is_same(live, wanted));
    Plan {
        hold: !held,
        apply: missing(observed),
        remove: in_order(observed.live.iter().filter(unwanted)),
        ..Plan::default()
    }
}

fn leave(observed: Observed<'_>) -> Plan {
    match observed.machines {
        Some(0) => Plan {
            remove: in_order(observed.live.iter()),
            release: observed.live.is_empty() && observed.object.is_some_and(is_held),
            ..Plan::default()
        },
        // As long as it is not known how many there are, nothing is taken away; and what guards them is kept as it should be.
        unknown_or_some => Plan {
            apply: if unknown_or_some.is_some() { missing(observed) } else { Vec::new() },
            blocked_by: unknown_or_some,
            ..Plan::default()
        },
    }
}

/// What is wanted and is not there, or differs.
fn missing(observed: Observed<'_>) -> Vec<Value> {
    let is_there = |wanted: &Value| {
        observed.live.iter().any(|live| is_same(live, wanted) && holds(live, wanted))
    };
    let wanted = observed.wanted.unwrap_or_default().iter();
    wanted.filter(|wanted| !is_there(wanted)).cloned().collect()
}

/// Webhooks first, as what they ask may end with the rest. Those that are on their way out already need no second word.
fn in_order<'a>(objects: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let place = |object: &Value| KINDS.iter().position(|kind| object["kind"] == kind.kind);
    let mut objects: Vec<_> =
        objects.filter(|it| it["metadata"]["deletionTimestamp"].is_null()).cloned().collect();
    objects.sort_by_key(place);
    objects
}

/// The two are one object, as it is and as it should be.
fn is_same(a: &Value, b: &Value) -> bool {
    let parts = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"];
    parts.iter().all(|part| a.pointer(part) == b.pointer(part))
}

/// Everything that is wanted is there. What the API server and others add does not count.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            live.get(name).map_or_else(|| wanted.is_null(), |live| holds(live, wanted))
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live.iter().zip(wanted).all(|(live, wanted)| holds(live, wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::super::objects::tests::made;
    use super::super::objects::without_installation;
    use super::*;
    use corten_resources::types::KubeVirtSpec;
    use serde_json::json;

    fn kubevirt(change: impl FnOnce(&mut Value)) -> KubeVirt {
        let mut object = json!({ "metadata": {
            "name": "kubevirt", "namespace": "kubevirt", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": [FINALIZER] } });
        change(&mut object);
        serde_json::from_value(object).unwrap()
    }

    fn deleted() -> KubeVirt {
        kubevirt(|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z"))
    }

    /// As the API server has them: with what it adds.
    fn stored(objects: &[Value]) -> Vec<Value> {
        let mut objects = objects.to_vec();
        for object in &mut objects {
            object["metadata"]["uid"] = json!("u");
            object["spec"]["added"] = json!({ "by": "default" });
        }
        objects
    }

    fn kinds(objects: &[Value]) -> Vec<&str> {
        objects.iter().filter_map(|object| object["kind"].as_str()).collect()
    }

    #[test]
    fn what_is_missing_or_differs_is_applied_and_nothing_else() {
        let object = kubevirt(|_| ());
        let wanted = made(&KubeVirtSpec::default(), "pem");
        let see = |live: &[Value]| {
            plan(Observed { object: Some(&object), wanted: Some(&wanted), live, machines: None })
        };
        assert_eq!(see(&[]).apply, wanted);
        assert_eq!(see(&stored(&wanted)), Plan::default());
        let mut drifted = stored(&wanted);
        drifted[0]["spec"]["failurePolicy"] = json!("Ignore");
        assert_eq!(see(&drifted).apply, wanted[..1]);
        let rotated = made(&KubeVirtSpec::default(), "new");
        assert_eq!(
            kinds(&see(&stored(&rotated)).apply),
            [
                "ValidatingWebhookConfiguration",
                "ValidatingWebhookConfiguration",
                "MutatingWebhookConfiguration"
            ]
        );
    }

    #[test]
    fn what_is_no_longer_wanted_is_removed() {
        let object = kubevirt(|_| ());
        let wanted = made(&KubeVirtSpec::default(), "pem");
        let mut live = stored(&wanted);
        let mut earlier = live[0].clone();
        earlier["metadata"]["name"] = json!("of-an-earlier-release");
        live.push(earlier.clone());
        let plan = plan(Observed {
            object: Some(&object),
            wanted: Some(&wanted),
            live: &live,
            machines: None,
        });
        assert_eq!(plan, Plan { remove: vec![earlier], ..Plan::default() });
    }

    #[test]
    fn an_object_is_held_before_anything_is_installed_for_it() {
        let object = kubevirt(|it| it["metadata"]["finalizers"] = json!(["other"]));
        let wanted = made(&KubeVirtSpec::default(), "pem");
        let plan = plan(Observed {
            object: Some(&object),
            wanted: Some(&wanted),
            live: &[],
            machines: None,
        });
        assert!(plan.hold && plan.apply.len() == wanted.len());
    }

    #[test]
    fn without_certificates_nothing_is_done() {
        let object = kubevirt(|it| it["metadata"]["finalizers"] = json!([]));
        let live = stored(&made(&KubeVirtSpec::default(), "pem"));
        let plan =
            plan(Observed { object: Some(&object), wanted: None, live: &live, machines: None });
        assert_eq!(plan, Plan::default());
    }

    #[test]
    fn a_deleted_object_goes_after_what_it_installed_and_that_after_all_machines() {
        let object = deleted();
        let live = stored(&made(&KubeVirtSpec::default(), "pem"));
        let see = |live: &[Value], machines| {
            plan(Observed { object: Some(&object), wanted: None, live, machines })
        };
        assert_eq!(see(&live, Some(3)), Plan { blocked_by: Some(3), ..Plan::default() });
        assert_eq!(see(&live, None), Plan::default());
        let removal = see(&live, Some(0));
        assert_eq!(removal.remove.len(), live.len());
        assert!(!removal.release);
        assert!(kinds(&removal.remove)[0].ends_with("WebhookConfiguration"));
        assert_eq!(see(&[], Some(0)), Plan { release: true, ..Plan::default() });
    }

    #[test]
    fn what_goes_already_is_only_waited_for() {
        let object = deleted();
        let mut live = stored(&made(&KubeVirtSpec::default(), "pem"));
        for object in &mut live {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        }
        let plan =
            plan(Observed { object: Some(&object), wanted: None, live: &live, machines: Some(0) });
        assert_eq!(plan, Plan::default());
    }

    #[test]
    fn left_overs_of_an_object_that_was_torn_out_are_removed() {
        let live = stored(&made(&KubeVirtSpec::default(), "pem"));
        let plan = plan(Observed { object: None, wanted: None, live: &live, machines: Some(0) });
        assert_eq!(plan.remove.len(), live.len());
        assert!(!plan.release);
    }

    #[test]
    fn without_an_object_definitions_are_kept_as_long_as_there_are_machines() {
        let wanted = without_installation("kubevirt", "pem");
        let see = |live: &[Value], machines| {
            plan(Observed { object: None, wanted: Some(&wanted), live, machines })
        };
        assert_eq!(see(&[], Some(0)), Plan::default());
        let guarded = see(&[], Some(2));
        assert_eq!(guarded.apply[0]["metadata"]["name"], "corten-definitions");
        assert_eq!((guarded.apply.len(), guarded.blocked_by), (1, Some(2)));
        let live = stored(&wanted);
        assert_eq!(see(&live, Some(2)).apply, [Value::Null; 0]);
        assert_eq!(see(&live, Some(0)).remove, live);
        // Part of an installation, it is the same.
        assert!(made(&KubeVirtSpec::default(), "pem").contains(&wanted[0]));
    }

    #[test]
    fn the_oldest_object_counts() {
        let named = |name: &str, at: &str| {
            kubevirt(|it| {
                it["metadata"]["name"] = json!(name);
                it["metadata"]["creationTimestamp"] = json!(at);
            })
        };
        let objects = [
            named("c", "2026-01-03T00:00:00Z"),
            named("b", "2026-01-02T00:00:00Z"),
            named("a", "2026-01-02T00:00:00Z"),
        ];
        assert_eq!(elected(&objects).unwrap().name_any(), "a");
        assert_eq!(elected::<KubeVirt>(&[]), None);
    }

    #[test]
    fn one_that_is_being_deleted_counts_no_more_if_another_stays() {
        let newer = kubevirt(|it| {
            it["metadata"]["name"] = json!("newer");
            it["metadata"]["uid"] = json!("v");
            it["metadata"]["creationTimestamp"] = json!("2026-01-05T00:00:00Z");
        });
        let objects = [deleted(), newer];
        let counts = elected(&objects);
        assert_eq!(counts, Some(&objects[1]));
        assert_eq!(handed_over(&objects, counts).collect::<Vec<_>>(), [&objects[0]]);
        let counts = elected(&objects[..1]);
        assert_eq!(counts, Some(&objects[0]));
        assert_eq!(handed_over(&objects[..1], counts).count(), 0);
    }
}
