//! First process of a lab node; see [`corten_lab::agent`].

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use corten_lab::{agent, cage};

fn main() -> ExitCode {
    let outcome = if std::process::id() == 1 { machine() } else { helper() };
    outcome.unwrap_or_else(|error| {
        eprintln!("lab: {error:#}");
        ExitCode::from(125)
    })
}

/// Init of a VM node. It never returns: the kernel would panic without saying why.
fn machine() -> Result<ExitCode> {
    let outcome = agent::boot().and_then(|port| agent::serve(port, true));
    let reason = outcome.map_or_else(|error| format!("{error:#}"), |()| "the agent ended".into());
    agent::fail(&reason)
}

fn helper() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|word| word.to_str()) {
        Some("direct") => {
            let number = arguments.next().and_then(|text| text.to_str()?.parse().ok());
            let kept: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
            direct(number.context("no descriptor is given")?, &kept)
        }
        Some("cage") => cage::main(arguments),
        _ => bail!("corten-lab-node is started by the lab only"),
    }
}

fn direct(port: RawFd, kept: &[PathBuf]) -> Result<ExitCode> {
    // SAFETY: the lab passes one descriptor by number and this program uses it nowhere else.
    let port = unsafe { OwnedFd::from_raw_fd(port) };
    agent::enter_direct(kept, || agent::serve(port, false))
}
