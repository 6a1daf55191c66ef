//! The user's terminal while it is the guest's.
//!
//! It is put back in every way out that this process sees: when the value goes, on a panic, and around a stop by signal.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// How it was, for whoever puts it back.
static BEFORE: Mutex<Option<libc::termios>> = Mutex::new(None);

/// Standard input in raw mode.
#[derive(Debug)]
pub struct RawTerminal(());

impl RawTerminal {
    /// Makes standard input raw, if it is a terminal and this process's to use.
    pub fn enter() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !is_ours(stdin.as_fd()) {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before.into());
        Ok(Some(Self(())))
    }

    /// Makes it raw again: a shell has changed it while this process was stopped.
    pub fn again(&self) {
        if let Ok(mut raw) = tcgetattr(io::stdin()) {
            cfmakeraw(&mut raw);
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &raw);
        }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back, if it was changed. A panic, which ends the process at once, does it too.
pub fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &Termios::from(before));
    }
}

/// Has a panic put the terminal back before it is told.
pub fn restore_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |information| {
        restore();
        tell(information);
    }));
}

/// A job in the background would be stopped as soon as it touches the terminal.
pub fn is_ours(terminal: BorrowedFd<'_>) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}
