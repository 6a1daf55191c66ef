//! Container images without a container engine: an OCI image layout in a tar archive, as `ctr images import` takes it.
//!
//! An [`Image`] has one layer of the files it is given. The archive is written in one pass over the sources and no file
//! is held in memory: the layer goes out first and its entry's header, which holds digest and size, is filled in when they
//! are known. The same sources give the same bytes: entries are sorted, times are zero, owners and modes are said by
//! the caller.

mod archive;
mod command;
mod digest;
mod document;
mod error;
mod image;
mod layer;

pub use command::{FileArg, FileArgError, OciArgs, run};
pub use document::Config;
pub use error::ImageError;
pub use image::{Image, LayerFormat};
