//! DataVolumes that are made with a VirtualMachine, as the Containerized Data Importer knows them.

use crate::types::fields::object;
use crate::types::{Embedded, Marker, ObjectMeta};

object! {
    /// A DataVolume that is yet to be made.
    pub struct DataVolumeTemplate {
        /// `cdi.kubevirt.io/v1beta1`.
        pub api_version: Option<String>,
        /// `DataVolume`.
        pub kind: Option<String>,
        /// Its name, labels and annotations.
        pub metadata: Option<ObjectMeta>,
        /// What it holds.
        pub spec: DataVolumeSpec,
        /// Nothing; older clients write it.
        pub status: Option<Marker>,
    }

    /// What a DataVolume holds.
    pub struct DataVolumeSpec {
        /// Steps of an import in several steps.
        pub checkpoints: Vec<Checkpoint>,
        /// `kubevirt` or `archive`.
        pub content_type: Option<String>,
        /// The last step has been named.
        pub final_checkpoint: Option<bool>,
        /// Its space is taken in advance.
        pub preallocation: Option<bool>,
        /// Priority of the Pods that fill it.
        pub priority_class_name: Option<String>,
        /// The claim, in every detail.
        pub pvc: Option<Embedded>,
        /// What it is filled with.
        pub source: Option<DataVolumeSource>,
        /// An object that says what it is filled with.
        pub source_ref: Option<DataVolumeSourceReference>,
        /// The claim, completed from what is known of its storage class.
        pub storage: Option<Storage>,
    }

    /// A step of an import in several steps.
    pub struct Checkpoint {
        /// This step.
        pub current: String,
        /// The one before.
        pub previous: String,
    }

    /// What a DataVolume is filled with: one of these.
    pub struct DataVolumeSource {
        /// Nothing.
        pub blank: Option<Marker>,
        /// An object in Google's cloud storage.
        pub gcs: Option<GcsSource>,
        /// A file from a web server.
        pub http: Option<HttpSource>,
        /// A disk from oVirt.
        pub imageio: Option<ImageIoSource>,
        /// Another claim.
        pub pvc: Option<NamespacedReference>,
        /// An image from a container registry.
        pub registry: Option<RegistrySource>,
        /// An object in storage that speaks S3.
        pub s3: Option<S3Source>,
        /// A VolumeSnapshot.
        pub snapshot: Option<NamespacedReference>,
        /// What a client sends.
        pub upload: Option<Marker>,
        /// A disk from VMware.
        pub vddk: Option<VddkSource>,
    }

    /// An object in Google's cloud storage.
    pub struct GcsSource {
        /// Secret with the credentials.
        pub secret_ref: Option<String>,
        /// Where it is.
        pub url: String,
    }

    /// A file from a web server.
    pub struct HttpSource {
        /// ConfigMap with certificates to trust.
        pub cert_config_map: Option<String>,
        /// Headers to send.
        pub extra_headers: Vec<String>,
        /// Secrets with headers to send.
        pub secret_extra_headers: Vec<String>,
        /// Secret with the credentials.
        pub secret_ref: Option<String>,
        /// Where it is.
        pub url: String,
    }

    /// A disk from oVirt.
    pub struct ImageIoSource {
        /// ConfigMap with certificates to trust.
        pub cert_config_map: Option<String>,
        /// Which disk.
        pub disk_id: String,
        /// The server's certificate is not checked.
        pub insecure_skip_verify: Option<bool>,
        /// Secret with the credentials.
        pub secret_ref: Option<String>,
        /// Where the server is.
        pub url: String,
    }

    /// An object of any namespace.
    pub struct NamespacedReference {
        /// Its name.
        pub name: String,
        /// Its namespace.
        pub namespace: String,
    }

    /// An image from a container registry.
    pub struct RegistrySource {
        /// ConfigMap with certificates to trust.
        pub cert_config_map: Option<String>,
        /// ImageStream that names it.
        pub image_stream: Option<String>,
        /// Which of its platforms.
        pub platform: Option<Platform>,
        /// Who pulls it: `pod` or `node`.
        pub pull_method: Option<String>,
        /// Secret with the credentials.
        pub secret_ref: Option<String>,
        /// Where it is.
        pub url: Option<String>,
    }

    /// A platform of an image.
    pub struct Platform {
        /// Its architecture.
        pub architecture: Option<String>,
    }

    /// An object in storage that speaks S3.
    pub struct S3Source {
        /// ConfigMap with certificates to trust.
        pub cert_config_map: Option<String>,
        /// Secret with the credentials.
        pub secret_ref: Option<String>,
        /// Where it is.
        pub url: String,
    }

    /// A disk from VMware.
    pub struct VddkSource {
        /// Its file there.
        pub backing_file: Option<String>,
        /// ConfigMap with arguments of the importer.
        pub extra_args: Option<String>,
        /// Image with VMware's library.
        #[serde(rename = "initImageURL")]
        pub init_image_url: Option<String>,
        /// Secret with the credentials.
        pub secret_ref: Option<String>,
        /// Fingerprint of the server's certificate.
        pub thumbprint: Option<String>,
        /// Where the server is.
        pub url: Option<String>,
        /// UUID of the VM there.
        pub uuid: Option<String>,
    }

    /// An object that says what a DataVolume is filled with.
    pub struct DataVolumeSourceReference {
        /// Its kind; only DataSource is known.
        pub kind: String,
        /// Its name.
        pub name: String,
        /// Its namespace.
        pub namespace: Option<String>,
    }

    /// A claim that is completed from what is known of its storage class.
    pub struct Storage {
        /// How nodes may use it.
        pub access_modes: Vec<String>,
        /// What it is made from.
        pub data_source: Option<Embedded>,
        /// What it is made from, of any namespace.
        pub data_source_ref: Option<Embedded>,
        /// Its size.
        pub resources: Option<Embedded>,
        /// Labels of the volume to take.
        pub selector: Option<Embedded>,
        /// Its storage class.
        pub storage_class_name: Option<String>,
        /// `Block` or `Filesystem`.
        pub volume_mode: Option<String>,
        /// The volume to take.
        pub volume_name: Option<String>,
    }
}
