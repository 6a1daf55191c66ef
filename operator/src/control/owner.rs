//! Whose an object is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

/// Keeps an object until what it owns has been let go, see `--cascade=orphan`. The garbage collector's.
const ORPHAN_FINALIZER: &str = "orphan";

/// What the object says of its controller.
pub(crate) fn controller(object: &impl ResourceExt) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// The object is controlled by this very owner, not by an earlier one of the same name.
///
/// Kind and group count: anybody may name something else, with any uid.
pub(crate) fn is_of<K: Resource<DynamicType = ()>>(object: &impl ResourceExt, owner: &K) -> bool {
    controller(object).is_some_and(|reference| {
        let group = reference.api_version.split_once('/').map(|(group, _)| group);
        reference.kind == K::kind(&())
            && group == Some(&*K::group(&()))
            && owner.meta().name.as_ref() == Some(&reference.name)
            && owner.meta().uid.as_ref() == Some(&reference.uid)
    })
}

/// The reference that makes this owner the controller of an object.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The object is being deleted, and what it owns is to stay.
pub(crate) fn leaves_orphans(object: &impl ResourceExt) -> bool {
    object.finalizers().iter().any(|name| name == ORPHAN_FINALIZER)
}
