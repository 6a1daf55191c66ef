//! What the launcher says in the Pod's log.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use corten_resources::shown_lines;
use nix::errno::Errno;
use nix::fcntl::{F_GETFL, F_SETFL, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

/// A pipe takes as much in one piece, or nothing.
const LINE: usize = 4096;

/// One line on standard error. That nobody reads it, or nobody any more, must not end a VM or hold it up, as `eprintln` would.
pub fn say(text: &str) {
    let mut line = format!("corten-launcher: {text}");
    line.truncate(line.floor_char_boundary(LINE - 1));
    line.push('\n');
    let _ = write(io::stderr(), line.as_bytes());
}

/// Makes writes to standard output and standard error fail that would have to wait for whoever reads the log. Terminals are left
/// as they are: they are not the launcher's alone.
pub fn never_wait() -> Result<(), Errno> {
    never_wait_for(io::stdout().as_fd())?;
    never_wait_for(io::stderr().as_fd())
}

fn never_wait_for(log: BorrowedFd<'_>) -> Result<(), Errno> {
    let kind = SFlag::from_bits_truncate(fstat(log)?.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK {
        let flags = OFlag::from_bits_retain(fcntl(log, F_GETFL)?);
        fcntl(log, F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
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
