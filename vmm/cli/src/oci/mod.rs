//! Images of containers, as a source of disks and kernels.
//!
//! A *container disk* is an image with a disk, raw or qcow2, as the only file under `/disk`; `kernelBoot` names a kernel and
//! an initrd within an image. Neither needs a container: the layers are read, what is wanted is taken from them, and stays in
//! a cache under the digest of the image. Images come from an OCI image layout, an archive of one or of `docker save`, or a
//! registry.
//!
//! ```text
//!   name ─▶ Sources: NAME=PATH, a directory, else ─▶ registry     (store, local, registry)
//!                    │ manifest for linux/amd64                   (document)
//!                    ▼
//!           layers ─▶ digest ─▶ gzip, zstd ─▶ tar ─▶ tree ─▶ the wanted files ─▶ cache
//!                    (digest)  (compression) (tarball) (tree)  (unpack)          (store)
//! ```
//!
//! **Whoever made the image is not trusted.** A path of an image is never one of the host's: the tree is kept in memory, files
//! are written under numbers. Documents, names, numbers of entries, extended headers, windows of decompressors and what all
//! unpacks to are bounded; zeros become holes. Devices are never made. Nothing gets its final name before the digests of all
//! layers have been found right.

mod compression;
mod credentials;
mod digest;
mod document;
mod error;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod local;
mod reference;
pub mod registry;
mod store;
mod tarball;
#[cfg(test)]
mod testing;
mod tree;
mod unpack;

pub use self::credentials::{Credentials, CredentialsError, Login};
pub use self::digest::{ContentDigest, DigestError};
pub use self::error::ImageError;
pub use self::reference::{ImageReference, ReferenceError, is_same};
pub use self::registry::{Progress, RegistryError, RegistryOptions};
pub use self::store::{DEFAULT_LIMIT, ImageHandle, ImageStore, PullPolicy, Sources};
