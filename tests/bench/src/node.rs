//! The part of a benchmark that runs in a node of the lab: this program, started there.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;

use crate::vmm::{Choice, Programs};

/// An hour: ten rounds of four boots take ten minutes on a quiet machine, and each boot has its own limit.
const TIME_LIMIT: &str = "3600";

/// What was said on the command line of all parts alike.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Whether it is a short run.
    pub quick: bool,
    /// Only machines with this in the name of their variant.
    pub variant: Option<&'a str>,
}

/// Runs the part of that name in a fresh node with these assets of the lab's, whose program is `lab`.
pub fn run<T: DeserializeOwned>(
    lab: &Path,
    (part, assets): (&str, &[&str]),
    against: &[Choice],
    programs: &Programs,
    options: Options<'_>,
) -> Result<T> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(lab);
    command.args(["run", "--time-limit", TIME_LIMIT]);
    for asset in assets {
        command.args(["--asset", asset]);
    }
    for directory in directories(against)? {
        command.arg("--share").arg(directory);
    }
    command.arg("--").arg(own).args(["in-node", part]);
    command.arg("--corten").arg(&programs.corten);
    // The node has its own.
    command.arg("--qemu").arg("qemu-system-x86_64");
    if options.quick {
        command.arg("--quick");
    }
    if let Some(variant) = options.variant {
        command.args(["--variant", variant]);
    }
    for choice in against {
        command.arg("--against").arg(choice.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: between fork and exec only a system call is made, which is allowed there.
    unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGTERM)?)) };
    let mut child =
        command.spawn().with_context(|| format!("cannot start the lab {}", lab.display()))?;
    let mut output = String::new();
    let mut stdout = child.stdout.take().context("no output of the lab")?;
    let read = stdout.read_to_string(&mut output);
    let status = child.wait()?;
    ensure!(status.success(), "the part in the node failed: {status}");
    read.context("cannot read what the node says")?;
    let last = output.lines().next_back().context("the node says nothing")?;
    serde_json::from_str(last).context("the node's result cannot be read")
}

/// Where programs lie that the lab does not share by itself.
fn directories(against: &[Choice]) -> Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for program in against.iter().filter_map(|choice| choice.program.as_ref()) {
        let program =
            program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
        directories.extend(program.parent().map(Path::to_owned));
    }
    directories.sort();
    directories.dedup();
    Ok(directories)
}
