//! Directories and path tables (ECMA-119, section 9), and what Rock Ridge says beside each name (RRIP 1.12, SUSP 1.12).

use super::names::Naming;
use super::tree::{Entry, Tree};
use super::{SECTOR, both16, both32, field};

/// 1970-01-01 00:00:00 UTC.
const EPOCH: [u8; 7] = [70, 1, 1, 0, 0, 0, 0];
/// Bytes of a record before its identifier.
const RECORD: usize = 33;
/// The longest record.
const MAX_RECORD: usize = 255;
/// Bytes of a name in one NM entry, which itself has at most 255.
const NAME_PART: usize = 250;
const DIRECTORY_FLAG: u8 = 2;
const DIRECTORY_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_000;
/// Says of an NM entry that the name goes on in the next one.
const NAME_CONTINUES: u8 = 1;
/// Says that a TF entry has the time of the last change.
const TIME_OF_CHANGE: u8 = 2;

/// A tree by one naming. Directories have numbers in the order of their path table.
pub(super) struct View<'a> {
    naming: Naming,
    directories: Vec<ViewDirectory<'a>>,
}

struct ViewDirectory<'a> {
    identifier: Vec<u8>,
    parent: usize,
    entries: Vec<ViewEntry<'a>>,
}

struct ViewEntry<'a> {
    identifier: Vec<u8>,
    name: &'a str,
    /// A file of the tree, or a directory of this view.
    what: Entry,
}

/// Where something is, and how many bytes it has.
#[derive(Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) sector: usize,
    pub(super) length: usize,
}

/// Where everything is. What is not in a list is nowhere yet.
pub(super) struct Places<'a> {
    /// By number of the view.
    pub(super) directories: &'a [Extent],
    /// Sectors by number of the tree.
    pub(super) files: &'a [usize],
}

impl Places<'_> {
    fn directory(&self, number: usize) -> Extent {
        self.directories.get(number).copied().unwrap_or_default()
    }
}

impl<'a> View<'a> {
    pub(super) fn new(tree: &'a Tree, naming: Naming) -> Self {
        let root = ViewDirectory { identifier: vec![0], parent: 0, entries: Vec::new() };
        let mut view = Self { naming, directories: vec![root] };
        let mut of_tree = vec![0];
        // Those that are found are looked at later, so that all of a level come before the next: a path table's order.
        let mut number = 0;
        while let Some(in_tree) = of_tree.get(number).copied() {
            view.fill(number, tree, in_tree, &mut of_tree);
            number += 1;
        }
        view
    }

    fn fill(&mut self, number: usize, tree: &'a Tree, in_tree: usize, of_tree: &mut Vec<usize>) {
        let children = tree.directory(in_tree);
        let is_directory = |entry: &Entry| matches!(entry, Entry::Directory(_));
        let names = children.iter().map(|(name, entry)| (name.as_str(), is_directory(entry)));
        let identifiers = self.naming.identifiers(names);
        let entry = |((name, what), identifier): ((&'a String, &Entry), Vec<u8>)| ViewEntry {
            identifier,
            name,
            what: *what,
        };
        let mut entries: Vec<ViewEntry<'a>> = children.iter().zip(identifiers).map(entry).collect();
        entries.sort_by(|a, b| a.identifier.cmp(&b.identifier));
        for entry in &mut entries {
            if let Entry::Directory(in_tree) = entry.what {
                entry.what = Entry::Directory(self.directories.len());
                let identifier = entry.identifier.clone();
                self.directories.push(ViewDirectory {
                    identifier,
                    parent: number,
                    entries: Vec::new(),
                });
                of_tree.push(in_tree);
            }
        }
        self.directories[number].entries = entries;
    }

    pub(super) fn naming(&self) -> Naming {
        self.naming
    }

    /// Has a place taken for each directory, by its length in bytes.
    pub(super) fn place(&self, tree: &Tree, take: &mut impl FnMut(usize) -> usize) -> Vec<Extent> {
        // How long it is does not depend on where anything is.
        let nowhere = Places { directories: &[], files: &[] };
        let mut place = |number| {
            let records = self.directory(tree, number, &nowhere);
            Extent { sector: take(records.bytes().len()), length: records.length() }
        };
        (0..self.directories.len()).map(&mut place).collect()
    }

    /// A directory's records.
    pub(super) fn directory(&self, tree: &Tree, number: usize, places: &Places<'_>) -> Records {
        let directory = &self.directories[number];
        let place = places.directory(number);
        let mut records = Records::new(place.sector + place.length / SECTOR);
        for (identifier, of) in [([0], number), ([1], directory.parent)] {
            let is_first = number == 0 && identifier == [0];
            let mut beside = self.beside(is_first, DIRECTORY_MODE, self.links(of));
            if is_first && self.naming == Naming::Plain {
                beside.extend(records.continue_with(&extension()));
            }
            records.push(record(&identifier, places.directory(of), true, &beside));
        }
        for entry in &directory.entries {
            let (mode, links, extent, is_directory) = match entry.what {
                Entry::Directory(of) => {
                    (DIRECTORY_MODE, self.links(of), places.directory(of), true)
                }
                Entry::File(of) => {
                    let sector = places.files.get(of).copied().unwrap_or(0);
                    let extent = Extent { sector, length: tree.file(of).len() };
                    (FILE_MODE | tree.mode(), 1, extent, false)
                }
            };
            let mut beside = self.beside(false, mode, links);
            if self.naming == Naming::Plain {
                let names = name_entries(entry.name);
                let length = even(RECORD + entry.identifier.len()) + beside.len() + names.len();
                beside.extend(if length < MAX_RECORD {
                    names
                } else {
                    records.continue_with(&names)
                });
            }
            records.push(record(&entry.identifier, extent, is_directory, &beside));
        }
        records
    }

    /// The root's record as a volume descriptor has it.
    pub(super) fn root(places: &Places<'_>) -> Vec<u8> {
        record(&[0], places.directory(0), true, &[])
    }

    /// What POSIX counts: itself, its name, and `..` of each directory in it.
    fn links(&self, number: usize) -> u32 {
        let is_directory = |entry: &&ViewEntry<'_>| matches!(entry.what, Entry::Directory(_));
        2 + field(self.directories[number].entries.iter().filter(is_directory).count())
    }

    /// What Rock Ridge says beside an identifier, but for the name.
    fn beside(&self, is_first: bool, mode: u32, links: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.naming == Naming::Joliet {
            return bytes;
        }
        if is_first {
            // That there are such entries at all.
            bytes.extend(b"SP\x07\x01\xbe\xef\0");
        }
        bytes.extend(b"PX\x24\x01");
        for number in [mode, links, 0, 0] {
            bytes.extend(both32(number));
        }
        bytes.extend([b'T', b'F', 12, 1, TIME_OF_CHANGE]);
        bytes.extend(EPOCH);
        bytes
    }

    pub(super) fn path_table_length(&self) -> usize {
        self.directories.iter().map(|directory| 8 + even(directory.identifier.len())).sum()
    }

    pub(super) fn path_table(&self, places: &Places<'_>, is_big: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, directory) in self.directories.iter().enumerate() {
            let at = field(places.directory(number).sector);
            let parent = u16::try_from(directory.parent + 1);
            let parent = parent.expect("a tree has at most MAX_ENTRIES directories");
            bytes.extend([short(directory.identifier.len()), 0]);
            if is_big {
                bytes.extend(at.to_be_bytes());
                bytes.extend(parent.to_be_bytes());
            } else {
                bytes.extend(at.to_le_bytes());
                bytes.extend(parent.to_le_bytes());
            }
            bytes.extend(&directory.identifier);
            bytes.resize(even(bytes.len()), 0);
        }
        bytes
    }
}

/// Records of a directory, and the continuations of those that are too long: areas that records point to, directly behind the
/// directory, as programs want it that read an image from its beginning to its end.
pub(super) struct Records {
    records: Vec<u8>,
    /// The sector of the first continuation.
    at: usize,
    continuations: Vec<u8>,
}

impl Records {
    fn new(at: usize) -> Self {
        Self { records: Vec::new(), at, continuations: Vec::new() }
    }

    fn push(&mut self, record: Vec<u8>) {
        append(&mut self.records, record);
    }

    /// Puts entries behind the directory; gives the one that points to them.
    fn continue_with(&mut self, entries: &[u8]) -> Vec<u8> {
        let offset = append(&mut self.continuations, entries.to_vec());
        let mut pointer = b"CE\x1c\x01".to_vec();
        for number in [self.at + offset / SECTOR, offset % SECTOR, entries.len()] {
            pointer.extend(both32(field(number)));
        }
        pointer
    }

    /// Bytes of the records alone, in whole sectors.
    fn length(&self) -> usize {
        self.records.len().next_multiple_of(SECTOR)
    }

    /// All of it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.records.clone();
        bytes.resize(self.length(), 0);
        bytes.extend(&self.continuations);
        bytes
    }
}

/// Adds something that is not to lie in two sectors; gives its place.
fn append(bytes: &mut Vec<u8>, more: Vec<u8>) -> usize {
    if bytes.len() % SECTOR + more.len() > SECTOR {
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    }
    let at = bytes.len();
    bytes.extend(more);
    at
}

/// A name as NM entries: one for each 250 bytes.
fn name_entries(name: &str) -> Vec<u8> {
    let parts: Vec<&[u8]> = name.as_bytes().chunks(NAME_PART).collect();
    let mut bytes = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let flags = if number + 1 < parts.len() { NAME_CONTINUES } else { 0 };
        bytes.extend([b'N', b'M', short(part.len() + 5), 1, flags]);
        bytes.extend(*part);
    }
    bytes
}

/// That the other entries are Rock Ridge's, in the words that RRIP 1.12, section 4.3, asks for.
fn extension() -> Vec<u8> {
    const IDENTIFIER: &str = "RRIP_1991A";
    const DESCRIPTION: &str =
        "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
    const SOURCE: &str = "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.";
    let lengths = [IDENTIFIER, DESCRIPTION, SOURCE].map(|text| short(text.len()));
    let length = 8 + lengths.iter().sum::<u8>();
    let mut bytes = vec![b'E', b'R', length, 1];
    bytes.extend(lengths);
    bytes.push(1);
    bytes.extend([IDENTIFIER, DESCRIPTION, SOURCE].concat().into_bytes());
    bytes
}

/// A directory's record.
fn record(identifier: &[u8], extent: Extent, is_directory: bool, beside: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 2];
    bytes.extend(both32(field(extent.sector)));
    bytes.extend(both32(field(extent.length)));
    bytes.extend(EPOCH);
    bytes.extend([if is_directory { DIRECTORY_FLAG } else { 0 }, 0, 0]);
    bytes.extend(both16(1));
    bytes.push(short(identifier.len()));
    bytes.extend(identifier);
    bytes.resize(even(bytes.len()), 0);
    bytes.extend(beside);
    bytes.resize(even(bytes.len()), 0);
    bytes[0] = short(bytes.len());
    bytes
}

fn even(number: usize) -> usize {
    number.next_multiple_of(2)
}

fn short(length: usize) -> u8 {
    u8::try_from(length).expect("identifiers, entries and records are shorter than 256 bytes")
}
