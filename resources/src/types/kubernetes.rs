//! The few types of Kubernetes' own that Corten looks into. Those it only passes on are [`Embedded`](super::Embedded).

use super::Embedded;
use super::fields::object;
use std::collections::BTreeMap;

object! {
    /// A taint that is put up with, as in a Pod.
    pub struct Toleration {
        /// Effect of the taint; any if not given.
        pub effect: Option<String>,
        /// Key of the taint; any if not given.
        pub key: Option<String>,
        /// `Exists` or `Equal`.
        pub operator: Option<String>,
        /// For how long a NoExecute taint is put up with.
        pub toleration_seconds: Option<i64>,
        /// Value of the taint.
        pub value: Option<String>,
    }

    /// An object of the same namespace, by its name.
    pub struct LocalObjectReference {
        /// Its name.
        pub name: Option<String>,
    }

    /// A PersistentVolumeClaim, as a Pod names it.
    pub struct ClaimSource {
        /// Its name.
        pub claim_name: String,
        /// It is not written to.
        pub read_only: Option<bool>,
    }

    /// Which name servers are asked, as in a Pod.
    pub struct DnsConfig {
        /// Addresses of name servers.
        pub nameservers: Vec<String>,
        /// Options of the resolver.
        pub options: Vec<DnsOption>,
        /// Domains in which short names are looked for.
        pub searches: Vec<String>,
    }

    /// An option of the resolver.
    pub struct DnsOption {
        /// Its name.
        pub name: Option<String>,
        /// Its value, if it has one.
        pub value: Option<String>,
    }

    /// A file that holds something of its own object's.
    pub struct DownwardApiFile {
        /// The field that it holds.
        pub field_ref: Option<FieldReference>,
        /// Its permissions.
        pub mode: Option<i32>,
        /// Its path in the volume.
        pub path: String,
        /// The resource of a container that it holds.
        pub resource_field_ref: Option<Embedded>,
    }

    /// A field of the object itself.
    pub struct FieldReference {
        /// Version of the object in which the path is meant.
        pub api_version: Option<String>,
        /// Path of the field, such as `metadata.name`.
        pub field_path: String,
    }

    /// Which objects are meant, by their labels: those that match all of this.
    pub struct LabelSelector {
        /// Labels of which more is said than their value.
        pub match_expressions: Vec<LabelRequirement>,
        /// Labels that must be just so.
        pub match_labels: BTreeMap<String, String>,
    }

    /// What is asked of a label.
    pub struct LabelRequirement {
        /// The label.
        pub key: String,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        pub operator: String,
        /// Values, for the first two.
        pub values: Vec<String>,
    }
}
