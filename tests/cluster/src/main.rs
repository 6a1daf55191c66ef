//! `scripts/cluster`: a real Kubernetes on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use corten_cluster::answer::Request;
use corten_cluster::assets::RECIPES;
use corten_cluster::options::Options;
use corten_cluster::programs::Program;
use corten_cluster::{client, cluster};
use corten_lab::assets::Assets;
use corten_lab::cache::Cache;
use corten_lab::oci;

/// A real Kubernetes on this machine: the control plane in a network namespace of its own, kubelets in nodes with
/// working KVM.
#[derive(Parser)]
#[command(name = "scripts/cluster")]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Start the cluster, unless it is up, and print where its kubeconfig is
    Up(Options),
    /// End it
    Down,
    /// Show what runs, its memory, and where its logs are
    Status,
    /// kubectl with the cluster's kubeconfig
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments of kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run a command where Pods and Services can be reached, with KUBECONFIG set
    Exec {
        /// End it after that many seconds, with status 124
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        time_limit: u64,
        /// The command
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Run a program beside the control plane, in its network, until it is stopped or the cluster ends
    Start {
        /// What it is called here
        name: String,
        /// The program, by its path, with its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Kill such a program
    Stop {
        /// What it was started as
        name: String,
    },
    /// Put images (OCI archives) into the registry and into every node
    Load {
        /// The archives
        #[arg(required = true, value_name = "IMAGE")]
        archives: Vec<PathBuf>,
    },
    /// A shell, or a command, in a node
    NodeShell {
        /// The node's number
        number: u8,
        /// The command
        #[arg(last = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Take a node off the network
    NodeCut {
        /// The node's number
        number: u8,
    },
    /// Connect a node again; one that was killed starts anew
    NodeHeal {
        /// The node's number
        number: u8,
    },
    /// End a node as a loss of power would
    NodeKill {
        /// The node's number
        number: u8,
    },
    /// Make what a cluster consists of (all, if none is named) and print where it is
    Assets {
        /// Names of assets
        names: Vec<String>,
    },
    /// Make a VMI beside a plain Pod and show when each of their steps was seen, up to the guest's user space
    Timeline {
        /// Manifest of the VirtualMachineInstance
        manifest: PathBuf,
        /// What the guest says on its console when user space runs
        #[arg(long, value_name = "TEXT", default_value = "CORTEN-GUEST-UP")]
        until: String,
        /// How often both are made, one after the other: times are medians
        #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=100))]
        runs: u16,
    },
    #[command(hide = true)]
    Oci(oci::OciArgs),
    #[command(hide = true)]
    Serve(Options),
}

/// Exit status for a failure of the cluster itself, not of a command in it.
const CLUSTER_FAILED: u8 = 125;

fn main() -> ExitCode {
    match act(Cli::parse().command) {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::from(CLUSTER_FAILED)
        }
    }
}

fn act(what: What) -> Result<i32> {
    match what {
        What::Up(options) => client::up(&options)?,
        What::Serve(options) => cluster::serve(&options)?,
        What::Down => client::down()?,
        What::Status => client::status()?,
        What::Kubectl { arguments } => return client::kubectl(&arguments),
        What::Exec { time_limit, command } => {
            return client::exec(&command, Duration::from_secs(time_limit));
        }
        What::Start { name, command } => {
            let program = Program { name, argv: command };
            let done = client::request(&Request::Start(program))?;
            println!("{}", done.report.unwrap_or_default());
        }
        What::Stop { name } => drop(client::request(&Request::Stop(name))?),
        What::Load { archives } => client::load(&archives)?,
        What::NodeShell { number, command } => return client::node_shell(number, command),
        What::NodeCut { number } => drop(client::request(&Request::Cut(number))?),
        What::NodeHeal { number } => drop(client::request(&Request::Heal(number))?),
        What::NodeKill { number } => drop(client::request(&Request::Kill(number))?),
        What::Assets { names } => make_assets(names)?,
        What::Timeline { manifest, until, runs } => {
            println!("{}", client::timeline(&manifest, &until, runs)?);
        }
        What::Oci(arguments) => println!("{}", oci::run(&arguments)?),
    }
    Ok(0)
}

fn make_assets(names: Vec<String>) -> Result<()> {
    let assets = Assets::with(Cache::open()?, RECIPES)?;
    let all = RECIPES.iter().map(|recipe| recipe.name.to_owned());
    let names = if names.is_empty() { all.collect() } else { names };
    for name in names {
        println!("{name} {}", assets.ensure(&name)?.display());
    }
    Ok(())
}
