//! Whether a node VM on the machine's KVM has a KVM of its own: tried once in the life of a machine.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::cache::Cache;

/// Whether it was not yet found that it does not.
pub fn may_work(cache: &Cache) -> bool {
    mark(cache).is_ok_and(|mark| !mark.exists())
}

/// Spares the next runs the attempt.
pub fn remember_failure(cache: &Cache) -> Result<()> {
    fs::write(mark(cache)?, "")?;
    Ok(())
}

fn mark(cache: &Cache) -> Result<PathBuf> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(cache.root().join(format!("no-nesting-{}", boot.trim())))
}
