//! What KubeVirt's users ask for by annotations, and get in another way or not at all.

use crate::finding::Finding;
use std::collections::BTreeMap;

/// Annotations that are refused, and what to do instead.
const REFUSED: [(&str, &str); 2] = [
    (
        "hooks.kubevirt.io/hookSidecars",
        "hooks change a libvirt domain, and there is none: leave the annotation out",
    ),
    (
        "kubevirt.io/ignitiondata",
        "there is no fw_cfg device; give it as userData of a cloudInitConfigDrive, to an image for KubeVirt or OpenStack",
    ),
];

/// Refuses annotations that ask for what cannot be had. `path` is that of the annotations.
pub fn check(path: &str, annotations: &BTreeMap<String, String>) -> Vec<Finding> {
    let given = |name: &str| annotations.get(name).is_some_and(|value| !value.is_empty());
    let refused = REFUSED.iter().filter(|(name, _)| given(name));
    refused.map(|(name, why)| Finding::not_served(format!("{path}[{name}]"), *why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_refused_by_its_name_and_other_annotations_are_not() {
        let annotations = [
            ("hooks.kubevirt.io/hookSidecars".to_owned(), "[{}]".to_owned()),
            ("kubevirt.io/ignitiondata".to_owned(), String::new()),
            ("example.com/a".to_owned(), "b".to_owned()),
        ];
        let found = check("metadata.annotations", &annotations.into());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "metadata.annotations[hooks.kubevirt.io/hookSidecars]");
    }
}
