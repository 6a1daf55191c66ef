//! `boot`: from the start of a VMM to the first sign of its guest.
//!
//! Two parts. Stock Linux to its user space needs a KVM that runs ordinary code, so it is measured in a node. The
//! microguest's first byte shows what a VMM itself takes to start, and any KVM will do for it: it is measured on this
//! machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::machine::{Kvm, Machine};
use crate::measure::{self, Rounds, Subject};
use crate::report::{Goal, PartReport};
use crate::vmm::{Choice, Guest, Programs, StopAt};

const MEMORY: u64 = 512 << 20;
const LINUX_COMMAND_LINE: &str = "console=ttyS0 quiet mitigations=off corten.end=idle";
/// What the lab's guest says first; see tests/lab/guest/init.
const USERSPACE_IS_UP: &str = "CORTEN-GUEST-UP";
const MICROGUEST_IS_UP: &str = "microguest by PVH entry";

/// Kernel forms: ELF by its PVH entry, and bzImage.
const FORMS: [&str; 2] = ["vmlinux", "vmlinuz"];

/// A Firecracker of 2026 has 3.15 MiB.
const MEMORY_GOAL: Goal = Goal::Memory { at_most: 3072 };

/// What is compared unless somebody says otherwise.
pub const LINUX_AGAINST: [&str; 2] = ["corten", "qemu-q35"];
/// The same for the microguest.
pub const MICROGUEST_AGAINST: [&str; 2] = ["corten", "qemu-microvm"];

/// Assets of the lab that the Linux part boots.
pub const ASSETS: [&str; 2] = ["kernel-6.12", "guest-initrd-6.12"];

/// Boots stock Linux under each of `against`, from files of the lab's assets. To be called in a node.
pub fn linux(
    against: &[Choice],
    programs: &Programs,
    (kernel, initrd): (&Path, &Path),
    quick: bool,
) -> Result<PartReport> {
    let huge_pages = huge_pages_on_advice()?;
    // What comes over 9p is copied to memory, or that would be measured.
    let directory = TempDir::new().context("cannot make a directory for copies")?;
    let initrd = copy(initrd, directory.path(), "initrd")?;
    // A short run has time for one form: the one that all VMMs here take without unpacking it first.
    let forms = if quick { &FORMS[..1] } else { &FORMS };
    let mut subjects = Vec::new();
    let programs = copies(against, programs, directory.path())?;
    for form in forms {
        let guest = Guest {
            kernel: copy(&kernel.join(form), directory.path(), form)?,
            initrd: Some(initrd.clone()),
            command_line: LINUX_COMMAND_LINE.into(),
            cpus: 1,
            memory: MEMORY,
            mark: USERSPACE_IS_UP.into(),
            stop_at: StopAt::Mark,
            devices: None,
        };
        subjects.extend(against.iter().zip(&programs).map(|(choice, program)| Subject {
            vmm: choice.vmm(program),
            guest: guest.clone(),
            image: (*form).into(),
        }));
    }
    let rounds = if quick {
        Rounds { timed: 3, counted: 1, limit: Some(Duration::from_secs(200)) }
    } else {
        Rounds { timed: 10, counted: 3, limit: None }
    };
    let version = fs::read_to_string(kernel.join("version")).unwrap_or_default();
    Ok(PartReport {
        title: "start of the VMM to the guest's user space".into(),
        machine: Machine::this()?,
        kvm: Kvm::of_this_machine(),
        guest: format!(
            "Linux {}, 1 vCPU, 512 MiB, \"{LINUX_COMMAND_LINE}\", the lab's initramfs; up to {USERSPACE_IS_UP:?} on its serial port; {huge_pages}",
            version.trim()
        ),
        series: measure::series(&subjects, rounds)?,
        goals: vec![Goal::Time { against: "qemu-q35".into(), at_most: 0.5 }, MEMORY_GOAL],
    })
}

/// Sets the node up as Corten's nodes are: a file in memory has huge pages where a program advises it. Anonymous memory,
/// which other VMMs use, has that by the kernel's default.
pub(crate) fn huge_pages_on_advice() -> Result<String> {
    let setting = |kind: &str| format!("/sys/kernel/mm/transparent_hugepage/{kind}");
    fs::write(setting("shmem_enabled"), "advise")
        .context("cannot allow huge pages in files in memory")?;
    let anonymous = fs::read_to_string(setting("enabled"))?;
    let chosen = anonymous.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    Ok(format!("huge pages: on advice in files in memory, {chosen} in anonymous memory"))
}

/// Boots the microguest under each of `against`, on this machine's KVM.
pub fn microguest(against: &[Choice], programs: &Programs) -> Result<PartReport> {
    let directory = TempDir::new().context("cannot make a directory for the microguest")?;
    let kernel = directory.path().join("microguest");
    fs::write(&kernel, corten_microguest::ELF).context("cannot write the microguest")?;
    let guest = Guest {
        kernel,
        initrd: None,
        command_line: "hello".into(),
        cpus: 1,
        memory: MEMORY,
        mark: MICROGUEST_IS_UP.into(),
        stop_at: StopAt::FirstByte,
        devices: None,
    };
    let subject = |choice: &Choice| Subject {
        vmm: choice.vmm(choice.program(programs)),
        guest: guest.clone(),
        image: "microguest".into(),
    };
    let subjects: Vec<Subject> = against.iter().map(subject).collect();
    Ok(PartReport {
        title: "start of the VMM to the guest's first byte".into(),
        machine: Machine::this()?,
        kvm: Kvm::of_this_machine(),
        guest: "the microguest by its PVH entry, 1 vCPU, 512 MiB; up to the first byte on its serial port".into(),
        // A run takes a fraction of a second.
        series: measure::series(&subjects, Rounds { timed: 10, counted: 1, limit: None })?,
        goals: vec![Goal::Time { against: "qemu-microvm".into(), at_most: 0.15 }, MEMORY_GOAL],
    })
}

/// The programs to run: copies in memory of those that are one file.
pub(crate) fn copies(
    against: &[Choice],
    programs: &Programs,
    directory: &Path,
) -> Result<Vec<PathBuf>> {
    let copied = |(number, choice): (usize, &Choice)| {
        let program = choice.program(programs);
        if choice.is_one_file() {
            copy(program, directory, &format!("vmm-{number}"))
        } else {
            Ok(program.to_owned())
        }
    };
    against.iter().enumerate().map(copied).collect()
}

pub(crate) fn copy(file: &Path, directory: &Path, name: &str) -> Result<PathBuf> {
    let to = directory.join(name);
    fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(to)
}
