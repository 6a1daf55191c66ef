//! Which fields are served, and which are not, and why. One table, from which validation, help and the page of documents come.
//!
//! It has an entry for every field that KubeVirt has: a field is never dropped in silence. What is in no entry is no field.
//!
//! | file | speaks of |
//! |---|---|
//! | `placement` | the specification itself: node, life cycle, names, probes |
//! | `machine` | processors, memory, firmware, clock, features |
//! | `devices`, `disks`, `interfaces` | what is plugged in |
//! | `volumes` | what disks hold |
//! | `vm`, `replica_set` | what a VirtualMachine and a VirtualMachineInstanceReplicaSet have besides their template |
//! | `migration`, `kubevirt` | the kinds that only clusters have |
//! | `page`, `explain` | the table as text |

mod devices;
mod disks;
mod explain;
mod interfaces;
mod kubevirt;
mod machine;
mod migration;
mod page;
mod placement;
mod replica_set;
mod vm;
mod volumes;

pub use explain::explain;
pub use page::{help, page};
pub(crate) use vm::STARTED_BY_HAND;

use crate::Kind;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::LazyLock;

/// Where a machine is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// On one machine, by `corten run`.
    Standalone,
    /// In a cluster.
    Cluster,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does what KubeVirt's documents say.
    Served,
    /// It may be given and makes no difference, for this reason. Whoever gives it is warned.
    Harmless(&'static str),
    /// Only these values are served.
    Only(&'static [&'static str]),
    /// Some values are served, others are taken for one of these and warned of, and all else is refused.
    Values {
        /// They do what KubeVirt's documents say.
        served: &'static [&'static str],
        /// They are warned of.
        warned: &'static [&'static str],
        /// What becomes of the latter.
        why: &'static str,
    },
    /// It is served as far as this says. A rule of validation judges it.
    Partly(&'static str),
    /// It is refused, for this reason.
    Refused(&'static str),
    /// It is refused in this release, and served elsewhere.
    Later,
}

/// What stands for [`Support::Later`].
pub const LATER: &str = "comes to clusters with a later release";

impl Support {
    /// There is no value of it that does anything.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Refused(_) | Self::Later)
    }
}

/// A field, or an object with all that is in it.
///
/// A path ends at a field whose value is taken whole; members of lists are not numbered. Where other entries lie below it,
/// each speaks of its own field, and this one of the object being there at all.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// From `spec` on: `spec.domain.devices.disks.name`.
    pub path: &'static str,
    /// On one machine.
    pub standalone: Support,
    /// In a cluster.
    pub cluster: Support,
}

impl Entry {
    /// What becomes of it there.
    pub fn support(&self, scope: Scope) -> Support {
        match scope {
            Scope::Standalone => self.standalone,
            Scope::Cluster => self.cluster,
        }
    }
}

/// The same everywhere.
const fn both(path: &'static str, support: Support) -> Entry {
    Entry { path, standalone: support, cluster: support }
}

/// On one machine only.
const fn alone(path: &'static str, support: Support) -> Entry {
    Entry { path, standalone: support, cluster: Support::Later }
}

/// One thing on one machine, another in a cluster.
const fn each(path: &'static str, standalone: Support, cluster: Support) -> Entry {
    Entry { path, standalone, cluster }
}

/// The entries of a kind of object, by path.
#[derive(Debug)]
pub struct Table(BTreeMap<&'static str, &'static Entry>);

/// The table of VirtualMachineInstances.
pub static INSTANCE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(&[
        placement::ENTRIES,
        machine::ENTRIES,
        devices::ENTRIES,
        disks::ENTRIES,
        interfaces::ENTRIES,
        volumes::ENTRIES,
    ])
});

/// What a VirtualMachine has besides its template.
pub static MACHINE: LazyLock<Table> = LazyLock::new(|| Table::new(&[vm::ENTRIES]));

/// What a VirtualMachineInstanceReplicaSet has besides its template.
pub static REPLICA_SET: LazyLock<Table> = LazyLock::new(|| Table::new(&[replica_set::ENTRIES]));

/// The table of VirtualMachineInstanceMigrations.
pub static MIGRATION: LazyLock<Table> = LazyLock::new(|| Table::new(&[migration::ENTRIES]));

/// The table of KubeVirt objects.
pub static KUBEVIRT: LazyLock<Table> = LazyLock::new(|| Table::new(&[kubevirt::ENTRIES]));

/// The table of a kind. What lies in a template is in that of VirtualMachineInstances.
pub fn table(kind: Kind) -> &'static Table {
    match kind {
        Kind::Instance => &INSTANCE,
        Kind::Machine => &MACHINE,
        Kind::Migration => &MIGRATION,
        Kind::ReplicaSet => &REPLICA_SET,
        Kind::KubeVirt => &KUBEVIRT,
    }
}

impl Table {
    fn new(parts: &[&'static [Entry]]) -> Self {
        Self(parts.iter().copied().flatten().map(|entry| (entry.path, entry)).collect())
    }

    /// Every entry, in the order of paths.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.0.values().copied()
    }

    /// The entry at this path.
    pub fn get(&self, path: &str) -> Option<&'static Entry> {
        self.0.get(path).copied()
    }

    /// Entries of what lies in this object.
    pub fn below(&self, path: &str) -> impl Iterator<Item = &'static Entry> + '_ {
        let from = format!("{path}.");
        self.0
            .range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded))
            .map(|(_, entry)| *entry)
            .take_while(move |entry| entry.path.starts_with(&from))
    }

    /// The entry that says what becomes of a field: its own, or that of an object which is taken whole.
    pub fn nearest(&self, path: &str) -> Option<&'static Entry> {
        if let Some(entry) = self.get(path) {
            return Some(entry);
        }
        let mut inside = path;
        loop {
            inside = inside.rsplit_once('.')?.0;
            if let Some(entry) = self.get(inside) {
                return self.below(inside).next().is_none().then_some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_in_the_table_twice() {
        let parts = [
            placement::ENTRIES,
            machine::ENTRIES,
            devices::ENTRIES,
            disks::ENTRIES,
            interfaces::ENTRIES,
            volumes::ENTRIES,
        ];
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), INSTANCE.entries().count());
        assert_eq!(vm::ENTRIES.len(), MACHINE.entries().count());
        assert_eq!(kubevirt::ENTRIES.len(), KUBEVIRT.entries().count());
    }

    #[test]
    fn each_part_is_sorted() {
        for part in [placement::ENTRIES, machine::ENTRIES, devices::ENTRIES, disks::ENTRIES] {
            assert!(part.is_sorted_by_key(|entry| entry.path));
        }
        for part in [interfaces::ENTRIES, volumes::ENTRIES, vm::ENTRIES, replica_set::ENTRIES] {
            assert!(part.is_sorted_by_key(|entry| entry.path));
        }
        for part in [migration::ENTRIES, kubevirt::ENTRIES] {
            assert!(part.is_sorted_by_key(|entry| entry.path));
        }
    }

    #[test]
    fn a_path_is_matched_by_whole_names() {
        assert!(INSTANCE.below("spec.domain.cpu").next().is_some());
        assert!(INSTANCE.below("spec.domain.cp").next().is_none());
        assert!(INSTANCE.get("spec.domain.cpu").is_none());
        let nearest = |path| INSTANCE.nearest(path).map(|entry| entry.path);
        assert_eq!(nearest("spec.affinity.nodeAffinity"), Some("spec.affinity"));
        assert_eq!(nearest("spec.affinityOfMine"), None);
        assert_eq!(nearest("spec.networks.pod.colour"), None);
    }

    #[test]
    fn reasons_are_sentences_without_a_full_stop() {
        for entry in Kind::ALL.into_iter().flat_map(|kind| table(kind).entries()) {
            for support in [entry.standalone, entry.cluster] {
                let (Support::Harmless(why)
                | Support::Partly(why)
                | Support::Values { why, .. }
                | Support::Refused(why)) = support
                else {
                    continue;
                };
                assert!(!why.is_empty() && !why.ends_with('.'), "{}", entry.path);
            }
        }
    }
}
