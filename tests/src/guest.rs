//! Linux guests for tests that run in a node, where `--asset` says by the environment where things are.

use std::fs::File;
use std::io::Write;

use anyhow::Result;
use corten_vmm::arch::x86_64::boot::BootSource;

use crate::process::asset;

/// The 6.12 kernel with an initramfs that does what the command line says; see tests/lab/guest/init.
pub fn source(command_line: &str) -> Result<BootSource> {
    Ok(BootSource {
        kernel: asset("CORTEN_ASSET_KERNEL_6_12", "vmlinux")?,
        initrd: Some(asset("CORTEN_ASSET_GUEST_INITRD_6_12", "initrd")?),
        command_line: format!("console=ttyS0 mitigations=off {command_line}"),
    })
}

/// A disk with a script for the guest to run, padded: Linux looks for partition tables in the first sectors, and
/// complains if they are not there.
pub fn script_disk(script: &str) -> Result<File> {
    let mut bytes = script.as_bytes().to_vec();
    bytes.resize(64 << 10, 0);
    let mut file = tempfile::tempfile()?;
    file.write_all(&bytes)?;
    Ok(file)
}
