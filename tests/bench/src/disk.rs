//! `disk`: fio in the guest, and what each of its requests costs.

use std::path::Path;

use anyhow::{Context, Result};

use crate::boot::huge_pages_on_advice;
use crate::measure::Subject;
use crate::measure::counts::Counter;
use crate::report::{Figure, FigureReport};
use crate::scripted::{Session, Variant, Workbench};
use crate::vmm::{Choice, Disk, Programs};

/// What is compared unless somebody says otherwise.
pub const AGAINST: [&str; 2] = ["corten", "qemu-q35"];
/// Assets of the lab that it needs.
pub const ASSETS: [&str; 3] = ["kernel-6.12", "guest-initrd-6.12", "guest-tools-disk"];

const DATA: usize = 64 << 20;

/// A job of fio's: its name, its options, how many requests, and what one is.
const JOBS: [(&str, &str, u32, &str); 5] = [
    ("random read, depth 1", "--rw=randread --bs=4k --iodepth=1", 1000, "4 KiB"),
    ("random read, depth 16", "--rw=randread --bs=4k --iodepth=16", 3000, "4 KiB"),
    ("random write, depth 16", "--rw=randwrite --bs=4k --iodepth=16", 3000, "4 KiB"),
    ("read, depth 4", "--rw=read --bs=128k --iodepth=4", 500, "128 KiB"),
    ("write, depth 4", "--rw=write --bs=128k --iodepth=4", 500, "128 KiB"),
];

fn script() -> String {
    let mut script = String::from(
        r#"
tools /dev/vdb
device=$(basename "$(readlink /sys/block/vdc/device)")
interrupts() { awk -v name="$device-req" 'index($0, name) { print $2 }' /proc/interrupts; }
fio() { tool fio --name=job --filename=/dev/vdc --direct=1 --ioengine=libaio --thread --minimal "$@" | cut -d ';' -f 8,49; }
job() {
	step READY
	before=$(interrupts)
	rates=$(fio "$@")
	step "DONE $(($(interrupts) - before));$rates"
}
fio --rw=randread --bs=4k --number_ios=64 >/dev/null
job --rw=randread --bs=4k --number_ios=1
"#,
    );
    for (_, options, requests, _) in JOBS {
        script += &format!("job {options} --number_ios={requests}\n");
    }
    script + "step IDLE\n"
}

/// Runs fio under each of `against`. To be called in a node.
pub fn disk(
    against: &[Choice],
    programs: &Programs,
    files: (&Path, &Path),
    tools: &Path,
    quick: bool,
) -> Result<FigureReport> {
    let huge_pages = huge_pages_on_advice()?;
    let bench = Workbench::new(against, programs, files, &huge_pages)?;
    let tools = Disk { file: tools.join("disk.raw"), read_only: true };
    let disks = [tools, bench.data("data", DATA)?];
    let variant = Variant { mebibytes: 512, ..Variant::default() };
    let subject = |(number, choice)| bench.subject(number, choice, variant, &script(), &disks);
    let subjects = against.iter().enumerate().map(subject).collect::<Result<Vec<_>>>()?;
    let counter =
        Counter::new().inspect_err(|error| eprintln!("bench: not counted: {error:#}")).ok();
    let runs = if quick { 2 } else { 6 };
    let title =
        "fio on a raw disk in the node's memory, through the page cache, by io_uring, one queue";
    bench.report(title, &subjects, runs, |subject| run(subject, counter.as_ref()))
}

fn run(subject: &Subject, counter: Option<&Counter>) -> Result<Vec<Figure>> {
    let mut started = subject.vmm.start(&subject.guest)?;
    let mut session = Session::new(&mut started)?;
    let (start, _) = session.job(counter)?;
    let (mut figures, mut rates) = (Vec::new(), Vec::new());
    for (name, _, requests, each) in JOBS {
        let (work, done) = session.job(counter)?;
        let (interrupts, rate) = done_of(&done).with_context(|| format!("{name}: {done}"))?;
        let operations = f64::from(requests);
        figures.extend(work.figures(name, (each, operations), &start));
        let of_disk = format!("{name}: interrupts of the disk per {each}");
        figures.push(Figure::new(of_disk, interrupts / operations));
        rates.push(Figure::new(format!("{name}: requests per second"), rate));
    }
    figures.push(session.idle()?);
    figures.extend(rates);
    Ok(figures)
}

/// `INTERRUPTS;READS;WRITES`, the latter two in each second; one of them is 0.
fn done_of(done: &str) -> Option<(f64, f64)> {
    let mut numbers = done.split(';').map(|number| number.trim().parse::<f64>().ok());
    let mut next = || numbers.next().flatten();
    Some((next()?, next()?.max(next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_of_a_job_is_read() {
        assert_eq!(done_of("1503;817;0"), Some((1503.0, 817.0)));
        assert_eq!(done_of("9;0;22"), Some((9.0, 22.0)));
        assert_eq!(done_of("9;"), None);
        assert_eq!(done_of("fio: cannot;1;2"), None);
    }
}
