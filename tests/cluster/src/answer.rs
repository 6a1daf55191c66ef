//! What clients ask of a cluster that is up.

use std::fmt::Write;
use std::fs;
use std::sync::mpsc::Receiver;

use anyhow::{Result, anyhow};
use corten_lab::relay::Asked;
use corten_lab::wire::Done;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::programs::Program;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To say how it is.
    Status,
    /// To take a node off the network.
    Cut(u8),
    /// To connect a node again, or to start it anew.
    Heal(u8),
    /// To end a node as a loss of power would.
    Kill(u8),
    /// To run a program beside the control plane.
    Start(Program),
    /// To kill such a program.
    Stop(String),
    /// To end.
    Down,
}

/// Answers until it is told to end. On the thread that started the programs: they end with it.
pub fn answer(mut cluster: Cluster, requests: &Receiver<Asked<Request>>) {
    for asked in requests {
        if asked.request == Request::Down {
            drop(cluster);
            asked.answer_last(Done::default());
            return;
        }
        let outcome = act(&mut cluster, &asked.request);
        let mut done = Done::default();
        match outcome {
            Ok(report) => done.report = Some(report),
            Err(error) => done.error = Some(format!("{error:#}")),
        }
        asked.answer(done);
    }
}

fn act(cluster: &mut Cluster, request: &Request) -> Result<String> {
    match request {
        Request::Status => status(cluster),
        Request::Cut(number) => cluster.cut_node(*number).map(|()| String::new()),
        Request::Heal(number) => cluster.heal_node(*number).map(|()| String::new()),
        Request::Kill(number) => cluster.kill_node(*number).map(|()| String::new()),
        Request::Start(program) => {
            let log = cluster.programs.start(program, &cluster.places.logs)?;
            Ok(log.display().to_string())
        }
        Request::Stop(name) => cluster.programs.stop(name).map(|()| String::new()),
        // Answered before it comes here.
        Request::Down => Ok(String::new()),
    }
}

fn status(cluster: &mut Cluster) -> Result<String> {
    let mut text = String::new();
    let mut total = 0;
    let mut row = |name: &str, running: bool, process: u32| {
        let memory = resident_mib(process);
        total += memory;
        let state = if running { "running" } else { "ended" };
        writeln!(text, "  {name:<24} {state:<8} process {process:<8} {memory:>6} MiB")
            .map_err(|_| anyhow!("cannot write"))
    };
    row("cluster", true, std::process::id())?;
    for component in &mut cluster.control_plane.components {
        let running = component.process.is_running();
        row(component.name, running, component.process.id())?;
    }
    for (name, running, process) in cluster.programs.list() {
        row(name, running, process)?;
    }
    if let Some(nfs) = &mut cluster.nfs {
        row("nfs", nfs.process.is_running(), nfs.process.id())?;
    }
    for (at, node) in cluster.nodes.iter_mut().enumerate() {
        let name = format!("node{}", at + 1);
        match node {
            Some(node) => row(&name, node.is_running(), node.process_id())?,
            None => row(&name, false, 0)?,
        }
    }
    let logs = cluster.places.logs.display();
    text += &format!("  memory in all: {total} MiB\nlogs, and the audit log: {logs}\n");
    Ok(text)
}

/// What a process has in memory, pages that it shares counted in full.
fn resident_mib(process: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages / 256
}
