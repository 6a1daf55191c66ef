//! grub.cfg, as far as generated ones use its language, to find which kernel GRUB would have booted.
//!
//! A script is read into statements (`script`), which are carried out (`interpreter`): variables, tests, files that are
//! included, environment blocks, searches for volumes. Menu entries are kept as they are until one is looked at. What
//! draws, loads modules or waits does nothing; functions are passed over. All of it is bounded: by the size of files, the
//! number and depth of statements, steps, and the length of values.

mod environment;
mod interpreter;
mod menu;
mod script;
mod test;

use std::collections::BTreeMap;

use super::entry::BootEntry;
use super::volumes::Volumes;
use interpreter::Interpreter;

/// Where its configuration is, from the root of a volume on; there may also be one for each system in /EFI.
pub(super) const PATHS: [&str; 4] =
    ["/boot/grub/grub.cfg", "/grub/grub.cfg", "/boot/grub2/grub.cfg", "/grub2/grub.cfg"];

pub(super) use environment::{MAX_SIZE as MAX_ENVIRONMENT, parse as parse_environment};

/// Puts variables into a text.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let value = |piece| match piece {
        script::Piece::Text(text) => text,
        script::Piece::Variable { name, .. } => variables.get(&name).cloned().unwrap_or_default(),
    };
    script::quoted_pieces(text).into_iter().map(value).collect::<String>().trim().into()
}

/// The entries that the configuration at `path` of a volume leads to, the default first; and what was passed over.
pub(super) fn entries(
    volumes: &Volumes<'_>,
    volume: usize,
    path: &str,
) -> (Vec<BootEntry>, Vec<String>) {
    Interpreter::new(volumes, volume, path).boot_entries(path)
}

/// Any text comes to an end.
#[cfg(feature = "fuzz")]
pub(super) fn run_any(text: &str) {
    let volumes = Volumes { disks: Vec::new(), volumes: Vec::new() };
    let interpreter = Interpreter::new(&volumes, 0, "/boot/grub/grub.cfg");
    let (entries, _) = interpreter.boot_entries_of(text);
    assert!(entries.len() <= super::entry::MAX_ENTRIES);
    let _ = environment::parse(text.as_bytes());
}

#[cfg(test)]
mod tests;
