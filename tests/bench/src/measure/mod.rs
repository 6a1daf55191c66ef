//! Runs guests in turn, and measures each run in the same way.
//!
//! Timed runs and counted runs are apart: what counts exits and system calls in the kernel makes each of them slower,
//! and a VMM with many of them more so.

pub(crate) mod cgroup;
pub(crate) mod console;
pub(crate) mod counts;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod work;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::report::{Counts, Sample, Series};
use crate::vmm::{Guest, Started, StopAt, Vmm};
use console::Console;
use counts::Counter;

/// A boot takes 5 to 15 s in a quiet emulated node.
const RUN_LIMIT: Duration = Duration::from_secs(180);
/// An idle guest is idle at once, unless the host is overloaded.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

/// So many runs may fail before any has come to its end.
const FEW: usize = 3;

/// How often things are measured.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Timed runs of each subject, after one that is not counted in.
    pub timed: usize,
    /// Counted runs of each subject.
    pub counted: usize,
    /// No round starts that would probably end later than this. One of each kind is made in any case.
    pub limit: Option<Duration>,
}

/// A VMM with one of the guests.
pub struct Subject {
    /// What runs it.
    pub vmm: Box<dyn Vmm>,
    /// What is run.
    pub guest: Guest,
    /// What the kernel file is called in reports.
    pub image: String,
}

/// Measures `subjects` in turn: A B A B ...
pub fn series(subjects: &[Subject], rounds: Rounds) -> Result<Vec<Series>> {
    let mut all = subjects.iter().map(empty_series).collect::<Result<Vec<_>>>()?;
    let pace = Pace::new(rounds.limit);
    // Programs, libraries and kernels come from the page cache from here on.
    each(subjects, &mut all, "warm-up", |subject, _| time(subject, 0).map(drop))?;
    let timed = rounds.timed;
    pace.rounds(timed, rounds.counted, |round| {
        each(
            subjects,
            &mut all,
            &format!("timed run {} of {timed}", round + 1),
            |subject, series| {
                series.samples.push(time(subject, round)?);
                Ok(())
            },
        )
    })?;
    let counter = match Counter::new() {
        Ok(counter) => counter,
        Err(error) => {
            all.iter_mut().for_each(|series| series.not_counted = Some(format!("{error:#}")));
            return Ok(all);
        }
    };
    pace.rounds(rounds.counted, 0, |round| {
        let what = format!("counted run {} of {}", round + 1, rounds.counted);
        each(subjects, &mut all, &what, |subject, series| {
            series.counts.push(count(subject, &counter)?);
            Ok(())
        })
    })?;
    Ok(all)
}

fn empty_series(subject: &Subject) -> Result<Series> {
    Ok(Series {
        vmm: subject.vmm.name().into(),
        version: subject.vmm.version()?,
        settings: subject.vmm.settings(),
        image: subject.image.clone(),
        ..Series::default()
    })
}

/// One round. A run that fails is part of the result, not the end of it, unless most of them do.
fn each(
    subjects: &[Subject],
    all: &mut [Series],
    what: &str,
    mut run: impl FnMut(&Subject, &mut Series) -> Result<()>,
) -> Result<()> {
    for (subject, series) in subjects.iter().zip(all) {
        let label = format!("{} {}", series.vmm, series.image);
        let started = Instant::now();
        let outcome = run(subject, series);
        let seconds = started.elapsed().as_secs_f64();
        let Err(error) = outcome else {
            eprintln!("bench: {label}: {what} ({seconds:.1} s)");
            continue;
        };
        eprintln!("bench: {label}: {what} failed after {seconds:.1} s: {error:#}");
        series.failures.push(format!("{what}: {error:#}"));
        let good = series.samples.len() + series.counts.len();
        ensure!(
            series.failures.len() < FEW || good > series.failures.len(),
            "{label} fails too often"
        );
    }
    Ok(())
}

/// Keeps to a time limit by leaving rounds out.
struct Pace {
    started: Instant,
    limit: Option<Duration>,
}

impl Pace {
    fn new(limit: Option<Duration>) -> Self {
        Self { started: Instant::now(), limit }
    }

    /// Makes up to `count` rounds and leaves time for `after` more.
    fn rounds(
        &self,
        count: usize,
        after: usize,
        mut round: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let mut longest = Duration::ZERO;
        for number in 0..count {
            // Of what comes after, only one round is certain to be made.
            let ahead = longest * if after > 0 { 2 } else { 1 };
            let late = self.limit.is_some_and(|limit| self.started.elapsed() + ahead > limit);
            if number > 0 && late {
                eprintln!("bench: {number} of {count} rounds made: the time is up");
                return Ok(());
            }
            let started = Instant::now();
            round(number)?;
            longest = longest.max(started.elapsed());
        }
        Ok(())
    }
}

/// One run, with nothing in the kernel that watches it.
fn time(subject: &Subject, round: usize) -> Result<Sample> {
    let started = Instant::now();
    let mut running = subject.vmm.start(&subject.guest)?;
    let seconds =
        wait_for_mark(&mut running, &subject.guest)?.duration_since(started).as_secs_f64();
    let id = running.process.id();
    let cpu = process::cpu_time(id)?;
    process::settle(id, SETTLE_LIMIT)?;
    let memory = memory::outside_guest(id, subject.guest.memory)?;
    Ok(Sample { round, seconds, cpu, memory, threads: process::threads(id)?.len() })
}

/// One run that is counted and not timed.
fn count(subject: &Subject, counter: &Counter) -> Result<Counts> {
    counter.start()?;
    let mut running = subject.vmm.start(&subject.guest)?;
    wait_for_mark(&mut running, &subject.guest)?;
    counter.read(&process::threads(running.process.id())?)
}

/// When the guest had come as far as is measured.
fn wait_for_mark(running: &mut Started, guest: &Guest) -> Result<Instant> {
    let mut console = Console::new(&running.console);
    let seen = console.wait_for(&guest.mark, Instant::now() + RUN_LIMIT);
    let Some(seen) = seen.context("cannot read the console")? else {
        let status = running.process.ended()?;
        let how = status.map_or("it runs".into(), |status| format!("the VMM ended: {status}"));
        let errors = running.process.errors();
        bail!("no {:?} on the console; {how}; {errors}; console: {}", guest.mark, console.end());
    };
    match guest.stop_at {
        StopAt::Mark => Ok(seen.mark),
        StopAt::FirstByte => {
            let text = console.text();
            ensure!(text.starts_with(&guest.mark), "the first byte is not the guest's: {text:?}");
            Ok(seen.first_byte)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_every_round_is_made() {
        let mut made = 0;
        let count = |_| {
            made += 1;
            Ok(())
        };
        Pace::new(None).rounds(5, 3, count).unwrap();
        assert_eq!(made, 5);
    }

    #[test]
    fn when_the_time_is_up_one_round_is_made_all_the_same() {
        let mut made = 0;
        let count = |_| {
            made += 1;
            Ok(())
        };
        Pace::new(Some(Duration::ZERO)).rounds(5, 0, count).unwrap();
        assert_eq!(made, 1);
    }
}
