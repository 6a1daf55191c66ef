//! The objects themselves.

use super::fields::{is_silent, null_as_default, object};
use super::left_out::Watched;
use super::{
    API_VERSION, KubeVirtSpec, KubeVirtStatus, LeftOut, OtherFields,
    VirtualMachineInstanceMigrationSpec, VirtualMachineInstanceMigrationStatus,
    VirtualMachineInstanceReplicaSetSpec, VirtualMachineInstanceReplicaSetStatus,
    VirtualMachineInstanceSpec, VirtualMachineInstanceStatus, VirtualMachineSpec,
    VirtualMachineStatus,
};
use crate::names::{REPORTED_ANNOTATIONS, REPORTED_LABELS};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name<M = ObjectMeta> {
            /// `kubevirt.io/v1`.
            pub api_version: String,
            #[doc = concat!("`", stringify!($name), "`.")]
            pub kind: String,
            /// Name, labels and so on.
            pub metadata: M,
            /// What its user wants.
            pub spec: $spec,
            /// What has become of it.
            pub status: $status,
            /// What is not named here.
            pub other: OtherFields,
            /// What was written and says nothing.
            pub left_out: LeftOut,
        }

        impl<'de, M: Deserialize<'de> + Default> Deserialize<'de> for $name<M> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase", expecting = "an object")]
                struct Read<M> {
                    #[serde(default = "api_version")]
                    api_version: String,
                    #[serde(default = $word)]
                    kind: String,
                    // What is told of an object without metadata is that it has no name.
                    #[serde(default)]
                    metadata: M,
                    #[serde(default, deserialize_with = "null_as_default")]
                    spec: $spec,
                    #[serde(default, deserialize_with = "null_as_default")]
                    status: $status,
                    #[serde(flatten)]
                    other: OtherFields,
                }
                let mut left_out = LeftOut::default();
                let Read { api_version, kind, metadata, spec, status, other } =
                    Read::deserialize(Watched::new(deserializer, &mut left_out))?;
                Ok(Self { api_version, kind, metadata, spec, status, other, left_out })
            }
        }

        impl<M: Serialize> Serialize for $name<M> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[derive(Serialize)]
                #[serde(rename_all = "camelCase")]
                struct Written<'a, M> {
                    api_version: &'a str,
                    kind: &'a str,
                    metadata: &'a M,
                    #[serde(skip_serializing_if = "is_silent")]
                    spec: &'a $spec,
                    #[serde(skip_serializing_if = "is_silent")]
                    status: &'a $status,
                    #[serde(flatten)]
                    other: &'a OtherFields,
                }
                let Self { api_version, kind, metadata, spec, status, other, left_out } = self;
                let written = Written { api_version, kind, metadata, spec, status, other };
                left_out.write(&written, serializer)
            }
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
                    other: OtherFields::default(),
                    left_out: LeftOut::default(),
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

impl ObjectMeta {
    /// Labels and annotations of a template as the VirtualMachineInstance made from it has them: without what only Corten
    /// says of one.
    pub fn handed_on(mut self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        self.labels.retain(|key, _| !REPORTED_LABELS.contains(&key.as_str()));
        self.annotations.retain(|key, _| !REPORTED_ANNOTATIONS.contains(&key.as_str()));
        (self.labels, self.annotations)
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
    fn what_was_not_there_is_not_written() {
        let mut object: VirtualMachineInstance =
            serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        let written = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "a" } });
        assert_eq!(serde_json::to_value(&object).unwrap(), written);
        object.status.node_name = Some("n".to_owned());
        assert_eq!(serde_json::to_value(&object).unwrap()["status"], json!({ "nodeName": "n" }));
    }

    #[test]
    fn what_says_nothing_is_written_back_until_its_member_says_something() {
        let written = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "", "labels": {}, "creationTimestamp": null },
            "spec": { "volumes": [], "nodeSelector": null, "hostname": "", "later": [],
                "domain": { "devices": { "disks": [], "rng": null, "interfaces": [{ "name": "", "bridge": {} }] } } },
            "status": {}, "extra": { "a": [] } });
        let mut object: VirtualMachineInstance = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&object).unwrap(), written);
        assert_eq!(object.other["extra"], json!({ "a": [] }));
        object.metadata.name = "b".to_owned();
        object.spec.volumes.push(crate::types::Volume::default());
        let after = serde_json::to_value(&object).unwrap();
        assert_eq!(after["metadata"]["name"], "b");
        assert_eq!(after["spec"]["volumes"], json!([{}]));
    }

    #[test]
    fn a_word_of_a_later_release_is_written_back_until_another_takes_its_place() {
        let written = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {},
            "status": { "phase": "Hibernated", "conditions": [{ "type": "Ready", "status": "Perhaps" }] } });
        let mut object: VirtualMachineInstance = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(object.status.phase, crate::types::Phase::Unknown);
        assert_eq!(serde_json::to_value(&object).unwrap(), written);
        object.status.phase = crate::types::Phase::Running;
        assert_eq!(serde_json::to_value(&object).unwrap()["status"]["phase"], "Running");
    }
}
