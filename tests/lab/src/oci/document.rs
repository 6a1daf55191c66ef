//! The JSON documents of an image (image-spec: config.md, manifest.md, image-index.md, image-layout.md).

use serde::Serialize;

use super::digest::BlobDigest;

/// Content of the file `oci-layout`.
pub(super) const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// How a container of the image starts. What is empty is left out.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// Program and its first arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Environment, as `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// User, as `UID` or `UID:GID`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor<'a> {
    media_type: &'a str,
    digest: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
}

#[derive(Serialize)]
struct Annotations<'a> {
    /// What containerd calls the image after an import.
    #[serde(rename = "io.containerd.image.name")]
    containerd: &'a str,
    #[serde(rename = "org.opencontainers.image.ref.name")]
    reference: &'a str,
}

#[derive(Serialize)]
struct Platform {
    architecture: &'static str,
    os: &'static str,
}

const PLATFORM: Platform = Platform { architecture: "amd64", os: "linux" };

#[derive(Serialize)]
struct ImageConfig<'a> {
    #[serde(flatten)]
    platform: Platform,
    config: &'a Config,
    rootfs: RootFs,
}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: [String; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u32,
    media_type: &'static str,
    config: Descriptor<'a>,
    layers: [Descriptor<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    schema_version: u32,
    media_type: &'static str,
    manifests: [Descriptor<'a>; 1],
}

/// A blob that is part of the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob {
    /// Its name.
    pub(super) digest: BlobDigest,
    /// Its bytes.
    pub(super) size: u64,
}

impl Blob {
    /// A blob of bytes in memory.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { digest: BlobDigest::of(bytes), size: bytes.len() as u64 }
    }

    fn descriptor(self, media_type: &str) -> Descriptor<'_> {
        let digest = self.digest.to_string();
        Descriptor { media_type, digest, size: self.size, annotations: None, platform: None }
    }
}

/// The image configuration. `diff_id` is the digest of the layer before compression.
pub(super) fn config(config: &Config, diff_id: BlobDigest) -> serde_json::Result<Vec<u8>> {
    let rootfs = RootFs { kind: "layers", diff_ids: [diff_id.to_string()] };
    serde_json::to_vec(&ImageConfig { platform: PLATFORM, config, rootfs })
}

/// The manifest that joins configuration and layer.
pub(super) fn manifest(config: Blob, layer: Blob, layer_type: &str) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Manifest {
        schema_version: 2,
        media_type: MANIFEST,
        config: config.descriptor(CONFIG),
        layers: [layer.descriptor(layer_type)],
    })
}

/// `index.json`: the one manifest, under the image's name.
pub(super) fn index(name: &str, manifest: Blob) -> serde_json::Result<Vec<u8>> {
    let descriptor = Descriptor {
        annotations: Some(Annotations { containerd: name, reference: name }),
        platform: Some(PLATFORM),
        ..manifest.descriptor(MANIFEST)
    };
    serde_json::to_vec(&Index { schema_version: 2, media_type: INDEX, manifests: [descriptor] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_config_names_nothing() {
        let bytes = config(&Config::default(), BlobDigest::of(b"")).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["config"], serde_json::json!({}));
        assert_eq!(value["architecture"], "amd64");
        assert_eq!(value["rootfs"]["type"], "layers");
    }

    #[test]
    fn config_fields_have_the_names_of_the_specification() {
        let given = Config {
            entrypoint: vec!["/bin/agent".to_owned()],
            env: vec!["A=b".to_owned()],
            user: "107:107".to_owned(),
        };
        let bytes = config(&given, BlobDigest::of(b"")).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let expected =
            serde_json::json!({"Entrypoint": ["/bin/agent"], "Env": ["A=b"], "User": "107:107"});
        assert_eq!(value["config"], expected);
    }
}
