//! Where something was measured: the machine, its KVM, and what else it had to do.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use corten_lab::probe;
use serde::{Deserialize, Serialize};

/// A machine, as far as figures depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of its processor.
    pub cpu: String,
    /// How many it has.
    pub cpus: usize,
    /// Release of its kernel.
    pub kernel: String,
    /// Its memory.
    pub memory_mib: u64,
}

impl Machine {
    /// This one.
    pub fn this() -> Result<Self> {
        let cpu = field(&read("/proc/cpuinfo")?, "model name").unwrap_or("unknown".into());
        let memory = field(&read("/proc/meminfo")?, "MemTotal").unwrap_or_default();
        let kibibytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Ok(Self {
            cpu,
            cpus: std::thread::available_parallelism()?.get(),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().into(),
            memory_mib: kibibytes / 1024,
        })
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let Self { cpu, cpus, kernel, memory_mib } = self;
        format!("{cpus} x {cpu}, {memory_mib} MiB, Linux {kernel}")
    }
}

/// What serves VMMs as KVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kvm {
    /// Hardware virtualization, as far as a guest of it can tell.
    Hardware,
    /// KVM's own code, on a processor that is emulated.
    Emulated,
    /// A KVM that interprets guest code.
    Software,
}

impl Kvm {
    /// That of this machine.
    pub fn of_this_machine() -> Self {
        if probe::try_kvm().is_err() {
            Self::Software
        } else if is_emulated() {
            Self::Emulated
        } else {
            Self::Hardware
        }
    }

    /// Whether times mean something by themselves, and not only as ratios: the VMM runs at the processor's own speed.
    pub fn is_real(self) -> bool {
        self != Self::Emulated
    }

    /// In a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Hardware => "hardware KVM",
            Self::Emulated => "KVM on an emulated processor",
            Self::Software => {
                "a KVM that interprets guest code: what the VMM does is at the processor's speed, what the guest does is not"
            }
        }
    }
}

/// Whether QEMU emulates this processor: it says so in the leaf where hypervisors name themselves.
fn is_emulated() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let name = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    name == *b"TCGTCGTCGTCG"
}

/// What a machine had to do during a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Average of the last minute, at the beginning.
    pub before: f64,
    /// The same at the end.
    pub after: f64,
    /// Share of CPU time that was used, of all processors.
    pub busy: f64,
    /// Share that the machine wanted and did not get.
    pub stolen: f64,
    /// How long it took.
    pub seconds: f64,
}

impl Load {
    /// In one line.
    pub fn describe(&self) -> String {
        let Self { before, after, busy, stolen, seconds } = self;
        let percent = |share: &f64| share * 100.0;
        format!(
            "{before:.2} at the beginning, {after:.2} at the end; CPUs {:.0} % busy, {:.0} % stolen during {seconds:.0} s",
            percent(busy),
            percent(stolen)
        )
    }
}

/// Looks at the load from its making on.
#[derive(Debug)]
pub struct LoadMeter {
    since: Instant,
    average: f64,
    ticks: Ticks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    total: u64,
    idle: u64,
    stolen: u64,
}

impl LoadMeter {
    /// Begins.
    pub fn start() -> Result<Self> {
        Ok(Self { since: Instant::now(), average: average()?, ticks: ticks()? })
    }

    /// What came in the meantime.
    pub fn stop(&self) -> Result<Load> {
        let now = ticks()?;
        let total = now.total.saturating_sub(self.ticks.total).max(1);
        let share = |now: u64, before: u64| ratio(now.saturating_sub(before), total);
        let stolen = share(now.stolen, self.ticks.stolen);
        Ok(Load {
            before: self.average,
            after: average()?,
            busy: 1.0 - share(now.idle, self.ticks.idle) - stolen,
            stolen,
            seconds: self.since.elapsed().as_secs_f64(),
        })
    }
}
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn average() -> Result<f64> {
    let text = read("/proc/loadavg")?;
    text.split(' ').next().and_then(|average| average.parse().ok()).context("no load average")
}

fn ticks() -> Result<Ticks> {
    let text = read("/proc/stat")?;
    ticks_of(&text).context("/proc/stat is not as proc(5) says")
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; the last two are part of the first two.
fn ticks_of(stat: &str) -> Option<Ticks> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
    let own = numbers.get(..8)?;
    Some(Ticks { total: own.iter().sum(), idle: own[3] + own[4], stolen: own[7] })
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// The value of the first line `NAME : VALUE`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_of_that_name_is_the_value() {
        let text = "processor\t: 0\nmodel name\t: EPYC 7\nmodel name\t: other\n";
        assert_eq!(field(text, "model name").unwrap(), "EPYC 7");
        assert_eq!(field(text, "flags"), None);
    }

    #[test]
    fn guest_time_is_not_counted_twice() {
        let stat = "cpu  100 1 50 800 20 3 6 20 90 1\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(ticks_of(stat), Some(Ticks { total: 1000, idle: 820, stolen: 20 }));
        assert_eq!(ticks_of("cpu  1 2 3\n"), None);
    }

    #[test]
    fn this_machine_has_a_name_and_a_load() {
        assert!(Machine::this().unwrap().describe().contains(" MiB, Linux "));
        assert!(LoadMeter::start().unwrap().stop().unwrap().busy <= 1.0);
    }
}
