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

/// How much of a text of a user's is repeated to him.
const LONGEST_QUOTE: usize = 40;
/// How much of what has no blanks is, where it is not quoted: names of fields are shorter.
const LONGEST_WORD: usize = 120;
/// The longest message. What was cut otherwise is shorter.
const LONGEST_TEXT: usize = 1200;

/// The beginning of a text of a user's, for messages that do not quote it.
pub fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A message, of whose quotes, as `{:?}` writes them, and other words the beginnings stand for the whole: a name of a megabyte
/// must not hide what is wrong with it.
pub(crate) fn with_cut_quotes(message: String) -> String {
    if message.len() <= LONGEST_QUOTE {
        return message;
    }
    let mut short = String::with_capacity(message.len().min(LONGEST_TEXT));
    let (mut is_quoted, mut is_escaped, mut length) = (false, false, 0);
    for letter in message.chars() {
        let is_mark = letter == '"' && !is_escaped;
        is_escaped = is_quoted && letter == '\\' && !is_escaped;
        if is_mark {
            is_quoted = !is_quoted;
        }
        length = if is_mark || !is_quoted && letter.is_whitespace() { 0 } else { length + 1 };
        let most = if is_quoted { LONGEST_QUOTE } else { LONGEST_WORD };
        match length {
            length if length <= most => short.push(letter),
            length if length == most + 1 => short.push('…'),
            _ => {}
        }
    }
    match short.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &short[..end]),
        None => short,
    }
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
    fn of_long_quotes_and_words_the_beginning_is_told() {
        let long = "a b\"".repeat(40_000);
        let message = format!("{long:?} is no name, and {:?} is none either", "short");
        let told = with_cut_quotes(message);
        assert!(told.ends_with("…\" is no name, and \"short\" is none either"), "{told}");
        assert!(told.len() < 120, "{told}");
        let word = with_cut_quotes(format!("{} is more than 8Ti", "9".repeat(100_000)));
        assert!(word.ends_with("9… is more than 8Ti") && word.len() < 150, "{word}");
        let plain = "it is \"quoted\", and says what to write instead: a name such as \"web\"";
        assert_eq!(with_cut_quotes(plain.to_owned()), plain);
        assert!(with_cut_quotes("a ".repeat(100_000)).len() < 1300);
        assert_eq!(cut(&"ä".repeat(41)), format!("{}…", "ä".repeat(40)));
    }

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
