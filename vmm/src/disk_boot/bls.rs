//! Boot Loader Specification, type 1: a file for each entry, in a directory of a boot partition.

use std::cmp::Ordering;

use super::entry::{BootEntry, MAX_COMMAND_LINE, MAX_INITRDS, Place};
use super::filesystem::FileSystem;
use super::version::compare;

/// Where entries are, from the root of a volume on.
pub(super) const DIRECTORIES: [&str; 2] = ["/loader/entries", "/boot/loader/entries"];
/// Files of entries that are looked at.
const MAX_FILES: usize = 256;
/// The longest file of an entry.
const MAX_FILE: u64 = 64 << 10;

/// What a file of an entry says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Name of the file, without counters and its ending.
    pub(super) id: String,
    pub(super) title: String,
    version: String,
    machine_id: String,
    sort_key: String,
    linux: String,
    initrds: Vec<String>,
    /// None if there is no such line, as opposed to an empty one.
    pub(super) options: Option<String>,
    /// An entry that was tried as often as it may be comes last.
    is_spent: bool,
}

impl Entry {
    /// Reads a file; none if it is no entry for this machine.
    pub(super) fn parse(name: &str, text: &str) -> Option<Self> {
        let (id, is_spent) = without_counters(name.strip_suffix(".conf")?);
        let mut entry = Self { id: id.into(), is_spent, ..Self::default() };
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim();
            match key {
                "title" => entry.title = value.into(),
                "version" => entry.version = value.into(),
                "machine-id" => entry.machine_id = value.into(),
                "sort-key" => entry.sort_key = value.into(),
                "linux" => entry.linux = value.into(),
                // Two words of Fedora's are a file and a variable.
                "initrd" => {
                    let words = value.split_whitespace().map(str::to_owned);
                    entry.initrds.extend(words.take(MAX_INITRDS));
                }
                "options" => {
                    let options = entry.options.get_or_insert_default();
                    if options.len() + value.len() < MAX_COMMAND_LINE {
                        *options = format!("{options} {value}").trim().into();
                    }
                }
                "architecture" if !value.eq_ignore_ascii_case("x64") => return None,
                _ => {}
            }
        }
        entry.initrds.truncate(MAX_INITRDS);
        (!entry.linux.is_empty()).then_some(entry)
    }

    /// The entry as it is booted. `expand` puts values in the place of variables, where a boot loader has some.
    pub(super) fn boot(
        &self,
        (volume, files): (usize, &FileSystem<'_>),
        expand: &dyn Fn(&str) -> String,
    ) -> BootEntry {
        let place = |path: &str| Place { volume, path: find(files, path) };
        let initrds = self.initrds.iter().map(|path| expand(path));
        let title = [&self.title, &self.version, &self.id];
        let title = title.into_iter().find(|text| !text.is_empty()).cloned();
        BootEntry {
            title: title.unwrap_or_default(),
            kernel: place(&expand(&self.linux)),
            initrds: initrds.filter(|path| !path.is_empty()).map(|path| place(&path)).collect(),
            command_line: expand(self.options.as_deref().unwrap_or_default()),
        }
    }

    /// The order of the menu: what is to be booted first is least.
    fn order(&self, other: &Self) -> Ordering {
        let newest_first = |left: &str, right: &str| compare(right, left);
        let by_key = match (self.sort_key.is_empty(), other.sort_key.is_empty()) {
            (false, false) => self
                .sort_key
                .cmp(&other.sort_key)
                .then_with(|| self.machine_id.cmp(&other.machine_id))
                .then_with(|| newest_first(&self.version, &other.version)),
            (mine, others) => mine.cmp(&others),
        };
        let by_name = || newest_first(&self.id, &other.id);
        self.is_spent.cmp(&other.is_spent).then(by_key).then_with(by_name)
    }
}

/// Paths count from the root of the volume. Where /boot is none of its own, some installers forget that.
fn find(files: &FileSystem<'_>, path: &str) -> String {
    let path = super::entry::absolute("", path);
    let below = format!("/boot{path}");
    if !files.is_file(&path) && files.is_file(&below) { below } else { path }
}

/// Takes "+LEFT-DONE" off the name of an entry, and says whether nothing is left.
fn without_counters(name: &str) -> (&str, bool) {
    let Some((id, counters)) = name.rsplit_once('+') else { return (name, false) };
    let left = counters.split('-').next().unwrap_or_default();
    let are_numbers = counters
        .split('-')
        .all(|part| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit()));
    if are_numbers { (id, left.bytes().all(|digit| digit == b'0')) } else { (name, false) }
}

/// The entries in a directory, in the order of the menu.
pub(super) fn entries(files: &FileSystem<'_>, directory: &str) -> Vec<Entry> {
    let names = files.list(directory).unwrap_or_default();
    let mut names: Vec<String> = names.into_iter().filter(|name| name.ends_with(".conf")).collect();
    // The newest, should there be more than are looked at.
    names.sort_by(|left, right| compare(right, left));
    let read = |name: &String| {
        let text = files.read(&format!("{directory}/{name}"), MAX_FILE).ok()?;
        Entry::parse(name, &String::from_utf8_lossy(&text))
    };
    let mut entries: Vec<Entry> = names.iter().take(MAX_FILES).filter_map(read).collect();
    entries.sort_by(Entry::order);
    entries
}

/// Moves the entry that `loader.conf` makes the default to the front.
pub(super) fn prefer(entries: &mut Vec<Entry>, configuration: &str) {
    let value = |line: &str| {
        let (key, value) = line.trim().split_once(char::is_whitespace)?;
        (key == "default").then(|| value.trim().to_owned())
    };
    let Some(pattern) = configuration.lines().filter_map(value).next_back() else { return };
    let pattern = pattern.strip_suffix(".conf").unwrap_or(&pattern);
    if let Some(at) = entries.iter().position(|entry| matches(pattern, &entry.id)) {
        let entry = entries.remove(at);
        entries.insert(0, entry);
    }
}

/// Whether `text` is as the pattern says: `*` is any letters, `?` is one.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    // The last star, and how much it stood for.
    let mut star = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(letter) if *letter == b'?' || letter.eq_ignore_ascii_case(&text[read]) => {
                (at, read) = (at + 1, read + 1);
            }
            _ => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    (at, read) = (place + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, text: &str) -> Entry {
        Entry::parse(name, text).unwrap()
    }

    fn sorted(mut entries: Vec<Entry>) -> Vec<String> {
        entries.sort_by(Entry::order);
        entries.into_iter().map(|entry| entry.id).collect()
    }

    #[test]
    fn entry_of_the_specification_is_read() {
        let text = "# comment\ntitle        Fedora 19 (Rawhide)\nsort-key fedora\nmachine-id   6a98\n\
            version 3.8.0-2.fc19.x86_64\noptions root=UUID=6d3376e4\noptions quiet\narchitecture x64\n\
            linux        /6a98/3.8.0/linux\ninitrd       /6a98/3.8.0/initrd\ninitrd /second\nefi /x\n";
        let entry = entry("6a98-3.8.0.conf", text);
        assert_eq!(entry.title, "Fedora 19 (Rawhide)");
        assert_eq!(entry.linux, "/6a98/3.8.0/linux");
        assert_eq!(entry.initrds, ["/6a98/3.8.0/initrd", "/second"]);
        assert_eq!(entry.options.as_deref(), Some("root=UUID=6d3376e4 quiet"));
    }

    #[test]
    fn what_is_no_entry_for_this_machine_is_left_out() {
        assert_eq!(Entry::parse("a.conf", "title x\n"), None);
        assert_eq!(Entry::parse("a.conf", "linux /x\narchitecture aa64\n"), None);
        assert_eq!(Entry::parse("a.txt", "linux /x\n"), None);
        assert!(Entry::parse("a.conf", "linux /x\narchitecture X64\n").is_some());
    }

    #[test]
    fn newest_version_comes_first_and_spent_entries_last() {
        let files = ["a-6.9.conf", "a-6.10.conf", "a-6.11+0-3.conf", "a-6.8+2.conf"];
        let entries = files.iter().map(|name| entry(name, "linux /x\n")).collect();
        assert_eq!(sorted(entries), ["a-6.10", "a-6.9", "a-6.8", "a-6.11"]);
        let keyed = [("z.conf", "6.1"), ("y.conf", "6.2")].map(|(name, version)| {
            entry(name, &format!("linux /x\nsort-key d\nversion {version}\n"))
        });
        let entries = keyed.into_iter().chain([entry("zz-9.conf", "linux /x\n")]).collect();
        assert_eq!(sorted(entries), ["y", "z", "zz-9"]);
    }

    #[test]
    fn default_of_the_loader_is_a_pattern() {
        let list = |pattern: &str| {
            let mut entries: Vec<Entry> = ["b", "arch-lts", "arch"]
                .iter()
                .map(|id| entry(&format!("{id}.conf"), "linux /x\n"))
                .collect();
            prefer(&mut entries, &format!("timeout 3\ndefault {pattern}\n"));
            entries[0].id.clone()
        };
        assert_eq!(list("arch.conf"), "arch");
        assert_eq!(list("arch-*"), "arch-lts");
        assert_eq!(list("a*h"), "arch");
        assert_eq!(list("@saved"), "b");
    }

    #[test]
    fn patterns_match() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxbxx", false),
            ("?", "", false),
            ("**x", "xx", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn counters_are_no_part_of_a_name() {
        assert_eq!(without_counters("linux+3-1"), ("linux", false));
        assert_eq!(without_counters("linux+0-3"), ("linux", true));
        assert_eq!(without_counters("c++"), ("c++", false));
        assert_eq!(without_counters("6.1+deb"), ("6.1+deb", false));
    }
}
