//! Kinds of objects that may be installed.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// A kind of object, as paths name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKind {
    /// API group and version.
    pub api_version: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// What stands for it in paths.
    pub plural: &'static str,
    /// Objects of this kind are in a namespace.
    pub namespaced: bool,
    /// A cluster may not have this kind: what is wanted of it is then left out.
    pub optional: bool,
}

impl ObjectKind {
    const fn new(api_version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { api_version, kind, plural, namespaced: false, optional: false }
    }

    const fn namespaced(self) -> Self {
        Self { namespaced: true, ..self }
    }

    const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// As kube's clients want it.
    pub(crate) fn resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(group, version, self.kind),
            self.plural,
        )
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Every kind that is looked for, and removed if it is no longer wanted. In the order of removal: webhooks first, as what
/// they ask may end with the rest.
pub(super) const KINDS: &[ObjectKind] = &[
    ObjectKind::new(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ObjectKind::new(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ObjectKind::new("apps/v1", "DaemonSet", "daemonsets").namespaced(),
    ObjectKind::new(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ),
    ObjectKind::new(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ObjectKind::new(
        "security.openshift.io/v1",
        "SecurityContextConstraints",
        "securitycontextconstraints",
    )
    .optional(),
];

/// The kind of an object, if it is one of these.
pub fn kind_of(object: &Value) -> Option<&'static ObjectKind> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let (version, kind) = (text("apiVersion")?, text("kind")?);
    KINDS.iter().find(|known| known.api_version == version && known.kind == kind)
}
