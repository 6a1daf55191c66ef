//! `restore`: from the start of a VM process to the first step of a guest that goes on from a snapshot in files.
//!
//! The guest is the microguest, with something in every page; it writes to its serial port for ever, so its first step is
//! the first byte there. Any KVM will do: what is measured is the VMM's and the kernel's work.

use std::fs::{self, File, Permissions};
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_link::{FillWork, Link, MachineDescription, Request, Restoration, Role};
use tempfile::TempDir;

use crate::machine::{Kvm, Machine};
use crate::measure::console::Console;
use crate::report::{Figure, FigureReport, FigureSeries};
use crate::vmm::corten::{LinkControl, open, start};
use crate::vmm::{Choice, Programs, VmmProcess};

/// What is measured unless somebody says otherwise.
pub const AGAINST: [&str; 1] = ["corten"];

const LIMIT: Duration = Duration::from_secs(300);
const MIB: u64 = 1 << 20;
/// Mebibytes of the guests.
const SIZES: [u64; 2] = [256, 2048];
/// Where the guest's own image ends, and what it leaves at the end of its memory.
const FILLED_FROM: u64 = 4 * MIB;
const UNFILLED_END: u64 = 8 * MIB;
const PAGE: u64 = 4096;

/// A snapshot of a guest, in a directory of its own.
struct Snapshot {
    mebibytes: u64,
    memory: File,
    records: File,
}

/// A VM process and what its guest writes.
struct Running {
    _process: VmmProcess,
    control: LinkControl,
    console: PipeReader,
}

/// Restores guests of all sizes, with memory filled in when it is needed and with all of it read first.
pub fn restore(against: &[Choice], programs: &Programs, quick: bool) -> Result<FigureReport> {
    let directory = TempDir::new().context("cannot make a directory for snapshots")?;
    let kernel = directory.path().join("microguest");
    fs::write(&kernel, corten_microguest::ELF).context("cannot write the microguest")?;
    let runs = if quick { 3 } else { 10 };
    let mut series = Vec::new();
    for choice in against {
        ensure!(choice.is_one_file(), "only Corten's snapshots can be restored here");
        let program = choice.program(programs);
        for size in SIZES {
            let snapshot = take(program, &kernel, size, directory.path())?;
            for (way, userfaultfd) in [("", true), (" read first", false)] {
                let vmm = choice.vmm(program);
                let mut own = FigureSeries {
                    vmm: vmm.name().into(),
                    version: vmm.version()?,
                    settings: vmm.settings(),
                    variant: format!("{size} MiB{way}"),
                    ..FigureSeries::default()
                };
                // One that is not counted in, after which all files are in the page cache.
                go_on(program, &kernel, &snapshot, userfaultfd)?;
                for number in 1..=runs {
                    let figures = go_on(program, &kernel, &snapshot, userfaultfd)?;
                    eprintln!("bench: {} {}: run {number} of {runs}", own.vmm, own.variant);
                    own.runs.push(figures);
                }
                series.push(own);
            }
        }
    }
    Ok(FigureReport {
        title: "start of the VMM to the first step of a guest from a snapshot in files".into(),
        machine: Machine::this()?,
        kvm: Kvm::of_this_machine(),
        guest: "the microguest, 1 vCPU, something in every page; the files are in the page cache"
            .into(),
        series,
        goals: Vec::new(),
    })
}

/// Boots a guest, has it fill its memory, and takes a snapshot of it.
fn take(program: &Path, kernel: &Path, mebibytes: u64, directory: &Path) -> Result<Snapshot> {
    let pages = (mebibytes * MIB - FILLED_FROM - UNFILLED_END) / PAGE;
    let command_line = format!(
        "write first={FILLED_FROM:#x} pages={pages} value=0x5a5a doorbell port=0x3f8 size=1 value=0x21 count=0xffffffff"
    );
    let machine = MachineDescription {
        memory: mebibytes * MIB,
        sockets: 1,
        cores: 1,
        threads: 1,
        command_line,
        ..MachineDescription::default()
    };
    let mut running = run(program, kernel, Vec::new(), Request::Boot { machine, paused: false })?;
    ensure!(first(&running.console, "!!!")?.is_some(), "the guest does not fill its memory");
    running.control.must(Request::Pause, &[])?;
    let file = |name: &str| -> Result<File> {
        let path = directory.join(format!("{mebibytes}-{name}"));
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    };
    let snapshot = Snapshot { mebibytes, memory: file("memory")?, records: file("records")? };
    running.control.must(Request::Snapshot, &snapshot.grant()?)?;
    Ok(snapshot)
}

impl Snapshot {
    fn grant(&self) -> Result<Vec<(Role, OwnedFd)>> {
        let memory = (Role::snapshot_memory(), self.memory.try_clone()?.into());
        Ok(vec![memory, (Role::snapshot_records(), self.records.try_clone()?.into())])
    }
}

/// Goes on with it, until all of its memory is there.
fn go_on(
    program: &Path,
    kernel: &Path,
    snapshot: &Snapshot,
    userfaultfd: bool,
) -> Result<Vec<Figure>> {
    let started = Instant::now();
    let mut grant = snapshot.grant()?;
    if userfaultfd {
        grant.push((Role::userfaultfd(), open("/dev/userfaultfd".as_ref(), true)?));
    }
    let how = Restoration::default();
    let mut running = run(program, kernel, grant, Request::Restore { how })?;
    running.control.must(Request::Resume, &[])?;
    let step = first(&running.console, "!")?.context("the guest does not go on")?;
    let step = step.duration_since(started).as_secs_f64();
    let fill = loop {
        let fill = running.control.counters()?.fill;
        if !fill.filling {
            break fill;
        }
        ensure!(started.elapsed() < LIMIT, "memory is never filled in: {fill:?}");
        std::thread::sleep(Duration::from_millis(2));
    };
    let whole = started.elapsed().as_secs_f64();
    let mut figures = of_work("before the first step", fill.before_run);
    figures.extend(of_work("until all memory is there", fill.all));
    figures.push(Figure::new("guest memory, MiB", snapshot.mebibytes as f64));
    figures.push(Figure::new("to the first step, ms", step * 1e3));
    figures.push(Figure::new("to all memory, ms", whole * 1e3));
    Ok(figures)
}

fn of_work(when: &str, work: FillWork) -> Vec<Figure> {
    let FillWork { faults, pages, zero_pages, bytes_read } = work;
    let figure = |name: &str, value: u64| Figure::new(format!("{when}: {name}"), value as f64);
    vec![
        figure("KiB read of the memory file", bytes_read / 1024),
        figure("pages copied", pages),
        figure("pages of zeros", zero_pages),
        figure("faults", faults),
    ]
}

fn run(
    program: &Path,
    kernel: &Path,
    mut grant: Vec<(Role, OwnedFd)>,
    first: Request,
) -> Result<Running> {
    let (console, writer) = std::io::pipe()?;
    let (ours, theirs) = Link::pair()?;
    grant.push((Role::kvm(), open("/dev/kvm".as_ref(), true)?));
    grant.push((Role::kernel(), open(kernel, false)?));
    grant.push((Role::console(), writer.into()));
    let ours = Arc::new(ours);
    let process = start(program, &grant, first, Arc::clone(&ours), theirs)?;
    Ok(Running { _process: process, control: LinkControl::new(ours), console })
}

/// When `text` was there.
fn first(console: &PipeReader, text: &str) -> Result<Option<Instant>> {
    let seen = Console::new(console).wait_for(text, Instant::now() + LIMIT)?;
    Ok(seen.map(|seen| seen.mark))
}
