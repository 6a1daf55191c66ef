//! What a cluster needs on top of the plain types: kube's traits, the CRDs, the manifests that install Corten.

mod crd;
pub mod manifests;
mod yaml;

pub use crd::{definition, definitions};
pub use yaml::{YamlError, to_yaml};

use crate::types;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::borrow::Cow;

/// The API group.
pub const GROUP: &str = "kubevirt.io";
/// The version that is stored.
pub const VERSION: &str = "v1";

/// Kinds with the metadata of Kubernetes, as kube's clients know them.
macro_rules! resource {
    ($( $(#[$about:meta])* $name:ident )+) => { $(
        $(#[$about])*
        pub type $name = types::$name<ObjectMeta>;

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                types::$name::<types::ObjectMeta>::KIND.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                types::$name::<types::ObjectMeta>::PLURAL.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )+ };
}

resource! {
    /// A VirtualMachineInstance with the metadata of Kubernetes.
    VirtualMachineInstance
    /// A VirtualMachine with the metadata of Kubernetes.
    VirtualMachine
    /// A VirtualMachineInstanceMigration with the metadata of Kubernetes.
    VirtualMachineInstanceMigration
    /// A VirtualMachineInstanceReplicaSet with the metadata of Kubernetes.
    VirtualMachineInstanceReplicaSet
    /// A KubeVirt object with the metadata of Kubernetes.
    KubeVirt
}
