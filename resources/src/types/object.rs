//! The objects themselves.

use super::fields::{null_as_default, object};
use super::{
    API_VERSION, KubeVirtSpec, KubeVirtStatus, VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceMigrationStatus, VirtualMachineInstanceReplicaSetSpec,
    VirtualMachineInstanceReplicaSetStatus, VirtualMachineInstanceSpec,
    VirtualMachineInstanceStatus, VirtualMachineSpec, VirtualMachineStatus,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Declares kinds. A kind's word is the path of the function that gives its name, for objects that leave it out.
macro_rules! kind {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident<$word:literal, $plural:literal> { $spec:ty, $status:ty }
    )+) => { $(
        $(#[$about])*
        ///
        /// `M` is the metadata: this crate's own [`ObjectMeta`], or with the feature `cluster` that of k8s-openapi.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name<M = ObjectMeta> {
            /// `kubevirt.io/v1`.
            #[serde(default = "api_version")]
            pub api_version: String,
            #[doc = concat!("`", stringify!($name), "`.")]
            #[serde(default = $word)]
            pub kind: String,
            /// Name, labels and so on.
            pub metadata: M,
            /// What its user wants.
            #[serde(default, deserialize_with = "null_as_default")]
            pub spec: $spec,
            /// What has become of it.
            #[serde(default, deserialize_with = "null_as_default")]
            pub status: $status,
        }

        impl $name {
            /// Kind, as objects name it.
            pub const KIND: &str = stringify!($name);
            /// What stands for the kind in paths and roles.
            pub const PLURAL: &str = $plural;

            fn word() -> String {
                Self::KIND.to_owned()
            }
        }

        impl<M: Default> Default for $name<M> {
            fn default() -> Self {
                Self {
                    api_version: api_version(),
                    kind: $name::word(),
                    metadata: M::default(),
                    spec: Default::default(),
                    status: Default::default(),
                }
            }
        }
    )+ };
}

kind! {
    /// A virtual machine that runs, or is about to, or has run.
    pub struct VirtualMachineInstance<"VirtualMachineInstance::word", "virtualmachineinstances"> {
        VirtualMachineInstanceSpec, VirtualMachineInstanceStatus
    }

    /// A virtual machine that may be started and stopped: it stays when its VirtualMachineInstance ends.
    pub struct VirtualMachine<"VirtualMachine::word", "virtualmachines"> {
        VirtualMachineSpec, VirtualMachineStatus
    }

    /// The wish that a VirtualMachineInstance moves to another node while it runs.
    pub struct VirtualMachineInstanceMigration<
        "VirtualMachineInstanceMigration::word", "virtualmachineinstancemigrations"
    > {
        VirtualMachineInstanceMigrationSpec, VirtualMachineInstanceMigrationStatus
    }

    /// So many VirtualMachineInstances of one make.
    pub struct VirtualMachineInstanceReplicaSet<
        "VirtualMachineInstanceReplicaSet::word", "virtualmachineinstancereplicasets"
    > {
        VirtualMachineInstanceReplicaSetSpec, VirtualMachineInstanceReplicaSetStatus
    }

    /// The installation itself: how a cluster's VMs are run.
    pub struct KubeVirt<"KubeVirt::word", "kubevirts"> { KubeVirtSpec, KubeVirtStatus }
}

fn api_version() -> String {
    API_VERSION.to_owned()
}

object! {
    /// Metadata of an object, for programs that have no Kubernetes types.
    pub struct ObjectMeta {
        /// Annotations.
        pub annotations: BTreeMap<String, String>,
        /// When its deletion was asked for.
        pub deletion_timestamp: Option<String>,
        /// Labels.
        pub labels: BTreeMap<String, String>,
        /// Name in its namespace.
        pub name: String,
        /// Namespace.
        pub namespace: String,
        /// What tells it from an earlier object of the same name.
        pub uid: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_object_that_passes_through_loses_nothing() {
        let written = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": { "name": "a", "namespace": "b", "uid": "c", "generation": 3, "labels": { "x": "y" } },
            "spec": {
                "domain": {
                    "cpu": { "cores": 2, "numa": { "guestMappingPassthrough": {} } },
                    "devices": { "disks": [{ "name": "d", "disk": { "bus": "virtio" } }], "rng": {} },
                    "memory": { "guest": "1Gi", "hugepages": { "pageSize": "2Mi" } },
                    "resources": { "requests": { "memory": "1Gi" }, "overcommitGuestOverhead": true },
                    "firmware": { "kernelBoot": { "container": { "image": "i", "new": 1 } }, "bootloader": { "efi": {} } },
                    "clock": { "utc": {} }
                },
                "volumes": [{ "name": "d", "emptyDisk": { "capacity": "1Gi" } }],
                "tolerations": [{ "key": "k", "operator": "Exists", "later": true }]
            },
            "status": { "phase": "Running", "VSOCKCID": 3, "interfaces": [{ "ipAddress": "10.0.2.2" }] }
        });
        let object: VirtualMachineInstance = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(object).unwrap(), written);
    }

    #[test]
    fn null_is_as_good_as_missing() {
        let written = json!({ "metadata": { "name": "a" }, "spec": { "nodeSelector": null, "domain": {
            "devices": null, "memory": null, "resources": null, "cpu": { "cores": null } } }, "status": null });
        let cleaned = json!({ "metadata": { "name": "a" }, "spec": { "domain": { "cpu": {} } } });
        let read = |value: Value| serde_json::from_value::<VirtualMachineInstance>(value).unwrap();
        assert_eq!(read(written), read(cleaned));
    }

    #[test]
    fn an_object_without_status_is_written_without_a_phase() {
        let object: VirtualMachineInstance =
            serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        assert_eq!(serde_json::to_value(object).unwrap()["status"], json!({}));
    }
}
