//! Logs of each run, kept when the cluster is gone.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use corten_lab::cache::Cache;
use time::OffsetDateTime;
use time::macros::format_description;

/// Logs of that many runs are kept.
const RUNS: usize = 5;

/// A new directory for the logs of this run; the oldest goes.
pub fn directory(cache: &Cache) -> Result<PathBuf> {
    let all = cache.root().join("cluster-logs");
    fs::create_dir_all(&all)?;
    let format = format_description!("[year]-[month]-[day]T[hour]-[minute]-[second]");
    let name = OffsetDateTime::now_utc().format(&format)?;
    // Two in one second: the name is unique by the process, too.
    let directory = all.join(format!("{name}-{}", std::process::id()));
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut runs: Vec<PathBuf> = fs::read_dir(&all)?.flatten().map(|entry| entry.path()).collect();
    // Names are times, so their order is that of the runs.
    runs.sort();
    for old in &runs[..runs.len().saturating_sub(RUNS)] {
        let _ = fs::remove_dir_all(old);
    }
    Ok(directory)
}
