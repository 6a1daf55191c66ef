//! Images for tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use tar::{EntryType, Header};

use super::digest::ContentDigest;

/// The blobs of an image, and the descriptor of its manifest.
pub(super) struct TestImage {
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    pub(super) manifest: Value,
}

pub(super) fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": ContentDigest::of(bytes).to_string(), "size": bytes.len() })
}

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl TestImage {
    /// One of these layers.
    pub(super) fn new(layers: &[Vec<u8>]) -> Self {
        let mut image = Self { blobs: BTreeMap::new(), manifest: Value::Null };
        let kind = "application/vnd.oci.image.layer.v1.tar";
        let layers: Vec<Value> =
            layers.iter().map(|layer| image.add(kind, layer.clone())).collect();
        let config = image.add("application/vnd.oci.image.config.v1+json", b"{}".to_vec());
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
        image.manifest = image.add(MANIFEST, manifest.to_string().into_bytes());
        image
    }

    /// Adds a blob.
    pub(super) fn add(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let descriptor = descriptor(kind, &bytes);
        self.blobs.insert(ContentDigest::of(&bytes).hex().to_owned(), bytes);
        descriptor
    }

    /// An index in which it is for our platform, beside another one.
    pub(super) fn index(&mut self) -> Value {
        let mut ours = self.manifest.clone();
        ours["platform"] = json!({ "os": "linux", "architecture": "amd64" });
        let mut other = descriptor(MANIFEST, b"another");
        other["platform"] = json!({ "os": "linux", "architecture": "arm64" });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [other, ours] });
        self.add(INDEX, index.to_string().into_bytes())
    }

    /// Writes a layout, whose index has these entries.
    pub(super) fn write(&self, directory: &Path, entries: &[Value]) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for (name, bytes) in &self.blobs {
            fs::write(blobs.join(name), bytes).unwrap();
        }
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let index = json!({ "schemaVersion": 2, "manifests": entries });
        fs::write(directory.join("index.json"), index.to_string()).unwrap();
    }
}

pub(super) fn header(kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(0o644);
    header
}

/// A layer of files with these contents.
pub(super) fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        builder
            .append_data(&mut header(EntryType::Regular, content.len()), path, *content)
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// A layer of symbolic links.
pub(super) fn links(links: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, target) in links {
        builder.append_link(&mut header(EntryType::Symlink, 0), path, target).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
