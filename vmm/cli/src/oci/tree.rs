//! The files of an image as a container of it would see them: all layers on top of each other.
//!
//! Rules as container runtimes have them (image-spec, layer.md): a later layer adds and replaces; an entry `.wh.NAME` takes
//! NAME of the layers below away, `.wh..wh..opq` all that is in its directory. Directories on the way to an entry may be links of
//! layers below: they are followed. `..` and absolute links end at the image's own root. Nothing here is a path of the host.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::tarball::EntryKind;

/// As many as a large system has.
const MAX_NODES: usize = 400_000;
/// All names together, so that a hostile image does not fill memory.
const MAX_NAMES: usize = 48 << 20;
/// As Linux follows.
const MAX_LINKS: usize = 40;

/// Where the content of a file lies: the number of its layer, and of its entry there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Location {
    pub(super) layer: usize,
    pub(super) entry: u64,
}

/// What is under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(Location),
    Directory,
    Symlink(Vec<u8>),
    /// A device or the like, or a link to nothing.
    Other,
}

/// Why a path leads to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Nothing,
    NotAFile,
    Loop,
}

impl Missing {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Nothing => "there is nothing of that name",
            Self::NotAFile => "what has that name is no regular file",
            Self::Loop => "links lead in a circle",
        }
    }
}

/// Too many entries, or too long ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// All layers so far. Paths have no slash at either end, and no `.` or `..` in them.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Each with the layer that it was last mentioned in.
    nodes: BTreeMap<Vec<u8>, (usize, Node)>,
    names: usize,
}

impl Tree {
    /// Adds an entry of a layer. Gives the path where a file of it lies.
    pub(super) fn add(
        &mut self,
        location: Location,
        path: &[u8],
        kind: &EntryKind,
    ) -> Result<Option<Vec<u8>>, TooMany> {
        let Some((directory, name)) = split(path) else { return Ok(None) };
        let Ok(directory) = self.resolve(&directory, true) else { return Ok(None) };
        let layer = location.layer;
        if name == b".wh..wh..opq" {
            self.remove_below(&directory, layer);
            return Ok(None);
        }
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            if is_name(hidden) {
                self.remove(&joined(&directory, hidden), layer);
            }
            return Ok(None);
        }
        self.add_directories(&directory, layer)?;
        let path = joined(&directory, &name);
        let node = match kind {
            EntryKind::File => Node::File(location),
            EntryKind::Directory => Node::Directory,
            EntryKind::Symlink(target) => Node::Symlink(target.clone()),
            EntryKind::Hardlink(target) => match self.hardlinked(target) {
                Some(node) => node,
                None => Node::Other,
            },
            EntryKind::Other => Node::Other,
        };
        if node != Node::Directory {
            self.remove_below(&path, usize::MAX);
        }
        let is_file = matches!(node, Node::File(at) if at == location);
        self.insert(path.clone(), layer, node)?;
        Ok(is_file.then_some(path))
    }

    /// What a hard link is another name of. The link itself is not followed.
    fn hardlinked(&self, target: &[u8]) -> Option<Node> {
        let (directory, name) = split(target)?;
        let directory = self.resolve(&directory, false).ok()?;
        let (_, node) = self.nodes.get(&joined(&directory, &name))?;
        Some(node.clone()).filter(|node| *node != Node::Directory)
    }

    fn insert(&mut self, path: Vec<u8>, layer: usize, node: Node) -> Result<(), TooMany> {
        self.names += path.len();
        if let Node::Symlink(target) = &node {
            self.names += target.len();
        }
        self.nodes.insert(path, (layer, node));
        let fits = self.nodes.len() <= MAX_NODES && self.names <= MAX_NAMES;
        if fits { Ok(()) } else { Err(TooMany) }
    }

    /// Directories that no entry mentions are there all the same. What is no directory gives way.
    fn add_directories(&mut self, directory: &[u8], layer: usize) -> Result<(), TooMany> {
        let ends =
            directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([directory.len()]).filter(|end| *end > 0) {
            let path = &directory[..end];
            match self.nodes.get_mut(path) {
                // It is this layer's, too, so that a whiteout of the same layer does not take it away.
                Some((of, Node::Directory)) => *of = layer,
                _ => self.insert(path.to_vec(), layer, Node::Directory)?,
            }
        }
        Ok(())
    }

    /// Removes what layers before this one have under a path.
    fn remove(&mut self, path: &[u8], layer: usize) {
        if self.nodes.get(path).is_some_and(|(of, _)| *of < layer) {
            self.nodes.remove(path);
        }
        self.remove_below(path, layer);
    }

    fn remove_below(&mut self, directory: &[u8], layer: usize) {
        let old: Vec<Vec<u8>> = self
            .below(directory)
            .filter(|(_, (of, _))| *of < layer)
            .map(|(path, _)| path.clone())
            .collect();
        for path in old {
            self.nodes.remove(&path);
        }
    }

    fn below(&self, directory: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &(usize, Node))> {
        let prefix = match directory.is_empty() {
            true => Vec::new(),
            false => [directory, b"/"].concat(),
        };
        let range = (Bound::Included(prefix.clone()), Bound::Unbounded);
        self.nodes.range(range).take_while(move |(path, _)| path.starts_with(&prefix))
    }

    /// The path that one leads to, with all links on the way followed, also the last. With `lenient`, parts that are not there
    /// or are no directories are taken as they are written.
    fn resolve(&self, path: &[u8], lenient: bool) -> Result<Vec<u8>, Missing> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
        };
        let mut todo = parts(path);
        let mut at = Vec::new();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            match part.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = joined(&at, &part);
            match self.nodes.get(&next) {
                Some((_, Node::Symlink(target))) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Missing::Loop);
                    }
                    if target.starts_with(b"/") {
                        at.clear();
                    }
                    todo.extend(parts(target));
                }
                None if !lenient => return Err(Missing::Nothing),
                _ => at = next,
            }
        }
        Ok(at)
    }

    /// The file that a path leads to.
    pub(super) fn file(&self, path: &[u8]) -> Result<Location, Missing> {
        let path = self.resolve(path, false)?;
        match self.nodes.get(&path) {
            Some((_, Node::File(location))) => Ok(*location),
            Some(_) => Err(Missing::NotAFile),
            None => Err(if path.is_empty() { Missing::NotAFile } else { Missing::Nothing }),
        }
    }

    /// Paths under a directory that lead to files, at most so many.
    pub(super) fn files_in(&self, directory: &[u8], most: usize) -> Vec<Vec<u8>> {
        let Ok(directory) = self.resolve(directory, false) else { return Vec::new() };
        let paths = self.below(&directory).map(|(path, _)| path);
        paths.filter(|path| self.file(path).is_ok()).take(most).cloned().collect()
    }
}

/// Directory and name of an entry, the first as it is written. None for the root, and for what is no name.
fn split(path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = &path[..end];
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    is_name(name).then(|| (directory.to_vec(), name.to_vec()))
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&0)
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use EntryKind::{Directory, File, Hardlink, Other, Symlink};

    fn tree(layers: &[&[(&str, EntryKind)]]) -> Tree {
        let mut tree = Tree::default();
        for (layer, entries) in layers.iter().enumerate() {
            for (entry, (path, kind)) in (0..).zip(*entries) {
                tree.add(Location { layer, entry }, path.as_bytes(), kind).unwrap();
            }
        }
        tree
    }

    fn file(tree: &Tree, path: &str) -> Result<(usize, u64), Missing> {
        tree.file(path.as_bytes()).map(|at| (at.layer, at.entry))
    }

    fn link(target: &str) -> EntryKind {
        Symlink(target.into())
    }

    #[test]
    fn later_layers_replace_and_whiteouts_take_away() {
        let tree = tree(&[
            &[
                ("disk/", Directory),
                ("disk/a", File),
                ("disk/b", File),
                ("etc/x/y", File),
                ("opt/o", File),
            ],
            &[
                ("disk/b", File),
                ("disk/.wh.a", File),
                (".wh.etc", File),
                ("opt/new", File),
                ("opt/.wh..wh..opq", File),
            ],
        ]);
        assert_eq!(file(&tree, "disk/a"), Err(Missing::Nothing));
        assert_eq!(file(&tree, "/disk/b"), Ok((1, 0)));
        assert_eq!(file(&tree, "etc/x/y"), Err(Missing::Nothing));
        assert_eq!(file(&tree, "opt/o"), Err(Missing::Nothing));
        // What the same layer has stays, whatever the order.
        assert_eq!(file(&tree, "opt/new"), Ok((1, 3)));
        assert_eq!(tree.files_in(b"disk", 10), [b"disk/b"]);
    }

    #[test]
    fn directory_taken_away_and_made_again_has_only_what_is_new() {
        let tree = tree(&[
            &[("d/old", File)],
            &[("d/", Directory), ("d/new", File), (".wh.d", File)],
            &[("d", File)],
        ]);
        assert_eq!(file(&tree, "d"), Ok((2, 0)));
        assert_eq!(file(&tree, "d/new"), Err(Missing::Nothing));
        let tree = super::tests::tree(&[&[("d/old", File)], &[("d/new", File), (".wh.d", File)]]);
        assert_eq!(
            (file(&tree, "d/old"), file(&tree, "d/new")),
            (Err(Missing::Nothing), Ok((1, 0)))
        );
    }

    #[test]
    fn links_stay_within_the_image() {
        let tree = tree(&[&[
            ("images/disk.img", File),
            ("disk", link("/images")),
            ("up", link("../../../images/disk.img")),
            ("hard", Hardlink("disk/disk.img".into())),
            ("loop", link("loop")),
            ("null", Other),
            ("dangling", Hardlink("nowhere".into())),
        ]]);
        for path in ["disk/disk.img", "up", "hard", "/disk/../up", "../up", "./disk//disk.img"] {
            assert_eq!(file(&tree, path), Ok((0, 0)), "{path}");
        }
        assert_eq!(file(&tree, "loop"), Err(Missing::Loop));
        for path in ["null", "dangling", "images", "/", "up/more"] {
            assert!(file(&tree, path).is_err(), "{path}");
        }
        assert_eq!(tree.files_in(b"disk", 10), [b"images/disk.img"]);
    }

    #[test]
    fn entries_go_through_links_of_layers_below() {
        let tree =
            tree(&[&[("usr/lib/", Directory), ("lib", link("usr/lib"))], &[("lib/kernel", File)]]);
        assert_eq!(file(&tree, "usr/lib/kernel"), Ok((1, 0)));
        assert_eq!(file(&tree, "lib/kernel"), Ok((1, 0)));
    }

    #[test]
    fn names_that_lead_out_are_clamped_or_left_out() {
        let tree =
            tree(&[&[("../../a", File), ("/b", File), ("c/..", File), ("", File), ("./.", File)]]);
        assert_eq!(file(&tree, "a"), Ok((0, 0)));
        assert_eq!(file(&tree, "b"), Ok((0, 1)));
        assert_eq!(tree.files_in(b"", 10).len(), 2);
    }

    #[test]
    fn too_many_entries_are_refused() {
        let mut tree = Tree::default();
        let add = |number: usize| {
            let path = format!("{number}");
            tree.add(Location { layer: 0, entry: 0 }, path.as_bytes(), &File).map(drop)
        };
        assert_eq!((0..=MAX_NODES).map(add).collect::<Result<Vec<()>, _>>(), Err(TooMany));
    }

    proptest::proptest! {
        #[test]
        fn any_entries_make_a_tree(entries in proptest::collection::vec(("[ab./]{0,8}(\\.wh\\.)?[ab.]{0,3}", 0..5, "[ab./]{0,8}"), 0..40)) {
            let mut tree = Tree::default();
            for (entry, (path, kind, target)) in (0..).zip(&entries) {
                let kind = match kind {
                    0 => File,
                    1 => Directory,
                    2 => Symlink(target.clone().into_bytes()),
                    3 => Hardlink(target.clone().into_bytes()),
                    _ => Other,
                };
                tree.add(Location { layer: entry / 8, entry: entry as u64 }, path.as_bytes(), &kind).unwrap();
            }
            for path in tree.files_in(b"", usize::MAX) {
                proptest::prop_assert!(path.split(|byte| *byte == b'/').all(is_name));
            }
        }
    }
}
