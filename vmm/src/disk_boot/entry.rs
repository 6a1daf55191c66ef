//! What a boot loader's configuration comes down to.

/// The longest configuration file that is read.
pub(super) const MAX_CONFIGURATION: u64 = 1 << 20;
/// What is taken of one configuration.
pub(super) const MAX_ENTRIES: usize = 64;
/// Initial RAM disks of one entry.
pub(super) const MAX_INITRDS: usize = 16;
/// The longest command line that any kernel takes is shorter.
pub(super) const MAX_COMMAND_LINE: usize = 64 << 10;

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the volume.
    pub(super) volume: usize,
    /// From its root on.
    pub(super) path: String,
}

/// A kernel that can be booted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootEntry {
    /// For people.
    pub(super) title: String,
    pub(super) kernel: Place,
    /// In the order in which they are put one behind the other.
    pub(super) initrds: Vec<Place>,
    pub(super) command_line: String,
}

/// `path` as seen from the directory `base`, with `.` and `..` taken out. Absolute ones are from the root on.
pub(super) fn absolute(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let base = if path.starts_with('/') { "" } else { base };
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The directory that `path` is in.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// What a disk says, as it may be shown on a terminal and in a status: one line without control characters, cut.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 160;
    let clean = |letter: char| if letter.is_control() { '?' } else { letter };
    let mut shown: String = text.trim().chars().map(clean).take(MOST).collect();
    if text.trim().chars().count() > MOST {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_where_they_are_written() {
        for (base, path, expected) in [
            ("/extlinux", "../vmlinuz", "/vmlinuz"),
            ("/extlinux", "vmlinuz", "/extlinux/vmlinuz"),
            ("/extlinux", "/boot//vmlinuz", "/boot/vmlinuz"),
            ("", "../../x/./y", "/x/y"),
        ] {
            assert_eq!(absolute(base, path), expected);
        }
        assert_eq!(parent("/boot/grub/grub.cfg"), "/boot/grub");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(shown("  a\x1b[2Jb\n"), "a?[2Jb");
        assert_eq!(shown(&"x".repeat(1000)).len(), 163);
    }
}
