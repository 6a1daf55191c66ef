//! Names as ECMA-119 and Joliet have them: short, of few characters, and unique within a directory.

use std::collections::HashSet;

/// Whose names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// ECMA-119, level 1: eight capitals, digits and `_`, and for files three more behind a dot.
    Plain,
    /// Joliet: up to 64 characters of UCS-2, big-endian.
    Joliet,
}

const STEM: usize = 8;
const EXTENSION: usize = 3;
const JOLIET: usize = 64;
/// Digits of base 36 that tell alike names apart: ten times as many as there can be entries.
const DIGITS: usize = 3;

impl Naming {
    /// Identifiers for the names of one directory, in their order: no two are the same.
    pub(super) fn identifiers<'a>(
        self,
        names: impl Iterator<Item = (&'a str, bool)>,
    ) -> Vec<Vec<u8>> {
        let mut taken = HashSet::new();
        let mut identifier = |(number, (name, is_directory)): (usize, (&str, bool))| {
            let first = self.identifier(name, None, is_directory);
            let others = (number..).map(|number| self.identifier(name, Some(number), is_directory));
            let mut candidates = std::iter::once(first).chain(others);
            let found = candidates.find(|candidate| taken.insert(candidate.clone()));
            found.unwrap_or_default()
        };
        names.enumerate().map(&mut identifier).collect()
    }

    fn identifier(self, name: &str, number: Option<usize>, is_directory: bool) -> Vec<u8> {
        let digits = number.map(base36).unwrap_or_default();
        match self {
            Self::Plain => plain(name, &digits, is_directory),
            Self::Joliet => joliet(name, &digits, is_directory),
        }
    }
}

/// The last digits of a number.
fn base36(number: usize) -> String {
    let digit = |place: u32| {
        let digit = number / 36_usize.pow(place) % 36;
        char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit])
    };
    (0..DIGITS).rev().map(|place| digit(u32::try_from(place).unwrap_or(0))).collect()
}

fn plain(name: &str, digits: &str, is_directory: bool) -> Vec<u8> {
    let allowed = |text: &str, length: usize| -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        text.chars().take(length).map(letter).collect()
    };
    let room = STEM - digits.len();
    if is_directory {
        return format!("{}{digits}", allowed(name, room)).into_bytes();
    }
    // A dot at the beginning is part of the name.
    let split = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty());
    let (stem, extension) = split.unwrap_or((name, ""));
    format!("{}{digits}.{};1", allowed(stem, room), allowed(extension, EXTENSION)).into_bytes()
}

fn joliet(name: &str, digits: &str, is_directory: bool) -> Vec<u8> {
    let letter = |c: char| match c {
        '*' | '/' | ':' | ';' | '?' | '\\' => '_',
        // There are no surrogates in UCS-2.
        c if c.is_control() || c.len_utf16() != 1 => '_',
        c => c,
    };
    let suffix = if is_directory { "" } else { ";1" };
    let separator = if digits.is_empty() { "" } else { "~" };
    let kept = name.chars().take(JOLIET - separator.len() - digits.len()).map(letter);
    let all = kept.chain(separator.chars()).chain(digits.chars()).chain(suffix.chars());
    all.collect::<String>().encode_utf16().flat_map(u16::to_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(naming: Naming, names: &[&str]) -> Vec<String> {
        let identifiers = naming.identifiers(names.iter().map(|name| (*name, false)));
        let text = |bytes: Vec<u8>| match naming {
            Naming::Plain => String::from_utf8(bytes).unwrap(),
            Naming::Joliet => {
                let unit = |pair: &[u8]| u16::from_be_bytes([pair[0], pair[1]]);
                String::from_utf16(&bytes.chunks(2).map(unit).collect::<Vec<_>>()).unwrap()
            }
        };
        identifiers.into_iter().map(text).collect()
    }

    #[test]
    fn plain_names_are_of_capitals_and_unique() {
        let names = ["user-data", "user-datb", "meta_data.json", ".dot", "ä.b.c", "x"];
        let plain = ["USER_DAT.;1", "USER_001.;1", "META_DAT.JSO;1", "_DOT.;1", "__B.C;1", "X.;1"];
        assert_eq!(files(Naming::Plain, &names), plain);
        let directories =
            Naming::Plain.identifiers(["openstack", "openstac-2"].map(|n| (n, true)).into_iter());
        assert_eq!(directories, [b"OPENSTAC".to_vec(), b"OPENS001".to_vec()]);
    }

    #[test]
    fn a_name_that_looks_like_one_made_unique_is_left_alone() {
        let names = ["aaaaa002", "aaaaaaaaa", "aaaaaaaab"];
        let plain = ["AAAAA002.;1", "AAAAAAAA.;1", "AAAAA003.;1"];
        assert_eq!(files(Naming::Plain, &names), plain);
    }

    #[test]
    fn joliet_names_are_as_given_but_for_what_it_forbids() {
        let long = "x".repeat(70);
        let names = ["Öl.txt", "a:b?c", "🦀", &long, &format!("{long}y")];
        let joliet = [
            "Öl.txt;1".to_owned(),
            "a_b_c;1".into(),
            "_;1".into(),
            format!("{};1", "x".repeat(64)),
            format!("{}~004;1", "x".repeat(60)),
        ];
        assert_eq!(files(Naming::Joliet, &names), joliet);
    }

    #[test]
    fn thousands_of_alike_names_are_told_apart() {
        let names: Vec<String> =
            (0..4095).map(|number| format!("{}{number}", "x".repeat(80))).collect();
        for naming in [Naming::Plain, Naming::Joliet] {
            let unique: HashSet<_> = naming
                .identifiers(names.iter().map(|name| (name.as_str(), false)))
                .into_iter()
                .collect();
            assert_eq!(unique.len(), names.len());
        }
    }
}
