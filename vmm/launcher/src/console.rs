//! The guest's serial console on its way into the Pod's log.
//!
//! ```text
//!   VM process --pipe--> launcher --+--> what waits (256 KiB at most) --> standard output --> container runtime
//!                                   +--> the last lines, for those who ask why it ended
//! ```
//!
//! The launcher always reads, so that a guest is never slower than its own console. Nothing here waits for whoever reads the log: what
//! finds no room any more is left out by the line, and the log says how many lines that were. A runtime that comes back finds
//! what waited and goes on from there.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use corten_resources::shown;
use nix::errno::Errno;
use nix::fcntl::{F_GETFL, F_SETFL, F_SETPIPE_SZ, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

/// Room for what a guest says while this process does not get to run.
const PIPE: i32 = 256 << 10;
/// What is read in one go, so that a guest with much to say does not hold up the loop.
const AT_ONCE: usize = 16 << 10;
/// What waits for the reader of the log.
const MAX_WAITING: usize = 256 << 10;
/// A pipe takes as much in one piece, or nothing.
const PIECE: usize = 4096;
/// As many of the last lines are kept.
const LINES: usize = 32;
/// And no more bytes of them.
const LENGTH: usize = 2048;
/// They may be full of colours, which are left out.
const RAW: usize = 8 << 10;

/// A guest's serial console.
#[derive(Debug)]
pub struct Console {
    from: io::PipeReader,
    has_ended: bool,
    waiting: Backlog,
    tail: VecDeque<u8>,
}

impl Console {
    /// A console, and the end of it that the VM process writes to.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (from, to) = io::pipe()?;
        // Where it cannot be had, it is as large as it is.
        let _ = fcntl(&from, F_SETPIPE_SZ(PIPE));
        let flags = OFlag::from_bits_retain(fcntl(&from, F_GETFL)?);
        fcntl(&from, F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let (waiting, tail) = (Backlog::default(), VecDeque::new());
        Ok((Self { from, has_ended: false, waiting, tail }, to.into()))
    }

    /// What to read from, until nobody can write to it any more.
    pub fn source(&self) -> Option<BorrowedFd<'_>> {
        (!self.has_ended).then(|| self.from.as_fd())
    }

    /// Whether the guest has said anything yet.
    pub fn has_spoken(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Whether something waits to be written.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.bytes.is_empty()
    }

    /// Reads some of what the guest said; whether there may be more.
    pub fn read(&mut self) -> bool {
        let mut bytes = [0; AT_ONCE];
        let count = match self.from.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => 0,
        };
        self.has_ended = count == 0;
        self.waiting.push(&bytes[..count]);
        self.tail.extend(&bytes[..count]);
        let excess = self.tail.len().saturating_sub(RAW);
        self.tail.drain(..excess);
        !self.has_ended
    }

    /// Writes what waits to `log`, as far as that goes now. What nobody will ever read is left out.
    pub fn write_to(&mut self, log: BorrowedFd<'_>) {
        while !self.waiting.bytes.is_empty() {
            match write(log, self.waiting.piece()) {
                Ok(count) => self.waiting.written(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                // Somebody may read again later.
                Err(_) => return self.waiting.bytes.clear(),
            }
        }
    }

    /// The guest has ended: its last words still go to `log`, unless that takes longer than `limit`.
    pub fn finish(&mut self, log: BorrowedFd<'_>, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.read() {}
        self.write_to(log);
        while self.has_waiting() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut list = [PollFd::new(log, PollFlags::POLLOUT)];
            let ready = poll(&mut list, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            if !matches!(ready, Ok(1..)) {
                return;
            }
            self.write_to(log);
        }
    }

    /// The last lines, as people can read them: printable, without colours.
    pub fn last_lines(&self) -> String {
        last_lines(&self.tail.iter().copied().collect::<Vec<u8>>())
    }
}

/// What waits for the reader of the log.
#[derive(Debug, Default)]
struct Backlog {
    bytes: VecDeque<u8>,
    /// What is there does not end with a line.
    is_open: bool,
    lost: Option<Lost>,
}

/// Lines that found no room.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    lines: u64,
    /// There is more than those.
    is_open: bool,
}

impl Backlog {
    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_open = piece.last() != Some(&b'\n');
            if self.lost.is_none() && self.bytes.len() + piece.len() <= MAX_WAITING {
                self.bytes.extend(piece);
                self.is_open = is_open;
            } else {
                let lost = self.lost.get_or_insert_default();
                lost.lines += u64::from(!is_open);
                lost.is_open = is_open;
            }
        }
        self.go_on();
    }

    /// Says what was lost, once half of the room is free: a log of one line and one gap in turn helps nobody.
    fn go_on(&mut self) {
        let Some(lost) = self.lost.filter(|_| self.bytes.len() <= MAX_WAITING / 2) else { return };
        let lines = lost.lines + u64::from(lost.is_open);
        let begin = if self.is_open { "\n" } else { "" };
        let said = format!(
            "{begin}corten-launcher: {lines} lines of the console are missing here, as nobody read this log in time\n"
        );
        self.bytes.extend(said.as_bytes());
        (self.lost, self.is_open) = (None, false);
    }

    fn piece(&self) -> &[u8] {
        let (first, _) = self.bytes.as_slices();
        &first[..first.len().min(PIECE)]
    }

    fn written(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        self.go_on();
    }
}

fn last_lines(raw: &[u8]) -> String {
    let text = printable(&String::from_utf8_lossy(raw));
    let lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let text = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let Some(excess) = text.len().checked_sub(LENGTH).filter(|excess| *excess > 0) else {
        return text;
    };
    let kept = &text[text.ceil_char_boundary(excess)..];
    // Begins with a whole line, if there is one.
    kept.split_once('\n').map_or(kept, |(_, rest)| rest).to_owned()
}

/// Text without what terminals act on: sequences that begin with an escape go, marks of direction are written out.
fn printable(text: &str) -> String {
    let (mut plain, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                if letters.next() == Some('[') {
                    // To the letter that says what the numbers before it are for.
                    letters.find(|letter| ('@'..='~').contains(letter));
                }
            }
            '\n' => plain.push('\n'),
            '\t' => plain.push(' '),
            letter if letter.is_control() => {}
            letter => plain.push_str(&shown(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A log that nobody reads yet, and its reader.
    fn log() -> (io::PipeReader, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        for end in [reader.as_fd(), writer.as_fd()] {
            fcntl(end, F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        }
        (reader, writer)
    }

    fn all_of(reader: &mut io::PipeReader) -> String {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn console_goes_to_the_log_as_it_comes() {
        let (mut console, to) = Console::new().unwrap();
        let (mut reader, log) = log();
        let mut guest = std::fs::File::from(to);
        guest.write_all(b"Linux\nlogin: ").unwrap();
        assert!(console.read() && console.has_waiting());
        console.write_to(log.as_fd());
        assert_eq!(all_of(&mut reader), "Linux\nlogin: ");
        assert!(!console.has_waiting() && !console.read() && console.source().is_some());
        drop(guest);
        assert!(!console.read() && console.source().is_none());
        assert_eq!(console.last_lines(), "Linux\nlogin:");
    }

    #[test]
    fn reader_that_pauses_finds_what_waited_and_how_many_lines_did_not() {
        let (mut console, to) = Console::new().unwrap();
        let (mut reader, log) = log();
        let mut guest = std::fs::File::from(to);
        let line = |number: usize| format!("{number:099}\n");
        let all = 20_000;
        for number in 0..all {
            guest.write_all(line(number).as_bytes()).unwrap();
            while console.read() {}
            console.write_to(log.as_fd());
        }
        let mut text = all_of(&mut reader);
        while console.has_waiting() {
            console.write_to(log.as_fd());
            text += &all_of(&mut reader);
        }
        let mut told = 0;
        let mut next = 0;
        for shown in text.lines() {
            match shown.strip_prefix("corten-launcher: ") {
                Some(said) => {
                    let count: usize = said.split(' ').next().unwrap().parse().unwrap();
                    (told, next) = (told + count, next + count);
                }
                None => {
                    assert_eq!(shown.parse::<usize>().unwrap(), next);
                    next += 1;
                }
            }
        }
        assert!(told > 0 && next == all, "{told} of {next}");
    }

    #[test]
    fn line_that_was_cut_ends_before_the_gap_is_told() {
        let mut backlog = Backlog::default();
        backlog.push(b"begun");
        let long = vec![b'x'; MAX_WAITING];
        backlog.push(&long);
        backlog.push(b"more\nnext\nlast");
        backlog.written(0);
        let text = String::from_utf8(backlog.bytes.into()).unwrap();
        assert_eq!(
            text,
            "begun\ncorten-launcher: 1 lines of the console are missing here, as nobody read this log in time\nmore\nnext\nlast"
        );
    }

    #[test]
    fn log_that_nobody_will_read_costs_nothing() {
        let (mut console, to) = Console::new().unwrap();
        let (reader, log) = log();
        drop(reader);
        let mut guest = std::fs::File::from(to);
        for _ in 0..3 {
            guest.write_all(b"word\n").unwrap();
            console.read();
            console.write_to(log.as_fd());
            assert!(!console.has_waiting());
        }
    }

    #[test]
    fn last_words_are_waited_for_but_not_for_ever() {
        let (mut console, to) = Console::new().unwrap();
        let (mut reader, log) = log();
        let mut guest = std::fs::File::from(to);
        guest.write_all(&vec![b'x'; 100 << 10]).unwrap();
        drop(guest);
        console.finish(log.as_fd(), Duration::from_millis(1));
        assert!(console.has_waiting());
        let mut length = 0;
        while console.has_waiting() {
            length += all_of(&mut reader).len();
            console.finish(log.as_fd(), Duration::from_millis(1));
        }
        assert_eq!(length + all_of(&mut reader).len(), 100 << 10);
    }

    #[test]
    fn last_lines_are_few_short_and_printable() {
        let cases = [
            ("", ""),
            ("\r\n\n  \n", ""),
            ("[\u{1b}[0;32m  OK  \u{1b}[0m] Started\tit\u{7}.\r\n", "[  OK  ] Started it."),
            ("a\u{1b}c\u{202e}b", "a\\u{202e}b"),
            ("cut \u{1b}[1;", "cut"),
        ];
        for (raw, expected) in cases {
            assert_eq!(last_lines(raw.as_bytes()), expected, "{raw:?}");
        }
        let many: String = (0..100).map(|number| format!("{number}\n")).collect();
        let last = last_lines(many.as_bytes());
        assert_eq!((last.lines().count(), last.lines().next()), (32, Some("68")));
        let long = last_lines("ä".repeat(5000).as_bytes());
        assert!(long.len() <= LENGTH && long.len() > LENGTH - 4 && long.starts_with('ä'));
        let lines = last_lines(format!("{}\n", "y".repeat(150)).repeat(30).as_bytes());
        assert!(lines.len() <= LENGTH && lines.lines().all(|line| line.len() == 150));
    }
}
