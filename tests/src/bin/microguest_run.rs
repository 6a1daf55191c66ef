//! Runs a microguest on whatever KVM there is.
//!
//! Its console goes to stdout, then one line tells what happened. The status is 0 only if the guest carried out all
//! its commands.

use std::env;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use corten_microguest::{Entry, Event};
use corten_tests::MicroVm;

const USAGE: &str = "usage: corten-microguest-run [--entry pvh|64] [--timeout SECONDS] COMMAND...";
const TIMEOUT: Duration = Duration::from_secs(10);
/// `count` reports for ever; the line at the end is to stay a line.
const EVENTS_SHOWN: usize = 16;

struct Options {
    entry: Entry,
    timeout: Duration,
    command_line: String,
}

fn main() -> ExitCode {
    match options(env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("corten-microguest-run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut entry = Entry::Pvh;
    let mut timeout = TIMEOUT;
    let mut words = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--entry" => match arguments.next().as_deref() {
                Some("pvh") => entry = Entry::Pvh,
                Some("64") => entry = Entry::Linux64,
                _ => bail!("--entry is pvh or 64; {USAGE}"),
            },
            "--timeout" => {
                let seconds = arguments.next().context(USAGE)?;
                let seconds = seconds.parse().context("--timeout is a number of seconds")?;
                timeout = Duration::from_secs(seconds);
            }
            option if option.starts_with("--") => bail!("unknown option {option}; {USAGE}"),
            _ => words.push(argument),
        }
    }
    if words.is_empty() {
        bail!(USAGE);
    }
    Ok(Options { entry, timeout, command_line: words.join(" ") })
}

/// Whether the guest came to its end.
fn run(options: &Options) -> Result<bool> {
    let mut vm = MicroVm::boot(options.entry, &options.command_line)?;
    let deadline = Instant::now() + options.timeout;
    let mut events = Vec::new();
    let outcome = loop {
        match vm.run_for(deadline.saturating_duration_since(Instant::now())) {
            Ok(Some(event)) => {
                events.push(event);
                if event.is_last() {
                    break Ok(matches!(event, Event::Done { .. }));
                }
            }
            Ok(None) => break Err(anyhow!("the guest is not done after {:?}", options.timeout)),
            Err(error) => break Err(error.into()),
        }
    };
    let shown = &events[events.len().saturating_sub(EVENTS_SHOWN)..];
    let shown: Vec<String> = shown.iter().map(Event::to_string).collect();
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(vm.console().as_bytes())?;
    writeln!(
        stdout,
        "exits: {}; results: {}, last {}",
        vm.exits(),
        events.len(),
        shown.join(", ")
    )?;
    outcome
}
