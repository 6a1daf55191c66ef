//! A lab that stays up: `up` starts it in the background, `exec`, `save`, `status` and `down` talk to it.
//!
//! The background process holds the nodes; when it ends, they do. It listens on a socket in its run directory and
//! relays frames between each client and the node that the client names.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::cache::Cache;
use crate::lab::{Lab, Wanted};
use crate::node::Mux;
use crate::relay::{self, Asked, NodePorts};
use crate::wire::{Done, Kind, Request};

const ANSWER_LIMIT: Duration = Duration::from_secs(600);
/// Said on standard output once the lab is up.
const UP: &[u8] = b"up\n";

/// Where the background process of the lab `name` listens.
pub fn socket_path(cache: &Cache, name: &str) -> PathBuf {
    cache.runs().join(name).join("control.sock")
}

/// Starts this program with the word `serve` and `arguments` in the background and waits until it is up.
pub fn up(arguments: &[String]) -> Result<()> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own);
    command.arg("serve").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // Its own session: it stays when the shell goes.
    let detach = || {
        nix::unistd::setsid()?;
        // Until it is up it is ours, and ends with us.
        set_pdeathsig(Signal::SIGKILL)?;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, which is allowed there.
    unsafe { command.pre_exec(detach) };
    let mut child = command.spawn().context("cannot start the lab")?;
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(UP.len() as u64).read_to_end(&mut said)?;
    }
    if said != UP {
        child.wait()?;
        bail!("it did not come up");
    }
    Ok(())
}

/// The background process itself.
pub fn serve(name: &str, wanted: &Wanted) -> Result<()> {
    let cache = Cache::open()?;
    let lab = Lab::start(wanted, name)?;
    eprintln!("lab: {name}: {}", lab.choice);
    let nodes = NodePorts::new(lab.nodes.iter().map(|node| node.mux.clone()));
    let requests = relay::listen(&socket_path(&cache, name), nodes)?;
    say_up(Path::new("/dev/null"))?;
    answer(lab, &requests)
}

/// Tells [`up`] that this process is up, which then stays. What it prints from here on goes to `log`: the caller's terminal
/// and pipes must not be kept open.
pub fn say_up(log: &Path) -> Result<()> {
    set_pdeathsig(None)?;
    nix::unistd::write(std::io::stdout(), UP)?;
    let log = File::options().create(true).append(true).open(log)?;
    nix::unistd::dup2_stdout(&log)?;
    nix::unistd::dup2_stderr(&log)?;
    Ok(())
}

/// Serves requests about the lab as a whole, on the thread that started the nodes: they end with it.
fn answer(mut lab: Lab, requests: &Receiver<Asked<Request>>) -> Result<()> {
    for asked in requests {
        let mut done = Done::default();
        let mut last = matches!(asked.request, Request::Down);
        match &asked.request {
            Request::Status => done.report = Some(status(&mut lab)),
            Request::Down => {}
            Request::Save(name) => match lab.save(name) {
                Ok(()) => last = true,
                Err(error) => done.error = Some(format!("{error:#}")),
            },
        }
        if last {
            drop(lab);
            asked.answer_last(done);
            return Ok(());
        }
        asked.answer(done);
    }
    Ok(())
}

fn status(lab: &mut Lab) -> String {
    let mut text = format!("{}\n", lab.choice);
    for node in &mut lab.nodes {
        if node.is_running() {
            text += &format!("node{} running, process {}\n", node.index, node.process_id());
        } else {
            text += &format!("{}\n", node.post_mortem());
        }
    }
    text
}

/// Connects to the lab `name`.
pub fn connect(name: &str) -> Result<Mux> {
    let cache = Cache::open()?;
    let stream = UnixStream::connect(socket_path(&cache, name))
        .with_context(|| format!("no lab named {name:?} is up: start it with `scripts/lab up`"))?;
    Mux::new(stream)
}

/// Asks the lab `name` for something.
pub fn request(name: &str, request: &Request) -> Result<Done> {
    connect(name)?.call(Kind::Request, request, ANSWER_LIMIT)
}

/// Names of labs that are up.
pub fn names() -> Result<Vec<String>> {
    let cache = Cache::open()?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(cache.runs())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if Path::new(&socket_path(&cache, &name)).exists() && connect(&name).is_ok() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
