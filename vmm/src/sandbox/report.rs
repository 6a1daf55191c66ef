//! How a forbidden call and a panic end the process: one line on standard error, and an exit status of its own.
//!
//! All of it can be done in a signal handler and under every filter: no allocation, no lock, two system calls.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::io;
use std::panic::PanicHookInfo;

use corten_link::EndReason;
use libc::{c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use syscalls::x86_64::Sysno;

/// Bytes of a thread's name, as the kernel has it.
const NAME: usize = 16;
/// Bytes of a line. A longer message is cut.
const LINE: usize = 1024;

thread_local! {
    /// Constant at first and without a destructor, so that a signal handler may look at it.
    static THREAD: Cell<([u8; NAME], usize)> = const { Cell::new(([0; NAME], 0)) };
}

/// Remembers what the calling thread is called.
pub(super) fn name_thread(name: &str) {
    let length = name.floor_char_boundary(NAME);
    let mut bytes = [0; NAME];
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    THREAD.set((bytes, length));
}

/// Installs the handler of forbidden calls and the panic hook.
pub(super) fn install() -> io::Result<()> {
    let action =
        SigAction::new(SigHandler::SigAction(forbidden), SaFlags::SA_SIGINFO, SigSet::all());
    // SAFETY: the handler makes only calls that a signal handler may make, and does not return.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    std::panic::set_hook(Box::new(panicked));
    Ok(())
}

/// What the kernel says of a call that it did not make: siginfo_t's fields of SIGSYS, which libc does not name.
#[repr(C)]
struct ForbiddenCall {
    signal: c_int,
    error: c_int,
    code: c_int,
    address: *const c_void,
    number: c_int,
    architecture: u32,
}

extern "C" fn forbidden(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this for SIGSYS with SA_SIGINFO, so that a whole siginfo_t is there, whose fields are
    // those; it is aligned for its pointers, and nobody else knows of it.
    let number = unsafe { (*info.cast::<ForbiddenCall>()).number };
    let name = usize::try_from(number).ok().and_then(Sysno::new);
    let name = name.as_ref().map_or("without a name", Sysno::name);
    if i64::from(number) == libc::SYS_ioctl {
        // SAFETY: with SA_SIGINFO the context is a ucontext_t, which stays as it is until the handler returns.
        let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let request = registers[libc::REG_RSI as usize].cast_unsigned() & u64::from(u32::MAX);
        end(
            EndReason::Forbidden,
            format_args!(
                "may not make the system call {name} ({number}) with request {request:#x}"
            ),
        );
    }
    end(EndReason::Forbidden, format_args!("may not make the system call {name} ({number})"));
}

fn panicked(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("without a message");
    match info.location() {
        Some(place) => end(EndReason::Crashed, format_args!("panicked at {place}: {message}")),
        None => end(EndReason::Crashed, format_args!("panicked: {message}")),
    }
}

/// Ends the process: the calling thread and what it did go to standard error as one line.
pub(super) fn end(reason: EndReason, what: fmt::Arguments<'_>) -> ! {
    let mut line = Line { bytes: [0; LINE], length: 0 };
    let (name, length) = THREAD.get();
    let name = str::from_utf8(&name[..length]).unwrap_or_default();
    let name = if name.is_empty() { "without a name" } else { name };
    // It never fails, it only cuts.
    let _ = write!(line, "corten-vmm: thread {name} {what}");
    line.finish();
    // SAFETY: the bytes are there, and the kernel only reads them.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length) };
    // SAFETY: it takes an integer, and nothing has to be done before the end.
    unsafe { libc::_exit(reason.exit_status().into()) }
}

/// One line without an allocator.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    fn finish(&mut self) {
        self.bytes[self.length] = b'\n';
        self.length += 1;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last place is for the end of the line.
        for byte in text.bytes().take(LINE - 1 - self.length) {
            self.bytes[self.length] = if byte == b'\n' { b' ' } else { byte };
            self.length += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_is_cut_to_one_line() {
        let mut line = Line { bytes: [0; LINE], length: 0 };
        write!(line, "left\nright {}", "x".repeat(2 * LINE)).unwrap();
        line.finish();
        assert_eq!(line.length, LINE);
        assert!(line.bytes.starts_with(b"left right xxx"));
        assert_eq!(line.bytes.iter().position(|byte| *byte == b'\n'), Some(LINE - 1));
    }
}
