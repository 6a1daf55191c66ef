//! Frames between the lab on the machine and the agent in a node.
//!
//! One byte stream (a virtio-serial port, or a socket in direct mode) carries many channels: each command that runs
//! in the node is one. A frame is channel (u32), kind (u8), payload length (u32), all little endian, then the payload.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest payload of one frame: a command line may have many long arguments.
pub const MAX_PAYLOAD: usize = 4 << 20;

/// Bytes of output or input that travel in one frame.
pub const PIECE: usize = 32 * 1024;

/// How many bytes of standard input may be under way to a command that has not read them.
pub const STDIN_WINDOW: usize = 256 * 1024;

const HEADER: usize = 9;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the node: [`Setup`] as JSON; answered by [`Kind::Done`].
    Setup = 1,
    /// To the node: [`Start`] as JSON; answered by output and [`Kind::Exit`].
    Start = 2,
    /// To the node: standard input of the channel's command; empty at its end.
    Stdin = 3,
    /// To the node: a signal number (one byte) for the channel's command.
    Signal = 4,
    /// To the node: rows and columns (two u16) of the channel's terminal.
    Resize = 5,
    /// To the node: leave every host directory, so that the node can be saved; answered by [`Kind::Done`].
    Detach = 6,
    /// To the lab in the background: [`Request`] as JSON; answered by [`Kind::Done`].
    Request = 7,
    /// From the node: [`Done`] as JSON.
    Done = 16,
    /// From the node: standard output of the channel's command.
    Stdout = 17,
    /// From the node: standard error of the channel's command.
    Stderr = 18,
    /// From the node: exit status (i32); nothing follows on the channel.
    Exit = 19,
    /// From the node: that many more bytes (u32) of standard input may be sent.
    Credit = 20,
}

impl Kind {
    fn from_byte(byte: u8) -> Result<Self> {
        Ok(match byte {
            1 => Self::Setup,
            2 => Self::Start,
            3 => Self::Stdin,
            4 => Self::Signal,
            5 => Self::Resize,
            6 => Self::Detach,
            7 => Self::Request,
            16 => Self::Done,
            17 => Self::Stdout,
            18 => Self::Stderr,
            19 => Self::Exit,
            20 => Self::Credit,
            _ => bail!("unknown frame kind {byte}"),
        })
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which command it belongs to.
    pub channel: u32,
    /// What it says.
    pub kind: Kind,
    /// The rest.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A frame with raw payload.
    pub fn new(channel: u32, kind: Kind, payload: impl Into<Vec<u8>>) -> Self {
        Self { channel, kind, payload: payload.into() }
    }

    /// A frame whose payload is `body` as JSON.
    pub fn json(channel: u32, kind: Kind, body: &impl Serialize) -> Result<Self> {
        Ok(Self::new(channel, kind, serde_json::to_vec(body)?))
    }

    /// The payload as JSON.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_slice(&self.payload)?)
    }

    /// Appends the frame as it goes over the wire.
    pub fn encode(&self, out: &mut impl Extend<u8>) -> Result<()> {
        if self.payload.len() > MAX_PAYLOAD {
            bail!("frame of {} bytes is over the limit of {MAX_PAYLOAD}", self.payload.len());
        }
        let length = u32::try_from(self.payload.len())?;
        out.extend(self.channel.to_le_bytes());
        out.extend([self.kind as u8]);
        out.extend(length.to_le_bytes());
        out.extend(self.payload.iter().copied());
        Ok(())
    }
}

/// Puts frames together from whatever pieces arrive.
#[derive(Debug, Default)]
pub struct Decoder(VecDeque<u8>);

impl Decoder {
    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        if self.0.len() < HEADER {
            return Ok(None);
        }
        let header: Vec<u8> = self.0.iter().take(HEADER).copied().collect();
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = usize::try_from(word(5))?;
        if length > MAX_PAYLOAD {
            bail!("frame announces {length} bytes, over the limit of {MAX_PAYLOAD}");
        }
        if self.0.len() < HEADER + length {
            return Ok(None);
        }
        let payload = self.0.drain(..HEADER + length).skip(HEADER).collect();
        Ok(Some(Frame { channel: word(0), kind: Kind::from_byte(header[4])?, payload }))
    }
}

/// What makes one of many equal nodes itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Number of the node from 1: host name, MAC address, 10.99.0.N and fd99::N.
    pub index: u8,
    /// The machine's clock, as time since 1970.
    pub clock: Duration,
    /// Fresh entropy: nodes restored from one saved state share their random state.
    pub seed: Vec<u8>,
    /// Host directories to mount.
    pub shares: Vec<Share>,
    /// Whether there are others to reach. A link to nobody would never take a packet.
    pub networked: bool,
}

/// A host directory in the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// 9p mount tag.
    pub tag: String,
    /// Where it is mounted: its own path on the machine, so that paths mean the same on both sides.
    pub path: String,
    /// Whether the node may write.
    pub writable: bool,
}

/// A command to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Which node, from 1.
    pub node: u8,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment in addition to the node's.
    pub env: Vec<(String, String)>,
    /// Directory to start in; the node's /root where it is not there.
    pub directory: String,
    /// After this it is ended and its status is 124.
    pub time_limit: Option<Duration>,
    /// Rows and columns, if it runs on a terminal.
    pub terminal: Option<(u16, u16)>,
    /// Whether it runs in the cage.
    pub cage: Option<CageRequest>,
}

/// Which cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CageRequest {
    /// "launcher" or "default".
    pub profile: String,
    /// TAPs as NETWORK or NETWORK:QUEUES.
    pub taps: Vec<String>,
}

/// What a lab in the background is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// To say how it is.
    Status,
    /// To save node 1 under a name and to end it.
    Save(String),
    /// To end.
    Down,
}

/// Answer to [`Setup`], [`Kind::Detach`] and [`Request`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// What went wrong, if anything did.
    pub error: Option<String>,
    /// What was asked for, as text.
    pub report: Option<String>,
    /// Whether the node's /dev/kvm passed the trial: None if it did, else why not.
    pub kvm: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frame_cut_anywhere_is_put_together() {
        let frames = [
            Frame::new(7, Kind::Stdout, *b"hello"),
            Frame::new(8, Kind::Exit, 3_i32.to_le_bytes()),
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "cut at {cut}");
        }
    }

    #[test]
    fn announced_length_over_the_limit_is_an_error() {
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, 17, 0xff, 0xff, 0xff, 0xff]);
        assert!(decoder.next_frame().is_err());
    }

    #[test]
    fn every_kind_survives_its_byte() {
        for byte in 0..=u8::MAX {
            if let Ok(kind) = Kind::from_byte(byte) {
                assert_eq!(kind as u8, byte);
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
