//! Memory that a VMM takes beside that of its guest.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::report::Memory;

/// One mapping of /proc/PID/smaps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    name: String,
    kibibytes: u64,
    pss: u64,
}

/// Proportional set size of process `id` without the mapping of its guest's `memory` bytes.
pub(crate) fn outside_guest(id: Pid, memory: u64) -> Result<Memory> {
    let smaps = fs::read_to_string(format!("/proc/{id}/smaps")).context("cannot read smaps")?;
    let mappings = parse(&smaps).context("smaps is not as proc(5) says")?;
    split(&mappings, memory / 1024)
}

/// Bytes that the guest's `memory` takes of the host: what is allocated of its file, or what is mapped of anonymous memory.
pub(crate) fn guest_pages(id: Pid, memory: u64) -> Result<u64> {
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).context("cannot list descriptors")?;
    for descriptor in descriptors.flatten().map(|entry| entry.path()) {
        let name = fs::read_link(&descriptor).unwrap_or_default();
        if !name.to_string_lossy().starts_with("/memfd:") {
            continue;
        }
        let file = fs::metadata(&descriptor).context("cannot look at guest memory")?;
        if file.len() >= memory {
            return Ok(file.blocks() * 512);
        }
    }
    Ok(outside_guest(id, memory)?.guest * 1024)
}

/// Bytes that it has mapped by huge pages.
pub(crate) fn huge_mappings(id: Pid) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))
        .context("cannot read smaps_rollup")?;
    Ok(huge_of(&rollup) * 1024)
}

fn huge_of(rollup: &str) -> u64 {
    let huge = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let of_huge = matches!(name, "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped");
        value.split_whitespace().next().filter(|_| of_huge)?.parse::<u64>().ok()
    };
    rollup.lines().filter_map(huge).sum()
}

/// A line `ADDRESS-ADDRESS ... NAME` and then lines `Name: N kB` for each mapping.
fn parse(smaps: &str) -> Option<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        match first.strip_suffix(':') {
            Some("Size") => mappings.last_mut()?.kibibytes = words.next()?.parse().ok()?,
            Some("Pss") => mappings.last_mut()?.pss = words.next()?.parse().ok()?,
            Some(_) => {}
            None => {
                let name: Vec<&str> = words.skip(4).collect();
                mappings.push(Mapping { name: name.join(" "), kibibytes: 0, pss: 0 });
            }
        }
    }
    Some(mappings)
}

/// The guest's memory is the one mapping as large as that, or those of one file that add up to it.
fn split(mappings: &[Mapping], guest: u64) -> Result<Memory> {
    let mut of_file: BTreeMap<&str, u64> = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| !mapping.name.is_empty()) {
        *of_file.entry(&mapping.name).or_default() += mapping.kibibytes;
    }
    let is_guest = |mapping: &Mapping| {
        mapping.kibibytes >= guest || of_file.get(&*mapping.name).is_some_and(|sum| *sum >= guest)
    };
    if !mappings.iter().any(is_guest) {
        bail!("no mapping is as large as guest memory ({guest} KiB)");
    }
    let (inside, outside): (Vec<&Mapping>, Vec<&Mapping>) =
        mappings.iter().partition(|mapping| is_guest(mapping));
    let sum = |mappings: &[&Mapping]| mappings.iter().map(|mapping| mapping.pss).sum();
    let mut parts = BTreeMap::new();
    for mapping in outside.iter().filter(|mapping| mapping.pss > 0) {
        *parts.entry(part(&mapping.name)).or_default() += mapping.pss;
    }
    Ok(Memory { guest: sum(&inside), outside: sum(&outside), parts })
}

/// What mappings are called that belong together: the file without its directory.
fn part(name: &str) -> String {
    match name {
        "" => "anonymous".into(),
        name => name.rsplit('/').next().unwrap_or(name).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0020000000 rw-s 00000000 00:01 5    /memfd:guest (deleted)
Size:             524288 kB
Pss:               99000 kB
Pss_Dirty:         98000 kB
VmFlags: rd wr
7f0030000000-7f0030010000 rw-p 00000000 00:00 0
Size:                 64 kB
Pss:                  40 kB
7f0040000000-7f0040100000 r-xp 00000000 08:01 77   /usr/bin/a program
Size:               1024 kB
Pss:                 500 kB
";

    fn mapping(name: &str, kibibytes: u64, pss: u64) -> Mapping {
        Mapping { name: name.into(), kibibytes, pss }
    }

    #[test]
    fn guest_memory_is_left_out_and_the_rest_named() {
        let memory = split(&parse(SMAPS).unwrap(), 524_288).unwrap();
        assert_eq!((memory.guest, memory.outside), (99_000, 540));
        let parts: Vec<_> = memory.parts.iter().map(|(name, pss)| (name.as_str(), *pss)).collect();
        assert_eq!(parts, [("a program", 500), ("anonymous", 40)]);
    }

    #[test]
    fn guest_memory_in_two_mappings_of_one_file_is_left_out() {
        let mappings =
            [mapping("/memfd:ram", 300, 7), mapping("/memfd:ram", 212, 8), mapping("", 400, 9)];
        let memory = split(&mappings, 512).unwrap();
        assert_eq!((memory.guest, memory.outside), (15, 9));
    }

    #[test]
    fn huge_pages_of_all_kinds_are_added_up() {
        let rollup = "5-7 ---p 00 00:00 0 [rollup]\nRss: 9 kB\nAnonHugePages: 2048 kB\nShmemPmdMapped: 4096 kB\n";
        assert_eq!(huge_of(rollup), 6144);
    }

    #[test]
    fn process_without_guest_memory_is_an_error() {
        let error = split(&[mapping("", 400, 9)], 512).unwrap_err();
        assert!(error.to_string().contains("512 KiB"), "{error}");
    }
}
