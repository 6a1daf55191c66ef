//! What can be wrong with an image.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::digest::ContentDigest;

/// Why an image is not to be had, or not what was looked for in it.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file of the host's.
    #[error("cannot {what} {path}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Neither an image layout nor an archive of one.
    #[error(
        "{path} is neither an OCI image layout, nor an archive of one, nor an archive of `docker save`: {what}"
    )]
    NotAnImage {
        /// The path.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// Several images, and none of them by that name.
    #[error("{path} has no image {name}; it has {there}")]
    NotInArchive {
        /// The archive or layout.
        path: PathBuf,
        /// What was looked for.
        name: String,
        /// What is there.
        there: String,
    },
    /// Other platforms only.
    #[error("image {image} is not for linux/amd64; it is for {there}")]
    Platform {
        /// Its name.
        image: String,
        /// Its platforms.
        there: String,
    },
    /// A document that is not what it should be.
    #[error("image {image}: {what}")]
    Malformed {
        /// Its name.
        image: String,
        /// What is wrong, and where.
        what: String,
    },
    /// The same with what a decoder said.
    #[error("image {image}: cannot read {what}")]
    Unreadable {
        /// Its name.
        image: String,
        /// Which part.
        what: String,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// Another content than the digest says.
    #[error(
        "image {image}: {what} has the digest {found} and not {expected}; it is damaged or was changed"
    )]
    Digest {
        /// Its name.
        image: String,
        /// Which part.
        what: String,
        /// What it should be.
        expected: ContentDigest,
        /// What it is.
        found: ContentDigest,
    },
    /// Larger than is allowed.
    #[error("image {image} unpacks to more than {limit} bytes: {what}")]
    TooLarge {
        /// Its name.
        image: String,
        /// The limit.
        limit: u64,
        /// Where the limit comes from, and what to do.
        what: &'static str,
    },
    /// No disk.
    #[error(
        "image {image} has no file under /disk, so it is no container disk: give the disk's path in the image; it has {there}"
    )]
    NoDisk {
        /// Its name.
        image: String,
        /// Some of what it has.
        there: String,
    },
    /// Several disks.
    #[error("image {image} has several files under /disk: say which by its path; it has {there}")]
    SeveralDisks {
        /// Its name.
        image: String,
        /// What they are.
        there: String,
    },
    /// No such file.
    #[error("image {image} has no file {path}: {reason}; beside it there is {there}")]
    NoFile {
        /// Its name.
        image: String,
        /// What was looked for.
        path: String,
        /// What is there instead.
        reason: &'static str,
        /// What is near.
        there: String,
    },
    /// Not there, and nobody may be asked for it.
    #[error("image {image} is not in the cache {cache}, and the policy is never to pull")]
    NotCached {
        /// Its name.
        image: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// More of its path is missing than is made.
    #[error(
        "cannot make the cache {path}: there is no directory {missing}; make it first, or use another one by --cache"
    )]
    NoPlaceForCache {
        /// The directory.
        path: PathBuf,
        /// What it would be in.
        missing: PathBuf,
    },
    /// Others could put there what they like.
    #[error(
        "the cache {path} can be changed by others: make it yours or root's (chown), take their right to write to it (chmod go-w), or use another one by --cache"
    )]
    SharedCache {
        /// The directory.
        path: PathBuf,
    },
    /// The registry.
    #[error("cannot pull image {image}")]
    Pull {
        /// Its name.
        image: String,
        /// Why.
        #[source]
        source: super::registry::RegistryError,
    },
    /// A task of ours ended in an unexpected way.
    #[error("unpacking image {image} was interrupted")]
    Interrupted {
        /// Its name.
        image: String,
    },
}
