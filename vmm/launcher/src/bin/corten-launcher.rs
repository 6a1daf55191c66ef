//! The launcher; see the library.

use std::process::ExitCode;

use corten_launcher::launcher::{Ended, Launcher};
use corten_launcher::log::{chain, say};
use corten_launcher::options::Options;
use corten_launcher::termination::{End, TerminationLog};
use corten_link::EndReason;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::from(EndReason::NotStarted.exit_status());
        }
    };
    // Before anything else: whatever goes wrong from here on is told there too.
    let log = TerminationLog::open(&options.termination_log);
    let Ended { end, fault, console } = match Launcher::new(options.clone()) {
        Ok(launcher) => launcher.run(),
        // The termination message is the other's, whose VM goes on.
        Err(error) if error.is_second() => {
            say(&chain(&error));
            return ExitCode::from(EndReason::NotStarted.exit_status());
        }
        Err(error) => {
            let end = End { reason: EndReason::NotStarted, detail: chain(&error) };
            Ended { end, fault: None, console: String::new() }
        }
    };
    let detail = if end.detail.is_empty() { String::new() } else { format!(": {}", end.detail) };
    say(&format!("{}{detail}", end.reason.text()));
    if let Err(error) = log.and_then(|log| log.write(&end, fault, &console)) {
        let path = options.termination_log.display();
        say(&format!("cannot write the termination message to {path}: {error}"));
    }
    ExitCode::from(end.reason.exit_status())
}
