//! `scripts/bench`: Corten measured beside other VMMs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use corten_bench::machine::{LoadMeter, Machine};
use corten_bench::report::{FORMAT, Report};
use corten_bench::vmm::{Choice, Programs};
use corten_bench::{boot, node};

/// Corten measured beside other VMMs: the same guest, in turn, on the same node.
#[derive(Parser)]
#[command(name = "scripts/bench")]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// From the start of a VMM to the guest's user space, exits by reason, memory outside the guest's
    Boot(Boot),
    /// The part of `boot` that runs in a node
    #[command(hide = true)]
    LinuxInNode(Linux),
}

#[derive(Args)]
struct What {
    /// VMMs: corten, qemu-q35, qemu-microvm, or such a name with more behind it and =PATH for another build
    #[arg(long, value_name = "NAME[=PATH],...", value_delimiter = ',')]
    against: Vec<Choice>,
    /// Fewer runs: at most five minutes, once all is built
    #[arg(long)]
    quick: bool,
    /// Corten's VM process
    #[arg(long, env = "CORTEN_VMM", hide = true)]
    corten: PathBuf,
    /// QEMU
    #[arg(long, default_value = "qemu-system-x86_64", hide = true)]
    qemu: PathBuf,
}

#[derive(Args)]
struct Boot {
    #[command(flatten)]
    what: What,
    /// The lab's program
    #[arg(long, env = "CORTEN_LAB", hide = true)]
    lab: PathBuf,
    /// Directory for the report
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "CORTEN_BENCH_OUTPUT",
        default_value = "target/bench"
    )]
    output: PathBuf,
    /// Only the part that boots Linux, or only the one with the microguest
    #[arg(long, value_name = "PART", value_parser = ["linux", "microguest"])]
    only: Option<String>,
}

#[derive(Args)]
struct Linux {
    #[command(flatten)]
    what: What,
    /// Directory of the kernel
    #[arg(long, env = "CORTEN_ASSET_KERNEL_6_12")]
    kernel: PathBuf,
    /// Directory of the initramfs
    #[arg(long, env = "CORTEN_ASSET_GUEST_INITRD_6_12")]
    initrd: PathBuf,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().benchmark {
        Benchmark::Boot(boot) => measure_boot(&boot),
        Benchmark::LinuxInNode(linux) => linux_in_node(&linux),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl What {
    fn programs(&self) -> Programs {
        Programs { corten: self.corten.clone(), qemu: self.qemu.clone() }
    }

    fn against(&self, usual: [&str; 2]) -> Result<Vec<Choice>> {
        if !self.against.is_empty() {
            return Ok(self.against.clone());
        }
        let choices = usual.iter().map(|name| name.parse().map_err(anyhow::Error::msg));
        choices.collect()
    }
}

/// Whether all runs came to their end. What they took decides nothing.
fn measure_boot(boot: &Boot) -> Result<bool> {
    let meter = LoadMeter::start()?;
    let started = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let programs = boot.what.programs();
    let wanted = |part: &str| boot.only.as_ref().is_none_or(|only| only == part);
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    if wanted("linux") {
        let against = boot.what.against(boot::LINUX_AGAINST)?;
        parts.push(node::linux(&boot.lab, &against, &programs, boot.what.quick)?);
    }
    if wanted("microguest") {
        if Path::new("/dev/kvm").exists() {
            let against = boot.what.against(boot::MICROGUEST_AGAINST)?;
            parts.push(boot::microguest(&against, &programs)?);
        } else {
            left_out.push("the microguest's first byte: this machine has no /dev/kvm".into());
        }
    }
    let report = Report {
        format: FORMAT,
        benchmark: "boot".into(),
        quick: boot.what.quick,
        started,
        machine: Machine::this()?,
        load: meter.stop()?,
        parts,
        left_out,
    };
    print!("{}", report.text());
    let file = write(&report, &boot.output)?;
    println!("\nreport: {}", file.display());
    Ok(report.is_complete())
}

fn write(report: &Report, directory: &Path) -> Result<PathBuf> {
    let failed = || format!("cannot write a report to {}", directory.display());
    fs::create_dir_all(directory).with_context(failed)?;
    let file = directory.join(format!("{}-{}.json", report.benchmark, report.started));
    fs::write(&file, serde_json::to_vec_pretty(report)?).with_context(failed)?;
    Ok(file)
}

/// The result goes to standard output, as one line.
fn linux_in_node(linux: &Linux) -> Result<bool> {
    let what = &linux.what;
    let against = what.against(boot::LINUX_AGAINST)?;
    let files = (linux.kernel.as_path(), linux.initrd.join("initrd"));
    let part = boot::linux(&against, &what.programs(), (files.0, &files.1), what.quick)?;
    println!("{}", serde_json::to_string(&part)?);
    Ok(true)
}
