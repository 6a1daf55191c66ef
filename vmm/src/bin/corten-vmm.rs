//! The VM process. Everything it uses arrives over the link on descriptor 3; it takes no argument and opens nothing.

use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

use corten_link::{EndReason, Link};
use corten_vmm::control;
use corten_vmm::machine::chain;
use nix::fcntl::{F_GETFD, fcntl};

const LINK: i32 = 3;

fn main() -> ExitCode {
    let Some(link) = inherited_link() else {
        eprintln!(
            "corten-vmm: descriptor {LINK} is no link: this program is started by a launcher"
        );
        return ExitCode::from(EndReason::NotStarted.exit_status());
    };
    match control::serve(link) {
        Ok(end) => {
            let detail =
                if end.detail.is_empty() { String::new() } else { format!(": {}", end.detail) };
            eprintln!("corten-vmm: {}{detail}", end.reason.text());
            ExitCode::from(end.reason.exit_status())
        }
        Err(error) => {
            eprintln!("corten-vmm: {}", chain(&error));
            ExitCode::from(EndReason::NotStarted.exit_status())
        }
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
