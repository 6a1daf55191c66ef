//! The menu, and which entry of it is the default.

use super::script::Block;
use crate::disk_boot::entry::BootEntry;

/// An entry of the menu.
#[derive(Clone, Debug)]
pub(super) struct MenuEntry {
    pub(super) title: String,
    pub(super) id: Option<String>,
    pub(super) action: Action,
}

/// What choosing an entry does.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Boots this.
    Boot(BootEntry),
    /// Does this.
    Run(Block),
    /// Shows another menu, which this makes.
    Submenu(Block),
}

/// The entry of `menu` that `wanted` names: by number, id or title; and what it says of menus within that one.
pub(super) fn choose<'a>(menu: &'a [MenuEntry], wanted: &str) -> Option<(&'a MenuEntry, String)> {
    let (name, rest) = first_part(wanted);
    let number = name.parse::<usize>().ok().and_then(|number| menu.get(number));
    let is_it = |entry: &&MenuEntry| entry.id.as_ref() == Some(&name) || entry.title == name;
    number.or_else(|| menu.iter().find(is_it)).map(|entry| (entry, rest))
}

/// Splits at the first `>`; `>>` is one that belongs to a name.
fn first_part(wanted: &str) -> (String, String) {
    let mut name = String::new();
    let mut letters = wanted.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '>' && letters.next_if_eq(&'>').is_none() {
            return (name, letters.collect());
        }
        name.push(letter);
    }
    (name, String::new())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn chosen(wanted: &str) -> Option<(String, String)> {
        let entry = |(title, id): (&str, Option<&str>)| MenuEntry {
            title: title.into(),
            id: id.map(Into::into),
            action: Action::Run(Rc::default()),
        };
        let menu = [("A", Some("a")), ("B>C", None), ("3rd", Some("x-y"))].map(entry);
        choose(&menu, wanted).map(|(entry, rest)| (entry.title.clone(), rest))
    }

    #[test]
    fn entries_are_chosen_by_number_id_and_title() {
        let is = |wanted: &str, title: &str, rest: &str| {
            assert_eq!(chosen(wanted), Some((title.into(), rest.into())), "{wanted}");
        };
        is("0", "A", "");
        is("a", "A", "");
        is("A", "A", "");
        is("B>>C", "B>C", "");
        is("2>1>b", "3rd", "1>b");
        is("x-y>z", "3rd", "z");
        assert_eq!(chosen("9"), None);
        assert_eq!(chosen(""), None);
        assert_eq!(chosen("nothing"), None);
    }
}
