//! What a cluster needs on top of the plain types: kube's traits, the CRD, the manifests that install Corten.

mod crd;
pub mod manifests;
mod yaml;

pub use crd::virtual_machine_instance_crd;
pub use yaml::{YamlError, to_yaml};

use crate::types;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::borrow::Cow;

/// The API group.
pub const GROUP: &str = "kubevirt.io";
/// The version that is stored.
pub const VERSION: &str = "v1";

/// A VirtualMachineInstance with the metadata of Kubernetes.
pub type VirtualMachineInstance = types::VirtualMachineInstance<ObjectMeta>;

impl kube::Resource for VirtualMachineInstance {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        types::VirtualMachineInstance::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        types::VirtualMachineInstance::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
