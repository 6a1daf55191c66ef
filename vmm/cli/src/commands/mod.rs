//! One file for each command, or for a few that are alike.

mod change;
mod explain;
mod guest;
mod list;
mod report;
mod restore;
mod run;
mod save;
mod start;
mod unused;
mod validate;
mod watch;

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::options::{Command, Options};
use crate::place::Runtime;
use crate::protocol::Question;
use crate::supervisor;

/// Does what the command line says. The status to end with.
pub fn run(options: Options) -> Result<u8, Failure> {
    let runtime = || Runtime::new(options.runtime.as_deref());
    match options.command {
        Command::Run(run) => run::run(runtime, &run),
        Command::Ps(listing) => list::ps(&runtime()?, listing.json),
        Command::Console(console) => watch::console(&runtime()?, &console),
        Command::Info(info) => list::info(&runtime()?, &info.name, info.json),
        Command::Stop(stop) => {
            change::end(&runtime()?, &stop.name, Question::Stop { grace: stop.grace })
        }
        Command::Kill(kill) => change::end(&runtime()?, &kill.name, Question::Kill),
        Command::Pause(pause) => {
            change::change(&runtime()?, &pause.name, Question::Pause { hold: false })
        }
        Command::Resume(resume) => change::change(&runtime()?, &resume.name, Question::Resume),
        Command::Freeze(freeze) => {
            let question = Question::Freeze { limit: freeze.limit };
            change::file_systems(&runtime()?, &freeze.name, question)
        }
        Command::Thaw(thaw) => change::file_systems(&runtime()?, &thaw.name, Question::Thaw),
        Command::Save(save) => save::save(&runtime()?, &save),
        Command::Restore(restore) => restore::restore(runtime, &restore),
        Command::Logs(logs) => watch::logs(&runtime()?, &logs),
        Command::Validate(validate) => validate::validate(&validate),
        Command::Explain(explain) => explain::explain(&explain.path),
        Command::Completion { shell } => {
            let (mut command, mut script) = (Options::shown(), Vec::new());
            clap_complete::generate(shell, &mut command, "corten", &mut script);
            write(&script)?;
            Ok(0)
        }
        Command::Version => {
            print(&format!("corten {}\n", env!("CARGO_PKG_VERSION")))?;
            Ok(0)
        }
        Command::Supervise => {
            supervisor::supervise(&runtime()?)?;
            Ok(0)
        }
    }
}

/// Writes to standard output.
fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes())
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// A reader that has gone, as `head` does, has read what it wanted: the command goes on, and ends with its own status.
fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => {
            outcome.map_err(|source| Failure::System { what: "write to standard output", source })
        }
    }
}

/// A line on standard error. That nobody reads it must not end anything, as `eprintln` would.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "corten: {text}");
}

/// Writes an object as JSON.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    let text =
        text.map_err(|error| Failure::System { what: "write JSON", source: error.into() })?;
    print(&(text + "\n"))
}
