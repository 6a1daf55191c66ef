//! What can go wrong when an image is written.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why an image was not written.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file that should go into the image cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Only contents of plain files are copied.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The source.
        path: PathBuf,
    },
    /// Its size is in the archive before its bytes are.
    #[error("{} became shorter while it was read", path.display())]
    Shrunk {
        /// The source.
        path: PathBuf,
    },
    /// Paths in an image are absolute, without `.`, `..` or empty parts.
    #[error("{path:?} is no path for a file in an image")]
    BadPath {
        /// The path as given.
        path: String,
    },
    /// Two files claim the same path, or one file lies below another.
    #[error("{path} is in the image twice")]
    Occupied {
        /// The path in the image.
        path: String,
    },
    /// The archive cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What stops the writing of an archive whose own path is not known where it happens.
pub(super) enum Failure {
    /// The fault of something that should go into it.
    Content(ImageError),
    /// The archive itself cannot be written.
    Output(io::Error),
}

impl Failure {
    /// The same for callers, who know the archive as `path`.
    pub(super) fn at(self, path: &Path) -> ImageError {
        match self {
            Self::Content(error) => error,
            Self::Output(source) => ImageError::Write { path: path.to_owned(), source },
        }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Content(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}
