//! Files of YAML: the one VM that is to be run, and what it refers to.
//!
//! [`documents`] reads files into objects of any kind; [`Selection`] is what `corten run` needs of them; [`examine`] makes a
//! VirtualMachineInstance of the one that is run, and says what is wrong with it by the path of the field.

pub mod documents;
mod examine;
mod select;
mod syntax;

pub use documents::{Document, ManifestError};
pub use examine::{Examined, examine};
pub use select::{Selection, SelectionError, Sources};
