//! What looks after a pair that vhost serves.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pair::VhostPair;
use crate::net::metrics::count;
use crate::net::worker::Shared;
use crate::virtio::{DrainError, QueueTask, VirtQueue, Wakeup};

const ERROR: u32 = 0;
const MOVED: u32 = 1;
const NUDGE: u32 = 2;

/// Looks after one pair of queues, which vhost serves. It is woken when the driver breaks a ring, gives a queue another
/// vector or changes the number of pairs: not for packets.
pub struct VhostTask {
    /// Before the queues: it lets go of guest memory before they do.
    vhost: VhostPair,
    pair: u16,
    queues: [VirtQueue; 2],
    shared: Arc<Shared>,
    is_running: bool,
}

impl VhostTask {
    /// `vhost` has been set up with these queues.
    pub(in crate::net) fn new(
        pair: u16,
        (receive, transmit): (VirtQueue, VirtQueue),
        vhost: VhostPair,
        shared: Arc<Shared>,
    ) -> Self {
        let queues = [receive, transmit];
        for queue in &queues {
            queue.watch_interrupt(Some(Arc::clone(vhost.moved())));
        }
        Self { vhost, pair, queues, shared, is_running: false }
    }

    /// Takes it apart. It is drained.
    pub(in crate::net) fn into_parts(self) -> (u16, VhostPair, [VirtQueue; 2]) {
        for queue in &self.queues {
            queue.watch_interrupt(None);
        }
        (self.pair, self.vhost, self.queues)
    }

    /// Starts or stops vhost, as the pair is active or not. A device that waits for its reset does nothing.
    fn follow(&mut self) {
        let shared = Arc::clone(&self.shared);
        let [receive, _] = &self.queues;
        let tap = shared.active_tap(self.pair).filter(|_| !receive.is_closed());
        let done = match (tap, self.is_running) {
            (Some(tap), false) => self.vhost.start(&self.queues, tap.as_raw_fd()),
            (None, true) => self.vhost.stop(&mut self.queues),
            _ => return,
        };
        self.is_running = tap.is_some();
        match done {
            // Whatever was rung for before it listened.
            Ok(()) if self.is_running => self.queues.iter().for_each(VirtQueue::ring_doorbell),
            Ok(()) => {}
            Err(_) => self.give_up(),
        }
    }

    /// The kernel does not do what it should: the next driver is served without it.
    fn give_up(&mut self) {
        self.shared.has_vhost.store(false, Ordering::Release);
        self.fail();
    }

    /// Has the driver reset the device, of which nothing works until then.
    fn fail(&mut self) {
        count(&self.shared.metrics.vhost_errors);
        let [receive, _] = &mut self.queues;
        receive.fail();
        if std::mem::take(&mut self.is_running) {
            // The device is reset in any case.
            let _ = self.vhost.stop(&mut self.queues);
        }
        self.shared.nudge();
    }
}

impl QueueTask for VhostTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        let nudge = self.shared.nudges.get(usize::from(self.pair));
        let fds =
            [(self.vhost.errors().as_raw_fd(), ERROR), (self.vhost.moved().as_raw_fd(), MOVED)];
        let nudge = nudge.map(|nudge| (nudge.as_raw_fd(), NUDGE));
        fds.into_iter().chain(nudge).map(|(fd, token)| Wakeup::while_readable(fd, token)).collect()
    }

    fn on_event(&mut self, token: u32) {
        match token {
            // Readable only if vhost found something. What it found before it was stopped will be found again.
            ERROR if self.vhost.errors().read().is_ok() && self.is_running => self.fail(),
            MOVED => {
                // It fails if nobody rang.
                let _ = self.vhost.moved().read();
                if !self.is_running {
                    return;
                }
                match self.vhost.reconnect(&self.queues) {
                    // What vhost signalled in between went to where it used to.
                    Ok(()) => self.queues.iter().for_each(VirtQueue::raise),
                    Err(_) => self.give_up(),
                }
            }
            NUDGE => {
                if let Some(nudge) = self.shared.nudges.get(usize::from(self.pair)) {
                    // It fails if nobody nudged.
                    let _ = nudge.read();
                }
                self.follow();
            }
            _ => {}
        }
    }

    /// Waits for the packets that the kernel is at.
    fn drain(&mut self) -> Result<usize, DrainError> {
        if !std::mem::take(&mut self.is_running) {
            return Ok(0);
        }
        let stopped = self.vhost.stop(&mut self.queues).map_err(DrainError::Backend);
        // Otherwise nobody knows where the rings are, or that they stand still.
        stopped.inspect_err(|_| self.give_up())?;
        Ok(0)
    }

    /// Before vhost starts: it keeps the doorbell's state itself from then on.
    fn rearm(&mut self) {
        if !self.is_running {
            self.queues.iter_mut().for_each(VirtQueue::rearm);
        }
        self.follow();
    }
}
