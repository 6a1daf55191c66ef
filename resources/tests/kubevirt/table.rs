//! The table of served fields has an entry for each of KubeVirt's, and for nothing else.

use crate::list::List;
use corten_resources::Kind;
use corten_resources::served::{Table, table};
use std::collections::BTreeSet;

/// Paths of a type: of everything, and of what holds no fields of KubeVirt's.
#[derive(Default)]
struct Paths {
    all: BTreeSet<String>,
    leaves: BTreeSet<String>,
}

impl Paths {
    fn collect(&mut self, list: &List, path: &str, kind: &str) {
        self.all.insert(path.to_owned());
        let inner = kind.strip_prefix("list of ").unwrap_or(kind);
        match list.fields(inner) {
            Some(fields) if !fields.is_empty() => {
                for field in fields {
                    self.collect(list, &format!("{path}.{}", field.name), field.kind);
                }
            }
            _ => {
                self.leaves.insert(path.to_owned());
            }
        }
    }
}

fn compare(table: &Table, kind: &str, pass_over: &str) {
    let mut paths = Paths::default();
    paths.collect(&List::read(), "spec", kind);
    for leaf in paths.leaves.iter().filter(|leaf| !leaf.starts_with(pass_over)) {
        // Maps and types of Kubernetes' own have their members in the table.
        let covered = table.nearest(leaf).is_some() || table.below(leaf).next().is_some();
        assert!(covered, "{leaf} has no entry");
    }
    for entry in table.entries() {
        let inside_a_leaf =
            || paths.leaves.iter().any(|leaf| entry.path.starts_with(&format!("{leaf}.")));
        assert!(paths.all.contains(entry.path) || inside_a_leaf(), "{} is no field", entry.path);
    }
}

#[test]
fn every_field_has_an_entry() {
    for kind in Kind::ALL {
        // What lies in a template is in the table of instances.
        let pass_over = if kind.has_template() { "spec.template." } else { "nothing" };
        compare(table(kind), &format!("v1.{}Spec", kind.name()), pass_over);
    }
}
