//! An ISO 9660 image of a few small files, made in memory: how cloud-init data, ConfigMaps and Secrets reach a guest.
//!
//! ```text
//!  0        16          17           18     19
//!  | nothing | descriptors: primary, Joliet, last | path tables | directories | files |
//!                                                    of each naming, plain ones first
//! ```
//!
//! Each file is written once and named three times: by ECMA-119 in capitals of 8.3 characters, by Rock Ridge in full (`NM`
//! of RRIP 1.12, with `PX` and `TF`), and by Joliet in up to 64 characters of UCS-2. Linux reads Rock Ridge, others Joliet.
//! The same tree and label always give the same bytes: entries are sorted and all times are the epoch.
//!
//! **Why not a crate.** hadris-iso 2.5 writes such images too. It brings 46 crates for a format of which we need one layout,
//! no booting and no reading, into a program that is to stay small, static and easy to audit; and it takes times from a clock.
//!
//! **Limits.** 4096 files and directories, eight levels as ECMA-119 has it, 32 MiB, and names of up to 253 bytes: the longest key
//! of a ConfigMap, and the longest name that Linux shows of such an image. Names come from manifests, so whatever is beyond
//! a limit, empty, `.`, `..`, or has a NUL in it is refused, never shortened.

mod descriptor;
mod directory;
mod names;
mod tree;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use thiserror::Error;

use self::directory::{Extent, Places, View};
use self::names::Naming;
pub use self::tree::Tree;

/// Bytes of a sector and of a logical block.
const SECTOR: usize = 2048;
/// Sectors before the first descriptor, which the standard leaves to systems.
const SYSTEM_SECTORS: usize = 16;
/// The image is a multiple of this: whole blocks, whatever the block size of the disk that it becomes.
const PADDING: usize = 32 << 10;
/// The most files and directories.
pub const MAX_ENTRIES: usize = 4096;
/// The most levels of directories, the root's among them.
pub const MAX_DEPTH: usize = 8;
/// The most bytes of an image.
pub const MAX_SIZE: usize = 32 << 20;
/// The most bytes of a name.
pub const MAX_NAME: usize = 253;
/// The most bytes of a label.
pub const MAX_LABEL: usize = 32;

/// Why there is no image.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum IsoError {
    /// No name that a file can have.
    #[error("{0:?} is no relative path of a file")]
    Path(String),
    /// A name that is too long.
    #[error("a name in {0:?} has more than {MAX_NAME} bytes")]
    Name(String),
    /// Too many levels.
    #[error("{0:?} has more than {MAX_DEPTH} levels")]
    Depth(String),
    /// Two files of one name, or a file that is a directory too.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// Too many files.
    #[error("there are more than {MAX_ENTRIES} files and directories")]
    Entries,
    /// Too much in them.
    #[error("the files have more than {MAX_SIZE} bytes in all")]
    Size,
    /// No label that an image can have.
    #[error("{0:?} is no label of 1 to {MAX_LABEL} printable ASCII characters")]
    Label(String),
}

/// The image of `tree` with this volume label.
///
/// A label of more than 16 characters stands in full in the primary descriptor only: Joliet's has no more.
pub fn image(tree: &Tree, label: &str) -> Result<Vec<u8>, IsoError> {
    if label.is_empty()
        || label.len() > MAX_LABEL
        || !label.bytes().all(|b| (b' '..=b'~').contains(&b))
    {
        return Err(IsoError::Label(label.chars().take(MAX_LABEL + 1).collect()));
    }
    let views = [View::new(tree, Naming::Plain), View::new(tree, Naming::Joliet)];
    let plan = Plan::new(tree, &views);
    if plan.sectors * SECTOR > MAX_SIZE {
        return Err(IsoError::Size);
    }
    Ok(plan.write(tree, &views, label))
}

/// Where everything begins, in sectors.
struct Plan {
    /// The two path tables of each view, little-endian first.
    tables: [[usize; 2]; 2],
    /// Directories of each view, with their lengths in bytes.
    directories: [Vec<Extent>; 2],
    files: Vec<usize>,
    /// All of them.
    sectors: usize,
}

impl Plan {
    fn new(tree: &Tree, views: &[View<'_>; 2]) -> Self {
        // Primary, supplementary, terminator.
        let mut next = SYSTEM_SECTORS + 3;
        let mut take = |bytes: usize| {
            let at = next;
            next += bytes.div_ceil(SECTOR);
            at
        };
        let tables = views.each_ref().map(|view| [(); 2].map(|()| take(view.path_table_length())));
        let directories = views.each_ref().map(|view| view.place(tree, &mut take));
        let order = tree.in_order();
        let mut files = vec![0; order.len()];
        for number in order {
            files[number] = take(tree.file(number).len());
        }
        let sectors = (next * SECTOR).next_multiple_of(PADDING) / SECTOR;
        Self { tables, directories, files, sectors }
    }

    fn write(&self, tree: &Tree, views: &[View<'_>; 2], label: &str) -> Vec<u8> {
        let mut image = vec![0; self.sectors * SECTOR];
        let mut put = |sector: usize, bytes: &[u8]| {
            let at = sector * SECTOR;
            image[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for (number, view) in views.iter().enumerate() {
            let places = Places { directories: &self.directories[number], files: &self.files };
            for (directory, extent) in places.directories.iter().enumerate() {
                put(extent.sector, &view.directory(tree, directory, &places).bytes());
            }
            for (sector, is_big) in self.tables[number].into_iter().zip([false, true]) {
                put(sector, &view.path_table(&places, is_big));
            }
            let volume = descriptor::Volume {
                label,
                sectors: self.sectors,
                tables: self.tables[number],
                table_length: view.path_table_length(),
                root: View::root(&places),
            };
            put(SYSTEM_SECTORS + number, &volume.descriptor(view.naming()));
        }
        put(SYSTEM_SECTORS + views.len(), &descriptor::terminator());
        for (number, sector) in self.files.iter().enumerate() {
            put(*sector, tree.file(number));
        }
        image
    }
}

/// A number of a record, as a field of 32 bits. What is written is bounded far below that.
fn field(number: usize) -> u32 {
    u32::try_from(number).expect("an image is bounded by MAX_SIZE")
}

/// A number twice, little-endian first.
fn both32(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A number twice, little-endian first.
fn both16(number: u16) -> [u8; 4] {
    let [low, high] = number.to_le_bytes();
    [low, high, high, low]
}
