//! Those who look at the console, and the one among them who types.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;

use super::console::History;
use crate::protocol::Keyboard;

/// Bytes that are read of a typist at once.
const PIECE: usize = 4096;
/// More than anybody looks at.
const MAX_VIEWERS: usize = 64;

#[derive(Debug)]
struct Viewer {
    stream: UnixStream,
    /// Place of the next byte for it.
    place: u64,
    /// Process behind it.
    pid: i32,
}

/// All of them, with the keyboard.
#[derive(Debug)]
pub(super) struct Viewers {
    all: BTreeMap<u64, Viewer>,
    last: u64,
    typist: Option<u64>,
    /// Where what is typed goes.
    keyboard: UnixStream,
    /// Was typed, and is not taken yet.
    typed: Vec<u8>,
}

/// What of it a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Viewer(u64),
    Keyboard,
}

/// Whether a viewer types; if not, who does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Types {
    Yes,
    No,
    Another(i32),
}

impl Viewers {
    /// None yet. What is typed goes to `keyboard`, which does not block.
    pub(super) fn new(keyboard: UnixStream) -> Self {
        Self { all: BTreeMap::new(), last: 0, typist: None, keyboard, typed: Vec::new() }
    }

    /// One more, of the process `pid`; its end of the stream.
    pub(super) fn add(
        &mut self,
        pid: i32,
        wish: Keyboard,
        history: &History,
    ) -> std::io::Result<(UnixStream, Types)> {
        if self.all.len() >= MAX_VIEWERS {
            return Err(std::io::Error::other("there are too many already"));
        }
        let (stream, theirs) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        self.last += 1;
        let other = self.typist.and_then(|typist| self.all.get(&typist));
        let types = match (wish, other) {
            (Keyboard::No, _) => Types::No,
            (Keyboard::IfFree, Some(other)) => Types::Another(other.pid),
            (Keyboard::IfFree, None) | (Keyboard::Take, _) => Types::Yes,
        };
        if types == Types::Yes {
            self.typist = Some(self.last);
        }
        self.all.insert(self.last, Viewer { stream, place: history.beginning(), pid });
        Ok((theirs, types))
    }

    /// What to wait for.
    pub(super) fn sources(&self, history: &History) -> Vec<(Part, BorrowedFd<'_>, PollFlags)> {
        let mut sources = Vec::new();
        for (number, viewer) in &self.all {
            let mut flags = PollFlags::empty();
            // Also of one that does not type: that it has gone is read from it. Not while there is no place for more.
            flags.set(PollFlags::POLLIN, self.typed.is_empty());
            flags.set(PollFlags::POLLOUT, viewer.place < history.end());
            sources.push((Part::Viewer(*number), viewer.stream.as_fd(), flags));
        }
        if !self.typed.is_empty() {
            sources.push((Part::Keyboard, self.keyboard.as_fd(), PollFlags::POLLOUT));
        }
        sources
    }

    /// Does what can be done with a part.
    pub(super) fn serve(&mut self, part: Part, history: &History) {
        match part {
            Part::Keyboard => self.type_on(),
            Part::Viewer(number) => {
                let goes_on = self.read(number)
                    && self.all.get_mut(&number).is_some_and(|viewer| viewer.show(history));
                if !goes_on {
                    self.remove(number);
                }
            }
        }
    }

    /// Shows all of them what they have not seen yet, as far as they take it. Whether all have seen everything.
    pub(super) fn show(&mut self, history: &History) -> bool {
        let gone: Vec<u64> = self
            .all
            .iter_mut()
            .filter_map(|(number, viewer)| (!viewer.show(history)).then_some(*number))
            .collect();
        gone.into_iter().for_each(|number| self.remove(number));
        self.all.values().all(|viewer| viewer.place == history.end())
    }

    fn remove(&mut self, number: u64) {
        self.all.remove(&number);
        if self.typist == Some(number) {
            self.typist = None;
        }
    }

    /// Takes what was typed; false if the viewer is gone.
    fn read(&mut self, number: u64) -> bool {
        let Some(viewer) = self.all.get_mut(&number) else { return false };
        if !self.typed.is_empty() {
            return true;
        }
        let mut bytes = [0; PIECE];
        match viewer.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                // Whoever does not type is not heard.
                if self.typist == Some(number) {
                    self.typed.extend(&bytes[..count]);
                    self.type_on();
                }
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn type_on(&mut self) {
        match self.keyboard.write(&self.typed) {
            Ok(count) => drop(self.typed.drain(..count)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // There is no guest any more.
            Err(_) => self.typed.clear(),
        }
    }
}

impl Viewer {
    /// Shows it what it has not seen yet; false if it is gone.
    fn show(&mut self, history: &History) -> bool {
        loop {
            let (missed, bytes) = history.from(self.place);
            if bytes.is_empty() {
                return true;
            }
            if missed > 0 {
                let note = format!("\r\n[corten: {missed} bytes are left out]\r\n");
                match self.stream.write(note.as_bytes()) {
                    Ok(_) => self.place += missed,
                    Err(error) => return may_come_again(&error),
                }
                continue;
            }
            match self.stream.write(bytes) {
                Ok(count) => self.place += count as u64,
                Err(error) => return may_come_again(&error),
            }
        }
    }
}

fn may_come_again(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rig() -> (Viewers, History, UnixStream) {
        let (ours, guest) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        guest.set_nonblocking(true).unwrap();
        (Viewers::new(ours), History::default(), guest)
    }

    fn serve(viewers: &mut Viewers, history: &History) {
        let parts: Vec<Part> = viewers.sources(history).iter().map(|(part, ..)| *part).collect();
        parts.into_iter().for_each(|part| viewers.serve(part, history));
    }

    fn read(stream: &mut UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        stream.set_nonblocking(true).unwrap();
        let count = stream.read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn all_see_everything_and_one_types() {
        let (mut viewers, mut history, mut guest) = rig();
        history.push(b"login: ");
        let (mut first, types) = viewers.add(1, Keyboard::IfFree, &history).unwrap();
        assert_eq!(types, Types::Yes);
        let (mut second, types) = viewers.add(2, Keyboard::IfFree, &history).unwrap();
        assert_eq!(types, Types::Another(1));
        first.write_all(b"root\n").unwrap();
        second.write_all(b"nobody\n").unwrap();
        serve(&mut viewers, &history);
        assert_eq!(read(&mut guest), b"root\n");
        assert_eq!(
            (read(&mut first), read(&mut second)),
            (b"login: ".to_vec(), b"login: ".to_vec())
        );
    }

    #[test]
    fn keyboard_is_free_when_its_typist_goes_and_can_be_taken() {
        let (mut viewers, history, mut guest) = rig();
        let (mut first, _) = viewers.add(1, Keyboard::IfFree, &history).unwrap();
        let (mut second, types) = viewers.add(2, Keyboard::Take, &history).unwrap();
        assert_eq!(types, Types::Yes);
        first.write_all(b"a").unwrap();
        second.write_all(b"b").unwrap();
        serve(&mut viewers, &history);
        assert_eq!(read(&mut guest), b"b");
        drop((first, second));
        serve(&mut viewers, &history);
        assert!(viewers.all.is_empty());
        let (_third, types) = viewers.add(3, Keyboard::IfFree, &history).unwrap();
        assert_eq!(types, Types::Yes);
    }

    #[test]
    fn slow_viewer_misses_bytes_and_is_told_and_holds_up_nobody() {
        let (mut viewers, mut history, _guest) = rig();
        let (mut slow, _) = viewers.add(1, Keyboard::No, &history).unwrap();
        for _ in 0..2000 {
            history.push(&[b'x'; 1000]);
            viewers.show(&history);
        }
        assert!(!viewers.show(&history));
        let mut seen = Vec::new();
        while !viewers.show(&history) {
            seen.extend(read(&mut slow));
        }
        seen.extend(read(&mut slow));
        let text = String::from_utf8(seen).unwrap();
        assert!(text.contains(" bytes are left out]"));
        assert!(text.ends_with('x') && text.len() < 2_000_000);
    }

    #[test]
    fn guest_that_does_not_read_stops_the_typist_and_loses_nothing() {
        let (mut viewers, history, mut guest) = rig();
        let (mut typist, _) = viewers.add(1, Keyboard::IfFree, &history).unwrap();
        typist.set_nonblocking(true).unwrap();
        let sent: Vec<u8> = (0..=255).cycle().take(600_000).collect();
        let (mut given, mut taken) = (0, Vec::new());
        while taken.len() < sent.len() {
            given += typist.write(&sent[given..]).unwrap_or(0);
            serve(&mut viewers, &history);
            assert!(viewers.typed.len() <= PIECE);
            taken.extend(read(&mut guest));
        }
        assert_eq!(taken, sent);
    }
}
