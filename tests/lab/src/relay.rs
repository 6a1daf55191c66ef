//! The door of a background process: clients ask it for things, and run commands in its nodes.
//!
//! It listens on a socket, hands requests to whoever answers them, and relays frames between each client and the node
//! that the client names.

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use crate::node::{ChannelSender, Mux};
use crate::wire::{Decoder, Done, Frame, Kind, Start};

/// A client that does not take its last answer for that long gets none.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// The ports of the nodes, from number 1; a node that ended may be replaced.
#[derive(Clone, Debug, Default)]
pub struct NodePorts(Arc<RwLock<Vec<Mux>>>);

impl NodePorts {
    /// Ports in the order of the nodes' numbers.
    pub fn new(ports: impl IntoIterator<Item = Mux>) -> Self {
        Self(Arc::new(RwLock::new(ports.into_iter().collect())))
    }

    /// The port of node `number`.
    pub fn get(&self, number: u8) -> Option<Mux> {
        let ports = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ports.get(usize::from(number).checked_sub(1)?).cloned()
    }

    /// Puts another node in the place of node `number`.
    pub fn replace(&self, number: u8, port: Mux) {
        let mut ports = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = usize::from(number).checked_sub(1).and_then(|at| ports.get_mut(at)) {
            *old = port;
        }
    }
}

/// A request of a client, which waits for the answer.
#[derive(Debug)]
pub struct Asked<R> {
    /// What it wants.
    pub request: R,
    reply: Sender<Done>,
    /// Closed once the client has the answer.
    written: Receiver<()>,
}

impl<R> Asked<R> {
    /// Answers it.
    pub fn answer(self, done: Done) {
        // A client that is gone wants no answer.
        let _ = self.reply.send(done);
    }

    /// Answers it, and returns when the client has the answer: another thread writes it, and the process must not end
    /// before it has.
    pub fn answer_last(self, done: Done) {
        let _ = self.reply.send(done);
        let _ = self.written.recv_timeout(LAST_ANSWER);
    }
}

/// Listens at `socket` on threads of its own; requests arrive at the returned end.
pub fn listen<R: DeserializeOwned + Send + 'static>(
    socket: &Path,
    nodes: NodePorts,
) -> Result<Receiver<Asked<R>>> {
    let listener = UnixListener::bind(socket).context("cannot listen")?;
    let (requests, received) = channel();
    std::thread::Builder::new().name("listener".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let client = Client { nodes: nodes.clone(), requests: requests.clone() };
            let _ = std::thread::Builder::new().spawn(move || client.serve(stream));
        }
    })?;
    Ok(received)
}

struct Client<R> {
    nodes: NodePorts,
    requests: Sender<Asked<R>>,
}

type Jobs = Arc<Mutex<HashMap<u32, ChannelSender>>>;

impl<R: DeserializeOwned> Client<R> {
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
                let (_written, written) = channel();
                let asked = Asked { request: frame.parse()?, reply, written };
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
        let node = self.nodes.get(start.node);
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
