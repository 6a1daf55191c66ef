//! The console between a supervisor's stream and this process's standard input and output.
//!
//! One loop over signals, the link, the stream and the keyboard. On a terminal, Ctrl-] leaves; under `corten run` Ctrl-C
//! presses the power button, and once more kills, as the signals do where there is no terminal. All else that is typed is
//! the guest's. What comes from the guest goes to standard output as it is.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::progress::Progress;
use super::terminal::{RawTerminal, is_ours};
use super::{Client, ClientError};
use crate::failure::Failure;
use crate::phase::Phase;
use crate::protocol::{Answer, Ended, Keyboard, Question, ToClient};

/// Ctrl-].
const LEAVE: u8 = 0x1d;
/// Ctrl-C.
const INTERRUPT: u8 = 0x03;
/// How much of the console is kept for a report.
const TAIL: usize = 64 << 10;

/// How a session is.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// What to do with the keyboard.
    pub keyboard: Keyboard,
    /// Ctrl-C and signals stop the VM instead of ending the session.
    pub stops: bool,
    /// End the session as soon as the VM runs.
    pub until_running: bool,
}

/// How a session ended.
#[derive(Debug)]
pub enum Outcome {
    /// The VM did.
    Ended(Ended),
    /// The user did; the VM goes on.
    Left,
}

struct Pump<'a> {
    client: &'a mut Client,
    session: Session,
    progress: &'a mut Progress,
    signals: SignalFd,
    stream: Option<UnixStream>,
    asked: u64,
    terminal: Option<RawTerminal>,
    reads_input: bool,
    types: bool,
    /// Was typed, and is not taken yet.
    typed: Vec<u8>,
    tail: &'a mut Vec<u8>,
    interrupts: u32,
    /// Nobody reads standard output any more, and nothing else is to be done here.
    unread: bool,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Client,
    Stream,
    Input,
}

/// Watches a VM until it ends or the user leaves. The end of what the guest says meanwhile is in `tail`, however it goes.
pub fn attach(
    client: &mut Client,
    session: Session,
    progress: &mut Progress,
    tail: &mut Vec<u8>,
) -> Result<Outcome, Failure> {
    let system = |what| move |errno: Errno| Failure::System { what, source: errno.into() };
    let mask: SigSet =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCONT]
            .into_iter()
            .collect();
    mask.thread_block().map_err(system("block signals"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&mask, flags).map_err(system("receive signals"))?;
    let asked = client.ask(Question::Attach { keyboard: session.keyboard }, &[])?;
    let stdin = io::stdin();
    let reads_input = session.keyboard != Keyboard::No
        && !session.until_running
        && (!stdin.is_terminal() || is_ours(stdin.as_fd()));
    let mut pump = Pump {
        client,
        session,
        progress,
        signals,
        stream: None,
        asked,
        terminal: None,
        reads_input,
        types: false,
        typed: Vec::new(),
        tail,
        interrupts: 0,
        unread: false,
        ended: None,
    };
    let outcome = pump.run();
    pump.progress.end();
    drop(pump);
    // Back to what they do by default, which for a second Ctrl-C is what the user wants.
    let _ = mask.thread_unblock();
    outcome
}

impl Pump<'_> {
    fn run(&mut self) -> Result<Outcome, Failure> {
        loop {
            self.progress.due();
            // All that the guest said comes before its end.
            if self.stream.is_none()
                && let Some(end) = self.ended.take()
            {
                return Ok(Outcome::Ended(end));
            }
            for source in self.wait()? {
                let outcome = match source {
                    Source::Signals => self.on_signals()?,
                    Source::Client => self.on_client()?,
                    Source::Stream => {
                        self.on_stream()?;
                        None
                    }
                    Source::Input => self.on_input()?,
                };
                if let Some(outcome) = outcome {
                    return Ok(outcome);
                }
                if self.unread {
                    return Ok(Outcome::Left);
                }
            }
        }
    }

    fn wait(&self) -> Result<Vec<Source>, Failure> {
        let stdin = io::stdin();
        let read = PollFlags::POLLIN;
        let mut sources: Vec<(Source, BorrowedFd<'_>, PollFlags)> =
            vec![(Source::Signals, self.signals.as_fd(), read)];
        if self.ended.is_none() {
            sources.push((Source::Client, self.client.as_fd(), read));
        }
        if let Some(stream) = &self.stream {
            let mut flags = read;
            flags.set(PollFlags::POLLOUT, !self.typed.is_empty());
            sources.push((Source::Stream, stream.as_fd(), flags));
        }
        if self.reads_input && self.stream.is_some() && self.typed.is_empty() {
            sources.push((Source::Input, stdin.as_fd(), read));
        }
        let mut list: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        match poll(&mut list, limit(self.progress.deadline())) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(Failure::System { what: "wait", source: errno.into() });
            }
        }
        let ready = sources.iter().zip(&list).filter(|(_, fd)| fd.any().unwrap_or(true));
        Ok(ready.map(|((source, ..), _)| *source).collect())
    }

    fn on_signals(&mut self) -> Result<Option<Outcome>, Failure> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            match Signal::try_from(number) {
                Ok(Signal::SIGCONT) => {
                    if let Some(terminal) = &self.terminal {
                        terminal.again();
                    }
                }
                _ if self.session.stops => self.interrupt()?,
                _ => return Ok(Some(Outcome::Left)),
            }
        }
        Ok(None)
    }

    /// The first time the power button, then the kill.
    fn interrupt(&mut self) -> Result<(), Failure> {
        self.interrupts += 1;
        let question = match self.interrupts {
            1 => Question::Stop { grace: None },
            _ => Question::Kill,
        };
        match self.client.ask(question, &[]) {
            // It has ended, which is read next.
            Ok(_) | Err(ClientError::Gone { .. }) => Ok(()),
            Err(ClientError::Ended { end, .. }) => {
                self.ended = Some(*end);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn on_client(&mut self) -> Result<Option<Outcome>, Failure> {
        let Some((message, mut grant)) = self.client.receive()? else { return Ok(None) };
        match message {
            ToClient::Reply { id, answer: Answer::Attached { types, typist }, .. }
                if id == self.asked =>
            {
                let stream = grant.remove(&corten_link::Role::connection());
                self.attached(stream, types, typist)?;
            }
            ToClient::Reply { answer: Answer::Refused { reason }, .. } => {
                self.progress.note(&reason);
            }
            ToClient::Reached { reached } => {
                self.progress.reached(&reached);
                if reached.phase == Phase::Running && self.session.until_running {
                    return Ok(Some(Outcome::Left));
                }
            }
            ToClient::Note { text } => self.progress.note(&text),
            ToClient::Ended { end } => self.ended = Some(end),
            ToClient::Hello { .. } | ToClient::Reply { .. } => {}
        }
        Ok(None)
    }

    fn attached(
        &mut self,
        stream: Option<OwnedFd>,
        types: bool,
        typist: Option<i32>,
    ) -> Result<(), Failure> {
        let system = |what| move |source: io::Error| Failure::System { what, source };
        let stream = stream.map(UnixStream::from);
        if let Some(stream) = &stream {
            stream.set_nonblocking(true).map_err(system("use the console's stream"))?;
        }
        self.stream = stream;
        self.types = types;
        if let Some(pid) = typist {
            self.progress.note(&format!(
                "process {pid} has the keyboard, this is only to look; --take takes it"
            ));
        }
        if self.reads_input {
            self.terminal = RawTerminal::enter().map_err(system("use the terminal"))?;
        }
        Ok(())
    }

    fn on_stream(&mut self) -> Result<(), Failure> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if !self.typed.is_empty() {
            match stream.write(&self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(error) if may_come_again(&error) => {}
                Err(_) => self.typed.clear(),
            }
        }
        let mut bytes = [0; 16 << 10];
        match stream.read(&mut bytes) {
            Ok(0) => self.stream = None,
            Ok(count) => self.show(&bytes[..count])?,
            Err(error) if may_come_again(&error) => {}
            Err(_) => self.stream = None,
        }
        Ok(())
    }

    fn show(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.session.until_running {
            return Ok(());
        }
        self.progress.finish();
        self.tail.extend(bytes);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        let mut stdout = io::stdout();
        let (line, rest) = bytes.split_at(self.progress.until_release(bytes));
        let mut show = |bytes: &[u8]| -> io::Result<()> {
            write_all(&mut stdout, bytes)?;
            self.progress.heard(bytes);
            Ok(())
        };
        match show(line).and_then(|()| show(rest)) {
            // Whoever only looked has seen enough. A VM that lives with this command ends with it.
            Err(error) if error.kind() == ErrorKind::BrokenPipe && !self.session.stops => {
                self.unread = true;
                Ok(())
            }
            written => written
                .map_err(|source| Failure::System { what: "write to standard output", source }),
        }
    }

    fn on_input(&mut self) -> Result<Option<Outcome>, Failure> {
        let mut bytes = [0; 1024];
        // Past the standard library's buffer, which poll knows nothing of.
        let count = match nix::unistd::read(io::stdin(), &mut bytes) {
            Ok(count) => count,
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(None),
            Err(_) => 0,
        };
        if count == 0 {
            self.reads_input = false;
            return Ok(None);
        }
        let keys = match self.terminal {
            Some(_) => Keys::of(&bytes[..count], self.session.stops),
            None => Keys { typed: bytes[..count].to_vec(), ..Keys::default() },
        };
        if self.types && !keys.typed.is_empty() {
            self.typed.extend(keys.typed);
            self.on_stream()?;
        }
        for _ in 0..keys.interrupts {
            self.interrupt()?;
        }
        Ok(keys.leave.then_some(Outcome::Left))
    }
}

/// How long to wait. One more, so that it is due when the wait is over.
fn limit(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// What was pressed on a terminal since the last look, which can be several keys.
#[derive(Debug, Default, PartialEq, Eq)]
struct Keys {
    /// What is the guest's.
    typed: Vec<u8>,
    interrupts: usize,
    leave: bool,
}

impl Keys {
    /// `stops` says whether Ctrl-C is ours. What is typed behind it is not the guest's any more, nor is anything behind Ctrl-].
    fn of(bytes: &[u8], stops: bool) -> Self {
        let end = bytes.iter().position(|byte| *byte == LEAVE);
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        let is_interrupt = |byte: &&u8| stops && **byte == INTERRUPT;
        let typed = bytes.iter().take_while(|byte| !is_interrupt(byte)).copied().collect();
        let interrupts = bytes.iter().filter(is_interrupt).count();
        Self { typed, interrupts, leave: end.is_some() }
    }
}

/// Standard output may be a descriptor that somebody else has made non-blocking.
fn write_all(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if may_come_again(&error) => {
                let stdout = io::stdout();
                let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut fds, PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

fn may_come_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(typed: &[u8], interrupts: usize, leave: bool) -> Keys {
        Keys { typed: typed.to_vec(), interrupts, leave }
    }

    #[test]
    fn each_key_of_one_read_counts() {
        let cases: [(&[u8], Keys); 6] = [
            (b"ls\n", keys(b"ls\n", 0, false)),
            (b"\x03", keys(b"", 1, false)),
            (b"\x03\x03", keys(b"", 2, false)),
            (b"ab\x03cd\x03", keys(b"ab", 2, false)),
            (b"ab\x1dcd\x03", keys(b"ab", 0, true)),
            (b"\x03\x1d", keys(b"", 1, true)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Keys::of(bytes, true), expected, "{bytes:?}");
        }
        // Where it is not ours, Ctrl-C is the guest's as any other key.
        assert_eq!(Keys::of(b"\x03\x03", false), keys(b"\x03\x03", 0, false));
    }
}
