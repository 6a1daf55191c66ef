//! Files of images.
//!
//! An image is a directory with its files that `--image` names, else whatever [`oci`](crate::oci) finds: a layout or an
//! archive that is named by `--image` or lies in the directory of `--images`, else a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corten_launcher::prepare::{ImagePlace, SourceError};
use corten_resources::types::{ContainerDisk, KernelBootContainer, VirtualMachineInstance};
use tokio::runtime::{Builder, Runtime};

use crate::job::Job;
use crate::oci::{
    Credentials, ImageHandle, ImageReference, ImageStore, PullPolicy, RegistryOptions, Sources,
    is_same,
};

/// A file by which a layout is told from a directory of files.
const LAYOUT: &str = "oci-layout";

/// Where the images of a job are taken from.
pub(super) struct Images {
    /// Directories with the files of an image.
    unpacked: BTreeMap<String, PathBuf>,
    sources: Sources,
    cache: PathBuf,
    store: Option<Store>,
    found: BTreeMap<Wanted, ImagePlace>,
}

/// An image, and paths in it.
type Wanted = (String, Vec<String>);

struct Store {
    images: ImageStore,
    runtime: Runtime,
}

impl Images {
    /// Looks at what the command line names.
    pub(super) fn new(job: &Job) -> Result<Self, SourceError> {
        let (mut unpacked, mut mappings) = (BTreeMap::new(), Vec::new());
        for (name, path) in &job.images {
            if path.is_dir() && !path.join(LAYOUT).exists() {
                unpacked.insert(name.clone(), path.clone());
            } else {
                mappings.push((name.parse()?, path.clone()));
            }
        }
        let sources = Sources { mappings, directory: job.image_dir.clone() };
        Ok(Self {
            unpacked,
            sources,
            cache: job.cache.clone(),
            store: None,
            found: BTreeMap::new(),
        })
    }

    /// Finds and unpacks all that `vmi` wants of images, so that it is there when it is asked for.
    pub(super) fn fetch(
        &mut self,
        vmi: &VirtualMachineInstance,
    ) -> Result<(), (String, SourceError)> {
        if let Some(container) = vmi.spec.kernel_container() {
            let path = "spec.domain.firmware.kernelBoot.container.image";
            self.kernel(container).map_err(|error| (path.into(), error))?;
        }
        for (number, volume) in vmi.spec.volumes.iter().enumerate() {
            if let Some(disk) = &volume.container_disk {
                let path = || format!("spec.volumes[{number}].containerDisk.image");
                self.disk(disk).map_err(|error| (path(), error))?;
            }
        }
        Ok(())
    }

    /// The disk of an image.
    pub(super) fn disk(&mut self, disk: &ContainerDisk) -> Result<ImagePlace, SourceError> {
        let path = disk.path.as_deref().filter(|path| !path.is_empty());
        let key = (disk.image.clone(), vec![path.unwrap_or_default().to_owned()]);
        if let Some(place) = self.known(&key) {
            return Ok(place);
        }
        let policy = disk.image_pull_policy.as_deref();
        let file = self.with_image(&disk.image, policy, async |image| image.disk(path).await)?;
        Ok(self.found.entry(key).or_insert(ImagePlace::Files(vec![file])).clone())
    }

    /// Kernel and initial RAM disk of an image.
    pub(super) fn kernel(
        &mut self,
        container: &KernelBootContainer,
    ) -> Result<ImagePlace, SourceError> {
        let paths = [&container.kernel_path, &container.initrd_path];
        let paths = paths.into_iter().flatten().filter(|path| !path.is_empty());
        let key = (container.image.clone(), paths.cloned().collect::<Vec<_>>());
        if let Some(place) = self.known(&key) {
            return Ok(place);
        }
        let policy = container.image_pull_policy.as_deref();
        let paths: Vec<&str> = key.1.iter().map(String::as_str).collect();
        let files =
            self.with_image(&container.image, policy, async |image| image.files(&paths).await)?;
        Ok(self.found.entry(key).or_insert(ImagePlace::Files(files)).clone())
    }

    fn known(&self, key: &Wanted) -> Option<ImagePlace> {
        let mut unpacked = self.unpacked.iter();
        let root = unpacked.find(|(name, _)| is_same(name, &key.0));
        let root = root.map(|(_, path)| ImagePlace::Root(path.clone()));
        root.or_else(|| self.found.get(key).cloned())
    }

    fn with_image<T>(
        &mut self,
        name: &str,
        policy: Option<&str>,
        want: impl AsyncFnOnce(&ImageHandle) -> Result<T, crate::oci::ImageError>,
    ) -> Result<T, SourceError> {
        let reference: ImageReference = name.parse()?;
        let policy = match policy {
            Some("Always") => PullPolicy::Always,
            Some("IfNotPresent") => PullPolicy::IfNotPresent,
            Some("Never") => PullPolicy::Never,
            _ => PullPolicy::default_for(&reference),
        };
        let Self { sources, cache, store, .. } = self;
        let Store { images, runtime } = match store {
            Some(store) => store,
            store => store.insert(Store::open(cache)?),
        };
        let got = runtime.block_on(async {
            let image = images.resolve(&reference, policy, sources).await?;
            want(&image).await
        });
        Ok(got?)
    }
}

impl Store {
    fn open(cache: &Path) -> Result<Self, SourceError> {
        let options =
            RegistryOptions { credentials: Credentials::of_user()?, ..RegistryOptions::default() };
        // The thread that prepares is all it has; files are read by threads of the runtime's own.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { images: ImageStore::new(cache, options)?, runtime })
    }
}
