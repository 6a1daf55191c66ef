//! What the launcher says in the Pod's log.

use std::error::Error;
use std::io::Write;

/// One line on standard error. That nobody reads it any more must not end a VM, as `eprintln` would.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "corten-launcher: {text}");
}

/// An error with its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
