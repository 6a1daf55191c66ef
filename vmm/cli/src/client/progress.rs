//! Phases, as they are shown: one live line on a terminal, else one line for each.

use std::io::{self, IsTerminal, Write};

use crate::phase::{Reached, span};

/// What is shown on standard error.
#[derive(Debug)]
pub struct Progress {
    name: String,
    how: How,
    /// The line so far.
    line: String,
    last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Not,
    Lines,
    /// Written over and over.
    Live,
}

impl Progress {
    /// For the VM of this name.
    pub fn new(name: &str, quiet: bool) -> Self {
        let how = match (quiet, io::stderr().is_terminal()) {
            (true, _) => How::Not,
            (false, true) => How::Live,
            (false, false) => How::Lines,
        };
        Self { name: name.into(), how, line: String::new(), last: 0 }
    }

    /// A phase is over.
    pub fn reached(&mut self, reached: &Reached) {
        let took = span(reached.at.saturating_sub(self.last));
        let detail = if reached.detail.is_empty() {
            String::new()
        } else {
            format!(" ({})", reached.detail)
        };
        let text = reached.phase.text();
        match self.how {
            How::Not => {}
            How::Lines => {
                say(&format!("{}: {text} after {}, {took}{detail}\n", self.name, span(reached.at)));
            }
            How::Live => {
                self.line += &format!(" | {text} {took}{detail}");
                let line = format!("{}: {}{}", self.name, span(reached.at), self.line);
                say(&format!("\r\x1b[K{}", fitting(&line, columns())));
            }
        }
        self.last = reached.at;
    }

    /// The line is finished: something else is written next.
    pub fn finish(&mut self) {
        if self.how == How::Live && !self.line.is_empty() {
            say("\r\n");
            self.line.clear();
        }
        if self.how == How::Live {
            self.how = How::Not;
        }
    }

    /// A line beside the phases, which is shown in any case.
    pub fn note(&mut self, text: &str) {
        if self.line.is_empty() {
            // A terminal in raw mode does not go back to the begin of a line by itself.
            say(&format!("{}: {text}\r\n", self.name));
        } else {
            let line = format!("{}:{}", self.name, self.line);
            say(&format!("\r\x1b[K{}: {text}\r\n{}", self.name, fitting(&line, columns())));
        }
    }
}

/// What of a line has room: its end, which is new. A line that wraps could not be written over.
fn fitting(line: &str, columns: usize) -> String {
    let excess = (line.chars().count() + 1).saturating_sub(columns);
    if excess == 0 {
        return line.into();
    }
    let kept: String = line.chars().skip(excess + 1).collect();
    format!("…{kept}")
}

/// Columns of the terminal.
fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the structure is the one that the request fills in.
    let asked = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    // One that does not know has room for everything.
    if asked < 0 || size.ws_col == 0 { usize::MAX } else { usize::from(size.ws_col) }
}

/// That nobody reads it must not end anything.
fn say(text: &str) {
    let mut stderr = io::stderr();
    let text = if stderr.is_terminal() { text.into() } else { text.replace('\r', "") };
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_does_not_fit_keeps_its_end() {
        assert_eq!(fitting("first: 5 ms", 80), "first: 5 ms");
        assert_eq!(fitting("12345678", 9), "12345678");
        assert_eq!(fitting("123456789", 9), "…3456789");
        assert_eq!(fitting("µµµµ", 4), "…µµ");
        assert_eq!(fitting("anything", 0), "…");
    }
}
