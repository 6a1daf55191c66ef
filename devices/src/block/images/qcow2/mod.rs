//! qcow2 images, versions 2 and 3, to be read. Everything in an image is its maker's word.
//!
//! ```text
//!   header ─▶ L1 table ─▶ L2 table ─▶ cluster: data in the file │ compressed │ zeroes │ none: the backing file's
//! ```
//!
//! Opening reads the header alone. An entry of a table is looked at when a request needs it, so a damaged one fails that
//! request (EIO) and no other. Every offset is checked against the length that the file had when it was opened: a table
//! lies in it whole, a cluster begins in it, and what of a cluster is behind the file's end reads as zeroes, as images
//! may end there.
//!
//! **Not needed and not read**: reference counts, snapshots, header extensions (none changes how clusters are read that
//! does not also set an incompatible feature). So a dirty image, whose reference counts are behind, reads like any
//! other. **Refused**: encryption, external data files, extended L2 entries, images marked as corrupt, features that
//! are not known.
//!
//! **Memory** for each image: 1 MiB of L2 entries, in slices of 4 KiB, and 1 MiB of decompressed clusters, or one
//! cluster where it is larger. A cluster is at most 2 MiB, its compressed form at most twice that.

mod compression;
mod entry;
mod header;
mod image;
#[cfg(test)]
pub(super) mod testing;

pub use self::header::Qcow2Error;
pub(super) use self::image::{Image, Place};
