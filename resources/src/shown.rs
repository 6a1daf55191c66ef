//! Text of users as a terminal may have it.

use std::borrow::Cow;

/// The text, with what a terminal would act on written out: `\u{1b}` for the escape that begins a sequence, `\n` for an end of
/// line, and likewise what turns the direction of writing. A name must not change how the rest of a message looks.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if acts(letter) {
            shown.extend(letter.escape_debug());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// The same of a text of several lines, whose ends are its writer's own.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|letter| letter != '\n' && acts(letter)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(shown).collect::<Vec<_>>().join("\n"))
}

/// Control characters, line and paragraph separators, marks and overrides of direction.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        let table = [
            ("plain, ä \"quoted\" \\ text", "plain, ä \"quoted\" \\ text"),
            ("\x1b[2J", "\\u{1b}[2J"),
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\0"),
            ("\u{9b}1m\u{7f}", "\\u{9b}1m\\u{7f}"),
            ("\u{202e}txt", "\\u{202e}txt"),
        ];
        for (text, wanted) in table {
            assert_eq!(shown(text), wanted);
        }
        assert_eq!(shown_lines("one\n  two\x07"), "one\n  two\\u{7}");
    }
}
