//! What serves the queues: takes chains, gives memory back, gives the chains back.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::layout::Role;
use super::metrics::Metrics;
use super::poll::Poll;
use super::request::{Named, deflated, inflated, is_chain, reported, told};
use super::run::Run;
use super::statistics::Statistics;
use crate::pci::lock;
use crate::virtio::{Chain, DrainError, GuestRam, QueueTask, VirtQueue, Wakeup};

/// Chains taken before other tasks of the worker have their turn.
const BATCH: usize = 64;
/// Runs given back in one turn, up to the end of a chain.
const MAX_RUNS: usize = 256;
/// Bytes given back in one turn, up to the end of a chain.
const MAX_BYTES: u64 = 64 << 20;

/// What the task shares with the device.
pub(super) struct Shared {
    pub(super) poll: Poll,
    /// What the driver said last, and when.
    pub(super) told: Mutex<Option<(Instant, Statistics)>>,
    pub(super) metrics: Metrics,
}

/// Serves all queues of a balloon.
pub struct BalloonTask {
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
    /// Head of the chain of statistics that asks for the next when it is given back.
    held: Option<u16>,
}

struct Lane {
    queue: VirtQueue,
    role: Role,
}

/// What a turn has done.
#[derive(Default)]
struct Work {
    runs: usize,
    bytes: u64,
}

impl Work {
    fn is_enough(&self) -> bool {
        self.runs >= MAX_RUNS || self.bytes >= MAX_BYTES
    }
}

impl BalloonTask {
    pub(super) fn new(
        queues: Vec<VirtQueue>,
        features: u64,
        shared: Arc<Shared>,
        held: Option<u16>,
    ) -> Self {
        let lane = |queue: VirtQueue| Lane { role: Role::of(queue.index(), features), queue };
        Self { lanes: queues.into_iter().map(lane).collect(), shared, held }
    }

    /// Takes it apart: the queues, and the chain that is held.
    pub(super) fn into_parts(self) -> (Vec<VirtQueue>, Option<u16>) {
        (self.lanes.into_iter().map(|lane| lane.queue).collect(), self.held)
    }

    /// Gives the chain of statistics back, for the driver to fill it anew. Without one the driver has been asked
    /// already, or has yet to come that far.
    fn ask(&mut self) {
        let lane = self.lanes.iter_mut().find(|lane| lane.role == Role::Statistics);
        if let (Some(lane), Some(head)) = (lane, self.held.take()) {
            lane.queue.push(head, 0);
            lane.queue.signal();
        }
    }
}

impl QueueTask for BalloonTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        let doorbell = |lane: &Lane| {
            Wakeup::while_readable(lane.queue.doorbell().as_raw_fd(), lane.queue.index().into())
        };
        let timer = Wakeup::while_readable(self.shared.poll.fd(), TIMER);
        self.lanes.iter().map(doorbell).chain([timer]).collect()
    }

    fn on_event(&mut self, token: u32) {
        if token == TIMER {
            if self.shared.poll.is_due() {
                self.ask();
            }
            return;
        }
        let lane = self.lanes.iter_mut().find(|lane| u32::from(lane.queue.index()) == token);
        if let Some(lane) = lane {
            lane.serve(&self.shared, &mut self.held);
        }
    }

    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.queue.rearm());
        self.shared.poll.restart();
    }
}

/// No queue has this number.
const TIMER: u32 = 1 << 16;

impl Lane {
    fn serve(&mut self, shared: &Shared, held: &mut Option<u16>) {
        self.queue.answer_doorbell();
        if self.role == Role::Unused {
            return;
        }
        let mut work = Work::default();
        let mut is_pushed = false;
        let mut has_more = true;
        for _ in 0..BATCH {
            if work.is_enough() {
                break;
            }
            let Some(chain) = self.queue.pop() else {
                if self.queue.resume_doorbell() {
                    continue;
                }
                has_more = false;
                break;
            };
            if !is_chain(chain.clone(), self.queue.size(), self.queue.ram()) {
                shared.metrics.wrong(true);
                self.queue.refuse();
                continue;
            }
            if let Some(head) = self.take(chain, shared, held, &mut work) {
                self.queue.push(head, 0);
                is_pushed = true;
            }
        }
        if has_more {
            self.queue.ring_doorbell();
        }
        if is_pushed {
            self.queue.signal();
        }
    }

    /// Does what a chain asks for. Gives the head of the one to give back.
    fn take(
        &mut self,
        chain: Chain,
        shared: &Shared,
        held: &mut Option<u16>,
        work: &mut Work,
    ) -> Option<u16> {
        let (head, most, ram) = (chain.head_index(), self.queue.size(), self.queue.ram());
        let metrics = &shared.metrics;
        match self.role {
            Role::Inflate => {
                metrics.inflated(give_back(inflated(chain, most, ram), ram, metrics, work));
            }
            Role::Reporting => {
                metrics.reported(give_back(reported(chain, most, ram), ram, metrics, work));
            }
            Role::Deflate => {
                // Nothing to do: a page comes back when it is touched.
                let Named { what: pages, is_wrong } = deflated(chain, most);
                metrics.deflated(pages);
                metrics.wrong(is_wrong);
            }
            Role::Statistics => {
                let Named { what: statistics, is_wrong } = told(chain, most, ram);
                *lock(&shared.told) = Some((Instant::now(), statistics));
                metrics.told();
                metrics.wrong(is_wrong);
                // Drivers have one chain. Of several the last is held: it is the one they may wait for.
                return held.replace(head);
            }
            Role::Unused => {}
        }
        Some(head)
    }
}

/// Gives memory back. The number of bytes it has, whether or not the host took them.
fn give_back(named: Named<Vec<Run>>, ram: &GuestRam, metrics: &Metrics, work: &mut Work) -> u64 {
    metrics.wrong(named.is_wrong);
    let mut bytes = 0;
    for run in named.what {
        match ram.discard(run.start, run.length) {
            Ok(()) => metrics.given_back(run),
            // The guest keeps the memory, which is what it would have if the host had more.
            Err(_) => metrics.failed(),
        }
        bytes += run.length;
        work.runs += 1;
    }
    work.bytes += bytes;
    bytes
}
