//! Images by name, and the cache of what was unpacked.
//!
//! ```text
//!   CACHE/references/HASH.json             what a registry said a name means: digest and layers
//!   CACHE/images/sha256-HEX.lock           held while something of that image is unpacked
//!   CACHE/images/sha256-HEX/disk/NAME      the disk, 0444
//!   CACHE/images/sha256-HEX/file-HASH/NAME another file, by the hash of its path
//!   CACHE/images/sha256-HEX/blobs/HEX      layers on their way from a registry; removed once unpacked
//! ```
//!
//! What stands under its name there is whole and was checked: it is made in a directory of its own, and renamed. Two
//! commands that want the same image wait for each other, and the second finds what it wants.

use std::fmt::{self, Debug, Formatter};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::digest::ContentDigest;
use super::document::{Descriptor, MAX_DEPTH};
use super::error::ImageError;
use super::local::{Document, Extent, Local, LocalImage, ours, parse, too_deep};
use super::reference::ImageReference;
use super::registry::{Progress, Registry, RegistryError, RegistryOptions};
use super::unpack::{Check, Layer, Room, Unpacked, Wanted, unpack};

/// What a disk may take, and more: a small image can hold many zeros, which cost time and not room.
pub const DEFAULT_LIMIT: u64 = 512 << 30;

/// What is left free on the cache's file system.
const RESERVE: u64 = 1 << 30;

/// More than anybody keeps in one directory by hand.
const MAX_ARCHIVES: usize = 1000;

/// When a registry is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time.
    Always,
    /// When the name is not known yet.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// That of Kubernetes for a name, where nobody says.
    pub fn default_for(reference: &ImageReference) -> Self {
        if reference.is_latest() { Self::Always } else { Self::IfNotPresent }
    }
}

/// Where to look for an image, in this order; a registry is the last.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// This image is that layout or archive.
    pub mappings: Vec<(ImageReference, PathBuf)>,
    /// Layouts and archives that say themselves what they hold.
    pub directory: Option<PathBuf>,
}

impl Sources {
    /// The local place of an image.
    fn find(&self, reference: &ImageReference) -> Result<Option<Local>, ImageError> {
        let mapped = self.mappings.iter().find(|(name, _)| name.same_as(reference));
        if let Some((_, path)) = mapped {
            return Local::open(path).map(Some);
        }
        let Some(directory) = &self.directory else { return Ok(None) };
        let failed = |source| ImageError::Host { what: "list", path: directory.clone(), source };
        let entries = fs::read_dir(directory).map_err(failed)?.take(MAX_ARCHIVES);
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()
            .map_err(failed)?;
        paths.sort();
        // What is no image is somebody else's.
        let mut images = paths.iter().filter_map(|path| Local::open(path).ok());
        Ok(images.find(|local| local.calls(reference)))
    }
}

/// What a registry said a name means.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pulled {
    reference: String,
    digest: ContentDigest,
    layers: Vec<Descriptor>,
}

/// The images of this machine, as far as `corten` knows them.
#[derive(Clone)]
pub struct ImageStore {
    cache: PathBuf,
    limit: u64,
    registry: Registry,
    progress: Option<Progress>,
}

impl ImageStore {
    /// One that keeps what it unpacks in `cache`.
    pub fn new(cache: impl Into<PathBuf>, options: RegistryOptions) -> Result<Self, RegistryError> {
        let registry = Registry::new(options)?;
        Ok(Self { cache: cache.into(), limit: DEFAULT_LIMIT, registry, progress: None })
    }

    /// The cache of whoever runs this: `/var/cache/corten` of root, and else `$XDG_CACHE_HOME/corten` or `~/.cache/corten`.
    pub fn default_cache() -> PathBuf {
        if nix::unistd::geteuid().is_root() {
            return "/var/cache/corten".into();
        }
        let set =
            std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        set.or_else(home).unwrap_or_else(std::env::temp_dir).join("corten")
    }

    /// The same with another limit for what an image unpacks to.
    pub fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The same, telling of the bytes that come from a registry.
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Finds an image. Nothing is unpacked yet, and of a registry only the manifest is fetched.
    pub async fn resolve(
        &self,
        reference: &ImageReference,
        policy: PullPolicy,
        sources: &Sources,
    ) -> Result<ImageHandle, ImageError> {
        let (wanted, local, cache) = (reference.clone(), sources.clone(), self.cache.clone());
        let found = blocking(reference, move || {
            make_trusted(&cache)?;
            local.find(&wanted)?.map(|local| local.image(&wanted)).transpose()
        });
        let (digest, origin) = match found.await? {
            Some(LocalImage { digest, layers }) => (digest, Origin::Local(layers)),
            None => {
                let pulled = self.pulled(reference, policy).await?;
                (pulled.digest, Origin::Registry(pulled.layers))
            }
        };
        let origin = Arc::new(origin);
        Ok(ImageHandle { reference: reference.clone(), digest, origin, store: self.clone() })
    }

    async fn pulled(
        &self,
        reference: &ImageReference,
        policy: PullPolicy,
    ) -> Result<Pulled, ImageError> {
        let name = reference.to_string();
        let hash = ContentDigest::of(name.as_bytes());
        let path = self.cache.join("references").join(format!("{}.json", hash.hex()));
        let known = || -> Option<Pulled> {
            let pulled: Pulled = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            (pulled.reference == name).then_some(pulled)
        };
        // What a digest means does not change.
        let ask = policy == PullPolicy::Always && reference.digest().is_none();
        match (known(), policy) {
            (Some(pulled), _) if !ask => return Ok(pulled),
            (None, PullPolicy::Never) => {
                return Err(ImageError::NotCached { image: name, cache: self.cache.clone() });
            }
            _ => {}
        }
        let pulled = self.ask(reference).await?;
        let bytes = serde_json::to_vec(&pulled).unwrap_or_default();
        replace(&path, &bytes).map_err(|source| ImageError::Host {
            what: "write",
            path,
            source,
        })?;
        Ok(pulled)
    }

    /// Asks the registry for the manifest of an image.
    async fn ask(&self, reference: &ImageReference) -> Result<Pulled, ImageError> {
        let name = reference.to_string();
        let mut version = reference.version();
        for _ in 0..MAX_DEPTH {
            let answer = self.registry.manifest(reference, &version).await;
            let (digest, bytes) =
                answer.map_err(|source| ImageError::Pull { image: name.clone(), source })?;
            match parse(&name, &bytes)? {
                Document::Index(index) => version = ours(&name, &index)?.digest.to_string(),
                Document::Manifest(manifest) => {
                    return Ok(Pulled { reference: name, digest, layers: manifest.layers });
                }
            }
        }
        Err(too_deep(&name))
    }
}

enum Origin {
    Local(Vec<Layer>),
    Registry(Vec<Descriptor>),
}

/// An image that was found.
#[derive(Clone)]
pub struct ImageHandle {
    reference: ImageReference,
    digest: ContentDigest,
    origin: Arc<Origin>,
    store: ImageStore,
}

impl Debug for ImageHandle {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "ImageHandle({} {})", self.reference, self.digest)
    }
}

impl ImageHandle {
    /// The name by which it was found.
    pub fn reference(&self) -> &ImageReference {
        &self.reference
    }

    /// Of its manifest; by this it is known in the cache.
    pub fn digest(&self) -> &ContentDigest {
        &self.digest
    }

    /// The disk: the file that `path` leads to, or the only one under `/disk`.
    pub async fn disk(&self, path: Option<&str>) -> Result<PathBuf, ImageError> {
        let wanted = path.map_or(Wanted::Disk, |path| Wanted::File(path.into()));
        self.get(vec![wanted]).await.map(|mut paths| paths.remove(0))
    }

    /// A file, as a kernel.
    pub async fn file(&self, path: &str) -> Result<PathBuf, ImageError> {
        self.disk(Some(path)).await
    }

    /// Several files, for which the image is read only once.
    pub async fn files(&self, paths: &[&str]) -> Result<Vec<PathBuf>, ImageError> {
        self.get(paths.iter().map(|path| Wanted::File((*path).into())).collect()).await
    }

    async fn get(&self, wanted: Vec<Wanted>) -> Result<Vec<PathBuf>, ImageError> {
        let place =
            Arc::new(Place::new(&self.store.cache, &self.digest, self.reference.to_string()));
        let (look, list) = (Arc::clone(&place), wanted.clone());
        let found = blocking(&self.reference, move || Ok(look.all(&list))).await?;
        if let Some(found) = found {
            return Ok(found);
        }
        let (locking, list) = (Arc::clone(&place), wanted.clone());
        let (lock, found) = blocking(&self.reference, move || {
            let lock = locking.lock()?;
            Ok((lock, locking.all(&list)))
        })
        .await?;
        if let Some(found) = found {
            return Ok(found);
        }
        let layers = match &*self.origin {
            Origin::Local(layers) => layers.clone(),
            Origin::Registry(blobs) => self.download(&place, blobs).await?,
        };
        let limit = self.store.limit;
        blocking(&self.reference, move || {
            // Held until all is in place.
            let _lock = lock;
            place.fill(&layers, &wanted, limit)
        })
        .await
    }

    /// Gets all layers from the registry.
    async fn download(
        &self,
        place: &Place,
        blobs: &[Descriptor],
    ) -> Result<Vec<Layer>, ImageError> {
        let directory = place.blobs()?;
        let total = blobs.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
        place.check_room(total)?;
        let (mut before, mut layers) = (0, Vec::new());
        for blob in blobs {
            let path = directory.join(blob.digest.hex());
            let tell = |have: u64| {
                if let Some(progress) = &self.store.progress {
                    progress(before + have, total);
                }
            };
            let got = self.store.registry.blob(&self.reference, blob, &path, &tell).await;
            let image = self.reference.to_string();
            got.map_err(|source| ImageError::Pull { image, source })?;
            tell(blob.size);
            before += blob.size;
            layers.push(Layer {
                what: format!("layer {}", blob.digest),
                extent: Extent { path, offset: 0, length: blob.size },
                check: Check::Blob { digest: blob.digest.clone(), size: blob.size },
            });
        }
        Ok(layers)
    }
}

/// Makes the cache, or sees that it is nobody else's to change: what is in it is not checked again.
fn make_trusted(cache: &Path) -> Result<(), ImageError> {
    let failed = |source| ImageError::Host { what: "make", path: cache.into(), source };
    make(cache).map_err(|source| match (source.kind(), cache.parent().and_then(Path::parent)) {
        (io::ErrorKind::NotFound, Some(missing)) => {
            ImageError::NoPlaceForCache { path: cache.into(), missing: missing.into() }
        }
        _ => failed(source),
    })?;
    let metadata = fs::metadata(cache).map_err(failed)?;
    let owner = metadata.uid();
    let is_ours = owner == 0 || owner == nix::unistd::geteuid().as_raw();
    if is_ours && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(ImageError::SharedCache { path: cache.into() })
}

/// Makes a directory and the one it is in, if they are missing: `~/.cache` may be. More of them are a path that was mistyped.
fn make(directory: &Path) -> io::Result<()> {
    let make_one = |path: &Path| match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    match (make_one(directory), directory.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            make_one(parent)?;
            make_one(directory)
        }
        (made, _) => made,
    }
}

/// Runs what waits for files on a thread for that.
async fn blocking<T: Send + 'static>(
    reference: &ImageReference,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let interrupted = |_| ImageError::Interrupted { image: reference.to_string() };
    tokio::task::spawn_blocking(work).await.map_err(interrupted)?
}

/// Writes a small file such that it is there whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let file = tempfile::NamedTempFile::new_in(directory)?;
    fs::write(file.path(), bytes)?;
    file.persist(path)?;
    Ok(())
}

/// The directory of an image in the cache.
struct Place {
    image: String,
    directory: PathBuf,
}

impl Place {
    fn new(cache: &Path, digest: &ContentDigest, image: String) -> Self {
        let directory = cache.join("images").join(format!("sha256-{}", digest.hex()));
        Self { image, directory }
    }

    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> ImageError {
        let path = self.directory.clone();
        move |source| ImageError::Host { what, path: path.clone(), source }
    }

    /// What is wanted, if all of it is there.
    fn all(&self, wanted: &[Wanted]) -> Option<Vec<PathBuf>> {
        wanted.iter().map(|wanted| self.one(wanted)).collect()
    }

    fn one(&self, wanted: &Wanted) -> Option<PathBuf> {
        let mut entries = fs::read_dir(self.slot(wanted)).ok()?;
        entries.next()?.ok().map(|entry| entry.path())
    }

    /// The directory of what is wanted.
    fn slot(&self, wanted: &Wanted) -> PathBuf {
        match wanted {
            Wanted::Disk => self.directory.join("disk"),
            Wanted::File(path) => {
                let hash = ContentDigest::of(path.trim_matches('/').as_bytes());
                self.directory.join(format!("file-{}", &hash.hex()[..32]))
            }
        }
    }

    /// Waits until nobody else unpacks this image, and clears away what somebody left who was killed.
    fn lock(&self) -> Result<Flock<File>, ImageError> {
        fs::create_dir_all(&self.directory).map_err(self.failed("make"))?;
        let path = self.directory.with_extension("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(self.failed("lock"))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, error)| self.failed("lock")(error.into()))?;
        for entry in fs::read_dir(&self.directory).map_err(self.failed("list"))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(lock)
    }

    /// Where layers are kept on their way; what came before an interruption still is there.
    fn blobs(&self) -> Result<PathBuf, ImageError> {
        let path = self.directory.join("blobs");
        fs::create_dir_all(&path).map_err(self.failed("make"))?;
        Ok(path)
    }

    fn free(&self) -> Result<u64, ImageError> {
        let statistics = nix::sys::statvfs::statvfs(&self.directory);
        let statistics = statistics.map_err(|error| self.failed("look at")(error.into()))?;
        let free = statistics.blocks_available().saturating_mul(statistics.fragment_size());
        Ok(free.saturating_sub(RESERVE))
    }

    fn check_room(&self, bytes: u64) -> Result<(), ImageError> {
        let limit = self.free()?;
        if bytes <= limit {
            return Ok(());
        }
        let what = "the cache's file system has no room for its layers; free some, or use another directory";
        Err(ImageError::TooLarge { image: self.image.clone(), limit, what })
    }

    /// Unpacks what is wanted and puts it in place.
    fn fill(
        &self,
        layers: &[Layer],
        wanted: &[Wanted],
        limit: u64,
    ) -> Result<Vec<PathBuf>, ImageError> {
        let staging = tempfile::Builder::new().prefix(STAGING).tempdir_in(&self.directory);
        let staging = staging.map_err(self.failed("write to"))?;
        let room = Room { unpacked: limit, written: self.free()? };
        let files = unpack(&self.image, layers, wanted, staging.path(), room);
        // They were only on their way.
        let _ = fs::remove_dir_all(self.directory.join("blobs"));
        let files = files?;
        for (number, (wanted, file)) in wanted.iter().zip(&files).enumerate() {
            let slot = self.slot(wanted);
            self.publish(file, &staging.path().join(format!("slot-{number}")), &slot)
                .map_err(|source| ImageError::Host { what: "write", path: slot, source })?;
        }
        self.all(wanted)
            .ok_or_else(|| self.failed("find what was written to")(io::ErrorKind::NotFound.into()))
    }

    fn publish(&self, file: &Unpacked, making: &Path, slot: &Path) -> io::Result<()> {
        if slot.exists() {
            return Ok(());
        }
        fs::set_permissions(&file.file, Permissions::from_mode(0o444))?;
        fs::create_dir(making)?;
        // Two paths may lead to one file.
        fs::hard_link(&file.file, making.join(file_name(&file.path)))?;
        File::open(making)?.sync_all()?;
        fs::rename(making, slot)?;
        File::open(&self.directory)?.sync_all()
    }
}

const STAGING: &str = ".staging-";

/// The name that a file has in the cache, for people: that in the image, without what could mean anything.
fn file_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let plain = |byte: &u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"._-".contains(byte) => char::from(*byte),
        _ => '_',
    };
    let name: String = name.iter().take(100).map(plain).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "file".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests;
