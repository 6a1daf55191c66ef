//! Phases and notes, as they are shown: one live line for all phases on a terminal, else one line for each.
//!
//! The guest's console goes to standard output, which most often is the same terminal or file. So what is said here waits
//! for the end of the guest's line, and where that does not come it begins a line of its own.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use nix::sys::stat::fstat;

use crate::phase::{Reached, span};

/// How long a guest that says nothing more may have its line open, such as one that asks for a name.
const IDLE: Duration = Duration::from_millis(100);
/// How long it may in all.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is shown on standard error.
#[derive(Debug)]
pub struct Progress {
    name: String,
    how: How,
    /// The line so far.
    line: String,
    last: u64,
    /// The guest is in the middle of a line.
    within_line: bool,
    /// When it last said something.
    heard: Option<Instant>,
    /// Since when something waits.
    waiting: Option<Instant>,
    /// What waits for the end of the guest's line.
    held: VecDeque<Told>,
    /// Nothing more comes of the guest.
    ended: bool,
    /// The guest's line and these are written to the same place.
    same_place: bool,
}

#[derive(Debug)]
enum Told {
    Reached(Reached),
    Note(String),
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
        Self {
            name: name.into(),
            how,
            line: String::new(),
            last: 0,
            within_line: false,
            heard: None,
            waiting: None,
            held: VecDeque::new(),
            ended: false,
            same_place: is_same_place(),
        }
    }

    /// A phase is over.
    pub fn reached(&mut self, reached: &Reached) {
        self.hold(Told::Reached(reached.clone()));
    }

    /// A line beside the phases, which is shown in any case.
    pub fn note(&mut self, text: &str) {
        self.hold(Told::Note(text.into()));
    }

    fn hold(&mut self, told: Told) {
        self.held.push_back(told);
        if self.within_line && !self.ended {
            self.waiting.get_or_insert_with(Instant::now);
        } else {
            self.release();
        }
    }

    /// How much of what the guest says next is to be shown before [`Self::release`]: all of it, unless something waits for
    /// the end of a line.
    pub fn until_release(&self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n').filter(|_| !self.held.is_empty());
        end.map_or(bytes.len(), |end| end + 1)
    }

    /// The guest has said this, and it is shown.
    pub fn heard(&mut self, bytes: &[u8]) {
        // Some end their lines the other way round.
        if let Some(last) = bytes.iter().rev().find(|byte| **byte != b'\r') {
            self.within_line = *last != b'\n';
        }
        self.heard = Some(Instant::now());
        if !self.within_line {
            self.release();
        }
    }

    /// When what waits is shown at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let since = self.waiting?;
        let idle = self.heard.map_or(since, |heard| heard.max(since)) + IDLE;
        Some(idle.min(since + PATIENCE))
    }

    /// Shows what waits, if its time has come.
    pub fn due(&mut self) {
        if self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            self.release();
        }
    }

    /// Shows what waits, in the middle of a line or not.
    pub fn release(&mut self) {
        self.waiting = None;
        while let Some(told) = self.held.pop_front() {
            match told {
                Told::Reached(reached) => self.show_reached(&reached),
                Told::Note(text) => self.show_note(&text),
            }
        }
    }

    /// Nothing more comes of the guest, so nothing waits for it any more.
    pub fn end(&mut self) {
        self.finish();
        self.ended = true;
        self.release();
    }

    /// Something is written next that stands at the begin of a line.
    fn begin_line(&mut self) {
        if self.within_line && self.same_place {
            say("\r\n");
            self.within_line = false;
        }
    }

    fn show_reached(&mut self, reached: &Reached) {
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
                self.begin_line();
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

    fn show_note(&mut self, text: &str) {
        self.begin_line();
        if self.line.is_empty() {
            // A terminal in raw mode does not go back to the begin of a line by itself.
            say(&format!("{}: {text}\r\n", self.name));
        } else {
            let line = format!("{}:{}", self.name, self.line);
            say(&format!("\r\x1b[K{}: {text}\r\n{}", self.name, fitting(&line, columns())));
        }
    }
}

/// Whether standard output and standard error are the same terminal, file or pipe.
fn is_same_place() -> bool {
    let place = |found: nix::sys::stat::FileStat| (found.st_dev, found.st_ino);
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(stdout), Ok(stderr)) => place(stdout) == place(stderr),
        _ => false,
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

    fn quiet() -> Progress {
        Progress { same_place: false, ..Progress::new("first", true) }
    }

    #[test]
    fn note_waits_for_the_end_of_the_guests_line() {
        let mut progress = quiet();
        progress.note("before anything is said");
        assert!(progress.held.is_empty());
        progress.heard(b"one\r\ntw");
        progress.note("in the middle");
        assert_eq!(progress.held.len(), 1);
        assert!(progress.deadline().is_some());
        assert_eq!(progress.until_release(b"o\r\nthree"), 3);
        progress.heard(b"o\r\n");
        assert!(progress.held.is_empty() && progress.deadline().is_none());
        assert_eq!(progress.until_release(b"a\nb\n"), 4);
        progress.heard(b"\n\r");
        progress.note("lines may end so too");
        assert!(progress.held.is_empty());
    }

    #[test]
    fn note_does_not_wait_for_ever() {
        let mut progress = quiet();
        progress.heard(b"login: ");
        progress.note("in the middle");
        let since = progress.waiting.unwrap();
        assert_eq!(progress.deadline(), Some(since + IDLE));
        // As long as the guest goes on with its line, but not longer than is fair.
        progress.heard = Some(since + PATIENCE);
        assert_eq!(progress.deadline(), Some(since + PATIENCE));
        progress.release();
        assert!(progress.held.is_empty() && progress.deadline().is_none());
        progress.end();
        progress.note("after the guest's last words, which have no end of line");
        assert!(progress.held.is_empty());
    }

    #[test]
    fn line_that_does_not_fit_keeps_its_end() {
        assert_eq!(fitting("first: 5 ms", 80), "first: 5 ms");
        assert_eq!(fitting("12345678", 9), "12345678");
        assert_eq!(fitting("123456789", 9), "…3456789");
        assert_eq!(fitting("µµµµ", 4), "…µµ");
        assert_eq!(fitting("anything", 0), "…");
    }
}
