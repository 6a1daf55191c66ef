//! What is to be done for a VirtualMachineInstanceReplicaSet, from what was observed. Pure.

use super::status;
use crate::control::{Guarded, conditions, owner};
use corten_resources::cluster::{VirtualMachineInstance, VirtualMachineInstanceReplicaSet};
use corten_resources::names::replica_name;
use corten_resources::types::{ConditionStatus, VirtualMachineInstanceReplicaSetStatus};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// So many are made or taken away in one turn. Others of the set's kind wait meanwhile.
const MOST_AT_ONCE: usize = 50;

/// One that ended sooner after it was made is replaced only then: else a template that cannot run would be made into one
/// VirtualMachineInstance after the other, as fast as the cluster can.
const REPLACED_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// What there is of a set. Borrowed from the store: there may be thousands.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// Its VirtualMachineInstances.
    pub own: Vec<&'a VirtualMachineInstance>,
    /// Names in its namespace that are taken, whoever has them.
    pub taken: BTreeSet<&'a str>,
}

impl<'a> Observed<'a> {
    /// What of these is the set's.
    pub(super) fn of(
        set: &VirtualMachineInstanceReplicaSet,
        all: &'a [Arc<Guarded<VirtualMachineInstance>>],
    ) -> Self {
        let mut observed = Self::default();
        for vmi in all.iter().filter(|vmi| vmi.meta().namespace == set.metadata.namespace) {
            observed.taken.extend(vmi.meta().name.as_deref());
            if let Ok(readable) = &vmi.0
                && owner::is_of(readable, set)
            {
                observed.own.push(readable);
            }
        }
        observed
    }
}

/// What is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Instances to delete.
    pub delete: Vec<VirtualMachineInstance>,
    /// Instances to create.
    pub create: Vec<VirtualMachineInstance>,
    /// The status as it should be, if it is not.
    pub status: Option<Box<VirtualMachineInstanceReplicaSetStatus>>,
    /// When to look again although nothing changed.
    pub again: Option<Duration>,
}

/// What is to be done for a set.
pub fn plan(
    set: &VirtualMachineInstanceReplicaSet,
    observed: &Observed<'_>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    if set.metadata.deletion_timestamp.is_some() {
        // What it owns goes or stays by its owner reference, which is the garbage collector's business.
        return plan;
    }
    let (over, mut active): (Vec<&VirtualMachineInstance>, Vec<_>) = (observed.own.iter())
        .copied()
        .filter(|vmi| !is_going(vmi))
        .partition(|vmi| vmi.status.phase.is_final());
    let ready = active.iter().filter(|vmi| is_ready(vmi)).count();
    let status = status::status_of(set, active.len(), ready, now);
    plan.status = (status != set.status).then(|| Box::new(status));
    if set.spec.paused != Some(true) {
        // They will not run again: others take their place.
        let (early, mut delete): (Vec<_>, Vec<_>) =
            over.into_iter().partition(|vmi| replaced_from(vmi).is_some_and(|due| now < due));
        let due = early.iter().filter_map(|vmi| replaced_from(vmi)).min();
        plan.again = due.map(|due| due.duration_since(now).try_into().unwrap_or(Duration::ZERO));
        let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
        let create = wanted.saturating_sub(active.len() + early.len());
        if active.len() > wanted {
            active.sort_by_key(|vmi| worth(vmi));
            delete.extend(active.drain(..active.len() - wanted));
        }
        let more = delete.len() > MOST_AT_ONCE || create > MOST_AT_ONCE;
        plan.delete = delete.into_iter().take(MOST_AT_ONCE).cloned().collect();
        plan.create = new_ones(set, observed, create.min(MOST_AT_ONCE));
        plan.again = if more { Some(Duration::ZERO) } else { plan.again };
    }
    plan
}

/// When an instance that has ended is replaced.
fn replaced_from(vmi: &VirtualMachineInstance) -> Option<Timestamp> {
    vmi.metadata.creation_timestamp.as_ref().map(|created| created.0 + REPLACED_AFTER)
}

/// So many, at the first places whose names are free.
fn new_ones(
    set: &VirtualMachineInstanceReplicaSet,
    observed: &Observed<'_>,
    count: usize,
) -> Vec<VirtualMachineInstance> {
    let (name, uid) = (set.name_any(), set.uid().unwrap_or_default());
    let names = (0..).map(|place| replica_name(&name, &uid, place));
    let free = names.filter(|name| !observed.taken.contains(name.as_str()));
    free.take(count).map(|name| replica(set, name)).collect()
}

fn replica(set: &VirtualMachineInstanceReplicaSet, name: String) -> VirtualMachineInstance {
    let template = set.spec.template.clone().unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    let mut vmi = VirtualMachineInstance::default();
    vmi.metadata.name = Some(name);
    vmi.metadata.namespace = set.namespace();
    let (labels, annotations) = metadata.handed_on();
    vmi.metadata.labels = Some(labels);
    vmi.metadata.annotations = Some(annotations);
    vmi.metadata.owner_references = Some(vec![owner::reference(set)]);
    vmi.spec = template.spec.unwrap_or_default();
    vmi
}

/// The least is taken away first: what is not ready, then the youngest. The name settles the rest, so that a cache that is
/// behind does not lead to another choice.
fn worth(vmi: &VirtualMachineInstance) -> (bool, Reverse<Option<Timestamp>>, String) {
    let created = vmi.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (is_ready(vmi), Reverse(created), vmi.name_any())
}

fn is_ready(vmi: &VirtualMachineInstance) -> bool {
    let ready = conditions::get(&vmi.status.conditions, "Ready");
    ready.is_some_and(|condition| condition.status == ConditionStatus::True)
}

fn is_going(vmi: &VirtualMachineInstance) -> bool {
    vmi.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicaset::testing::{member, set};
    use crate::vmi::testing::{minimal_vmi, now};
    use corten_resources::types::Phase;
    use kube::core::DeserializeGuard;
    use serde_json::{Value, json};

    fn observed(own: &[VirtualMachineInstance]) -> Observed<'_> {
        let taken = own.iter().filter_map(|vmi| vmi.metadata.name.as_deref()).collect();
        Observed { own: own.iter().collect(), taken }
    }

    fn running(place: u32) -> VirtualMachineInstance {
        member(place, Phase::Running, |_| ())
    }

    fn going(place: u32) -> VirtualMachineInstance {
        member(place, Phase::Running, |vmi| {
            vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        })
    }

    fn names(all: &[VirtualMachineInstance]) -> Vec<String> {
        all.iter().map(ResourceExt::name_any).collect()
    }

    fn deleted(plan: &Plan) -> Vec<String> {
        names(&plan.delete)
    }

    fn place(number: u32) -> String {
        replica_name("web", "set-uid", number)
    }

    #[test]
    fn a_new_set_fills_its_first_places_from_the_template() {
        let plan = plan(&set(3, |_| ()), &Observed::default(), now(0));
        assert_eq!(names(&plan.create), [place(0), place(1), place(2)]);
        let one = &plan.create[0];
        assert_eq!(one.labels()["app"], "web");
        assert_eq!(one.annotations()["note"], "a");
        assert_eq!(one.owner_references()[0].kind, "VirtualMachineInstanceReplicaSet");
        assert_eq!(one.owner_references()[0].controller, Some(true));
        assert_eq!(one.spec, minimal_vmi(|_| ()).spec);
        assert!(plan.delete.is_empty() && plan.again.is_none());
    }

    #[test]
    fn what_only_the_operator_says_of_an_instance_is_not_taken_from_the_template() {
        let forged = set(1, |set| {
            let metadata = &mut set["spec"]["template"]["metadata"];
            metadata["labels"]["kubevirt.io/nodeName"] = json!("elsewhere");
            metadata["annotations"]["corten.kubevirt.io/launch-attempt"] = json!("7");
            metadata["annotations"]["corten.kubevirt.io/node-boot-id"] = json!("earlier");
        });
        let one = &plan(&forged, &Observed::default(), now(0)).create[0];
        assert_eq!(one.labels().keys().collect::<Vec<_>>(), ["app"]);
        assert_eq!(one.annotations().keys().collect::<Vec<_>>(), ["note"]);
    }

    #[test]
    fn a_set_that_is_full_does_nothing_and_says_how_many() {
        let plan = plan(&set(2, |_| ()), &observed(&[running(0), running(5)]), now(0));
        assert!(plan.create.is_empty() && plan.delete.is_empty());
        let status = plan.status.unwrap();
        assert_eq!((status.replicas, status.ready_replicas), (Some(2), Some(2)));
    }

    #[test]
    fn a_place_whose_name_is_taken_is_skipped() {
        let (all, elsewhere) = ([going(0), running(1)], place(2));
        let mut observed = observed(&all);
        observed.taken.insert(&elsewhere);
        let plan = plan(&set(2, |_| ()), &observed, now(0));
        assert_eq!(names(&plan.create), [place(3)]);
        assert_eq!(plan.status.unwrap().replicas, Some(1));
    }

    #[test]
    fn what_has_ended_is_deleted_and_replaced() {
        for phase in [Phase::Failed, Phase::Succeeded] {
            let over = member(0, phase, |_| ());
            let plan = plan(&set(1, |_| ()), &observed(&[over]), now(0));
            assert_eq!(deleted(&plan), [place(0)]);
            assert_eq!(names(&plan.create), [place(1)]);
            assert_eq!(plan.status.unwrap().replicas, None);
        }
    }

    #[test]
    fn what_ended_at_once_is_replaced_after_a_while() {
        let over = [member(0, Phase::Failed, |vmi| {
            vmi["metadata"]["creationTimestamp"] = json!(now(0).to_string());
        })];
        let early = plan(&set(1, |_| ()), &observed(&over), now(4));
        assert!(early.delete.is_empty() && early.create.is_empty());
        assert_eq!(early.again, Some(Duration::from_secs(6)));
        let due = plan(&set(1, |_| ()), &observed(&over), now(10));
        assert_eq!((due.delete.len(), due.create.len(), due.again), (1, 1, None));
    }

    #[test]
    fn what_is_not_ready_and_then_the_youngest_is_taken_away_first() {
        let at = |place, seconds: i64| {
            member(place, Phase::Running, |vmi| {
                vmi["metadata"]["creationTimestamp"] = json!(now(seconds).to_string());
            })
        };
        let starting = member(3, Phase::Scheduling, |vmi| {
            vmi["metadata"]["creationTimestamp"] = json!(now(0).to_string());
            vmi["status"]["conditions"] = json!([]);
        });
        let all = [at(0, 10), at(1, 30), at(2, 20), starting];
        let all = observed(&all);
        let left = |replicas| deleted(&plan(&set(replicas, |_| ()), &all, now(60)));
        assert_eq!(left(3), [place(3)]);
        assert_eq!(left(2), [place(3), place(1)]);
        assert_eq!(left(1), [place(3), place(1), place(2)]);
        assert_eq!(left(0).len(), 4);
        assert_eq!(left(-1).len(), 4);
    }

    #[test]
    fn a_paused_set_only_counts() {
        let paused = set(3, |set| set["spec"]["paused"] = json!(true));
        let over = member(1, Phase::Failed, |_| ());
        let plan = plan(&paused, &observed(&[running(0), over]), now(0));
        assert!(plan.create.is_empty() && plan.delete.is_empty());
        let status = plan.status.unwrap();
        assert_eq!(status.replicas, Some(1));
        assert_eq!(status.condition("ReplicaPaused").unwrap().status, ConditionStatus::True);
    }

    #[test]
    fn a_set_that_is_deleted_leaves_its_instances_to_the_garbage_collector() {
        let going = set(3, |set| {
            set["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            set["metadata"]["finalizers"] = json!(["orphan"]);
        });
        let plan = plan(&going, &observed(&[running(0)]), now(0));
        assert!(plan.create.is_empty() && plan.delete.is_empty() && plan.status.is_none());
    }

    #[test]
    fn a_large_set_grows_and_shrinks_in_turns() {
        let growing = plan(&set(120, |_| ()), &Observed::default(), now(0));
        assert_eq!((growing.create.len(), growing.again), (MOST_AT_ONCE, Some(Duration::ZERO)));
        let all: Vec<_> = (0..120).map(running).collect();
        let shrinking = plan(&set(0, |_| ()), &observed(&all), now(0));
        assert_eq!((shrinking.delete.len(), shrinking.again), (MOST_AT_ONCE, Some(Duration::ZERO)));
    }

    #[test]
    fn only_what_the_set_controls_in_its_namespace_is_its_own() {
        let guarded = |change: fn(&mut Value)| {
            Arc::new(DeserializeGuard(Ok(member(0, Phase::Running, change))))
        };
        let all = [
            guarded(|_| ()),
            guarded(|vmi| vmi["metadata"]["namespace"] = json!("elsewhere")),
            guarded(|vmi| {
                vmi["metadata"]["name"] = json!("orphan");
                vmi["metadata"]["ownerReferences"] = json!([]);
            }),
            guarded(|vmi| {
                vmi["metadata"]["name"] = json!("anothers");
                vmi["metadata"]["ownerReferences"][0]["uid"] = json!("earlier");
            }),
        ];
        let observed = Observed::of(&set(1, |_| ()), &all);
        assert_eq!(observed.own.len(), 1);
        assert_eq!(observed.taken, ["anothers", "orphan", &place(0)].into());
    }

    #[test]
    fn a_set_without_a_number_has_one() {
        let unset = set(0, |set| set["spec"]["replicas"] = Value::Null);
        assert_eq!(plan(&unset, &Observed::default(), now(0)).create.len(), 1);
    }
}
