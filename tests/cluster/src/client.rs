//! Commands about a cluster that is up.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_lab::assets::Assets;
use corten_lab::background;
use corten_lab::cache::{self, Cache};
use corten_lab::execute::{Signals, execute, has_terminal, terminal_size};
use corten_lab::node::{self, Mux};
use corten_lab::wire::{Done, Kind};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::answer::Request;
use crate::assets::RECIPES;
use crate::options::Options;
use crate::state::{self, NAME, State};
use crate::{cluster, timeline};

/// Between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(5);
const TIMED_OUT: i32 = 124;
/// A restored node joins in seconds; all else is quicker.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// Two megabytes a second in an emulated node.
const PULL_LIMIT: Duration = Duration::from_secs(540);

/// Starts a cluster in the background, unless the one that is wanted is up.
pub fn up(options: &Options) -> Result<()> {
    options.check()?;
    let cache = Cache::open()?;
    if let Some(state) = State::find(&cache)? {
        let assets = Assets::with(cache, RECIPES)?;
        ensure!(
            state.version == options.version(&assets)?,
            "a cluster is up that was started from other sources or with other options: end it with \
             `scripts/cluster down` first"
        );
        state.kubectl().run(&["get", "--raw", "/readyz"]).context(
            "a cluster is up whose API server does not answer: end it with `scripts/cluster down`",
        )?;
        eprintln!("cluster: it is up already");
    } else {
        let mut arguments = vec![format!("--nodes={}", options.nodes)];
        arguments.extend(options.control_plane_only.then(|| "--control-plane-only".into()));
        background::up(&arguments).context("no cluster")?;
    }
    let state = State::required(&Cache::open()?)?;
    println!("export KUBECONFIG={}", state.kubeconfig.display());
    Ok(())
}

/// Ends the cluster, also one that is being started; there need not be one.
pub fn down() -> Result<()> {
    let cache = Cache::open()?;
    let run = cache.runs().join(NAME);
    let held = run.exists() && !cache::is_abandoned(&run)?;
    if held && let Err(error) = request(&Request::Down) {
        kill_holder(&run, &error)?;
    }
    // What a killed one left.
    if run.exists() && cache::is_abandoned(&run)? {
        std::fs::remove_dir_all(&run)?;
    }
    Ok(())
}

/// For one that does not answer: with its process everything ends.
fn kill_holder(run: &Path, error: &anyhow::Error) -> Result<()> {
    let process = state::holder(run)
        .with_context(|| format!("the cluster does not answer ({error:#}): try again"))?;
    eprintln!("cluster: it does not answer ({error:#}): killing process {process}");
    kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL)?;
    let deadline = Instant::now() + GRACE;
    while run.exists() && !cache::is_abandoned(run)? {
        ensure!(Instant::now() < deadline, "process {process} does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What runs, and how it is.
pub fn status() -> Result<()> {
    let Some(state) = State::find(&Cache::open()?)? else {
        println!("no cluster is up");
        return Ok(());
    };
    let report = request(&Request::Status)?.report.unwrap_or_default();
    match state.kubectl().run(&["get", "nodes", "-o", "wide", "--request-timeout=10s"]) {
        Ok(nodes) => print!("{nodes}"),
        Err(error) => println!("the API server does not answer: {error:#}"),
    }
    print!("{report}");
    println!("kubeconfig: {}", state.kubeconfig.display());
    Ok(())
}

/// Asks the cluster for something.
pub fn request(request: &Request) -> Result<Done> {
    connect()?.call(Kind::Request, request, ANSWER_LIMIT)
}

fn connect() -> Result<Mux> {
    let socket = background::socket_path(&Cache::open()?, NAME);
    let stream = std::os::unix::net::UnixStream::connect(socket)
        .context("no cluster is up: start it with `scripts/cluster up`")?;
    Mux::new(stream)
}

/// kubectl, in the place of this program.
pub fn kubectl(arguments: &[String]) -> Result<i32> {
    let state = State::required(&Cache::open()?)?;
    let error = state.kubectl().command().args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", state.kubectl.display()))
}

/// Runs a command in the cluster's network namespace, where Pods and Services can be reached.
pub fn exec(argv: &[String], limit: Duration) -> Result<i32> {
    let state = State::required(&Cache::open()?)?;
    let namespace = File::open(format!("/proc/{}/ns/net", state.process))
        .context("the cluster has just ended")?;
    setns(&namespace, CloneFlags::CLONE_NEWNET).context("cannot enter the cluster's network")?;
    let (program, arguments) = argv.split_first().context("no command")?;
    let programs = state.kubectl.parent().context("kubectl lies nowhere")?.to_owned();
    let mut path = vec![programs];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("KUBECONFIG", &state.inside_kubeconfig)
        .env("PATH", std::env::join_paths(path)?);
    // A group of its own ends as a whole; but at a terminal only the first group may read.
    let grouped = !std::io::stdin().is_terminal();
    if grouped {
        command.process_group(0);
    }
    let end_with_us = || Ok(set_pdeathsig(Signal::SIGKILL)?);
    // SAFETY: between fork and exec one system call is made, which is allowed there.
    unsafe { command.pre_exec(end_with_us) };
    let mut child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("cluster: {program} is not there");
            return Ok(127);
        }
        other => other.with_context(|| format!("cannot run {program}"))?,
    };
    let process = Pid::from_raw(child.id().cast_signed());
    let mut end = Instant::now() + limit;
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if asked { TIMED_OUT } else { code(status) });
        }
        if Instant::now() > end {
            let signal = if asked { Signal::SIGKILL } else { Signal::SIGTERM };
            // It may just have ended.
            let _ = if grouped { killpg(process, signal) } else { kill(process, signal) };
            (asked, end) = (true, Instant::now() + GRACE);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A shell, or a command, in node `number`.
pub fn node_shell(number: u8, argv: Vec<String>) -> Result<i32> {
    let signals = Signals::watch()?;
    let mut start = node::command("", &[], Duration::ZERO);
    start.node = number;
    start.time_limit = None;
    start.argv = if argv.is_empty() { vec!["bash".into()] } else { argv };
    if has_terminal() {
        start.terminal = Some(terminal_size());
    }
    match execute(&[&connect()?], &start, &signals)? {
        Some(status) => Ok(status),
        None => bail!("node {number} is gone"),
    }
}

/// Puts OCI archives into the registry and, from there, into every node.
pub fn load(archives: &[PathBuf]) -> Result<()> {
    let state = State::required(&Cache::open()?)?;
    let images = cluster::load(&state.registry, &state.registry_storage, archives)?;
    let port = connect()?;
    for image in images {
        println!("{image}");
        for number in 1..=state.nodes {
            let script = "ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d \"$1\"";
            let mut pull = node::command(script, &[&image], PULL_LIMIT);
            pull.node = number;
            port.run(&pull, &[]).with_context(|| format!("node {number} does not get {image}"))?;
        }
    }
    Ok(())
}

/// When the steps of the VMI of `manifest` were seen, and those of a plain Pod, as a table of the medians of `runs`.
pub fn timeline(manifest: &Path, until: &str, runs: u16) -> Result<String> {
    let kubectl = State::required(&Cache::open()?)?.kubectl();
    let vmi = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    timeline::beside_a_pod(&kubectl, &vmi, until, runs)
}
