//! Threads of another process, by name.

use std::fs;

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// How the names of the kernel's own threads begin.
const KERNEL: [&str; 3] = ["iou-", "kvm-", "vhost-"];

/// Names and numbers of a process's threads, without those that the kernel runs for its rings and for its VM: they are
/// in no program, and do not stop for a tracer.
pub fn threads(process: u32) -> Result<Vec<(String, Pid)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let entry = entry?;
        // It may have ended meanwhile.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let number = entry.file_name().to_str().context("threads have numbers")?.parse()?;
        threads.push((name.trim_end().to_owned(), Pid::from_raw(number)));
    }
    threads.retain(|(name, _)| !KERNEL.iter().any(|prefix| name.starts_with(prefix)));
    Ok(threads)
}

/// The thread of this name.
pub fn thread(process: u32, name: &str) -> Result<Pid> {
    let found = threads(process)?.into_iter().find(|(other, _)| other == name);
    let found = found.with_context(|| format!("the process {process} has no thread {name}"))?;
    Ok(found.1)
}
