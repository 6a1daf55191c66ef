//! `memory`: what a VM takes of the host beside its guest's pages, with all devices.
//!
//! A guest is looked at four times: idle, with memory written and devices used, when it has freed that memory, and when the
//! balloon has taken most of it back. What counts is what the kernel charges to the VMM's control group, page tables
//! included, less what the guest's own pages take.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::measure::cgroup::Cgroup;
use crate::measure::{Subject, memory, process};
use crate::report::{Figure, FigureGoal, FigureReport};
use crate::scripted::{Session, Variant, Workbench};
use crate::vmm::{Choice, Programs};

/// What is compared unless somebody says otherwise.
pub const AGAINST: [&str; 2] = ["corten", "qemu-q35"];
/// Assets of the lab that it needs.
pub const ASSETS: [&str; 2] = ["kernel-6.12", "guest-initrd-6.12"];

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
/// KiB: mappings of less are not told by name.
const LARGE_PART: u64 = 200;
/// What the guest keeps when the balloon is full.
const LEFT: u64 = 256;
/// An idle guest is idle at once, unless the host is overloaded.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
/// A balloon of 2 GiB is filled in half a minute in an emulated guest.
const STEADY_LIMIT: Duration = Duration::from_secs(120);
const STEADY: Duration = Duration::from_secs(2);

/// Machines by the memory that is written in them.
const VARIANTS: [(u64, Variant); 4] = [
    (512, variant("512 MiB", 768, false)),
    (2048, variant("2 GiB", 2560, false)),
    (512, variant("512 MiB huge", 768, true)),
    (2048, variant("2 GiB huge", 2560, true)),
];
const HUGE_PAGES: &str =
    "huge pages: none, or by the VMM itself, or in anonymous memory by the kernel's default (huge)";

const fn variant(name: &'static str, mebibytes: u64, huge_pages: bool) -> Variant {
    Variant { name, mebibytes, vhost: false, huge_pages }
}

fn script(mebibytes: u64) -> String {
    format!(
        r"
step IDLE
mkdir -p /tmp/m
mount -t tmpfs -o size=100% m /tmp/m
dd if=/dev/zero of=/tmp/m/used bs=1M count={mebibytes} 2>/dev/null
dd if=/dev/vdb of=/dev/null bs=64k iflag=direct 2>/dev/null
dd if=/dev/zero of=/dev/vdb bs=64k count=64 oflag=direct conv=notrunc 2>/dev/null
dd if=/dev/hwrng of=/dev/null bs=64 count=8 2>/dev/null
ping -c 20 -i 0.1 -s 1400 10.100.0.1 >/dev/null
step TOUCHED
rm /tmp/m/used
step FREED
"
    )
}

/// Looks at each of `against` in all states. To be called in a node.
pub fn memory(
    against: &[Choice],
    programs: &Programs,
    files: (&Path, &Path),
    (quick, only): (bool, Option<&str>),
) -> Result<FigureReport> {
    let bench = Workbench::new(against, programs, files, HUGE_PAGES)?;
    let data = bench.data("data", 16 << 20)?;
    let mut subjects = Vec::new();
    let mut goals = Vec::new();
    // "2 GiB" is a name, and a part of another.
    let is_a_name = VARIANTS.iter().any(|(_, variant)| Some(variant.name) == only);
    let wanted = |name: &str| {
        only.is_none_or(|only| if is_a_name { name == only } else { name.contains(only) })
    };
    for (touched, variant) in VARIANTS.into_iter().filter(|(_, variant)| wanted(variant.name)) {
        for (number, choice) in against.iter().enumerate() {
            let disks = std::slice::from_ref(&data);
            subjects.push(bench.subject(number, choice, variant, &script(touched), disks)?);
            if choice.is_one_file() && !variant.huge_pages {
                goals.extend(goals_of(choice, variant));
            }
        }
    }
    let title = "memory of a VM with all devices beside its guest's";
    let runs = if quick { 1 } else { 3 };
    let mut report = bench.report(title, &subjects, runs, run)?;
    report.goals = goals;
    Ok(report)
}

/// At most 4 MiB of PSS; at most 16 MiB and a 256th of the guest's memory in all, which is what page tables of small pages
/// take in the process and in KVM.
fn goals_of(choice: &Choice, variant: Variant) -> Vec<FigureGoal> {
    let whole = 16.0 * MIB + (variant.mebibytes << 20) as f64 / 256.0;
    let goal = |figure: String, at_most: f64| FigureGoal {
        vmm: choice.name().into(),
        variant: variant.name.into(),
        figure,
        at_most,
    };
    let both = |state: &str| {
        [
            goal(format!("{state}: PSS outside guest memory, KiB"), 4096.0),
            goal(format!("{state}: charged beside guest pages, KiB"), whole / KIB),
        ]
    };
    ["idle", "touched", "ballooned"].iter().flat_map(|state| both(state)).collect()
}

/// Anonymous memory, which QEMU uses, has huge pages or not; files in memory, which Corten uses, only those that it makes
/// itself.
fn set_huge_pages(wanted: bool) -> Result<()> {
    let setting = |kind: &str| format!("/sys/kernel/mm/transparent_hugepage/{kind}");
    let set = fs::write(setting("shmem_enabled"), "never")
        .and_then(|()| fs::write(setting("enabled"), if wanted { "always" } else { "never" }));
    set.context("cannot choose huge pages")
}

fn run(subject: &Subject) -> Result<Vec<Figure>> {
    let wanted = subject.guest.devices.as_ref().is_some_and(|devices| devices.huge_pages);
    set_huge_pages(wanted)?;
    let cgroup = Cgroup::new()?;
    let mut started = cgroup.start_in(|| subject.vmm.start(&subject.guest))?;
    let mut session = Session::new(&mut started)?;
    let mut figures = Vec::new();
    let size = subject.guest.memory;
    for (word, state) in [("IDLE", "idle"), ("TOUCHED", "touched"), ("FREED", "freed")] {
        session.wait_for(word)?;
        settle(&mut session, size)?;
        figures.extend(look(&mut session, &cgroup, state, size)?);
        session.go()?;
    }
    session.peer.control.set_balloon(size - (LEFT << 20))?;
    settle(&mut session, size)?;
    figures.extend(look(&mut session, &cgroup, "ballooned", size)?);
    drop(started);
    Ok(figures)
}

/// Waits until it has next to nothing to do, and neither guest pages nor huge pages become more or fewer.
fn settle(session: &mut Session<'_>, size: u64) -> Result<()> {
    let id = session.process.id();
    let deadline = Instant::now() + STEADY_LIMIT;
    let state = |session: &mut Session<'_>| -> Result<_> {
        Ok((memory::guest_pages(id, size)? >> 22, session.peer.control.huge_bytes()?))
    };
    let mut before = state(session)?;
    while Instant::now() < deadline {
        std::thread::sleep(STEADY);
        let now = state(session)?;
        if now == before {
            break;
        }
        before = now;
    }
    process::settle(id, SETTLE_LIMIT)
}

fn look(session: &mut Session<'_>, cgroup: &Cgroup, state: &str, size: u64) -> Result<Vec<Figure>> {
    let id: Pid = session.process.id();
    let own = memory::outside_guest(id, size)?;
    let guest = memory::guest_pages(id, size)?;
    let charged = cgroup.charged()?;
    let beside = charged.current.saturating_sub(guest);
    let mut figures = Vec::new();
    let mut figure = |name: &str, value: f64| {
        figures.push(Figure::new(format!("{state}: {name}"), value));
    };
    figure("PSS outside guest memory, KiB", own.outside as f64);
    for (name, kibibytes) in own.parts.iter().filter(|(_, kibibytes)| **kibibytes >= LARGE_PART) {
        figure(&format!("  {name}, KiB"), *kibibytes as f64);
    }
    figure("charged beside guest pages, KiB", beside as f64 / KIB);
    figure("  page tables of processes, KiB", charged.of("pagetables") as f64 / KIB);
    figure("  page tables of KVM, KiB", charged.of("sec_pagetables") as f64 / KIB);
    figure("guest pages, MiB", guest as f64 / MIB);
    figure("VmPTE, KiB", process::page_tables(id)? as f64 / KIB);
    figure("mapped by huge pages, MiB", memory::huge_mappings(id)? as f64 / MIB);
    if let Some(huge) = session.peer.control.huge_bytes()? {
        figure("made huge in the background, MiB", huge as f64 / MIB);
    }
    Ok(figures)
}
