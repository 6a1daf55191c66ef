//! The `corten` command; see the library.

use std::process::ExitCode;

use corten_cli::commands;
use corten_cli::options::Options;
use corten_launcher::log::chain;

fn main() -> ExitCode {
    let options = Options::of_this_process();
    match commands::run(options) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            commands::say(&chain(&failure));
            ExitCode::from(failure.exit_status())
        }
    }
}
