//! All volumes of the disks that are looked at.

use std::io;

use super::entry::shown;
use super::filesystem::{FileSystem, identify};
use super::partitions::{self, Partition, Purpose, Scheme};
use super::source::{Budget, Source, Window};

/// A disk to look for a system on.
pub struct Candidate<'a> {
    /// What its user calls it.
    pub name: String,
    /// Bytes of a sector, as its guest finds them.
    pub sector: u32,
    /// Its content.
    pub content: &'a dyn Source,
}

/// A place for a file system.
pub(super) struct Volume<'a> {
    /// Number of its disk.
    pub(super) disk: usize,
    pub(super) scheme: Scheme,
    pub(super) partition: Partition,
    /// What can be read, or what it is instead.
    pub(super) content: Result<FileSystem<'a>, String>,
}

impl Volume<'_> {
    /// Where it is, for people.
    pub(super) fn place(&self) -> String {
        match self.partition.number {
            0 => "the whole disk".into(),
            number => format!("partition {number}"),
        }
    }
}

/// All of them: those of the first disk first, and among those of a disk what is most likely to be booted from.
pub(super) struct Volumes<'a> {
    pub(super) disks: Vec<(String, Result<Scheme, io::Error>)>,
    pub(super) volumes: Vec<Volume<'a>>,
}

impl<'a> Volumes<'a> {
    /// Looks what is on the disks.
    pub(super) fn open(candidates: &'a [Candidate<'a>], budget: &'a Budget) -> Self {
        let mut found = Self { disks: Vec::new(), volumes: Vec::new() };
        for (disk, candidate) in candidates.iter().enumerate() {
            let whole = Window::whole(candidate.content, budget);
            let scheme = match partitions::read(&whole, candidate.sector.max(512).into()) {
                Ok((scheme, partitions)) => {
                    let volume = |partition| volume(&whole, (disk, scheme), partition);
                    found.volumes.extend(partitions.into_iter().map(volume));
                    Ok(scheme)
                }
                Err(error) => Err(error),
            };
            found.disks.push((candidate.name.clone(), scheme));
        }
        found
    }

    /// Those that can be read, by number.
    pub(super) fn readable(&self) -> impl Iterator<Item = (usize, &FileSystem<'a>)> {
        let all = self.volumes.iter().enumerate();
        all.filter_map(|(number, volume)| Some((number, volume.content.as_ref().ok()?)))
    }

    pub(super) fn files(&self, volume: usize) -> Option<&FileSystem<'a>> {
        self.volumes.get(volume)?.content.as_ref().ok()
    }

    /// What GRUB calls a volume.
    pub(super) fn device(&self, volume: usize) -> String {
        let Some(Volume { disk, scheme, partition, .. }) = self.volumes.get(volume) else {
            return String::new();
        };
        match scheme {
            Scheme::Whole => format!("hd{disk}"),
            Scheme::Mbr => format!("hd{disk},msdos{}", partition.number),
            Scheme::Gpt | Scheme::GptBackup => format!("hd{disk},gpt{}", partition.number),
        }
    }

    /// The volume that GRUB calls so.
    pub(super) fn by_device(&self, name: &str) -> Option<usize> {
        let (disk, partition) = name.split_once(',').unwrap_or((name, ""));
        let disk: usize = disk.strip_prefix("hd")?.parse().ok()?;
        let number = partition.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
        let number: u32 = if partition.is_empty() { 0 } else { number.parse().ok()? };
        let is_it = |volume: &Volume<'_>| volume.disk == disk && volume.partition.number == number;
        self.volumes.iter().position(is_it)
    }

    pub(super) fn by_uuid(&self, uuid: &str) -> Option<usize> {
        let is_it = |files: &FileSystem<'_>| files.uuid().eq_ignore_ascii_case(uuid);
        self.readable().find(|(_, files)| is_it(files)).map(|(number, _)| number)
    }

    pub(super) fn by_label(&self, label: &str) -> Option<usize> {
        self.readable().find(|(_, files)| files.label() == label).map(|(number, _)| number)
    }

    pub(super) fn by_file(&self, path: &str) -> Option<usize> {
        let has_it = |files: &FileSystem<'_>| files.is_file(path) || files.is_directory(path);
        self.readable().find(|(_, files)| has_it(files)).map(|(number, _)| number)
    }

    /// What there is on the disks, a line for each disk and volume.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, (name, scheme)) in self.disks.iter().enumerate() {
            lines.push(match scheme {
                Ok(scheme) => format!("disk {}: {}", shown(name), scheme.name()),
                Err(error) => format!("disk {}: cannot be read: {error}", shown(name)),
            });
            for volume in self.volumes.iter().filter(|volume| volume.disk == number) {
                let what = match &volume.content {
                    Ok(files) => {
                        let without = format!("{}, without a boot entry that works", files.kind());
                        let troubles = files.troubles().into_iter();
                        [without].into_iter().chain(troubles).collect::<Vec<_>>().join("; ")
                    }
                    Err(what) => what.clone(),
                };
                lines.push(format!("  {}: {what}", volume.place()));
            }
        }
        lines
    }
}

fn volume<'a>(
    disk: &Window<'a>,
    (number, scheme): (usize, Scheme),
    partition: Partition,
) -> Volume<'a> {
    let content = match disk.part(partition.start, partition.size) {
        Some(_) if partition.purpose == Purpose::Reserved => Err("not for files".into()),
        Some(window) => look(window),
        None => Err("outside of the disk".into()),
    };
    Volume { disk: number, scheme, partition, content }
}

fn look(window: Window<'_>) -> Result<FileSystem<'_>, String> {
    let failed = |error: &dyn std::error::Error| match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    // Encrypted volumes and parts of others may still have what a file system left there.
    let known = identify(&window).map_err(|error| failed(&error))?;
    if let Some(what) = known {
        return Err(format!("{what}: not read here, boot files have to be on ext4 or FAT"));
    }
    match FileSystem::open(window) {
        Ok(Some(files)) => Ok(files),
        Ok(None) => Err("of no kind that is known here".into()),
        Err(error) => Err(failed(&error)),
    }
}
