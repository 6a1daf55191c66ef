//! What a VMM does while its guest works: counted by the kernel, from one moment to another.

use std::collections::BTreeMap;

use anyhow::Result;
use nix::unistd::Pid;

use super::counts::Counter;
use super::process;
use crate::report::{Counts, Figure};

/// A reason or a system call that is met less often for each operation is not told by name.
const TOLD: f64 = 0.1;

/// A VMM that is watched.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    id: Pid,
    counter: Option<&'a Counter>,
    cpu: f64,
}

/// What it did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// None where the kernel does not count.
    counted: Option<Counted>,
    /// CPU seconds outside the guest.
    cpu: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    userspace_exits: f64,
    hardware_exits: BTreeMap<String, u64>,
    interrupts: f64,
    system_calls: BTreeMap<String, u64>,
}

impl<'a> Watch<'a> {
    /// Begins.
    pub(crate) fn start(id: Pid, counter: Option<&'a Counter>) -> Result<Self> {
        if let Some(counter) = counter {
            counter.start()?;
        }
        Ok(Self { id, counter, cpu: cpu_outside_guest(id)? })
    }

    /// What was done since.
    pub(crate) fn stop(self) -> Result<Work> {
        let read = |counter: &Counter| counter.read(&process::threads(self.id)?);
        let counts = self.counter.map(read).transpose()?;
        Ok(Work {
            counted: counts.as_ref().map(Counted::of),
            cpu: cpu_outside_guest(self.id)? - self.cpu,
        })
    }
}

fn cpu_outside_guest(id: Pid) -> Result<f64> {
    let time = process::cpu_time(id)?;
    Ok(time.total - time.guest)
}

fn sum(counts: &BTreeMap<String, u64>) -> f64 {
    counts.values().sum::<u64>() as f64
}

impl Counted {
    fn of(counts: &Counts) -> Self {
        Self {
            userspace_exits: sum(&counts.userspace_exits),
            hardware_exits: counts.hardware_exits.clone(),
            interrupts: counts.interrupts as f64,
            system_calls: counts.system_calls.clone(),
        }
    }
}

impl Work {
    /// Figures for each of `operations`, without what was done in `start`, which is to start a program that does next to
    /// nothing.
    pub(crate) fn figures(
        &self,
        job: &str,
        (each, operations): (&str, f64),
        start: &Self,
    ) -> Vec<Figure> {
        let share = |own: f64, start: f64| (own - start).max(0.0) / operations;
        let figure =
            |name: &str, value: f64| Figure::new(format!("{job}: {name} per {each}"), value);
        let mut figures = Vec::new();
        if let (Some(own), Some(start)) = (&self.counted, &start.counted) {
            figures.push(figure(
                "exits to the VMM",
                share(own.userspace_exits, start.userspace_exits),
            ));
            let mut told = |name: &str, own: &BTreeMap<_, _>, start: &BTreeMap<_, _>| {
                figures.push(figure(name, share(sum(own), sum(start))));
                for (name, count) in own {
                    let before = start.get(name).copied().unwrap_or(0);
                    let each = share(*count as f64, before as f64);
                    if each >= TOLD {
                        figures.push(figure(&format!("  {name}"), each));
                    }
                }
            };
            told("exits of the processor", &own.hardware_exits, &start.hardware_exits);
            told("system calls", &own.system_calls, &start.system_calls);
            let interrupts = share(own.interrupts, start.interrupts);
            figures.push(figure("interrupts to the guest", interrupts));
        }
        let microseconds = share(self.cpu, start.cpu) * 1e6;
        figures.push(figure("CPU time outside the guest, µs,", microseconds));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(exits: f64, cpu: f64) -> Work {
        Work { counted: Some(Counted { userspace_exits: exits, ..Counted::default() }), cpu }
    }

    #[test]
    fn what_starting_a_program_takes_is_left_out() {
        let figures = work(250.0, 0.003).figures("read", ("4 KiB", 100.0), &work(50.0, 0.001));
        assert_eq!(figures[0], Figure::new("read: exits to the VMM per 4 KiB", 2.0));
        assert_eq!(figures[1].value, 0.0);
        assert!((figures[4].value - 20.0).abs() < 1e-6, "{figures:?}");
    }

    #[test]
    fn what_is_frequent_is_told_by_name() {
        let calls = [("read".into(), 200), ("madvise".into(), 3)];
        let counted = Counted { system_calls: BTreeMap::from(calls), ..Counted::default() };
        let work = Work { counted: Some(counted), cpu: 0.0 };
        let figures = work.figures("job", ("4 KiB", 100.0), &self::work(0.0, 0.0));
        assert_eq!(figures[2], Figure::new("job: system calls per 4 KiB", 2.03));
        assert_eq!(figures[3], Figure::new("job:   read per 4 KiB", 2.0));
        assert_eq!(figures.len(), 6);
    }

    #[test]
    fn where_the_kernel_does_not_count_there_is_cpu_time_alone() {
        let start = Work::default();
        assert_eq!(
            Work { counted: None, cpu: 1.0 }.figures("read", ("read", 1.0), &start).len(),
            1
        );
    }
}
