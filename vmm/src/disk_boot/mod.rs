//! Boot without firmware: finds what a disk's own boot loader would have booted, and loads it.
//!
//! ```text
//! disks ─▶ partitions ─▶ file systems ─▶ entries: Boot Loader Specification, GRUB, extlinux ─▶ kernel, initrd, arguments
//!          GPT, MBR      ext4, FAT       (the default first, then the others)                  in memory files
//! ```
//!
//! Everything is read through the descriptors that the machine's disks are on, in the owner's thread, after the process
//! was locked in, anew at every boot and reset: a guest that has written itself another kernel gets it. Nothing is
//! written. What cannot be booted is passed over, and whoever asks is told why.
//!
//! All that is read was written by somebody else, who may be hostile. The readers take no number for granted; what is
//! allocated goes by limits of ours; a budget of bytes ends a search that leads nowhere. docs/disk-boot.md says what is
//! looked for and in which order.

mod bls;
mod checksum;
mod entry;
mod extlinux;
mod filesystem;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod grub;
mod load;
mod partitions;
mod search;
mod source;
#[cfg(any(test, feature = "fuzz"))]
mod testing;
mod version;
mod volumes;

use crate::arch::x86_64::boot::BootSource;
use corten_link::BootOrigin;
use entry::{BootEntry, shown};
use source::Budget;
pub use source::Source;
pub use volumes::Candidate;
use volumes::Volumes;

/// What may be read to find something, in bytes.
const BUDGET: u64 = 1 << 30;
/// Entries that are tried.
const MAX_TRIES: usize = 16;
/// What is told at most, in bytes: it has to fit into a message, and is for people.
const MAX_REASONS: usize = 8 << 10;

/// What became of a kernel that was found.
pub enum Attempt<T> {
    /// It is loaded.
    Loaded(T),
    /// It is none for this machine, for this reason.
    Unusable(String),
}

/// What came of a search.
#[derive(Debug)]
pub enum Found<T> {
    /// Something is loaded.
    System {
        /// What the attempt gave.
        loaded: T,
        /// Where it was.
        origin: BootOrigin,
    },
    /// Nothing can be booted.
    Nothing {
        /// What there is instead, a line each.
        reasons: Vec<String>,
    },
}

/// Looks for something to boot on `disks`, in their order, and has `attempt` try what is found until something is
/// loaded. Kernels and initial RAM disks of more than `memory` bytes are not.
pub fn find<T, E>(
    disks: &[Candidate<'_>],
    memory: u64,
    mut attempt: impl FnMut(&mut BootSource) -> Result<Attempt<T>, E>,
) -> Result<Found<T>, E> {
    if disks.is_empty() {
        let reasons = vec!["there is no disk to boot from".into()];
        return Ok(Found::Nothing { reasons });
    }
    let budget = Budget::new(BUDGET);
    let volumes = Volumes::open(disks, &budget);
    let mut passed_over = Vec::new();
    let mut tried: Vec<BootEntry> = Vec::new();
    'search: for volume in 0..volumes.volumes.len() {
        for entry in search::entries(&volumes, volume, &mut passed_over) {
            if tried.contains(&entry) {
                continue;
            }
            if tried.len() >= MAX_TRIES {
                break 'search;
            }
            let tell = |why: String| format!("{}: {}", describe(&volumes, &entry), shown(&why));
            match load::load(&volumes, &entry, memory) {
                Ok(mut source) => match attempt(&mut source)? {
                    Attempt::Loaded(loaded) => {
                        let origin = origin(&volumes, &entry, passed_over);
                        return Ok(Found::System { loaded, origin });
                    }
                    Attempt::Unusable(why) => passed_over.push(tell(why)),
                },
                Err(why) => passed_over.push(tell(why)),
            }
            tried.push(entry);
        }
    }
    let mut reasons = volumes.describe();
    reasons.extend(passed_over);
    Ok(Found::Nothing { reasons: bounded(reasons) })
}

fn describe(volumes: &Volumes<'_>, entry: &BootEntry) -> String {
    let volume = volumes.volumes.get(entry.kernel.volume);
    let (disk, place) = volume.map_or((0, String::new()), |volume| (volume.disk, volume.place()));
    let disk = volumes.disks.get(disk).map_or("", |(name, _)| name);
    let (title, path) = (shown(&entry.title), shown(&entry.kernel.path));
    format!("{title:?} with {path} on {place} of disk {disk}")
}

/// As many of them as are told.
fn bounded(mut reasons: Vec<String>) -> Vec<String> {
    let mut length = 0;
    let mut fits = |reason: &String| {
        length += reason.len();
        length <= MAX_REASONS
    };
    let told = reasons.iter().take_while(|reason| fits(reason)).count();
    let left = reasons.len() - told;
    reasons.truncate(told);
    if left > 0 {
        reasons.push(format!("and {left} more"));
    }
    reasons
}

fn origin(volumes: &Volumes<'_>, entry: &BootEntry, passed_over: Vec<String>) -> BootOrigin {
    let volume = volumes.volumes.get(entry.kernel.volume);
    let disk = volume.and_then(|volume| volumes.disks.get(volume.disk));
    BootOrigin::Disk {
        disk: disk.map(|(name, _)| name.clone()).unwrap_or_default(),
        partition: volume.map_or(0, |volume| volume.partition.number),
        kernel: shown(&entry.kernel.path),
        title: shown(&entry.title),
        passed_over: bounded(passed_over),
    }
}

#[cfg(test)]
mod tests;
