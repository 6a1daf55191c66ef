//! Many commands over one byte stream: the lab's side of [`crate::wire`].

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::wire::{Decoder, Done, Frame, Kind, STDIN_WINDOW, Start};

/// Frames that wait for whoever reads a channel. When they are this many the stream is not read further, which holds the
/// node back: a slow reader costs speed, not memory.
const BACKLOG: usize = 128;

/// One end of the stream, shared by all who run commands over it.
#[derive(Clone, Debug)]
pub struct Mux(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    writer: Mutex<UnixStream>,
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    next: u32,
    open: HashMap<u32, SyncSender<Frame>>,
    lost: bool,
}

/// One open channel. Dropping it forgets the command, which goes on.
#[derive(Debug)]
pub struct Channel {
    /// Its number on the wire.
    pub number: u32,
    /// What comes back on it; disconnected when the stream is lost.
    pub frames: Receiver<Frame>,
    mux: Mux,
}

impl Mux {
    /// Takes the stream and starts reading from it.
    pub fn new(stream: UnixStream) -> Result<Self> {
        let reader = stream.try_clone()?;
        let shared = Shared { writer: Mutex::new(stream), channels: Mutex::default() };
        let mux = Self(Arc::new(shared));
        let dispatcher = mux.clone();
        std::thread::Builder::new().name("mux".into()).spawn(move || {
            if let Err(error) = dispatcher.dispatch(reader) {
                eprintln!("lab: {error:#}");
            }
            let mut channels = dispatcher.channels();
            channels.lost = true;
            channels.open.clear();
        })?;
        Ok(mux)
    }

    /// Starts a command.
    pub fn start(&self, start: &Start) -> Result<Channel> {
        let channel = self.open()?;
        self.send(&Frame::json(channel.number, Kind::Start, start)?)?;
        Ok(channel)
    }

    /// Asks for something and waits for the answer.
    pub fn call(&self, kind: Kind, body: &impl Serialize, limit: Duration) -> Result<Done> {
        let channel = self.open()?;
        self.send(&Frame::json(channel.number, kind, body)?)?;
        let done: Done = match channel.frames.recv_timeout(limit) {
            Ok(frame) => frame.parse()?,
            Err(RecvTimeoutError::Timeout) => bail!("no answer to {kind:?} in {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the other side ended"),
        };
        match done.error {
            Some(error) => bail!(error),
            None => Ok(done),
        }
    }

    /// Whether the other side is gone.
    pub fn is_lost(&self) -> bool {
        self.channels().lost
    }

    fn open(&self) -> Result<Channel> {
        let (sender, frames) = sync_channel(BACKLOG);
        let mut channels = self.channels();
        if channels.lost {
            bail!("the other side ended");
        }
        channels.next += 1;
        let number = channels.next;
        channels.open.insert(number, sender);
        Ok(Channel { number, frames, mux: self.clone() })
    }

    /// Sends one frame.
    pub fn send(&self, frame: &Frame) -> Result<()> {
        let mut bytes = Vec::with_capacity(frame.payload.len() + 16);
        frame.encode(&mut bytes)?;
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(&bytes).context("the other side ended")
    }

    fn dispatch(&self, mut reader: UnixStream) -> Result<()> {
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let length = match reader.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
                other => other?,
            };
            decoder.push(&bytes[..length]);
            while let Some(frame) = decoder.next_frame()? {
                let number = frame.channel;
                let last = matches!(frame.kind, Kind::Exit | Kind::Done);
                // Not under the lock: whoever reads may want to open or drop a channel meanwhile.
                let sender = self.channels().open.get(&number).cloned();
                if let Some(sender) = sender {
                    // Nobody may be listening any more: then it is for nobody.
                    let _ = sender.send(frame);
                }
                if last {
                    self.channels().open.remove(&number);
                }
            }
        }
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.0.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    /// Sends something about the command.
    pub fn send(&self, kind: Kind, payload: &[u8]) -> Result<()> {
        self.mux.send(&Frame::new(self.number, kind, payload))
    }

    /// A handle that can send from another thread while this one is read from.
    pub fn sender(&self) -> ChannelSender {
        ChannelSender { number: self.number, mux: self.mux.clone() }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.mux.channels().open.remove(&self.number);
    }
}

/// Sends on a channel.
#[derive(Clone, Debug)]
pub struct ChannelSender {
    number: u32,
    mux: Mux,
}

impl ChannelSender {
    /// Sends something about the command.
    pub fn send(&self, kind: Kind, payload: &[u8]) -> Result<()> {
        self.mux.send(&Frame::new(self.number, kind, payload))
    }
}

/// How much standard input may still be sent; waits when that is nothing.
#[derive(Debug)]
pub struct Window {
    left: Mutex<usize>,
    changed: std::sync::Condvar,
}

impl Default for Window {
    fn default() -> Self {
        Self { left: Mutex::new(STDIN_WINDOW), changed: std::sync::Condvar::new() }
    }
}

impl Window {
    /// Waits until something may be sent and says how much.
    pub fn available(&self) -> usize {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *self.changed.wait_while(left, |left| *left == 0).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was sent.
    pub fn spend(&self, bytes: usize) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(bytes);
    }

    /// Gives back what the command took.
    pub fn refill(&self, bytes: usize) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        self.changed.notify_all();
    }
}
