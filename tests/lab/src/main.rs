//! `scripts/lab`: nodes with working KVM, and commands in them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use corten_lab::assets::{self, Assets};
use corten_lab::cache::Cache;
use corten_lab::execute::{LAB_FAILED, Signals, execute, has_terminal, terminal_size};
use corten_lab::lab::{Lab, Wanted, unique_name};
use corten_lab::node::{Mux, Snapshot};
use corten_lab::wire::{CageRequest, Request, Start};
use corten_lab::{background, oci, probe};

/// Nodes with working KVM on any machine.
///
/// Where the machine's /dev/kvm runs ordinary guests, it is used as it is; elsewhere a node is emulated in which
/// Debian's own KVM runs. Which of the two is found by trying.
#[derive(Parser)]
#[command(name = "scripts/lab")]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a command in a fresh node (in every node, with --nodes); its output and exit status are the command's
    Run(Run),
    /// Start a lab that stays up
    Up(Up),
    /// Run a command, or a shell, in a lab that is up
    Exec(Exec),
    /// Save the node of a lab that is up, with what runs in it, for --from; the lab ends
    Save(Save),
    /// Remove a saved node
    Forget {
        /// What it was saved as
        #[arg(value_name = "NAME")]
        saved: String,
    },
    /// End a lab that is up
    Down(Name),
    /// Show which labs are up
    Status,
    /// Say what this machine's /dev/kvm is good for
    Probe,
    /// Make assets (all, if none is named) and print their directories
    Assets {
        /// Names of assets
        names: Vec<String>,
    },
    /// Write an OCI archive from files
    Oci(oci::OciArgs),
    #[command(hide = true)]
    Serve(Up),
}

#[derive(Args)]
struct Name {
    /// Name of the lab
    #[arg(long, default_value = "lab")]
    name: String,
}

#[derive(Args)]
struct Up {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    wanted: Wanted,
}

#[derive(Args)]
struct Save {
    #[command(flatten)]
    name: Name,
    /// What to save it as
    #[arg(value_name = "AS")]
    saved: String,
}

#[derive(Args)]
struct How {
    /// Run it as a launcher Pod would: uid 107, no capability, read-only root, under a system-call profile
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "launcher", value_parser = ["launcher", "default"])]
    cage: Option<String>,
    /// TAPs for the cage
    #[arg(long, value_name = "NETWORK[:QUEUES]", requires = "cage")]
    tap: Vec<String>,
    /// End it after that many seconds, with status 124
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    time_limit: u64,
    /// Set an environment variable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Make sure of an asset and name its directory in CORTEN_ASSET_<NAME>
    #[arg(long, value_name = "NAME")]
    asset: Vec<String>,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    how: How,
    /// Do not say what kind of node was chosen
    #[arg(long, short)]
    quiet: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Args)]
struct Exec {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    how: How,
    /// Which node
    #[arg(long, default_value_t = 1)]
    node: u8,
    /// The command; a shell if there is none
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

fn main() -> ExitCode {
    // A reader that goes away ends the output, not the clean-up.
    match act(Cli::parse().command) {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(u8::try_from(LAB_FAILED).unwrap_or(1))
        }
    }
}

fn act(what: What) -> Result<i32> {
    match what {
        What::Run(run) => run_fresh(run),
        // The background process takes the same arguments; they were checked here, where the user sees it.
        What::Up(_) => background::up(&std::env::args().skip(2).collect::<Vec<_>>()).map(|()| 0),
        What::Serve(up) => background::serve(&up.name.name, &up.wanted).map(|()| 0),
        What::Exec(exec) => run_in_background_lab(exec),
        What::Save(save) => {
            background::request(&save.name.name, &Request::Save(save.saved)).map(|_| 0)
        }
        What::Forget { saved } => Snapshot::forget(&Cache::open()?, &saved).map(|()| 0),
        What::Down(name) => background::request(&name.name, &Request::Down).map(|_| 0),
        What::Status => status(),
        What::Probe => {
            println!("{}", describe_kvm());
            Ok(0)
        }
        What::Assets { names } => make_assets(names),
        What::Oci(arguments) => {
            println!("{}", oci::run(&arguments)?);
            Ok(0)
        }
    }
}

fn describe_kvm() -> String {
    match probe::try_kvm() {
        Ok(()) => "/dev/kvm runs ordinary guests: the node is this machine itself".into(),
        Err(reason) => format!("{reason}: nodes are emulated"),
    }
}

fn run_fresh(run: Run) -> Result<i32> {
    let signals = Signals::watch()?;
    let start = run.how.start(run.command, 1)?;
    let mut lab = Lab::start(&run.wanted, &unique_name("run"))?;
    if !run.quiet {
        eprintln!("lab: {}", lab.choice);
    }
    let nodes: Vec<&Mux> = lab.nodes.iter().map(|node| &node.mux).collect();
    let status = execute(&nodes, &start, &signals)?;
    if status.is_none() {
        lab.nodes.iter_mut().for_each(|node| eprintln!("lab: {}", node.post_mortem()));
    }
    Ok(status.unwrap_or(LAB_FAILED))
}

fn run_in_background_lab(exec: Exec) -> Result<i32> {
    let signals = Signals::watch()?;
    let shell = exec.command.is_empty();
    let command = if shell { vec!["bash".into()] } else { exec.command };
    let mut start = exec.how.start(command, exec.node)?;
    if has_terminal() {
        start.terminal = Some(terminal_size());
    }
    if shell {
        start.time_limit = None;
    }
    let lab = background::connect(&exec.name.name)?;
    let status = execute(&[&lab], &start, &signals)?;
    if status.is_none() {
        let how = background::request(&exec.name.name, &Request::Status);
        let how = how.ok().and_then(|done| done.report).unwrap_or_default();
        eprintln!("lab: node {} is gone\n{how}", exec.node);
    }
    Ok(status.unwrap_or(LAB_FAILED))
}

impl How {
    fn start(self, argv: Vec<String>, node: u8) -> Result<Start> {
        let mut env = Vec::new();
        // So that the lab can be started inside a node, where there is no cargo.
        let own = std::env::current_exe().context("cannot find this program")?;
        env.push(("CORTEN_LAB".into(), own.to_string_lossy().into_owned()));
        for name in ["CORTEN_CHECKOUT", "CORTEN_CACHE", "RUST_BACKTRACE"] {
            env.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
        }
        env.push(("CORTEN_CACHE".into(), Cache::open()?.root().to_string_lossy().into_owned()));
        let assets = Assets::new(Cache::open()?)?;
        for name in &self.asset {
            let variable = name.to_uppercase().replace(['-', '.'], "_");
            let directory = assets.ensure(name)?.to_string_lossy().into_owned();
            env.push((format!("CORTEN_ASSET_{variable}"), directory));
        }
        for pair in &self.env {
            let (name, value) =
                pair.split_once('=').with_context(|| format!("--env {pair}: not NAME=VALUE"))?;
            env.push((name.into(), value.into()));
        }
        Ok(Start {
            node,
            argv,
            env,
            directory: std::env::current_dir()?.to_string_lossy().into_owned(),
            time_limit: Some(Duration::from_secs(self.time_limit)),
            terminal: None,
            cage: self.cage.map(|profile| CageRequest { profile, taps: self.tap }),
        })
    }
}

fn status() -> Result<i32> {
    let names = background::names()?;
    if names.is_empty() {
        println!("no lab is up");
    }
    for name in names {
        let done = background::request(&name, &Request::Status)?;
        print!("{name}: {}", done.report.unwrap_or_default());
    }
    Ok(0)
}

fn make_assets(names: Vec<String>) -> Result<i32> {
    let assets = Assets::new(Cache::open()?)?;
    let names = if names.is_empty() {
        assets::names().into_iter().map(Into::into).collect()
    } else {
        names
    };
    for name in names {
        println!("{name} {}", assets.ensure(&name)?.display());
    }
    Ok(0)
}
