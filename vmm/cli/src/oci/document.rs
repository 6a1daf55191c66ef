//! The JSON documents of an image: index, manifest, configuration; those of the OCI's image specification, those of Docker that
//! mean the same, and the list in an archive of `docker save`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::ContentDigest;

/// The longest document. Registries allow manifests of 4 MiB.
pub(super) const MAX_DOCUMENT: u64 = 4 << 20;

/// How deep indexes of indexes go. One level is usual, two happens.
pub(super) const MAX_DEPTH: usize = 4;

/// More layers than any builder makes; overlay file systems end at 500.
pub(super) const MAX_LAYERS: usize = 512;

pub(super) const MANIFEST_TYPES: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

pub(super) const INDEX_TYPES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// Names under which archives carry an image's name.
const NAME_ANNOTATIONS: [&str; 2] =
    ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// What a document says of a content elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: ContentDigest,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Platform>,
}

impl Descriptor {
    /// Names of the image, as an index of a layout tells them.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        NAME_ANNOTATIONS.iter().filter_map(|name| self.annotations.get(*name)).map(String::as_str)
    }

    pub(super) fn is_index(&self) -> bool {
        INDEX_TYPES.contains(&self.media_type.as_str())
    }

    pub(super) fn is_manifest(&self) -> bool {
        MANIFEST_TYPES.contains(&self.media_type.as_str())
    }

    /// Whether a VM of ours can be made of it: one that does not say is taken at its word.
    fn fits(&self) -> bool {
        self.platform.as_ref().is_none_or(Platform::fits)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

impl Platform {
    fn fits(&self) -> bool {
        self.architecture == "amd64" && self.os == "linux"
    }
}

/// Images by platform, or by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

impl Index {
    /// The entry for Linux on amd64: one that says so, before one that says nothing.
    pub(super) fn for_our_platform(&self) -> Option<&Descriptor> {
        let images =
            || self.manifests.iter().filter(|entry| entry.is_index() || entry.is_manifest());
        images()
            .find(|entry| entry.platform.as_ref().is_some_and(Platform::fits))
            .or_else(|| images().find(|entry| entry.fits()))
    }

    /// What there is instead, for people.
    pub(super) fn platforms(&self) -> String {
        let name = |entry: &Descriptor| {
            let platform = entry.platform.as_ref();
            platform.map(|platform| format!("{}/{}", platform.os, platform.architecture))
        };
        let mut names: Vec<String> = self.manifests.iter().filter_map(name).collect();
        names.dedup();
        names.truncate(10);
        names.join(", ")
    }
}

/// One image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) layers: Vec<Descriptor>,
}

/// Which of the two kinds a document is, where nobody said before.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kind {
    #[serde(default)]
    schema_version: u64,
    #[serde(default)]
    media_type: String,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
}

impl Kind {
    pub(super) fn is_index(&self) -> bool {
        INDEX_TYPES.contains(&self.media_type.as_str())
            || (self.manifests.is_some() && self.layers.is_none())
    }

    /// The manifests of before 2016.
    pub(super) fn is_ancient(&self) -> bool {
        self.schema_version == 1
    }
}

/// An entry of `manifest.json` in an archive of `docker save`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SavedImage {
    pub(super) config: String,
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Vec<String>,
}

/// What such an image's configuration says of its layers: the digests of their tar streams.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SavedConfig {
    pub(super) rootfs: RootFs,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<ContentDigest>,
}
