//! What is to be said of a VirtualMachineInstanceMigration. Pure.

use crate::control::conditions;
use corten_resources::cluster::VirtualMachineInstanceMigration;
use corten_resources::names::{MIGRATED_VMI_LABEL, label_value};
use corten_resources::types::{ConditionStatus, MigrationPhase, MigrationPhaseTransition};
use jiff::Timestamp;
use kube::ResourceExt;

/// Condition: it is not done, for the reason it gives.
pub(super) const NOT_SERVED: &str = "MigrationNotServed";
const REASON: &str = "LaterRelease";
const MESSAGE: &str = "live migration comes with a later release: the VM stays where it is. To move it now, restart it";

/// What is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The object as it should be, less its status, if it is not.
    pub object: Option<Box<VirtualMachineInstanceMigration>>,
    /// The same with its status as it should be, if it is not.
    pub status: Option<Box<VirtualMachineInstanceMigration>>,
    /// The condition is new: an event tells it as well.
    pub tell: Option<&'static str>,
}

/// What is to be done for a migration.
pub fn plan(migration: &VirtualMachineInstanceMigration, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if migration.metadata.deletion_timestamp.is_some() || migration.status.phase.is_final() {
        return plan;
    }
    if let Some(vmi) = migration.spec.vmi_name.as_deref().filter(|name| !name.is_empty()) {
        // virtctl finds the migrations of a VM by it.
        let mut wanted = migration.clone();
        wanted.labels_mut().insert(MIGRATED_VMI_LABEL.to_owned(), label_value(vmi));
        plan.object = (wanted != *migration).then(|| Box::new(wanted));
    }
    let mut wanted = migration.clone();
    let status = &mut wanted.status;
    if status.phase.is_unset() {
        status.phase = MigrationPhase::Pending;
        status.phase_transition_timestamps.push(MigrationPhaseTransition {
            phase: MigrationPhase::Pending,
            phase_transition_timestamp: conditions::time(now),
            ..MigrationPhaseTransition::default()
        });
    }
    let why = Some((REASON, MESSAGE));
    conditions::set(&mut status.conditions, NOT_SERVED, ConditionStatus::True, why, now);
    plan.tell = migration.status.condition(NOT_SERVED).is_none().then_some(MESSAGE);
    plan.status = (wanted != *migration).then(|| Box::new(wanted));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::now;
    use serde_json::{Value, json};

    fn migration(change: impl FnOnce(&mut Value)) -> VirtualMachineInstanceMigration {
        let mut migration = json!({
            "metadata": { "name": "move", "namespace": "guests", "resourceVersion": "5" },
            "spec": { "vmiName": "first" },
        });
        change(&mut migration);
        serde_json::from_value(migration).unwrap()
    }

    #[test]
    fn a_migration_is_pending_and_says_that_it_comes_later() {
        let new = migration(|_| ());
        let first = plan(&new, now(0));
        assert_eq!(first.object.as_ref().unwrap().labels()[MIGRATED_VMI_LABEL], "first");
        let said = first.status.as_ref().unwrap();
        assert!(said.finalizers().is_empty());
        assert_eq!(said.status.phase, MigrationPhase::Pending);
        assert_eq!(said.status.phase_transition_timestamps.len(), 1);
        let condition = said.status.condition(NOT_SERVED).unwrap();
        assert_eq!(condition.status, ConditionStatus::True);
        assert!(condition.message.as_ref().unwrap().contains("later release"));
        assert!(first.tell.is_some());
    }

    #[test]
    fn it_is_said_once() {
        let mut told = *plan(&migration(|_| ()), now(0)).status.unwrap();
        told.labels_mut().insert(MIGRATED_VMI_LABEL.to_owned(), "first".to_owned());
        let again = plan(&told, now(1));
        assert!(again.object.is_none() && again.status.is_none() && again.tell.is_none());
    }

    #[test]
    fn one_that_is_over_or_being_deleted_is_left_alone() {
        for done in [
            migration(|it| it["status"] = json!({ "phase": "Succeeded" })),
            migration(|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        ] {
            let plan = plan(&done, now(0));
            assert!(plan.object.is_none() && plan.status.is_none() && plan.tell.is_none());
        }
    }
}
