//! `scripts/bench`: Corten measured beside other VMMs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use corten_bench::machine::{LoadMeter, Machine};
use corten_bench::report::{FORMAT, FigureReport, PartReport, Report};
use corten_bench::vmm::{Choice, Programs};
use corten_bench::{boot, disk, memory, net, node, restore};
use serde::de::DeserializeOwned;

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
    /// Memory of a VM with all devices beside its guest's: idle, loaded, after the balloon
    Memory(Common),
    /// fio in a guest: exits, interrupts and system calls of a request, rates
    Disk(Common),
    /// TCP between a guest and its node: exits, interrupts and system calls of 64 KiB, rates
    Net(Common),
    /// From the start of a VMM to the first step of a guest that goes on from a snapshot
    Restore(Common),
    /// The part of a benchmark that runs in a node
    #[command(hide = true)]
    InNode(InNode),
}

#[derive(Args)]
struct What {
    /// VMMs: corten, qemu-q35, qemu-microvm, or such a name with more behind it and =PATH for another build
    #[arg(long, value_name = "NAME[=PATH],...", value_delimiter = ',')]
    against: Vec<Choice>,
    /// Only machines of this variant, such as "512 MiB", or with this in the name of theirs
    #[arg(long, value_name = "TEXT")]
    variant: Option<String>,
    /// Fewer runs; for `boot` at most five minutes, once all is built
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
struct Common {
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
}

#[derive(Args)]
struct Boot {
    #[command(flatten)]
    common: Common,
    /// Only the part that boots Linux, or only the one with the microguest
    #[arg(long, value_name = "PART", value_parser = ["linux", "microguest"])]
    only: Option<String>,
}

#[derive(Args)]
struct InNode {
    /// Which part
    part: String,
    #[command(flatten)]
    what: What,
    /// Directory of the kernel
    #[arg(long, env = "CORTEN_ASSET_KERNEL_6_12")]
    kernel: PathBuf,
    /// Directory of the initramfs
    #[arg(long, env = "CORTEN_ASSET_GUEST_INITRD_6_12")]
    initrd: PathBuf,
    /// Directory of the disk with tools
    #[arg(long, env = "CORTEN_ASSET_GUEST_TOOLS_DISK")]
    tools: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().benchmark {
        Benchmark::Boot(boot) => measure(&boot.common, "boot", |found| measure_boot(&boot, found)),
        Benchmark::Memory(common) => measure(&common, "memory", |found| {
            found.figures.push(in_node(&common, ("memory", &memory::ASSETS), memory::AGAINST)?);
            Ok(())
        }),
        Benchmark::Disk(common) => measure(&common, "disk", |found| {
            found.figures.push(in_node(&common, ("disk", &disk::ASSETS), disk::AGAINST)?);
            Ok(())
        }),
        Benchmark::Net(common) => measure(&common, "net", |found| {
            found.figures.push(in_node(&common, ("net", &net::ASSETS), net::AGAINST)?);
            Ok(())
        }),
        Benchmark::Restore(common) => measure(&common, "restore", |found| {
            let what = &common.what;
            for device in ["/dev/kvm", "/dev/userfaultfd"] {
                if !Path::new(device).exists() {
                    found.left_out.push(format!("a restore: this machine has no {device}"));
                    return Ok(());
                }
            }
            let against = what.against(restore::AGAINST)?;
            found.figures.push(restore::restore(&against, &what.programs(), what.quick)?);
            Ok(())
        }),
        Benchmark::InNode(part) => measure_in_node(&part),
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

    fn against<const N: usize>(&self, usual: [&str; N]) -> Result<Vec<Choice>> {
        if !self.against.is_empty() {
            return Ok(self.against.clone());
        }
        let choices = usual.iter().map(|name| name.parse().map_err(anyhow::Error::msg));
        choices.collect()
    }
}

impl InNode {
    fn tools(&self) -> Result<&Path> {
        self.tools.as_deref().context("no disk with tools")
    }
}

/// What a benchmark came to.
#[derive(Default)]
struct Found {
    parts: Vec<PartReport>,
    figures: Vec<FigureReport>,
    left_out: Vec<String>,
}

/// Whether all runs came to their end. What they took decides nothing.
fn measure(
    common: &Common,
    benchmark: &str,
    run: impl FnOnce(&mut Found) -> Result<()>,
) -> Result<bool> {
    let meter = LoadMeter::start()?;
    let started = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let mut found = Found::default();
    run(&mut found)?;
    let Found { parts, figures, left_out } = found;
    let report = Report {
        format: FORMAT,
        benchmark: benchmark.into(),
        quick: common.what.quick,
        started,
        machine: Machine::this()?,
        load: meter.stop()?,
        parts,
        figures,
        left_out,
    };
    print!("{}", report.text());
    let file = write(&report, &common.output)?;
    println!("\nreport: {}", file.display());
    Ok(report.is_complete())
}

fn in_node<T: DeserializeOwned>(
    common: &Common,
    part: (&str, &[&str]),
    usual: [&str; 2],
) -> Result<T> {
    let what = &common.what;
    let against = what.against(usual)?;
    let options = node::Options { quick: what.quick, variant: what.variant.as_deref() };
    node::run(&common.lab, part, &against, &what.programs(), options)
}

fn measure_boot(boot: &Boot, found: &mut Found) -> Result<()> {
    let wanted = |part: &str| boot.only.as_ref().is_none_or(|only| only == part);
    if wanted("linux") {
        let part = ("linux", &boot::ASSETS[..]);
        found.parts.push(in_node(&boot.common, part, boot::LINUX_AGAINST)?);
    }
    if wanted("microguest") {
        if Path::new("/dev/kvm").exists() {
            let what = &boot.common.what;
            let against = what.against(boot::MICROGUEST_AGAINST)?;
            found.parts.push(boot::microguest(&against, &what.programs())?);
        } else {
            let reason = "the microguest's first byte: this machine has no /dev/kvm";
            found.left_out.push(reason.into());
        }
    }
    Ok(())
}

fn write(report: &Report, directory: &Path) -> Result<PathBuf> {
    let failed = || format!("cannot write a report to {}", directory.display());
    fs::create_dir_all(directory).with_context(failed)?;
    let file = directory.join(format!("{}-{}.json", report.benchmark, report.started));
    fs::write(&file, serde_json::to_vec_pretty(report)?).with_context(failed)?;
    Ok(file)
}

/// The result goes to standard output, as one line.
fn measure_in_node(part: &InNode) -> Result<bool> {
    let what = &part.what;
    let (programs, quick) = (what.programs(), what.quick);
    let variant = what.variant.as_deref();
    let initrd = part.initrd.join("initrd");
    let files = (part.kernel.as_path(), initrd.as_path());
    let result = match part.part.as_str() {
        "linux" => serde_json::to_string(&boot::linux(
            &what.against(boot::LINUX_AGAINST)?,
            &programs,
            files,
            quick,
        )?)?,
        "memory" => serde_json::to_string(&memory::memory(
            &what.against(memory::AGAINST)?,
            &programs,
            files,
            (quick, variant),
        )?)?,
        "disk" => serde_json::to_string(&disk::disk(
            &what.against(disk::AGAINST)?,
            &programs,
            files,
            part.tools()?,
            quick,
        )?)?,
        "net" => serde_json::to_string(&net::net(
            &what.against(net::AGAINST)?,
            &programs,
            files,
            part.tools()?,
            (quick, variant),
        )?)?,
        other => bail!("there is no part {other}"),
    };
    println!("{result}");
    Ok(true)
}
