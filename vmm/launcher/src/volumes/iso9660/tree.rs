//! What an image is made of.

use std::collections::BTreeMap;

use super::{IsoError, MAX_DEPTH, MAX_ENTRIES, MAX_NAME, MAX_SIZE};

/// Files by their paths.
#[derive(Debug)]
pub struct Tree {
    /// The root is the first.
    directories: Vec<Directory>,
    files: Vec<Vec<u8>>,
    size: usize,
    mode: u32,
}

/// A directory's entries by name.
pub(super) type Directory = BTreeMap<String, Entry>;

/// What a name stands for, by its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(usize),
    Directory(usize),
}

impl Tree {
    /// An empty tree, of whose files a guest is told that they have this mode, such as `0o644`. They are root's.
    pub fn new(mode: u32) -> Self {
        Self { directories: vec![Directory::new()], files: Vec::new(), size: 0, mode: mode & 0o777 }
    }

    /// Adds a file. Directories on the way to it come by themselves.
    pub fn add(&mut self, path: &str, content: Vec<u8>) -> Result<(), IsoError> {
        let shown = || path.chars().take(2 * MAX_NAME).collect::<String>();
        let mut names: Vec<&str> = Vec::new();
        for name in path.split('/') {
            if matches!(name, "" | "." | "..") || name.contains('\0') {
                return Err(IsoError::Path(shown()));
            }
            if name.len() > MAX_NAME {
                return Err(IsoError::Name(shown()));
            }
            if names.len() == MAX_DEPTH {
                return Err(IsoError::Depth(shown()));
            }
            names.push(name);
        }
        let size = self.size.checked_add(content.len()).filter(|size| *size <= MAX_SIZE);
        let size = size.ok_or(IsoError::Size)?;
        if self.files.len() + self.directories.len() + names.len() > MAX_ENTRIES {
            return Err(IsoError::Entries);
        }
        let name = names.pop().unwrap_or_default();
        let directory = self.enter(&names).ok_or_else(|| IsoError::Twice(shown()))?;
        if self.directories[directory].contains_key(name) {
            return Err(IsoError::Twice(shown()));
        }
        self.directories[directory].insert(name.into(), Entry::File(self.files.len()));
        self.files.push(content);
        self.size = size;
        Ok(())
    }

    /// The directory of this path, made where it is missing; none if a file is on the way.
    fn enter(&mut self, names: &[&str]) -> Option<usize> {
        let mut at = 0;
        for name in names {
            at = match self.directories[at].get(*name) {
                Some(Entry::Directory(next)) => *next,
                Some(Entry::File(_)) => return None,
                None => {
                    let next = self.directories.len();
                    self.directories[at].insert((*name).into(), Entry::Directory(next));
                    self.directories.push(Directory::new());
                    next
                }
            };
        }
        Some(at)
    }

    pub(super) fn directory(&self, number: usize) -> &Directory {
        &self.directories[number]
    }

    /// Numbers of files in the order of their paths, in whichever they were added.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut files = Vec::new();
        let mut left: Vec<Entry> = vec![Entry::Directory(0)];
        while let Some(entry) = left.pop() {
            match entry {
                Entry::File(number) => files.push(number),
                Entry::Directory(number) => left.extend(self.directories[number].values().rev()),
            }
        }
        files
    }

    pub(super) fn file(&self, number: usize) -> &[u8] {
        &self.files[number]
    }

    pub(super) fn mode(&self) -> u32 {
        self.mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(paths: &[&str]) -> Result<(), IsoError> {
        let mut tree = Tree::new(0o644);
        paths.iter().try_for_each(|path| tree.add(path, Vec::new()))
    }

    #[test]
    fn files_of_one_directory_and_of_nested_ones_are_added() {
        add(&["a", "b/a", "b/c/a", "b/c/d", ".hidden", "..data"]).unwrap();
        add(&["1/2/3/4/5/6/7/8"]).unwrap();
        add(&[&"x".repeat(MAX_NAME)]).unwrap();
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["", "/", "/a", "a/", "a//b", ".", "a/./b", "..", "a/../b", "a\0b"] {
            assert_eq!(add(&[path]), Err(IsoError::Path(path.into())));
        }
        let long = "x".repeat(MAX_NAME + 1);
        assert_eq!(add(&[&long]), Err(IsoError::Name(long)));
        assert_eq!(add(&["1/2/3/4/5/6/7/8/9"]), Err(IsoError::Depth("1/2/3/4/5/6/7/8/9".into())));
    }

    #[test]
    fn a_name_stands_for_one_thing() {
        for paths in [["a", "a"], ["a/b", "a"], ["a", "a/b"]] {
            assert_eq!(add(&paths), Err(IsoError::Twice(paths[1].into())));
        }
    }

    #[test]
    fn number_and_size_are_bounded() {
        let mut tree = Tree::new(0o644);
        for number in 1..MAX_ENTRIES {
            tree.add(&number.to_string(), Vec::new()).unwrap();
        }
        assert_eq!(tree.add("one-more", Vec::new()), Err(IsoError::Entries));
        let mut tree = Tree::new(0o644);
        tree.add("a", vec![0; MAX_SIZE]).unwrap();
        assert_eq!(tree.add("b", vec![0]), Err(IsoError::Size));
    }
}
