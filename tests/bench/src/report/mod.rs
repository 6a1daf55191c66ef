//! What was measured, as it is written to a file and told to a reader.

mod figures;
mod statistics;
mod table;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::{Kvm, Load, Machine};

pub use figures::{Figure, FigureGoal, FigureReport, FigureSeries};
pub use statistics::Summary;

/// Version of the file's form.
pub const FORMAT: u16 = 1;

/// One run of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u16,
    /// Its name.
    pub benchmark: String,
    /// Whether it was a short run.
    pub quick: bool,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// The machine on which all of it ran.
    pub machine: Machine,
    /// What that machine had to do meanwhile.
    pub load: Load,
    /// What was measured.
    pub parts: Vec<PartReport>,
    /// What was measured by figures of its own.
    #[serde(default)]
    pub figures: Vec<FigureReport>,
    /// What was not, and why.
    pub left_out: Vec<String>,
}

/// One comparison: the same guest under several VMMs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartReport {
    /// What is measured.
    pub title: String,
    /// Where the VMMs ran.
    pub machine: Machine,
    /// What served them as KVM.
    pub kvm: Kvm,
    /// The guest, in words.
    pub guest: String,
    /// One for each VMM and kernel file.
    pub series: Vec<Series>,
    /// What the project has set itself.
    pub goals: Vec<Goal>,
}

/// Runs of one VMM with one kernel file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// Name of the VMM.
    pub vmm: String,
    /// Which build of it.
    pub version: String,
    /// How it was started.
    pub settings: String,
    /// Kernel file.
    pub image: String,
    /// Timed runs.
    pub samples: Vec<Sample>,
    /// Counted runs.
    pub counts: Vec<Counts>,
    /// Why there are none of those.
    pub not_counted: Option<String>,
    /// Runs that came to nothing, and why.
    pub failures: Vec<String>,
}

/// One timed run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// In which round, from 0.
    pub round: usize,
    /// From before the VMM was started to the guest's mark.
    pub seconds: f64,
    /// CPU time up to then.
    pub cpu: CpuTime,
    /// Memory once the guest was idle.
    pub memory: Memory,
    /// Threads then.
    pub threads: usize,
}

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CpuTime {
    /// All of it.
    pub total: f64,
    /// In guest mode, by the kernel's clock tick.
    pub guest: f64,
}

/// Proportional set size in KiB.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The guest's own memory.
    pub guest: u64,
    /// Everything else.
    pub outside: u64,
    /// That, by what is mapped.
    pub parts: BTreeMap<String, u64>,
}

/// One counted run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Exits to the VMM by reason.
    pub userspace_exits: BTreeMap<String, u64>,
    /// Exits of the processor by reason; the kernel deals with most of them.
    pub hardware_exits: BTreeMap<String, u64>,
    /// Interrupts given to the guest.
    pub interrupts: u64,
    /// Accesses to ports, including those to devices in the kernel.
    pub ports: BTreeMap<String, u64>,
    /// System calls by name.
    pub system_calls: BTreeMap<String, u64>,
}

/// What the project has set itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The first VMM is to take at most this share of the time of another, with the same kernel file.
    Time {
        /// The other one.
        against: String,
        /// Largest ratio.
        at_most: f64,
    },
    /// The first VMM is to take at most this much memory beside its guest's.
    Memory {
        /// In KiB.
        at_most: u64,
    },
}

impl Series {
    fn summary(&self, value: impl Fn(&Sample) -> f64) -> Option<Summary> {
        Summary::of(self.samples.iter().map(value))
    }

    /// The middle of what `count` gives for the counted runs.
    fn count(&self, count: impl Fn(&Counts) -> u64) -> Option<f64> {
        let counts = self.counts.iter().map(|counts| count(counts) as f64);
        Summary::of(counts).map(|summary| summary.median)
    }

    fn label(&self) -> String {
        format!("{} {}", self.vmm, self.image)
    }
}

impl PartReport {
    /// The series that others of the same kernel file are compared with.
    fn reference(&self, image: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.image == image)
    }
}

impl Report {
    /// Whether every run that was begun came to its end.
    pub fn is_complete(&self) -> bool {
        let series = self.parts.iter().flat_map(|part| &part.series);
        series.into_iter().all(|series| series.failures.is_empty())
            && self.figures.iter().all(FigureReport::is_complete)
    }

    /// All of it, for a terminal.
    pub fn text(&self) -> String {
        text::report(self)
    }
}
