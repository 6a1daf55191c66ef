//! A report for a reader: where it was measured, tables, what became of the goals.

use std::collections::BTreeSet;

use super::table::Table;
use super::{Counts, Goal, PartReport, Report, Sample, Series, Summary};

/// A smaller difference between two times in emulation is none.
const SIGNIFICANT: f64 = 0.2;
/// Rows of a table that lists ports, system calls or mappings.
const LISTED: usize = 10;

pub(super) fn report(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!("{}: {}\n", report.benchmark, machine.describe());
    text += &format!("load: {}\n", report.load.describe());
    for part in &report.parts {
        text += &format!("\n== {}\n", part.title);
        text += &self::part(part);
    }
    for part in &report.figures {
        text += &format!("\n== {}\n{}", part.title, part.text());
    }
    for reason in &report.left_out {
        text += &format!("\nnot measured: {reason}\n");
    }
    text
}

fn part(part: &PartReport) -> String {
    let mut text = format!("on {}; {}\n", part.machine.describe(), part.kvm.describe());
    text += &format!("guest: {}\n", part.guest);
    let mut told = BTreeSet::new();
    for series in part.series.iter().filter(|series| told.insert(&series.vmm)) {
        text += &format!("{}: {}; {}\n", series.vmm, series.version, series.settings);
    }
    let times = format!("\n{}", times(part));
    let counts = counts(part);
    // In emulation what was counted says more than how long it took.
    text += &if part.kvm.is_real() { times + &counts } else { counts + &times };
    text += &format!("\n{}", memory(part));
    text.push('\n');
    part.goals.iter().for_each(|goal| text += &self::goal(part, goal));
    for series in &part.series {
        for failure in &series.failures {
            text += &format!("failed: {}: {failure}\n", series.label());
        }
    }
    text
}

fn times(part: &PartReport) -> String {
    let mark = if part.kvm.is_real() { "" } else { ", EMULATED: only ratios mean anything" };
    let mut table = Table::new([
        format!("seconds{mark}").as_str(),
        "runs",
        "median",
        "min",
        "quartiles",
        "max",
        "ratio to the first",
        "min-max",
    ]);
    for series in &part.series {
        let Some(all) = series.summary(|sample| sample.seconds) else {
            table.row([series.label(), "0".into()]);
            continue;
        };
        let quartiles = format!("{}-{}", seconds(all.lower_quartile), seconds(all.upper_quartile));
        let (ratio, by_rounds) = ratio_to_reference(part, series);
        table.row([
            series.label(),
            all.count.to_string(),
            seconds(all.median),
            seconds(all.min),
            quartiles,
            seconds(all.max),
            ratio,
            by_rounds,
        ]);
    }
    table.text() + &cpu_times(part)
}

/// The middle of the ratios, and the least and the largest.
fn ratio_to_reference(part: &PartReport, series: &Series) -> (String, String) {
    let Some(reference) = part.reference(&series.image) else { return Default::default() };
    if std::ptr::eq(reference, series) {
        return ("1".into(), String::new());
    }
    let Some(Summary { median, min, max, .. }) = ratios(series, reference) else {
        return Default::default();
    };
    let differs = part.kvm.is_real() || (median - 1.0).abs() >= SIGNIFICANT;
    let none = if differs { "" } else { " (none)" };
    (format!("{median:.2}{none}"), format!("{min:.2}-{max:.2}"))
}

/// Ratios of two runs of the same round. What else the machine had to do weighs on both alike, as it does not on the
/// medians of all runs.
fn ratios(series: &Series, reference: &Series) -> Option<Summary> {
    let in_round = |round: usize| reference.samples.iter().find(move |other| other.round == round);
    let ratio = |own: &Sample| Some(own.seconds / in_round(own.round)?.seconds);
    Summary::of(series.samples.iter().filter_map(ratio))
}

fn cpu_times(part: &PartReport) -> String {
    let mut table = Table::new(["CPU seconds, medians", "all", "outside the guest", "threads"]);
    for series in &part.series {
        let median = |value: fn(&Sample) -> f64| series.summary(value).map(|all| all.median);
        let all = median(|sample| sample.cpu.total);
        let outside = median(|sample| sample.cpu.total - sample.cpu.guest);
        let threads = series.samples.last().map(|sample| sample.threads.to_string());
        let cell = |value: Option<f64>| value.map(seconds).unwrap_or_default();
        table.row([series.label(), cell(all), cell(outside), threads.unwrap_or_default()]);
    }
    format!("\n{}", table.text())
}

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{value:.4}") } else { format!("{value:.2}") }
}

fn counts(part: &PartReport) -> String {
    if let Some(reason) = part.series.iter().find_map(|series| series.not_counted.as_ref()) {
        return format!("\nnot counted: {reason}\n");
    }
    let labels = part.series.iter().map(Series::label);
    let head = |title: &str| Table::new(std::iter::once(title.to_owned()).chain(labels.clone()));
    let mut table = head("up to the mark");
    let row = |table: &mut Table, name: &str, count: &dyn Fn(&Counts) -> u64| {
        let cells = part.series.iter().map(|series| count_cell(series.count(count)));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    let listed = |table: &mut Table, name: &str, of: fn(&Counts) -> &Counted| {
        row(table, name, &|counts| of(counts).values().sum());
        for key in keys(part, of, LISTED) {
            let count = |counts: &Counts| of(counts).get(&key).copied().unwrap_or(0);
            row(table, &format!("  {key}"), &count);
        }
    };
    listed(&mut table, "exits to the VMM", |counts| &counts.userspace_exits);
    listed(&mut table, "exits of the processor", |counts| &counts.hardware_exits);
    row(&mut table, "interrupts to the guest", &|counts| counts.interrupts);
    listed(&mut table, "system calls", |counts| &counts.system_calls);
    listed(&mut table, "accesses to ports, also to the kernel's devices", |counts| &counts.ports);
    format!("\n{}", table.text())
}

type Counted = std::collections::BTreeMap<String, u64>;

/// The keys of all series, those of the largest counts first.
fn keys(part: &PartReport, of: impl Fn(&Counts) -> &Counted, limit: usize) -> Vec<String> {
    let mut largest = Counted::new();
    for (key, count) in part.series.iter().flat_map(|series| &series.counts).flat_map(of) {
        let entry = largest.entry(key.clone()).or_default();
        *entry = (*entry).max(*count);
    }
    ranked(&largest, limit)
}

fn ranked(counted: &Counted, limit: usize) -> Vec<String> {
    let mut keys: Vec<(&String, &u64)> = counted.iter().collect();
    keys.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    keys.into_iter().take(limit).map(|(key, _)| key.clone()).collect()
}

fn count_cell(count: Option<f64>) -> String {
    count.map(|count| format!("{count:.0}")).unwrap_or_default()
}

fn memory(part: &PartReport) -> String {
    let mut table =
        Table::new(["PSS outside guest memory, KiB", "median", "min", "max", "largest parts"]);
    for series in &part.series {
        let outside = series.summary(|sample| sample.memory.outside as f64);
        let Some(all) = outside else { continue };
        let parts = series.samples.last().map(|sample| {
            let names = ranked(&sample.memory.parts, 4);
            let parts = names.iter().map(|name| format!("{name} {}", sample.memory.parts[name]));
            parts.collect::<Vec<_>>().join(", ")
        });
        let cell = |value: f64| format!("{value:.0}");
        let figures = [cell(all.median), cell(all.min), cell(all.max), parts.unwrap_or_default()];
        table.row(std::iter::once(series.label()).chain(figures));
    }
    table.text()
}

fn goal(part: &PartReport, goal: &Goal) -> String {
    let verdict = |met: bool| if met { "met" } else { "NOT met" };
    let mut text = String::new();
    let mut told = BTreeSet::new();
    for own in part.series.iter().filter(|series| told.insert(&series.image)) {
        match goal {
            Goal::Time { against, at_most } => {
                let other = part
                    .series
                    .iter()
                    .find(|other| other.vmm == *against && other.image == own.image);
                let Some(ratios) = other.and_then(|other| ratios(own, other)) else { continue };
                let ratio = ratios.median;
                let met = verdict(ratio <= *at_most);
                text += &format!(
                    "goal: {} in at most {at_most} x the time of {against}: {ratio:.3}, {met}\n",
                    own.label(),
                );
            }
            Goal::Memory { at_most } => {
                let outside = own.summary(|sample| sample.memory.outside as f64);
                let Some(outside) = outside else { continue };
                let met = verdict(outside.median <= *at_most as f64);
                text += &format!(
                    "goal: {} with at most {at_most} KiB outside guest memory: {:.0}, {met}\n",
                    own.label(),
                    outside.median,
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::{Kvm, Load, Machine};
    use crate::report::{CpuTime, FORMAT, Memory};

    fn series(vmm: &str, seconds: &[f64], ports: u64) -> Series {
        let sample = |(round, seconds): (usize, &f64)| Sample {
            round,
            seconds: *seconds,
            cpu: CpuTime { total: *seconds, guest: seconds / 2.0 },
            memory: Memory {
                guest: 1,
                outside: 2500,
                parts: BTreeMap::from([("heap".into(), 2000), ("vmm".into(), 500)]),
            },
            threads: 3,
        };
        let counts = Counts {
            userspace_exits: BTreeMap::from([("port".into(), ports)]),
            hardware_exits: BTreeMap::from([("HLT".into(), 9000)]),
            interrupts: 80,
            ports: BTreeMap::from([("0x03f8".into(), ports)]),
            system_calls: BTreeMap::from([("ioctl".into(), ports + 5)]),
        };
        Series {
            vmm: vmm.into(),
            image: "vmlinux".into(),
            samples: seconds.iter().enumerate().map(sample).collect(),
            counts: vec![counts],
            ..Series::default()
        }
    }

    fn report_of(kvm: Kvm, series: Vec<Series>) -> Report {
        let machine =
            Machine { cpu: "EPYC".into(), cpus: 2, kernel: "6.12".into(), memory_mib: 4096 };
        let goals = vec![
            Goal::Time { against: "qemu-q35".into(), at_most: 0.5 },
            Goal::Memory { at_most: 2048 },
        ];
        let part = PartReport {
            title: "boot".into(),
            machine: machine.clone(),
            kvm,
            guest: "a guest".into(),
            series,
            goals,
        };
        Report {
            format: FORMAT,
            benchmark: "boot".into(),
            quick: true,
            started: 0,
            machine,
            load: Load::default(),
            parts: vec![part],
            figures: Vec::new(),
            left_out: vec!["microguest: no /dev/kvm".into()],
        }
    }

    #[test]
    fn goals_are_told_with_their_figures() {
        let series = vec![
            series("corten", &[4.0, 5.0, 9.0], 10),
            series("qemu-q35", &[12.0, 10.0, 20.0], 99),
        ];
        let text = report_of(Kvm::Emulated, series).text();
        assert!(text.contains("at most 0.5 x the time of qemu-q35: 0.450, met"), "{text}");
        assert!(text.contains("at most 2048 KiB outside guest memory: 2500, NOT met"), "{text}");
        assert!(text.contains("not measured: microguest: no /dev/kvm"), "{text}");
    }

    #[test]
    fn in_emulation_counts_come_first_and_small_differences_are_none() {
        let series = || vec![series("corten", &[5.0], 10), series("corten-new", &[5.5], 99)];
        let text = report_of(Kvm::Emulated, series()).text();
        assert!(text.find("exits to the VMM") < text.find("EMULATED"), "{text}");
        assert!(text.contains("1.10 (none)"), "{text}");
        let text = report_of(Kvm::Hardware, series()).text();
        assert!(text.find("exits to the VMM") > text.find("ratio to the first"), "{text}");
        assert!(text.contains("1.10") && !text.contains("(none)"), "{text}");
    }

    #[test]
    fn only_runs_of_the_same_round_are_compared() {
        let mut own = series("corten", &[1.0, 2.0, 30.0], 10);
        own.samples.remove(0);
        let other = series("qemu-q35", &[50.0, 4.0, 60.0], 10);
        let ratios = ratios(&own, &other).unwrap();
        assert_eq!((ratios.count, ratios.min, ratios.max), (2, 0.5, 0.5));
    }

    #[test]
    fn failed_runs_are_told_and_make_a_report_incomplete() {
        let mut failing = series("corten", &[], 10);
        failing.failures.push("timed run 1 of 3: no mark".into());
        let report = report_of(Kvm::Hardware, vec![failing]);
        assert!(!report.is_complete());
        assert!(report.text().contains("failed: corten vmlinux: timed run 1 of 3: no mark"));
    }

    #[test]
    fn report_reads_as_it_was_written() {
        let report = report_of(Kvm::Emulated, vec![series("corten", &[5.0], 10)]);
        let json = serde_json::to_string(&report).unwrap();
        let again: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(again.text(), report.text());
    }
}
