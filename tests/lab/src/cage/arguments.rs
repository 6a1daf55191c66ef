//! The cage's command line.

use std::env;
use std::ffi::OsString;
use std::iter::once;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use corten_link::Role;

use super::{Cage, Device, Profile, TapRequest, run};

/// Runs a command as the container of a launcher Pod would run it.
#[derive(Debug, Parser)]
#[command(name = "cage")]
struct Arguments {
    /// Which system calls the command may make.
    #[arg(long, value_enum, default_value_t = Profile::Launcher)]
    profile: Profile,
    /// A TAP to grant, with the number of its queues if it is not one; may be given several times.
    #[arg(long = "tap", value_name = "NETWORK[:QUEUES]", default_value = "net1")]
    taps: Vec<TapRequest>,
    /// Program and arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

/// Runs the cage of a command line (without the program's name) in this environment and directory.
///
/// To be called by a process that has one thread and is root in the node.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
    let arguments = once("cage".into()).chain(arguments);
    let Arguments { profile, taps, argv } = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(help) if !help.use_stderr() => {
            help.print().context("cannot print the help")?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => bail!(in_one_line(&error.to_string())),
    };
    let cwd = env::current_dir().context("cannot tell the current directory")?;
    let devices = Device::of_a_launcher(&taps)?;
    let code = run(&Cage { profile, devices, taps, argv, env: env::vars_os().collect(), cwd })?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// What clap says up to its first empty line; usage and hints follow after that.
fn in_one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").into()
}

impl FromStr for TapRequest {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (network, queues) = text.split_once(':').unwrap_or((text, "1"));
        Role::tap(network, 0)?;
        let queues = queues.parse().with_context(|| format!("{queues:?} queues"))?;
        ensure!((1..=corten_net::MAX_QUEUES).contains(&queues), "{queues} queues");
        Ok(Self { network: network.into(), queues })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tap(network: &str, queues: u16) -> TapRequest {
        TapRequest { network: network.into(), queues }
    }

    #[test]
    fn command_alone_means_launcher_and_one_tap() {
        let arguments = Arguments::try_parse_from(["cage", "--", "true", "--profile=x"]).unwrap();
        assert_eq!(arguments.profile, Profile::Launcher);
        assert_eq!(arguments.taps, [tap("net1", 1)]);
        assert_eq!(arguments.argv, ["true", "--profile=x"]);
    }

    #[test]
    fn profile_and_taps_are_taken_as_given() {
        let given = ["cage", "--profile=default", "--tap=net1:4", "--tap=blue", "--", "true"];
        let arguments = Arguments::try_parse_from(given).unwrap();
        assert_eq!(arguments.profile, Profile::Default);
        assert_eq!(arguments.taps, [tap("net1", 4), tap("blue", 1)]);
    }

    #[test]
    fn mistake_is_told_in_one_line() {
        let error = main([]).unwrap_err();
        let wanted = "the following required arguments were not provided: <COMMAND>...";
        assert_eq!(error.to_string(), wanted);
    }

    #[test]
    fn taps_without_queues_or_with_odd_names_are_refused() {
        for text in ["net1:0", "net1:257", "net1:x", "net1:", "", "Net1", "a/b"] {
            assert!(text.parse::<TapRequest>().is_err(), "{text:?}");
        }
    }
}
