//! Images on disk: an OCI image layout, the same in a tar archive, or an archive of `docker save`.
//!
//! An archive is not unpacked: its entries are found once, and then read where they lie.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::digest::ContentDigest;
use super::document::{
    Descriptor, Index, Kind, MAX_DEPTH, MAX_DOCUMENT, MAX_LAYERS, Manifest, SavedConfig, SavedImage,
};
use super::error::ImageError;
use super::reference::ImageReference;
use super::tarball::{EntryKind, Tarball};
use super::unpack::{Check, Layer};
use crate::regular;

/// An archive of an image has a few blobs for each of its layers.
const MAX_ENTRIES: usize = 10_000;

/// An image has one index of its platforms, an archive some images.
const MAX_INDEXES: usize = 100;

/// Part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Extent {
    /// A reader of it.
    pub(super) fn open(&self) -> io::Result<io::Take<File>> {
        let mut file = regular::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        Ok(file.take(self.length))
    }
}

/// An image that was found: what it is known by, and what it is made of.
#[derive(Clone, Debug)]
pub(super) struct LocalImage {
    /// Of its manifest, or of its configuration where there is none.
    pub(super) digest: ContentDigest,
    pub(super) layers: Vec<Layer>,
}

/// A layout or an archive.
#[derive(Debug)]
pub(super) struct Local {
    path: PathBuf,
    /// Of an archive, its entries by name, links followed.
    entries: Option<BTreeMap<String, Extent>>,
}

impl Local {
    pub(super) fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Host { what: "open", path: path.into(), source };
        let metadata = fs::metadata(path).map_err(failed)?;
        let entries = match metadata.is_dir() {
            true => None,
            false => Some(archive_entries(path)?),
        };
        Ok(Self { path: path.into(), entries })
    }

    fn locate(&self, name: &str) -> Result<Extent, ImageError> {
        let missing = || self.no_image(format!("it has no {name}"));
        match &self.entries {
            Some(entries) => entries.get(name).cloned().ok_or_else(missing),
            None => {
                let path = self.path.join(name);
                let length = fs::metadata(&path).map_err(|_| missing())?.len();
                Ok(Extent { path, offset: 0, length })
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.locate(name).is_ok()
    }

    fn no_image(&self, what: String) -> ImageError {
        ImageError::NotAnImage { path: self.path.clone(), what }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let extent = self.locate(name)?;
        if extent.length > MAX_DOCUMENT {
            return Err(self.no_image(format!("{name} is longer than {MAX_DOCUMENT} bytes")));
        }
        let mut bytes = Vec::new();
        let read = extent.open().and_then(|mut reader| reader.read_to_end(&mut bytes));
        let path = self.path.join(name);
        read.map_err(|source| ImageError::Host { what: "read", path, source })?;
        Ok(bytes)
    }

    fn parse<T: DeserializeOwned>(&self, name: &str, bytes: &[u8]) -> Result<T, ImageError> {
        serde_json::from_slice(bytes).map_err(|error| self.no_image(format!("{name}: {error}")))
    }

    /// A blob, which has to be what its digest says.
    fn blob(&self, image: &str, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let bytes = self.read(&blob_name(&descriptor.digest))?;
        verify(image, "a document", &descriptor.digest, &bytes)?;
        Ok(bytes)
    }

    /// The image of that name; the only one, where there is only one.
    pub(super) fn image(&self, name: &ImageReference) -> Result<LocalImage, ImageError> {
        match self.has("index.json") {
            true => self.layout_image(name),
            false if self.has("manifest.json") => self.saved_image(name),
            false => Err(self.no_image("it has neither index.json nor manifest.json".into())),
        }
    }

    /// Whether there is an image that is called so. A digest says which one it is, whatever it is called here.
    pub(super) fn calls(&self, name: &ImageReference) -> bool {
        if let Some(digest) = name.digest() {
            return self.by_digest(&name.to_string(), digest).is_ok_and(|found| found.is_some());
        }
        let called = |names: Vec<String>| names.iter().any(|other| name.is_called(other));
        self.names().is_ok_and(called)
    }

    /// The entry of this digest in a layout: one that its index lists, or one of another index within.
    fn by_digest(
        &self,
        image: &str,
        digest: &ContentDigest,
    ) -> Result<Option<Descriptor>, ImageError> {
        if !self.has("index.json") {
            return Ok(None);
        }
        let index: Index = self.parse("index.json", &self.read("index.json")?)?;
        let mut level = index.manifests;
        for _ in 0..MAX_DEPTH {
            let found = level.iter().find(|entry| entry.digest == *digest);
            // An index may name what a layout does not have: other platforms.
            if let Some(found) = found.filter(|found| self.has(&blob_name(&found.digest))) {
                return Ok(Some(found.clone()));
            }
            let mut below = Vec::new();
            for entry in level.iter().filter(|entry| entry.is_index()).take(MAX_INDEXES) {
                // One that is not there, or damaged, is not what is looked for.
                let bytes = self.blob(image, entry);
                if let Ok(Document::Index(index)) = bytes.and_then(|bytes| parse(image, &bytes)) {
                    below.extend(index.manifests);
                }
            }
            level = below;
        }
        Ok(None)
    }

    fn names(&self) -> Result<Vec<String>, ImageError> {
        if self.has("index.json") {
            let index: Index = self.parse("index.json", &self.read("index.json")?)?;
            let names = index.manifests.iter().flat_map(Descriptor::names);
            return Ok(names.map(Into::into).collect());
        }
        let saved: Vec<SavedImage> = self.parse("manifest.json", &self.read("manifest.json")?)?;
        Ok(saved.into_iter().flat_map(|image| image.repo_tags.unwrap_or_default()).collect())
    }

    fn not_here(&self, name: &ImageReference) -> ImageError {
        let mut names = self.names().unwrap_or_default();
        names.truncate(10);
        let there = if names.is_empty() { "images without names".into() } else { names.join(", ") };
        ImageError::NotInArchive { path: self.path.clone(), name: name.to_string(), there }
    }

    fn layout_image(&self, name: &ImageReference) -> Result<LocalImage, ImageError> {
        let index: Index = self.parse("index.json", &self.read("index.json")?)?;
        let images =
            || index.manifests.iter().filter(|entry| entry.is_index() || entry.is_manifest());
        let called = |entry: &&Descriptor| entry.names().any(|other| name.is_called(other));
        // An index that the layout has at its top may already be one of platforms.
        let only = || {
            let unnamed = images().all(|entry| entry.names().next().is_none());
            (unnamed || images().count() == 1).then(|| index.for_our_platform()).flatten()
        };
        let entry = match name.digest() {
            Some(digest) => self.by_digest(&name.to_string(), digest)?,
            None => images().find(called).or_else(only).cloned(),
        };
        let entry = entry.ok_or_else(|| self.not_here(name))?;
        let (descriptor, manifest) = self.manifest(&name.to_string(), &entry)?;
        let layers = manifest.layers.into_iter().map(|layer| self.layer(layer));
        Ok(LocalImage { digest: descriptor.digest, layers: layers.collect::<Result<_, _>>()? })
    }

    fn layer(&self, descriptor: Descriptor) -> Result<Layer, ImageError> {
        let extent = self.locate(&blob_name(&descriptor.digest))?;
        let what = format!("layer {}", descriptor.digest);
        let check = Check::Blob { digest: descriptor.digest, size: descriptor.size };
        Ok(Layer { what, extent, check })
    }

    /// Goes from an index to its manifest for our platform.
    fn manifest(
        &self,
        image: &str,
        entry: &Descriptor,
    ) -> Result<(Descriptor, Manifest), ImageError> {
        let mut descriptor = entry.clone();
        for _ in 0..MAX_DEPTH {
            let bytes = self.blob(image, &descriptor)?;
            match parse(image, &bytes)? {
                Document::Manifest(manifest) => return Ok((descriptor, manifest)),
                Document::Index(index) => descriptor = ours(image, &index)?,
            }
        }
        Err(too_deep(image))
    }

    fn saved_image(&self, name: &ImageReference) -> Result<LocalImage, ImageError> {
        let saved: Vec<SavedImage> = self.parse("manifest.json", &self.read("manifest.json")?)?;
        let called = |image: &&SavedImage| {
            image.repo_tags.iter().flatten().any(|other| name.is_called(other))
        };
        let only = || (saved.len() == 1).then(|| &saved[0]);
        let image = saved.iter().find(called).or_else(only).ok_or_else(|| self.not_here(name))?;
        let bytes = self.read(&image.config)?;
        let digest = ContentDigest::of(&bytes);
        let config: SavedConfig = self.parse(&image.config, &bytes)?;
        let stems = [format!("{}.json", digest.hex()), format!("blobs/sha256/{}", digest.hex())];
        if !stems.contains(&image.config) {
            return Err(
                self.no_image(format!("{} is not named by its digest {digest}", image.config))
            );
        }
        if name.digest().is_some() {
            let what = "archives of `docker save` do not hold the digest that the name asks for";
            return Err(self.no_image(what.into()));
        }
        let diff_ids = config.rootfs.diff_ids;
        if diff_ids.len() != image.layers.len() || diff_ids.len() > MAX_LAYERS {
            return Err(
                self.no_image("its configuration and its list of layers do not agree".into())
            );
        }
        let layer = |(name, diff_id): (&String, ContentDigest)| {
            let (what, extent) = (format!("layer {name}"), self.locate(name)?);
            Ok(Layer { what, extent, check: Check::Stream(diff_id) })
        };
        let layers = image.layers.iter().zip(diff_ids).map(layer).collect::<Result<_, _>>()?;
        Ok(LocalImage { digest, layers })
    }
}

/// One of the two.
pub(super) enum Document {
    Index(Index),
    Manifest(Manifest),
}

/// Reads an index or a manifest.
pub(super) fn parse(image: &str, bytes: &[u8]) -> Result<Document, ImageError> {
    let wrong = |what: String| ImageError::Malformed { image: image.into(), what };
    let unreadable = |error| wrong(format!("its manifest is malformed: {error}"));
    let kind: Kind = serde_json::from_slice(bytes).map_err(unreadable)?;
    if kind.is_ancient() {
        return Err(wrong(
            "its manifest has the schema of 2015 (version 1); build or push it anew".into(),
        ));
    }
    if kind.is_index() {
        return serde_json::from_slice(bytes).map(Document::Index).map_err(unreadable);
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(unreadable)?;
    if manifest.layers.len() > MAX_LAYERS {
        return Err(wrong(format!("it has more than {MAX_LAYERS} layers")));
    }
    let odd = manifest.layers.iter().find(|layer| !layer.media_type.contains(".tar"));
    if let Some(layer) = odd.filter(|layer| !layer.media_type.is_empty()) {
        let kind: String = layer.media_type.chars().take(100).collect();
        return Err(wrong(format!(
            "a layer is of the kind {kind:?}, which is no archive of files"
        )));
    }
    Ok(Document::Manifest(manifest))
}

/// The entry of an index that is for Linux on amd64.
pub(super) fn ours(image: &str, index: &Index) -> Result<Descriptor, ImageError> {
    let there = || ImageError::Platform { image: image.into(), there: index.platforms() };
    index.for_our_platform().cloned().ok_or_else(there)
}

pub(super) fn too_deep(image: &str) -> ImageError {
    let what = format!("indexes are nested more than {MAX_DEPTH} deep");
    ImageError::Malformed { image: image.into(), what }
}

/// Whether bytes are what their digest says.
pub(super) fn verify(
    image: &str,
    what: &str,
    expected: &ContentDigest,
    bytes: &[u8],
) -> Result<(), ImageError> {
    let found = ContentDigest::of(bytes);
    if found == *expected {
        return Ok(());
    }
    let (image, what, expected) = (image.into(), what.into(), expected.clone());
    Err(ImageError::Digest { image, what, expected, found })
}

fn blob_name(digest: &ContentDigest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Where the files of an archive lie. Old versions of `docker save` store a layer that occurs twice as a link.
fn archive_entries(path: &Path) -> Result<BTreeMap<String, Extent>, ImageError> {
    let failed = |source| ImageError::Host { what: "read", path: path.into(), source };
    let no_archive = |what: &str| ImageError::NotAnImage { path: path.into(), what: what.into() };
    let file = regular::open(path).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let mut tarball = Tarball::in_file(file);
    let (mut entries, mut links) = (BTreeMap::new(), Vec::new());
    loop {
        let entry = match tarball.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) if entries.is_empty() => {
                let hint = "a compressed archive has to be decompressed first";
                return Err(no_archive(&format!("{error}; {hint}")));
            }
            Err(error) => return Err(no_archive(&error.to_string())),
        };
        if entries.len() + links.len() >= MAX_ENTRIES {
            return Err(no_archive("it has too many entries for an archive of images"));
        }
        let Ok(name) = String::from_utf8(entry.path) else { continue };
        let name = name.trim_start_matches("./").to_owned();
        match entry.kind {
            EntryKind::File => {
                if entry.offset.checked_add(entry.size).is_none_or(|end| end > total) {
                    return Err(no_archive("it was cut off"));
                }
                let (offset, length) = (entry.offset, entry.size);
                entries.insert(name, Extent { path: path.into(), offset, length });
            }
            EntryKind::Symlink(target) => links.push((name, target)),
            EntryKind::Directory | EntryKind::Hardlink(_) | EntryKind::Other => {}
        }
    }
    for (name, target) in links {
        let target = String::from_utf8(target).unwrap_or_default();
        // `ID/layer.tar` -> `../OTHER/layer.tar`
        let target = target.trim_start_matches("../");
        if let Some(extent) = entries.get(target).cloned() {
            entries.insert(name, extent);
        }
    }
    Ok(entries)
}
