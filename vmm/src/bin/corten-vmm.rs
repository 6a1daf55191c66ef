//! The VM process. Everything it uses arrives over the link on descriptor 3; it opens nothing. Its one argument,
//! `--seccomp log`, is for diagnosis: what the sandbox forbids is then done, and logged by the kernel.

use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

use corten_link::{EndReason, Link};
use corten_vmm::control;
use corten_vmm::machine::chain;
use corten_vmm::sandbox::{self, Mode};
use corten_vmm::say::say;
use nix::fcntl::{F_GETFD, fcntl};

const LINK: i32 = 3;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some(mode) = mode(&arguments) else {
        return not_started("there is one argument, --seccomp log");
    };
    if let Err(error) = sandbox::prepare(mode) {
        return not_started(&chain(&error));
    }
    let Some(link) = inherited_link() else {
        return not_started(&format!(
            "descriptor {LINK} is no link: this program is started by a launcher"
        ));
    };
    match control::serve(link) {
        Ok(end) => {
            let detail =
                if end.detail.is_empty() { String::new() } else { format!(": {}", end.detail) };
            say(format_args!("{}{detail}", end.reason.text()));
            ExitCode::from(end.reason.exit_status())
        }
        Err(error) => not_started(&chain(&error)),
    }
}

fn not_started(why: &str) -> ExitCode {
    say(format_args!("{why}"));
    ExitCode::from(EndReason::NotStarted.exit_status())
}

fn mode(arguments: &[OsString]) -> Option<Mode> {
    match arguments {
        [] => Some(Mode::Enforce),
        [option, value] if option == "--seccomp" && value == "log" => Some(Mode::Log),
        _ => None,
    }
}

fn inherited_link() -> Option<Link> {
    // SAFETY: the borrow is used for a call that only looks whether the number is open.
    let open = fcntl(unsafe { std::os::fd::BorrowedFd::borrow_raw(LINK) }, F_GETFD).is_ok();
    if !open {
        return None;
    }
    // SAFETY: it is open, and nothing in this process has taken it yet.
    let fd = unsafe { OwnedFd::from_raw_fd(LINK) };
    Link::from_fd(fd).ok()
}
