//! From an entry to files in memory that the machine's loader takes.

use std::fs::File;
use std::io::{self, Write};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::entry::{BootEntry, Place};
use super::filesystem::ReadError;
use super::volumes::Volumes;
use crate::arch::x86_64::boot::BootSource;

/// Initial RAM disks are archives that begin at a multiple of this (Documentation/driver-api/early-userspace/buffer-format.rst).
const ALIGNMENT: u64 = 4;

/// No kernel is larger, and no initial RAM disks together are: for a moment they are in memory twice.
const MAX_KERNEL: u64 = 256 << 20;
const MAX_INITRDS: u64 = 1 << 30;

/// Reads kernel and initial RAM disks, which have at most `limit` bytes each; or says why not.
pub(super) fn load(
    volumes: &Volumes<'_>,
    entry: &BootEntry,
    limit: u64,
) -> Result<BootSource, String> {
    let mut kernel = memory_file("kernel")?;
    append(volumes, &entry.kernel, limit.min(MAX_KERNEL), &mut kernel)
        .map_err(|why| format!("the kernel: {why}"))?;
    let initrd = match entry.initrds.as_slice() {
        [] => None,
        initrds => {
            let mut file = memory_file("initrd")?;
            let mut length = 0;
            for initrd in initrds {
                let padding = length % ALIGNMENT;
                if padding > 0 {
                    let zeroes = [0; 4];
                    let zeroes = &zeroes[usize::try_from(padding).unwrap_or(0)..];
                    file.write_all(zeroes).map_err(|error| error.to_string())?;
                    length += zeroes.len() as u64;
                }
                let room = limit.min(MAX_INITRDS).saturating_sub(length);
                let failed = |why| format!("the initial RAM disk {}: {why}", initrd.path);
                length += append(volumes, initrd, room, &mut file).map_err(failed)?;
            }
            Some(file)
        }
    };
    Ok(BootSource { kernel, initrd, command_line: with_console(&entry.command_line) })
}

fn append(
    volumes: &Volumes<'_>,
    place: &Place,
    limit: u64,
    file: &mut File,
) -> Result<u64, String> {
    let files = volumes.files(place.volume).ok_or("its volume cannot be read")?;
    let copied = files.copy(&place.path, limit, &mut |chunk| file.write_all(chunk));
    copied.map_err(|error| match error {
        ReadError::TooLarge { size, limit } => {
            format!(
                "it has {size} bytes, and there is room for {limit}: give the guest more memory"
            )
        }
        ReadError::Disk(error) => format!("it cannot be read: {error}"),
        other => other.to_string(),
    })
}

fn memory_file(name: &str) -> Result<File, String> {
    let file = memfd_create(name, MFdFlags::MFD_CLOEXEC);
    let file = file.map_err(|error| format!("no memory for it: {}", io::Error::from(error)))?;
    Ok(file.into())
}

/// A guest that is told of no console at all is given the one that everybody looks at.
fn with_console(command_line: &str) -> String {
    if command_line.split_whitespace().any(|word| word.starts_with("console=")) {
        return command_line.into();
    }
    format!("{command_line} console=ttyS0").trim_start().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_is_added_only_where_there_is_none() {
        assert_eq!(with_console("root=x quiet"), "root=x quiet console=ttyS0");
        assert_eq!(with_console(""), "console=ttyS0");
        assert_eq!(with_console("console=tty0 ro"), "console=tty0 ro");
    }
}
