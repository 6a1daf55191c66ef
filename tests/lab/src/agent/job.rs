//! One running command.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, setsid};

use crate::wire::{CageRequest, Frame, Kind, PIECE, Start};

/// Between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(5);
const TIMED_OUT: i32 = 124;

nix::ioctl_write_int_bad!(take_terminal, nix::libc::TIOCSCTTY);
nix::ioctl_write_ptr_bad!(set_window_size, nix::libc::TIOCSWINSZ, Winsize);

/// A command that was started and has not been reaped.
pub(super) struct Job {
    pub(super) pid: Pid,
    pub(super) deadline: Option<Instant>,
    timed_out: bool,
    stdin: Option<OwnedFd>,
    queued: VecDeque<u8>,
    stdin_ends: bool,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    terminal: bool,
}

impl Job {
    /// Starts it; `own` is this program, which makes the cage.
    pub(super) fn start(start: &Start, own: &Path) -> io::Result<Self> {
        let mut command = command_of(start, own)?;
        let job = match start.terminal {
            Some(size) => Self::on_terminal(&mut command, size),
            None => Self::on_pipes(&mut command),
        };
        let job = job.map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
        })?;
        let deadline = start.time_limit.map(|limit| Instant::now() + limit);
        Ok(Self { deadline, ..job })
    }

    fn on_pipes(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        own_session(command, false);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        for pipe in [&stdin, &stdout, &stderr].into_iter().flatten() {
            set_nonblocking(pipe)?;
        }
        Ok(Self::running(child.id(), stdin, stdout, stderr, false))
    }

    fn on_terminal(command: &mut Command, (rows, columns): (u16, u16)) -> io::Result<Self> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None)?;
        command.stdin(pty.slave.try_clone()?).stdout(pty.slave.try_clone()?).stderr(pty.slave);
        own_session(command, true);
        let child = command.spawn()?;
        set_nonblocking(&pty.master)?;
        let input = pty.master.try_clone()?;
        Ok(Self::running(child.id(), Some(input), Some(pty.master), None, true))
    }

    fn running(
        id: u32,
        stdin: Option<OwnedFd>,
        stdout: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
        terminal: bool,
    ) -> Self {
        Self {
            pid: Pid::from_raw(id.cast_signed()),
            deadline: None,
            timed_out: false,
            stdin,
            queued: VecDeque::new(),
            stdin_ends: false,
            stdout,
            stderr,
            terminal,
        }
    }

    pub(super) fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.stdout, &self.stderr].into_iter().flatten().map(AsFd::as_fd)
    }

    pub(super) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        if self.queued.is_empty() { None } else { self.stdin.as_ref().map(AsFd::as_fd) }
    }

    /// At most one piece of each output; a pipe at its end is closed.
    pub(super) fn read_once(&mut self) -> Vec<(Kind, Vec<u8>)> {
        let mut pieces = Vec::new();
        for (kind, pipe) in [(Kind::Stdout, &mut self.stdout), (Kind::Stderr, &mut self.stderr)] {
            let Some(fd) = pipe else { continue };
            let mut bytes = vec![0; PIECE];
            match nix::unistd::read(fd, &mut bytes) {
                Ok(length) if length > 0 => {
                    bytes.truncate(length);
                    pieces.push((kind, bytes));
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                // End of file; a terminal whose last user is gone says EIO.
                _ => *pipe = None,
            }
        }
        pieces
    }

    /// Input, a signal or a new window size.
    pub(super) fn control(&mut self, frame: &Frame) {
        match (frame.kind, &frame.payload[..]) {
            (Kind::Stdin, []) => self.stdin_ends = true,
            (Kind::Stdin, bytes) => self.queued.extend(bytes),
            (Kind::Signal, [number]) => {
                if let Ok(signal) = Signal::try_from(i32::from(*number)) {
                    self.signal(signal);
                }
            }
            (Kind::Resize, [r0, r1, c0, c1]) => {
                let ws_row = u16::from_le_bytes([*r0, *r1]);
                let ws_col = u16::from_le_bytes([*c0, *c1]);
                let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
                if let Some(terminal) = self.stdout.as_ref().filter(|_| self.terminal) {
                    // SAFETY: the descriptor is an open terminal and `size` outlives the call.
                    let _ = unsafe { set_window_size(terminal.as_raw_fd(), &raw const size) };
                }
            }
            _ => {}
        }
    }

    /// Hands queued input to the command; returns how much it took.
    pub(super) fn feed_stdin(&mut self) -> usize {
        let mut taken = 0;
        while let (Some(pipe), false) = (&self.stdin, self.queued.is_empty()) {
            let (front, _) = self.queued.as_slices();
            match nix::unistd::write(pipe, front) {
                Ok(written) => {
                    self.queued.drain(..written);
                    taken += written;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                // It closed its input: the rest is nobody's.
                Err(_) => self.stdin = None,
            }
        }
        if self.stdin.is_none() {
            taken += std::mem::take(&mut self.queued).len();
        }
        if self.stdin_ends && self.queued.is_empty() && !self.terminal {
            self.stdin = None;
        }
        taken
    }

    /// Asks a command that ran too long to end, and kills it when it does not.
    pub(super) fn enforce_time_limit(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.signal(if self.timed_out { Signal::SIGKILL } else { Signal::SIGTERM });
            self.timed_out = true;
            self.deadline = Some(now + GRACE);
        }
    }

    pub(super) fn status(&self, code: i32) -> i32 {
        if self.timed_out { TIMED_OUT } else { code }
    }

    fn signal(&self, signal: Signal) {
        let _ = killpg(self.pid, signal);
    }
}

fn command_of(start: &Start, own: &Path) -> io::Result<Command> {
    let argv = match &start.cage {
        Some(cage) => caged(cage, own, &start.argv),
        None => start.argv.clone(),
    };
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(start.env.iter().map(|(name, value)| (name, value)));
    let directory = Path::new(&start.directory);
    command.current_dir(if directory.is_dir() { directory } else { "/root".as_ref() });
    Ok(command)
}

fn caged(cage: &CageRequest, own: &Path, argv: &[String]) -> Vec<String> {
    let mut caged = vec![own.to_string_lossy().into_owned(), "cage".into()];
    caged.push(format!("--profile={}", cage.profile));
    caged.extend(cage.taps.iter().map(|tap| format!("--tap={tap}")));
    caged.push("--".into());
    caged.extend(argv.iter().cloned());
    caged
}

/// Its own session: signals reach the whole of it, and a terminal becomes its own.
fn own_session(command: &mut Command, terminal: bool) {
    let prepare = move || {
        setsid()?;
        if terminal {
            // SAFETY: descriptor 0 is the terminal the command was given; the ioctl takes no pointer.
            unsafe { take_terminal(0, 0) }?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only two system calls are made, which is allowed there.
    unsafe { command.pre_exec(prepare) };
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Reads a whole small file such as those of /sys, without its line end.
pub(super) fn read_line(path: &str) -> io::Result<String> {
    let mut text = io::read_to_string(File::open(path)?)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}
