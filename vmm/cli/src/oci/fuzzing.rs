//! What the fuzz target calls: the readers of an image's parts, without files and a cache.

use std::io::Read;

use super::compression::Plain;
use super::local::parse;
use super::tarball::Tarball;
use super::tree::{Location, Tree};

/// What a fuzzed layer may unpack to.
const MOST: u64 = 16 << 20;

/// Puts layers on top of each other, and looks at what came of it.
pub fn layers<'a>(layers: impl Iterator<Item = &'a [u8]>) {
    let mut tree = Tree::default();
    for (layer, bytes) in layers.enumerate() {
        let Ok(plain) = Plain::new(bytes) else { continue };
        let mut tarball = Tarball::new(plain.take(MOST));
        let mut entry = 0;
        while let Ok(Some(found)) = tarball.next() {
            if tree.add(Location { layer, entry }, &found.path, &found.kind).is_err() {
                return;
            }
            entry += 1;
        }
    }
    for path in tree.files_in(b"", usize::MAX) {
        let names = path.split(|byte| *byte == b'/');
        assert!(names.clone().all(|name| !matches!(name, b"" | b"." | b"..")), "{path:?}");
        assert!(tree.file(&path).is_ok(), "{path:?}");
    }
}

/// Reads a manifest or an index.
pub fn document(bytes: &[u8]) {
    let _ = parse("fuzzed", bytes);
}
