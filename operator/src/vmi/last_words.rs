//! What a launcher wrote when it ended, for people. Pure.
//!
//! The message is written beside a guest, which may have got hold of its writer, and parts of it are the guest's own words. So a
//! word is a word, lines are printable text, and there is an end to both.

use serde::Deserialize;

/// No reason is longer. Ours have less than half of it.
const LONGEST_WORD: usize = 40;
/// What is kept of a console. A termination message has no more than 4096 bytes in all.
const CONSOLE: usize = 3072;
/// An event has no more for people. API servers refuse longer ones.
const EVENT: usize = 1024;

/// What the launcher writes as its termination message.
#[derive(Deserialize)]
struct TerminationMessage {
    reason: String,
    text: String,
    #[serde(default)]
    detail: Option<String>,
    /// What exactly kept it from starting.
    #[serde(default)]
    fault: Option<String>,
    /// The last lines of the guest's console.
    #[serde(default)]
    console: Option<String>,
}

/// What a launcher wrote when it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastWords {
    /// In one word.
    pub(super) reason: String,
    /// For people: what happened, and what to do.
    pub(super) message: String,
    /// The last lines of the guest's console; empty if there are none.
    pub(super) console: String,
}

impl LastWords {
    /// Reads a termination message; none if it is not a launcher's.
    pub(super) fn read(text: &str) -> Option<Self> {
        let said: TerminationMessage = serde_json::from_str(text).ok()?;
        let fault = said.fault.as_deref().and_then(word);
        let reason = fault.or_else(|| word(&said.reason)).unwrap_or_else(|| "Ended".to_owned());
        let mut message = printable(&said.text);
        if let Some(detail) = said.detail.filter(|detail| !detail.is_empty()) {
            message = format!("{message}: {}", printable(&detail));
        }
        if let Some(advice) = advice(&reason) {
            message = format!("{message}; {advice}");
        }
        let console = said.console.as_deref().map(last_lines).unwrap_or_default();
        Some(Self { reason, message, console })
    }
}

/// A message with the console's last lines below it.
pub(super) fn with_console(message: &str, console: &str) -> String {
    if console.is_empty() {
        return message.to_owned();
    }
    format!("{message}\nThe last lines of its console:\n{console}")
}

/// The same for an event: it is the first lines that go if there is no room for all.
pub(super) fn for_event(message: &str, console: &str) -> String {
    let message = &message[..message.floor_char_boundary(EVENT / 2)];
    let whole = with_console(message, console);
    let Some(excess) = whole.len().checked_sub(EVENT).filter(|excess| *excess > 0) else {
        return whole;
    };
    let rest = &console[console.ceil_char_boundary(excess.min(console.len()))..];
    // A line that is cut in its middle says something else.
    let rest = rest.split_once('\n').map_or(rest, |(_, whole_lines)| whole_lines);
    with_console(message, rest)
}

/// What to do about a reason, where the launcher does not say it itself.
fn advice(reason: &str) -> Option<&'static str> {
    let advice = match reason {
        "Panicked" | "TripleFault" => {
            "what led to it is on the guest's console, all of which is in the Pod's log while there is a Pod"
        }
        "InvalidSpec" => "correct the field and make the object anew",
        "DiskMissing" => {
            "a claim has to be a block device, or hold the file disk.img or have room for it; what else a volume names has to be there"
        }
        "ImageWithoutDisk" => {
            "put one disk image into the directory /disk of the image, or say by `path` which file it is"
        }
        "DiskInUse" => "stop the VM that writes to it, or make the disk shareable in both",
        "NoRoomForDisk" => "give the volume, or the node, more room",
        "KernelMissing" => {
            "check that kernelPath and initrdPath name files of kernelBoot.container.image"
        }
        "KernelUnusable" => "it takes a bzImage or an ELF kernel with a PVH entry, for x86-64",
        "GuestMemoryTooSmall" => "raise spec.domain.memory.guest",
        "NotStarted" | "InternalError" => "the Pod's log may say more",
        "Forbidden" | "Crashed" => {
            "this is an error of Corten's: please report it with the Pod's log"
        }
        _ => return None,
    };
    Some(advice)
}

/// `triple-fault` as `TripleFault`: reasons in status are one word of letters and digits.
fn word(kebab: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if kebab.len() > LONGEST_WORD || !kebab.chars().all(is_plain) {
        return None;
    }
    let mut word = String::with_capacity(kebab.len());
    for part in kebab.split('-') {
        let mut letters = part.chars();
        word.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        word.push_str(letters.as_str());
    }
    word.starts_with(|first: char| first.is_ascii_uppercase()).then_some(word)
}

/// The end of a console, as lines of printable text.
fn last_lines(console: &str) -> String {
    let text = printable(console);
    let text = text.trim_end();
    if text.len() <= CONSOLE {
        return text.to_owned();
    }
    let tail = &text[text.ceil_char_boundary(text.len() - CONSOLE)..];
    tail.split_once('\n').map_or(tail, |(_, whole_lines)| whole_lines).to_owned()
}

/// Text without what would move a cursor, colour a terminal or write over what stands there.
fn printable(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                // ECMA-48: a control sequence is `[`, parameters and one final byte of 0x40 to 0x7e; others are two characters.
                if letters.next() == Some('[') {
                    while letters.next_if(|it| matches!(it, ' '..='?')).is_some() {}
                    letters.next_if(|it| matches!(it, '@'..='~'));
                }
            }
            '\n' | '\t' => kept.push(letter),
            _ if letter.is_control() => {}
            // Unicode's own means to turn text around.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ => kept.push(letter),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(reason: &str, fault: Option<&str>, console: &str) -> LastWords {
        let said =
            json!({ "reason": reason, "text": "it ended", "fault": fault, "console": console });
        LastWords::read(&said.to_string()).unwrap()
    }

    #[test]
    fn what_exactly_kept_it_from_starting_is_its_reason() {
        let table = [
            ("not-started", None, "NotStarted"),
            ("not-started", Some("disk-missing"), "DiskMissing"),
            ("not-started", Some("image-without-disk"), "ImageWithoutDisk"),
            ("not-started", Some("of-a-later-release"), "OfALaterRelease"),
            ("panicked", None, "Panicked"),
            ("not-started", Some("no word"), "NotStarted"),
            ("not-started", Some(""), "NotStarted"),
            ("<b>", Some("\u{1b}[1m"), "Ended"),
        ];
        for (reason, fault, expected) in table {
            assert_eq!(read(reason, fault, "").reason, expected, "{reason} {fault:?}");
        }
        assert_eq!(read(&"x".repeat(41), None, "").reason, "Ended");
    }

    #[test]
    fn what_to_do_is_told_with_the_reason() {
        assert!(read("panicked", None, "").message.starts_with("it ended; what led to it"));
        assert_eq!(read("powered-off", None, "").message, "it ended");
    }

    #[test]
    fn a_console_is_told_as_plain_lines() {
        let table = [
            ("\u{1b}[31mKernel panic\u{1b}[0m\r\n", "Kernel panic"),
            ("a\u{1b}]b\u{8}\u{0}c\n\n\n", "abc"),
            ("tab\there\nnext", "tab\there\nnext"),
            ("\u{202e}turned", "turned"),
            ("cut off \u{1b}[", "cut off"),
        ];
        for (said, told) in table {
            assert_eq!(read("panicked", None, said).console, told, "{said:?}");
        }
    }

    #[test]
    fn of_a_long_console_the_last_whole_lines_are_kept() {
        let long: String = (0..1000).map(|line| format!("line {line} ä\n")).collect();
        let kept = read("panicked", None, &long).console;
        assert!(kept.len() <= CONSOLE && kept.starts_with("line "), "{}", kept.len());
        assert!(kept.ends_with("line 999 ä"));
    }

    #[test]
    fn an_event_has_room_for_the_message_and_the_last_lines() {
        let long: String = (0..1000).map(|line| format!("line {line} ä\n")).collect();
        for message in ["short".to_owned(), "ö".repeat(2000)] {
            let event = for_event(&message, &long);
            assert!(event.len() <= EVENT && event.len() > EVENT - 30, "{}", event.len());
            assert!(event.contains("\nThe last lines of its console:\nline "), "{event}");
            assert!(event.ends_with("line 999 ä\n"));
        }
        assert_eq!(for_event("short", ""), "short");
        assert_eq!(for_event("m", "a\nb"), "m\nThe last lines of its console:\na\nb");
    }

    #[test]
    fn what_is_no_launchers_message_is_none() {
        for text in ["", "exec: no such file", "{}", "[1]"] {
            assert_eq!(LastWords::read(text), None, "{text}");
        }
    }
}
