//! What is typed at the serial console: a task of a worker of its own, where there is a socket to type into.
//!
//! Of its own, because a machine without PCI functions has no other, and a disk that is busy must not make typing slow.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use corten_devices::legacy::{Serial, SerialInput};
use thiserror::Error;

use super::workers::{Assigned, WorkerError, Workers};

/// Why nothing can be typed.
#[derive(Debug, Error)]
pub enum KeyboardError {
    /// The socket cannot be listened to.
    #[error("cannot listen to the socket of the console's input")]
    Listen(#[source] io::Error),
    /// Its worker.
    #[error("the console's input does not work")]
    Worker(#[from] WorkerError),
}

/// The keyboard of a machine: nobody's while the machine is stopped.
pub(super) struct Keyboard(Option<Attached>);

struct Attached {
    worker: Workers,
    /// Not with the worker.
    idle: Vec<Assigned>,
}

/// The task is of no PCI function: nothing else is asked of this worker.
const NO_SLOT: u8 = u8::MAX;

impl Keyboard {
    /// That of a machine which is stopped.
    pub(super) fn new(
        serial: &Arc<Serial>,
        socket: Option<OwnedFd>,
    ) -> Result<Self, KeyboardError> {
        let Some(socket) = socket else { return Ok(Self(None)) };
        let task = SerialInput::new(Arc::clone(serial), socket).map_err(KeyboardError::Listen)?;
        let idle = vec![Assigned { slot: NO_SLOT, task: Box::new(task) }];
        Ok(Self(Some(Attached { worker: Workers::start_named(["keyboard".into()])?, idle })))
    }

    /// The machine runs from now on, or goes on.
    pub(super) fn start(&mut self) {
        if let Some(Attached { worker, idle }) = &mut self.0 {
            worker.take(std::mem::take(idle));
        }
    }

    /// The machine is being stopped: from now on the port is left as it is.
    pub(super) fn stop(&mut self, limit: Duration) -> Result<(), KeyboardError> {
        if let Some(Attached { worker, idle }) = &mut self.0 {
            idle.extend(worker.give_back(None, limit)?);
        }
        Ok(())
    }
}
