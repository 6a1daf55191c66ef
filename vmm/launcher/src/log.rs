//! What the launcher says in the Pod's log.

use std::error::Error;
use std::io::Write;

use corten_resources::shown_lines;

/// One line on standard error. That nobody reads it any more must not end a VM, as `eprintln` would.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "corten-launcher: {text}");
}

/// An error with its causes. What of it users and guests wrote cannot do anything to a terminal.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    shown_lines(&text).into_owned()
}
