//! What is served, as `kubectl explain` says it: half a sentence for each field of a schema.

use super::{Entry, LATER, Scope, Support, Table, table};
use crate::Kind;

/// What becomes of a field in a cluster, or of those in the object at this path; nothing if the table does not speak of it.
///
/// The path has no numbers. What lies in an object that is taken whole is told briefly: the object has the reason.
pub fn explain(kind: Kind, path: &str) -> Option<String> {
    if kind.has_template()
        && let Some(inside) = path.strip_prefix("spec.template.")
    {
        return explain_in(table(Kind::Instance), inside);
    }
    explain_in(table(kind), path)
}

fn explain_in(table: &Table, path: &str) -> Option<String> {
    if let Some(entry) = table.get(path) {
        return Some(whole(entry.support(Scope::Cluster)));
    }
    if let Some(entry) = table.nearest(path) {
        return Some(brief(entry.support(Scope::Cluster)).to_owned());
    }
    let mut below = table.below(path).map(|entry: &Entry| entry.support(Scope::Cluster));
    let first = below.next()?;
    if below.all(|support| support == first) {
        return Some(match first {
            // What one field takes says nothing of the object.
            Support::Only(_) | Support::Values { .. } | Support::Partly(_) => "Served".to_owned(),
            support => whole(support),
        });
    }
    let mut all = table.below(path).map(|entry| entry.support(Scope::Cluster));
    Some(if all.all(Support::is_refused) { "Not served" } else { "Served in part" }.to_owned())
}

fn whole(support: Support) -> String {
    match support {
        Support::Served => "Served".to_owned(),
        Support::Harmless(why) => format!("No effect: {why}"),
        Support::Only(values) => format!("Served: only {}", values.join(", ")),
        Support::Values { served, warned, why } => {
            format!("Served: {}; {} with a warning: {why}", served.join(", "), warned.join(", "))
        }
        Support::Partly(how) => format!("Served in part: {how}"),
        Support::Refused(why) => format!("Not served: {why}"),
        Support::Later => format!("Not served: {LATER}"),
    }
}

fn brief(support: Support) -> &'static str {
    match support {
        Support::Served | Support::Only(_) | Support::Values { .. } => "Served",
        Support::Partly(_) => "Served in part",
        Support::Harmless(_) => "No effect",
        Support::Refused(_) | Support::Later => "Not served",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_told_with_its_reason_and_what_lies_in_it_without() {
        let table = [
            (Kind::Instance, "spec.nodeSelector", "Served"),
            (Kind::Instance, "spec.architecture", "Served: only amd64"),
            (
                Kind::Instance,
                "spec.domain.launchSecurity",
                "Not served: the host can read the guest's memory",
            ),
            (Kind::Instance, "spec.domain.launchSecurity.sev", "Not served"),
            (Kind::Instance, "spec.networks", "Served in part"),
            (Kind::Instance, "spec.domain", "Served in part"),
            (Kind::Machine, "spec.template.spec.domain.cpu.cores", "Served"),
            (Kind::Machine, "spec.running", "Served"),
            (Kind::Machine, "spec.instancetype.name", "Not served"),
            (Kind::ReplicaSet, "spec.template.spec.nodeSelector", "Served"),
            (Kind::KubeVirt, "spec.imageTag", "Served"),
            (Kind::KubeVirt, "spec.certificateRotateStrategy", "Served"),
        ];
        for (kind, path, wanted) in table {
            assert_eq!(explain(kind, path).as_deref(), Some(wanted), "{path}");
        }
        assert_eq!(explain(Kind::Instance, "spec.colour"), None);
        assert_eq!(explain(Kind::Instance, "status.phase"), None);
    }
}
