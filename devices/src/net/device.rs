//! The interface as its driver and the machine's owner see it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CTRL_MAC_ADDR, VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_RX_EXTRA,
    VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MQ,
    VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_MTU, VIRTIO_NET_F_STATUS, VIRTIO_NET_S_ANNOUNCE,
    VIRTIO_NET_S_LINK_UP,
};

use super::buffers::HEADER;
use super::config::{NetConfig, NetError};
use super::control::ControlTask;
use super::filter::ReceiveFilter;
use super::mac::MacAddress;
use super::metrics::{Metrics, NetCounters, count};
use super::offload::{FEATURES, Offloads, USO_FEATURES};
use super::state::NetState;
use super::tap::{TapFault, TapQueue};
use super::vhost::{VhostDevice, VhostPair, VhostRefusal, VhostTask};
use super::worker::{Lane, NetTask, PairTask, Shared, Terms, nudge};
use crate::limits::Limiter;
use crate::virtio::{ActivateError, Activation, Device, VirtQueue, read_config};
use crate::{RateLimits, RecordError, RecordName, Records, State};

/// Descriptors of the control queue. A driver has one command at a time.
const CONTROL_SIZE: u16 = 64;
/// What a link carries of which nothing else is said.
const USUAL_MTU: u16 = 1500;

/// A network interface.
pub struct Net {
    mac: MacAddress,
    mtu: Option<u16>,
    has_uso: bool,
    pairs: u16,
    queue_size: u16,
    shared: Arc<Shared>,
    /// By pair; those that are not in tasks.
    lanes: Vec<Option<Lane>>,
    /// By pair; those that are not in tasks. None at all if packets are moved by this process.
    vhosts: Vec<Option<VhostPair>>,
    /// What is in the TAP is of a time without this driver.
    is_fresh: bool,
    /// Queues that a driver enabled for no use, while the others are in tasks.
    unused: Vec<VirtQueue>,
    /// What the driver took, from its first activation to its reset.
    features: Option<u64>,
}

impl Net {
    /// The interface whose other side is a TAP: one descriptor for each pair of queues, in order, opened with IFF_TAP,
    /// IFF_NO_PI, IFF_VNET_HDR and, if there are several, IFF_MULTI_QUEUE. Makes all descriptors that it will ever need.
    pub fn new(config: &NetConfig, taps: Vec<OwnedFd>) -> Result<Self, NetError> {
        config.check(taps.len())?;
        let is_multi = taps.len() > 1;
        let tap = |(pair, fd)| {
            TapQueue::new(fd, is_multi).map_err(|source| NetError::Tap { pair, source })
        };
        let taps = (0_u16..).zip(taps).map(tap).collect::<Result<Vec<_>, _>>()?;
        let has_uso = uso(config, &taps).map_err(|source| NetError::Tap { pair: 0, source })?;
        let (mut lanes, mut nudges) = (Vec::new(), Vec::new());
        for (pair, tap) in (0_u16..).zip(&taps) {
            let failed = |source| NetError::Descriptor { pair, source };
            lanes.push(Some(Lane::new(tap).map_err(failed)?));
            nudges.push(nudge().map_err(failed)?);
        }
        let limiter = |limits: RateLimits| Limiter::new(limits, Instant::now()).map(Mutex::new);
        let pairs = u16::try_from(taps.len()).unwrap_or(u16::MAX);
        let shared = Shared {
            taps,
            nudges,
            filter: Mutex::new(Arc::new(ReceiveFilter::new(config.mac))),
            active: AtomicU16::new(1),
            announce: AtomicBool::new(false),
            receive_limiter: limiter(config.receive),
            transmit_limiter: limiter(config.transmit),
            has_vhost: AtomicBool::new(false),
            metrics: Metrics::default(),
        };
        Ok(Self {
            mac: config.mac,
            mtu: config.mtu,
            has_uso,
            pairs,
            queue_size: config.queue_size,
            shared: Arc::new(shared),
            lanes,
            vhosts: Vec::new(),
            is_fresh: true,
            unused: Vec::new(),
            features: None,
        })
    }

    /// Has the kernel move packets, from the next driver on: one open /dev/vhost-net for each pair of queues, in order,
    /// that nobody used before. To be called before the vmm is locked in, and before the guest runs. What drivers are
    /// offered does not change. If it is refused, this process moves the packets.
    pub fn use_vhost(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), VhostRefusal> {
        if descriptors.len() != usize::from(self.pairs) {
            return Err(VhostRefusal::Count { given: descriptors.len(), pairs: self.pairs });
        }
        if self.shared.receive_limiter.is_some() || self.shared.transmit_limiter.is_some() {
            return Err(VhostRefusal::Limited);
        }
        let mut vhosts = Vec::new();
        for (pair, fd) in (0_u16..).zip(descriptors) {
            let vhost = VhostDevice::new(fd)
                .and_then(VhostPair::new)
                .map_err(|source| VhostRefusal::Descriptor { pair, source })?;
            let missing = vhost.missing_features();
            if missing != 0 {
                return Err(VhostRefusal::Features { pair, missing });
            }
            vhosts.push(Some(vhost));
        }
        self.vhosts = vhosts;
        self.shared.has_vhost.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether it offers segmentation of UDP: to be pinned as [`NetConfig::uso`] for every host the machine will be on.
    pub fn has_uso(&self) -> bool {
        self.has_uso
    }

    /// Whether the kernel moves packets for every driver that it can serve: they are counted by the TAP alone.
    pub fn has_vhost(&self) -> bool {
        self.shared.has_vhost.load(Ordering::Acquire)
    }

    /// What it has counted.
    pub fn counters(&self) -> NetCounters {
        self.shared.metrics.counters()
    }

    /// Asks the driver to announce its addresses, as the network has to learn where the machine is now: after it was
    /// moved or restored. To be called by [`VirtioPci::change_config`](crate::virtio::VirtioPci::change_config), which
    /// tells the driver, after the device was activated. False if there is no driver, or none that would do it: then
    /// somebody else must.
    pub fn announce(&mut self) -> bool {
        let is_possible = self.can_announce();
        self.shared.announce.store(is_possible, Ordering::Release);
        is_possible
    }

    /// Whether there is a driver that would announce its addresses.
    pub fn can_announce(&self) -> bool {
        self.took(VIRTIO_NET_F_GUEST_ANNOUNCE)
    }

    fn took(&self, feature: u32) -> bool {
        self.features.is_some_and(|features| features & 1 << feature != 0)
    }

    fn config(&self) -> Vec<u8> {
        let announce =
            self.shared.announce.load(Ordering::Acquire) && self.took(VIRTIO_NET_F_GUEST_ANNOUNCE);
        let status = VIRTIO_NET_S_LINK_UP | if announce { VIRTIO_NET_S_ANNOUNCE } else { 0 };
        let mut config = Vec::with_capacity(12);
        config.extend(self.shared.filter().mac.0);
        config.extend(&status.to_le_bytes()[..2]);
        config.extend(self.pairs.to_le_bytes());
        config.extend(self.mtu.unwrap_or_default().to_le_bytes());
        config
    }

    fn state(&self) -> NetState {
        NetState {
            mac: self.mac,
            mtu: self.mtu,
            pairs: self.pairs,
            filter: (*self.shared.filter()).clone(),
            active_pairs: self.shared.active.load(Ordering::Acquire),
            announce: self.shared.announce.load(Ordering::Acquire),
        }
    }

    /// Has the TAP do what the driver expects of it.
    fn set_up_tap(&self, offloads: Offloads) -> io::Result<()> {
        if let Some(tap) = self.shared.taps.first() {
            tap.set_header_size(HEADER)?;
            tap.set_offloads(offloads.flags())?;
        }
        self.shared.set_active(self.shared.active.load(Ordering::Acquire))
    }

    /// Whether vhost serves these pairs of a driver with these features: then it has been told of them.
    fn set_up_vhost(&mut self, pairs: &[(VirtQueue, VirtQueue)], features: u64) -> bool {
        if self.vhosts.is_empty() {
            return false;
        }
        let has_vhost = self.shared.has_vhost.load(Ordering::Acquire);
        let vhosts = self.vhosts.iter().flatten().zip(pairs);
        let set_up = vhosts
            .map(|(vhost, (receive, transmit))| vhost.set_up(features, [receive, transmit]))
            .collect::<io::Result<Vec<()>>>();
        let is_set_up =
            has_vhost && set_up.is_ok_and(|pairs_set_up| pairs_set_up.len() == pairs.len());
        if !is_set_up {
            count(&self.shared.metrics.vhost_refused);
            return false;
        }
        for lane in self.lanes.iter_mut().flatten() {
            lane.packet.forget();
        }
        if self.is_fresh {
            // The kernel would give it frames that need an offload which a driver before it took.
            self.shared.taps.iter().for_each(TapQueue::discard_frames);
        }
        true
    }

    /// The queues of each pair, from the first one on, as far as the driver enabled both; the control queue; the rest.
    fn sort(&self, queues: Vec<VirtQueue>, features: u64) -> Result<Sorted, ActivateError> {
        let has_pairs = features & 1 << VIRTIO_NET_F_MQ != 0;
        // Without multiqueue the control queue comes behind the first pair, however many there are (5.1.2).
        let usable = if has_pairs { self.pairs } else { 1 };
        let has_control = features & 1 << VIRTIO_NET_F_CTRL_VQ != 0;
        let mut places: Vec<Option<VirtQueue>> = Vec::new();
        places.resize_with(2 * usize::from(self.pairs) + 1, || None);
        for queue in queues {
            if let Some(place) = places.get_mut(usize::from(queue.index())) {
                *place = Some(queue);
            }
        }
        let mut rest = places.into_iter();
        let mut sorted = Sorted { pairs: Vec::new(), control: None, unused: Vec::new() };
        for pair in 0..usable {
            match (rest.next().flatten(), rest.next().flatten()) {
                (Some(receive), Some(transmit)) if sorted.pairs.len() == usize::from(pair) => {
                    sorted.pairs.push((receive, transmit));
                }
                (receive, transmit) => sorted.unused.extend(receive.into_iter().chain(transmit)),
            }
        }
        let control = rest.next().flatten();
        let (control, not_control) = if has_control { (control, None) } else { (None, control) };
        sorted.control = control;
        sorted.unused.extend(not_control.into_iter().chain(rest.flatten()));
        if sorted.pairs.is_empty() {
            let has_first = sorted.unused.iter().any(|queue| queue.index() == 0);
            return Err(ActivateError::MissingQueue { queue: u16::from(has_first) });
        }
        Ok(sorted)
    }
}

/// Queues by their use.
struct Sorted {
    pairs: Vec<(VirtQueue, VirtQueue)>,
    control: Option<VirtQueue>,
    unused: Vec<VirtQueue>,
}

/// Whether segmentation of UDP is offered.
fn uso(config: &NetConfig, taps: &[TapQueue]) -> Result<bool, TapFault> {
    let Some(tap) = taps.first() else {
        return Ok(false);
    };
    let has_uso = tap.has_uso()?;
    match config.uso {
        Some(true) if !has_uso => Err(TapFault::NoUso),
        wanted => Ok(wanted.unwrap_or(has_uso)),
    }
}

impl Device for Net {
    type Task = NetTask;

    fn device_type(&self) -> u16 {
        u16::try_from(VIRTIO_ID_NET).unwrap_or(u16::MAX)
    }

    fn features(&self) -> u64 {
        let mut features = vec![
            VIRTIO_NET_F_MAC,
            VIRTIO_NET_F_STATUS,
            VIRTIO_NET_F_MRG_RXBUF,
            VIRTIO_NET_F_CTRL_VQ,
            VIRTIO_NET_F_CTRL_RX,
            VIRTIO_NET_F_CTRL_RX_EXTRA,
            VIRTIO_NET_F_CTRL_MAC_ADDR,
            VIRTIO_NET_F_GUEST_ANNOUNCE,
        ];
        features.extend(FEATURES);
        if self.has_uso {
            features.extend(USO_FEATURES);
        }
        if self.mtu.is_some() {
            features.push(VIRTIO_NET_F_MTU);
        }
        if self.pairs > 1 {
            features.push(VIRTIO_NET_F_MQ);
        }
        features.into_iter().fold(0, |all, feature| all | 1 << feature)
    }

    fn queue_sizes(&self) -> Vec<u16> {
        let mut sizes = vec![self.queue_size; 2 * usize::from(self.pairs)];
        sizes.push(CONTROL_SIZE);
        sizes
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&self.config(), offset, data);
    }

    /// Nothing in it is a driver's to write: the address is set by a command.
    fn write_config(&mut self, _offset: u64, _data: &[u8]) {}

    fn activate(&mut self, activation: Activation) -> Result<Vec<NetTask>, ActivateError> {
        let Activation { queues, features } = activation;
        if let Some(queue) = queues.iter().find(|queue| queue.in_flight() > 0) {
            return Err(ActivateError::InFlight { queue: queue.index() });
        }
        let Sorted { pairs, control, unused } = self.sort(queues, features)?;
        let active = self.shared.active.load(Ordering::Acquire);
        let usable = u16::try_from(pairs.len()).unwrap_or(u16::MAX);
        if active > usable {
            return Err(ActivateError::MissingQueue { queue: 2 * usable });
        }
        let offloads = Offloads::of(features);
        self.set_up_tap(offloads).map_err(ActivateError::Backend)?;
        let terms = Terms {
            offloads,
            is_mergeable: features & 1 << VIRTIO_NET_F_MRG_RXBUF != 0,
            mtu: self.mtu.unwrap_or_default().max(USUAL_MTU),
        };
        let by_vhost = self.set_up_vhost(&pairs, features);
        let pair = |(pair, queues): (u16, _)| {
            let shared = Arc::clone(&self.shared);
            if by_vhost {
                let vhost = self.vhosts.get_mut(usize::from(pair))?.take()?;
                return Some(NetTask::Vhost(Box::new(VhostTask::new(pair, queues, vhost, shared))));
            }
            let lane = self.lanes.get_mut(usize::from(pair))?.take()?;
            let task = PairTask::new(pair, queues, lane, shared, terms);
            Some(NetTask::Pair(Box::new(task)))
        };
        let mut tasks: Vec<NetTask> = (0..).zip(pairs).filter_map(pair).collect();
        tasks.extend(control.map(|queue| {
            NetTask::Control(ControlTask::new(queue, Arc::clone(&self.shared), features, usable))
        }));
        self.is_fresh = false;
        self.unused = unused;
        self.features = Some(features);
        Ok(tasks)
    }

    fn reclaim(&mut self, tasks: Vec<NetTask>) -> Vec<VirtQueue> {
        let mut queues = std::mem::take(&mut self.unused);
        for task in tasks {
            match task {
                NetTask::Pair(task) => {
                    let (pair, lane, both) = task.into_parts();
                    queues.extend(both);
                    if let Some(place) = self.lanes.get_mut(usize::from(pair)) {
                        *place = Some(lane);
                    }
                }
                NetTask::Vhost(task) => {
                    let (pair, vhost, both) = task.into_parts();
                    queues.extend(both);
                    if let Some(place) = self.vhosts.get_mut(usize::from(pair)) {
                        *place = Some(vhost);
                    }
                }
                NetTask::Control(task) => queues.push(task.into_queue()),
            }
        }
        queues
    }

    fn reset(&mut self) {
        // Before its first activation the TAP is as it was: a driver that only looks makes no system call.
        if self.features.take().is_some()
            && let Some(tap) = self.shared.taps.first()
        {
            // A TAP that is gone has nothing to undo; any other is set up anew at the next activation.
            let _ = tap.set_offloads(0);
        }
        self.is_fresh = true;
        self.shared.set_filter(ReceiveFilter::new(self.mac));
        self.shared.active.store(1, Ordering::Release);
        self.shared.announce.store(false, Ordering::Release);
        for lane in self.lanes.iter_mut().flatten() {
            lane.packet.forget();
        }
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        records.put(instance, &self.state())
    }

    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let saved: NetState = records.take(instance)?;
        self.state().check(&saved).map_err(|reason| {
            let name = RecordName { kind: NetState::KIND.into(), instance: instance.into() };
            RecordError::Impossible { name, reason }
        })?;
        // What came for it on the way here.
        self.is_fresh = false;
        self.shared.set_filter(saved.filter);
        self.shared.active.store(saved.active_pairs, Ordering::Release);
        self.shared.announce.store(saved.announce, Ordering::Release);
        Ok(())
    }
}
