//! The Pod's termination message: why it ended, for the operator and for `kubectl describe`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use corten_link::{EndReason, StartFault};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use serde::Serialize;

/// kubelet reads no more of it.
pub const MAX_LENGTH: usize = 4096;

/// How a launcher ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// More of it: registers, an error, what to do.
    pub detail: String,
}

impl End {
    /// How a VM ended whose process told nothing. `killed`: it was meant to.
    pub fn by_status(status: WaitStatus, killed: bool) -> Self {
        let (reason, detail) = match status {
            WaitStatus::Exited(_, code) => match EndReason::from_exit_status(code) {
                Some(reason) => (reason, "see the log of the container".into()),
                None => {
                    (EndReason::InternalError, format!("the VM process ended with status {code}"))
                }
            },
            WaitStatus::Signaled(_, Signal::SIGKILL, _) if killed => {
                (EndReason::Killed, String::new())
            }
            WaitStatus::Signaled(_, signal, _) => {
                (EndReason::InternalError, format!("the VM process was ended by {signal}"))
            }
            other => (EndReason::InternalError, format!("the VM process is gone: {other:?}")),
        };
        Self { reason, detail }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TerminationMessage<'a> {
    reason: EndReason,
    text: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<StartFault>,
    #[serde(skip_serializing_if = "str::is_empty")]
    console: &'a str,
}

/// The place for the message, opened before anything can fail.
#[derive(Debug)]
pub struct TerminationLog(File);

impl TerminationLog {
    /// kubelet has made the file, so it is not made here: in its place there would be nobody to read it.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).open(path).map(Self)
    }

    /// Writes the message, in the place of any other, with the last lines of the console, as far as there is room for them. Once: there
    /// is one end.
    pub fn write(mut self, end: &End, fault: Option<StartFault>, console: &str) -> io::Result<()> {
        // Not when it is opened: a second launcher, which ends at once, must not leave the rest of a longer message.
        self.0.set_len(0)?;
        self.0.write_all(&message(end, fault, console))
    }
}

/// The message of `end`, cut so that all of it fits: first lines of the console, then the detail.
fn message(end: &End, fault: Option<StartFault>, console: &str) -> Vec<u8> {
    let (mut detail, mut console) = (end.detail.as_str(), console);
    loop {
        let (reason, text) = (end.reason, end.reason.text());
        let message = TerminationMessage { reason, text, detail, fault, console };
        let bytes = serde_json::to_vec(&message).unwrap_or_default();
        let Some(excess) = bytes.len().checked_sub(MAX_LENGTH).filter(|excess| *excess > 0) else {
            return bytes;
        };
        // A byte of text takes at most six in JSON.
        let excess = excess.div_ceil(6);
        if console.is_empty() {
            detail = &detail[..detail.floor_char_boundary(detail.len().saturating_sub(excess))];
        } else {
            console = &console[console.ceil_char_boundary(excess)..];
            console = console.split_once('\n').map_or("", |(_, rest)| rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::Pid;

    use super::*;

    fn end(detail: &str) -> End {
        End { reason: EndReason::NotStarted, detail: detail.into() }
    }

    #[test]
    fn message_says_reason_text_and_detail() {
        let text =
            r#"{"reason":"not-started","text":"the VM could not be started","detail":"no kernel"}"#;
        assert_eq!(message(&end("no kernel"), None, ""), text.as_bytes());
    }

    #[test]
    fn message_names_what_kept_a_vm_from_starting() {
        let bytes = message(&end("no kernel"), Some(StartFault::KernelMissing), "");
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["fault"], "kernel-missing");
    }

    #[test]
    fn long_detail_is_cut_and_the_rest_still_reads() {
        for piece in ["x", "\"", "\u{1}", "ä\n"] {
            let bytes = message(&end(&piece.repeat(10_000)), None, "last words");
            assert!((MAX_LENGTH - 12..=MAX_LENGTH).contains(&bytes.len()), "{}", bytes.len());
            let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert!(value["detail"].as_str().unwrap().starts_with(piece));
        }
    }

    #[test]
    fn last_lines_of_the_console_have_what_room_is_left() {
        let console = "Kernel panic - not syncing: \"init\"\n".repeat(50);
        for length in [0, 1000, 3000, 3900, 4090] {
            let detail = "x".repeat(length);
            let bytes = message(&end(&detail), None, &console);
            assert!(bytes.len() <= MAX_LENGTH, "{}", bytes.len());
            let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let kept = value["console"].as_str().unwrap_or_default();
            assert!(console.ends_with(kept) && kept.is_empty() == (length > 3900), "{kept}");
            assert_eq!(value["detail"] == detail.as_str(), length <= 3900);
        }
    }

    #[test]
    fn what_others_wrote_before_or_meanwhile_is_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = TerminationLog::open(file.path()).unwrap();
        std::fs::write(file.path(), "x".repeat(500)).unwrap();
        log.write(&end(""), None, "").unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.ends_with(r#""detail":""}"#), "{text}");
        assert!(TerminationLog::open(Path::new("/nonexistent/log")).is_err());
    }

    #[test]
    fn end_of_a_silent_vm_process_is_told_by_its_status() {
        let pid = Pid::from_raw(7);
        let signaled = |signal| WaitStatus::Signaled(pid, signal, false);
        let cases = [
            (WaitStatus::Exited(pid, 0), false, EndReason::PoweredOff),
            (WaitStatus::Exited(pid, 84), false, EndReason::NotStarted),
            (WaitStatus::Exited(pid, 85), false, EndReason::Forbidden),
            (WaitStatus::Exited(pid, 86), true, EndReason::Crashed),
            (WaitStatus::Exited(pid, 101), false, EndReason::InternalError),
            (signaled(Signal::SIGSYS), true, EndReason::InternalError),
            (signaled(Signal::SIGKILL), false, EndReason::InternalError),
            (signaled(Signal::SIGKILL), true, EndReason::Killed),
        ];
        for (status, killed, reason) in cases {
            assert_eq!(End::by_status(status, killed).reason, reason, "{status:?}");
        }
        let detail = End::by_status(signaled(Signal::SIGSEGV), false).detail;
        assert_eq!(detail, "the VM process was ended by SIGSEGV");
    }
}
