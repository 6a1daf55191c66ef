//! What serves the queue: takes requests, fills them, gives them back.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::metrics::{Metrics, add, count};
use super::source::random;
use crate::limits::Limiter;
use crate::virtio::{BadChain, Buffers, Direction, DrainError, QueueTask, VirtQueue, Wakeup};

/// Requests answered before other tasks of the worker have their turn.
const BATCH: usize = 64;
/// Bytes of one answer, at most.
pub(super) const MOST: usize = 4096;
/// How long until a host that had nothing to give is asked again.
const RETRY: Duration = Duration::from_secs(1);

const DOORBELL: u32 = 0;
const TIMER: u32 = 1;

/// What the device has apart from its queue, made before the vmm is locked in.
pub(super) struct Core {
    limiter: Option<Limiter>,
    timer: TimerFd,
    /// The bytes of one answer, on their way.
    buffer: Vec<u8>,
    metrics: Arc<Metrics>,
}

impl Core {
    pub(super) fn new(limiter: Option<Limiter>, metrics: Arc<Metrics>) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self { limiter, timer, buffer: vec![0; MOST], metrics })
    }

    /// Fills a request, and says with how many bytes, or how long it has to wait.
    fn fill(&mut self, buffers: &Buffers<'_>) -> Result<u32, Duration> {
        let most = buffers.length().min(MOST);
        if let Some(limiter) = &mut self.limiter {
            let throttled = |_: &Duration| count(&self.metrics.throttled);
            limiter.allows(most as u64, Instant::now()).inspect_err(throttled)?;
        }
        let count = random(&mut self.buffer[..most]).map_err(|_| {
            count(&self.metrics.failures);
            RETRY
        })?;
        if let Some(limiter) = &mut self.limiter {
            limiter.spend(count as u64);
        }
        // The buffers are in memory, and memory stays.
        let _ = buffers.write(0, &self.buffer[..count]);
        // No more than fits.
        Ok(u32::try_from(count).unwrap_or(0))
    }
}

/// Serves an entropy device.
pub struct RngTask {
    queue: VirtQueue,
    core: Box<Core>,
    /// Nothing is given before the timer.
    is_waiting: bool,
}

impl RngTask {
    pub(super) fn new(queue: VirtQueue, core: Box<Core>) -> Self {
        Self { queue, core, is_waiting: false }
    }

    pub(super) fn into_parts(self) -> (VirtQueue, Box<Core>) {
        (self.queue, self.core)
    }

    fn serve(&mut self) {
        if self.is_waiting {
            return;
        }
        let mut is_pushed = false;
        let mut has_more = true;
        for _ in 0..BATCH {
            let Some(chain) = self.queue.pop() else {
                if self.queue.resume_doorbell() {
                    continue;
                }
                has_more = false;
                break;
            };
            let head = chain.head_index();
            let buffers = Buffers::of(chain, Direction::ToGuest, self.queue.ram());
            let written = match buffers {
                Ok(buffers) if buffers.length() > 0 => self.core.fill(&buffers),
                Err(BadChain::Broken) => {
                    count(&self.core.metrics.bad_requests);
                    self.queue.refuse();
                    continue;
                }
                Ok(_) | Err(BadChain::Useless) => {
                    count(&self.core.metrics.bad_requests);
                    self.queue.push(head, 0);
                    is_pushed = true;
                    continue;
                }
            };
            match written {
                Ok(written) => {
                    count(&self.core.metrics.requests);
                    add(&self.core.metrics.bytes, written);
                    self.queue.push(head, written);
                    is_pushed = true;
                }
                Err(wait) => {
                    self.queue.put_back();
                    self.wait(wait);
                    has_more = false;
                    break;
                }
            }
        }
        if has_more {
            self.queue.ring_doorbell();
        }
        if is_pushed {
            self.queue.signal();
        }
    }

    fn wait(&mut self, wait: Duration) {
        self.is_waiting = true;
        let wait = wait.max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        // The only failures are a bad descriptor and a bad time.
        let _ = self.core.timer.set(once, TimerSetTimeFlags::empty());
    }
}

impl QueueTask for RngTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        vec![
            Wakeup::while_readable(self.queue.doorbell().as_raw_fd(), DOORBELL),
            Wakeup::while_readable(self.core.timer.as_fd().as_raw_fd(), TIMER),
        ]
    }

    fn on_event(&mut self, token: u32) {
        match token {
            DOORBELL => {
                self.queue.answer_doorbell();
                self.serve();
            }
            // It is not readable if the time has not come.
            TIMER if self.core.timer.wait().is_ok() => {
                self.is_waiting = false;
                self.serve();
            }
            _ => {}
        }
    }

    /// Nothing is ever in flight: a chain that is taken is given or put back before the call returns.
    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    /// The doorbell that it rings has it look, and wait again where it has to.
    fn rearm(&mut self) {
        self.is_waiting = false;
        self.queue.rearm();
    }
}
