//! What the process says on standard error.

use std::fmt;
use std::io::{self, Write};

/// Says one line. There may be nobody left to read it, which is no reason for a VM to end: `eprintln` panics then.
pub fn say(what: fmt::Arguments<'_>) {
    // In one piece: other threads may say something, too.
    let line = format!("corten-vmm: {what}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}
