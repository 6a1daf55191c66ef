//! Disks in QEMU's own format.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Makes `path` a disk that holds what is written to it, over `base` (and its format), which stays as it is.
pub fn layer((base, format): (&Path, &str), path: &Path) -> Result<PathBuf> {
    let output = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", format, "-b"])
        .args([base, path])
        .output()
        .context("cannot run qemu-img (Debian package qemu-utils)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot make the disk {}: {}", path.display(), said.trim());
    Ok(path.to_owned())
}
