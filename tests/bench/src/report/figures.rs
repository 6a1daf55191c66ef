//! Figures that have names of their own: what was counted or measured of each VMM, one row for each.

use serde::{Deserialize, Serialize};

use super::Summary;
use super::table::Table;
use crate::machine::{Kvm, Machine};

/// One comparison by figures: the same work under several VMMs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FigureReport {
    /// What is measured.
    pub title: String,
    /// Where the VMMs ran.
    pub machine: Machine,
    /// What served them as KVM.
    pub kvm: Kvm,
    /// The guest, in words.
    pub guest: String,
    /// One for each VMM and variant of its machine.
    pub series: Vec<FigureSeries>,
    /// What the project has set itself.
    pub goals: Vec<FigureGoal>,
}

/// Runs of one VMM with one variant of the machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FigureSeries {
    /// Name of the VMM.
    pub vmm: String,
    /// Which build of it.
    pub version: String,
    /// How it was started.
    pub settings: String,
    /// What tells it from others of that VMM.
    pub variant: String,
    /// What each run came to.
    pub runs: Vec<Vec<Figure>>,
    /// Runs that came to nothing, and why.
    pub failures: Vec<String>,
}

/// A number with its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// With its unit.
    pub name: String,
    /// The number.
    pub value: f64,
}

/// What a VMM is to stay under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureGoal {
    /// Name of the VMM.
    pub vmm: String,
    /// In which variant.
    pub variant: String,
    /// Name of the figure.
    pub figure: String,
    /// The largest value.
    pub at_most: f64,
}

impl Figure {
    /// Any number that figures can show.
    pub fn new(name: impl Into<String>, value: impl Into<f64>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

impl FigureSeries {
    fn label(&self) -> String {
        format!("{} {}", self.vmm, self.variant).trim().to_owned()
    }

    fn median(&self, name: &str) -> Option<f64> {
        let figures = self.runs.iter().flatten().filter(|figure| figure.name == name);
        Summary::of(figures.map(|figure| figure.value)).map(|summary| summary.median)
    }
}

impl FigureReport {
    /// Whether every run came to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.series.iter().all(|series| series.failures.is_empty())
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = format!("on {}; {}\n", self.machine.describe(), self.kvm.describe());
        if !self.kvm.is_real() {
            text += "EMULATED: times and rates mean nothing but as ratios\n";
        }
        text += &format!("guest: {}\n", self.guest);
        let mut told = std::collections::BTreeSet::new();
        for series in self.series.iter().filter(|series| told.insert(&series.vmm)) {
            text += &format!("{}: {}; {}\n", series.vmm, series.version, series.settings);
        }
        text += &format!("\n{}\n", self.table().text());
        self.goals.iter().for_each(|goal| text += &self.goal(goal));
        for series in &self.series {
            for failure in &series.failures {
                text += &format!("failed: {}: {failure}\n", series.label());
            }
        }
        text
    }

    fn table(&self) -> Table {
        let labels = self.series.iter().map(FigureSeries::label);
        let mut table = Table::new(std::iter::once(self.head()).chain(labels));
        for name in self.names() {
            let reference = self.series.first().and_then(|first| first.median(name));
            let cells = self.series.iter().enumerate().map(|(number, series)| {
                let Some(median) = series.median(name) else { return "-".into() };
                let ratio = reference.filter(|first| number > 0 && *first > 0.0);
                let ratio = ratio.map(|first| format!(" (x {:.2})", median / first));
                format!("{}{}", number_text(median), ratio.unwrap_or_default())
            });
            table.row(std::iter::once(name.to_owned()).chain(cells));
        }
        table
    }

    fn head(&self) -> String {
        let runs = self.series.iter().map(|series| series.runs.len()).max().unwrap_or(0);
        format!("medians of {runs}, and how much of the first")
    }

    /// In the order in which they were measured.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for figure in self.series.iter().flat_map(|series| series.runs.iter().flatten()) {
            if !names.contains(&figure.name.as_str()) {
                names.push(&figure.name);
            }
        }
        names
    }

    fn goal(&self, goal: &FigureGoal) -> String {
        let own = |series: &&FigureSeries| series.vmm == goal.vmm && series.variant == goal.variant;
        let value = self.series.iter().find(own).and_then(|own| own.median(&goal.figure));
        let Some(value) = value else { return String::new() };
        let met = if value <= goal.at_most { "met" } else { "NOT met" };
        let FigureGoal { vmm, variant, figure, at_most } = goal;
        let (value, at_most) = (number_text(value), number_text(*at_most));
        format!("goal: {vmm} {variant}: {figure} at most {at_most}: {value}, {met}\n")
    }
}

/// Small numbers with what is behind the point.
fn number_text(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 1.0 => format!("{value:.4}"),
        size if size < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(vmm: &str, values: &[f64]) -> FigureSeries {
        let run = |value: &f64| vec![Figure::new("exits", *value), Figure::new(vmm, 3)];
        FigureSeries {
            vmm: vmm.into(),
            variant: "plain".into(),
            runs: values.iter().map(run).collect(),
            ..FigureSeries::default()
        }
    }

    fn report(series: Vec<FigureSeries>) -> FigureReport {
        let goal = |at_most| FigureGoal {
            vmm: "corten".into(),
            variant: "plain".into(),
            figure: "exits".into(),
            at_most,
        };
        FigureReport {
            title: "work".into(),
            machine: Machine { cpu: "EPYC".into(), cpus: 2, kernel: "6".into(), memory_mib: 1 },
            kvm: Kvm::Emulated,
            guest: "a guest".into(),
            series,
            goals: vec![goal(10.0), goal(1.5)],
        }
    }

    #[test]
    fn rows_have_medians_and_ratios_to_the_first() {
        let text = report(vec![series("corten", &[1.0, 2.0, 9.0]), series("qemu", &[5.0])]).text();
        assert!(text.contains("2.00  5.00 (x 2.50)"), "{text}");
        // What only one of them has stands alone.
        assert!(
            text.lines().any(|line| line.trim_start().starts_with("qemu ") && line.contains('-'))
        );
        assert!(text.contains("EMULATED"), "{text}");
    }

    #[test]
    fn goals_are_told_with_their_figures() {
        let text = report(vec![series("corten", &[2.0])]).text();
        assert!(text.contains("exits at most 10.00: 2.00, met"), "{text}");
        assert!(text.contains("exits at most 1.50: 2.00, NOT met"), "{text}");
    }

    #[test]
    fn run_that_failed_makes_it_incomplete() {
        let mut failing = series("corten", &[]);
        failing.failures.push("run 1: no mark".into());
        let report = report(vec![failing]);
        assert!(!report.is_complete());
        assert!(report.text().contains("failed: corten plain: run 1: no mark"));
    }
}
