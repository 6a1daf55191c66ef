//! A lab that stays up: `up` starts it in the background, `exec`, `save`, `status` and `down` talk to it.
//!
//! The background process holds the nodes; when it ends, they do. It listens on a socket in its run directory and
//! relays frames between each client and the node that the client names.

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::cache::Cache;
use crate::lab::{Lab, Wanted};
use crate::node::{ChannelSender, Mux};
use crate::wire::{Decoder, Done, Frame, Kind, Request, Start};

const ANSWER_LIMIT: Duration = Duration::from_secs(600);
/// Said on standard output once the lab is up.
const UP: &[u8] = b"up\n";

fn socket_path(cache: &Cache, name: &str) -> PathBuf {
    cache.runs().join(name).join("control.sock")
}

/// Starts a lab in the background and waits until it is up.
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
        bail!("the lab did not come up");
    }
    Ok(())
}

/// The background process itself.
pub fn serve(name: &str, wanted: &Wanted) -> Result<()> {
    let cache = Cache::open()?;
    let lab = Lab::start(wanted, name)?;
    eprintln!("lab: {name}: {}", lab.choice);
    let listener = UnixListener::bind(socket_path(&cache, name)).context("cannot listen")?;
    let (requests, received) = channel();
    let nodes: Arc<Vec<Mux>> = Arc::new(lab.nodes.iter().map(|node| node.mux.clone()).collect());
    std::thread::Builder::new().name("listener".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let client = Client { nodes: Arc::clone(&nodes), requests: requests.clone() };
            let _ = std::thread::Builder::new().spawn(move || client.serve(stream));
        }
    })?;
    detach_output()?;
    answer(lab, &received)
}

/// Says that it is up, and stops keeping the caller's terminal and pipes open.
fn detach_output() -> Result<()> {
    set_pdeathsig(None)?;
    nix::unistd::write(std::io::stdout(), UP)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}

/// A request, where its answer goes, and what is closed once the client has it.
type Asked = (Request, Sender<Done>, Receiver<()>);

/// Serves requests about the lab as a whole, on the thread that started the nodes: they end with it.
fn answer(mut lab: Lab, requests: &Receiver<Asked>) -> Result<()> {
    for (request, reply, written) in requests {
        let mut done = Done::default();
        let mut last = matches!(request, Request::Down);
        match request {
            Request::Status => done.report = Some(status(&mut lab)),
            Request::Down => {}
            Request::Save(name) => match lab.save(&name) {
                Ok(()) => last = true,
                Err(error) => done.error = Some(format!("{error:#}")),
            },
        }
        if last {
            drop(lab);
            let _ = reply.send(done);
            // Another thread writes the answer: the process must not end before it has.
            let _ = written.recv_timeout(ANSWER_LIMIT);
            return Ok(());
        }
        let _ = reply.send(done);
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

struct Client {
    nodes: Arc<Vec<Mux>>,
    requests: Sender<Asked>,
}

type Jobs = Arc<Mutex<HashMap<u32, ChannelSender>>>;

impl Client {
    fn serve(&self, mut stream: UnixStream) {
        let jobs = Jobs::default();
        let outcome = self.relay(&mut stream, &jobs);
        if let Err(error) = outcome {
            eprintln!("lab: a client failed: {error:#}");
        }
        // What it started does not outlive it.
        let kill = [9];
        let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.values().for_each(|job| drop(job.send(Kind::Signal, &kill)));
    }

    fn relay(&self, stream: &mut UnixStream, jobs: &Jobs) -> Result<()> {
        let writer = Arc::new(Mutex::new(stream.try_clone()?));
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let length = stream.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            decoder.push(&bytes[..length]);
            while let Some(frame) = decoder.next_frame()? {
                self.handle(&frame, &writer, jobs)?;
            }
        }
    }

    fn handle(&self, frame: &Frame, writer: &Writer, jobs: &Jobs) -> Result<()> {
        match frame.kind {
            Kind::Request => {
                let (reply, answer) = channel();
                // Dropped at the end of this function, when the answer is written.
                let (_written, is_written) = channel();
                let asked = (frame.parse()?, reply, is_written);
                self.requests.send(asked).ok().context("the lab is ending")?;
                let done = answer.recv().context("the lab ended")?;
                send(writer, &Frame::json(frame.channel, Kind::Done, &done)?)
            }
            Kind::Start => self.start(frame, writer, jobs),
            _ => {
                let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
                match jobs.get(&frame.channel) {
                    Some(job) => job.send(frame.kind, &frame.payload),
                    None => Ok(()),
                }
            }
        }
    }

    fn start(&self, frame: &Frame, writer: &Writer, jobs: &Jobs) -> Result<()> {
        let start: Start = frame.parse()?;
        let client_channel = frame.channel;
        let node = usize::from(start.node).checked_sub(1).and_then(|at| self.nodes.get(at));
        let Some(channel) = node.and_then(|node| node.start(&start).ok()) else {
            let text = format!("lab: node {} is not running\n", start.node);
            send(writer, &Frame::new(client_channel, Kind::Stderr, text))?;
            let status = crate::execute::LAB_FAILED.to_le_bytes();
            return send(writer, &Frame::new(client_channel, Kind::Exit, status));
        };
        jobs.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(client_channel, channel.sender());
        let (writer, jobs) = (Arc::clone(writer), Arc::clone(jobs));
        std::thread::Builder::new().spawn(move || {
            for mut frame in &channel.frames {
                frame.channel = client_channel;
                let last = frame.kind == Kind::Exit;
                if last {
                    jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(&client_channel);
                }
                if send(&writer, &frame).is_err() || last {
                    return;
                }
            }
            // The node is gone; so must be the client's hope.
            let stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.shutdown(std::net::Shutdown::Both);
        })?;
        Ok(())
    }
}

type Writer = Arc<Mutex<UnixStream>>;

fn send(writer: &Writer, frame: &Frame) -> Result<()> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes)?;
    let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
    std::io::Write::write_all(&mut *stream, &bytes).context("the client is gone")
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
