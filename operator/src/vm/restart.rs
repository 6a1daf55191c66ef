//! What of a template takes effect only with the next start. Pure.

use corten_resources::types::VirtualMachineInstanceSpec;
use serde_json::Value;

/// More paths than these are only counted.
const MOST_PATHS: usize = 8;

/// What differs between the template that a running instance was made from and the present one, in words; none if
/// nothing does. Nothing of an instance can be changed while it runs, so that every difference counts. That of
/// labels and annotations does not: they describe the next instance.
pub(super) fn difference(
    made_from: &VirtualMachineInstanceSpec,
    template: &VirtualMachineInstanceSpec,
) -> Option<String> {
    let value = |spec| serde_json::to_value(spec).ok();
    let mut paths = Vec::new();
    compare("spec.template.spec", &value(made_from)?, &value(template)?, &mut paths);
    let more = paths.len().saturating_sub(MOST_PATHS);
    paths.truncate(MOST_PATHS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!paths.is_empty())
        .then(|| format!("changed since the start: {}{more}; restart to apply", paths.join(", ")))
}

fn compare(path: &str, was: &Value, is: &Value, paths: &mut Vec<String>) {
    match (was, is) {
        _ if was == is || says_nothing(was) && says_nothing(is) => {}
        (Value::Object(was_members), Value::Object(is_members)) => {
            let mut names: Vec<_> = was_members.keys().chain(is_members.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                compare(&format!("{path}.{name}"), &was[name.as_str()], &is[name.as_str()], paths);
            }
        }
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            for (number, (was, is)) in was.iter().zip(is).enumerate() {
                compare(&format!("{path}[{number}]"), was, is, paths);
            }
        }
        _ => paths.push(path.to_owned()),
    }
}

/// An empty list is as good as none.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(members) => members.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differing(was: Value, is: Value) -> Option<String> {
        let spec = |value| serde_json::from_value(value).unwrap();
        difference(&spec(was), &spec(is))
    }

    #[test]
    fn what_differs_is_named_by_path() {
        let was = json!({ "domain": { "memory": { "guest": "1Gi" }, "cpu": { "cores": 1 } },
            "volumes": [{ "name": "a", "emptyDisk": { "capacity": "1Gi" } }], "networks": [] });
        let is = json!({ "domain": { "memory": { "guest": "2Gi" }, "cpu": { "cores": 1 } },
            "volumes": [{ "name": "a", "emptyDisk": { "capacity": "2Gi" } }],
            "nodeSelector": { "zone": "b" } });
        let said = differing(was, is).unwrap();
        assert_eq!(
            said,
            "changed since the start: spec.template.spec.domain.memory.guest, \
             spec.template.spec.nodeSelector, spec.template.spec.volumes[0].emptyDisk.capacity; restart to apply"
        );
    }

    #[test]
    fn alike_templates_differ_in_nothing() {
        let spec = json!({ "domain": { "cpu": { "cores": 1 } }, "nodeSelector": null });
        let same = json!({ "domain": { "cpu": { "cores": 1 } } });
        assert_eq!(differing(spec, same), None);
    }

    #[test]
    fn a_list_of_another_length_is_named_as_a_whole() {
        let is = json!({ "domain": {}, "volumes": [{ "name": "a" }] });
        let said = differing(json!({ "domain": {} }), is).unwrap();
        assert!(said.contains("spec.template.spec.volumes;"), "{said}");
    }

    #[test]
    fn many_differences_are_counted() {
        let labels: serde_json::Map<String, Value> =
            (0..20).map(|n| (format!("label-{n:02}"), json!("x"))).collect();
        let other =
            labels.keys().map(|name| (name.clone(), json!("y"))).collect::<serde_json::Map<_, _>>();
        let said = differing(
            json!({ "domain": {}, "nodeSelector": labels }),
            json!({ "domain": {}, "nodeSelector": other }),
        );
        assert!(said.unwrap().contains(" and 12 more;"));
    }
}
