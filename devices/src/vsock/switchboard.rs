//! Connects the guest's packets with the host's ends. Knows nothing of queues and of guest memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use vmm_sys_util::epoll::{Epoll, EpollEvent};

use super::connection::{Connection, Fate, Ports};
use super::host_side::{Ask, AskReport, Order, Orders};
use super::metrics::{Metrics, add, count};
use super::packet::{Header, Operation, STREAM};
use super::table::Connections;
use crate::host_end::HostEnd;
use crate::virtio::Wakeup;

/// The host's address.
pub(super) const HOST_CID: u64 = libc::VMADDR_CID_HOST as u64;
/// Answers to packets of no connection that wait for the guest. With as many, its packets wait too.
const MAX_REPLIES: usize = 256;
/// Orders, and events of host's ends, before others have their turn.
const BATCH: usize = 64;

/// How many times as long as others the host may take to take some of what a guest left behind when it closed: it may be a
/// person who reads.
const LINGER: u32 = 15;

const HOST_ENDS: u32 = 0x100;
const ORDERS: u32 = 0x101;
const TIMER: u32 = 0x102;

/// All connections, and what of the host's the device has, made before the vmm is locked in.
pub(super) struct Switchboard {
    guest_cid: u64,
    /// How long the owner, and the guest, may take to answer.
    patience: Duration,
    report: AskReport,
    metrics: Arc<Metrics>,
    orders: Orders,
    epoll: Arc<Epoll>,
    timer: TimerFd,
    /// When the timer will wake it, if it is set.
    timer_at: Option<Instant>,
    connections: Connections,
    /// RSTs to packets of no connection.
    replies: VecDeque<Header>,
    next_ticket: u64,
}

impl Switchboard {
    pub(super) fn new(
        guest_cid: u64,
        patience: Duration,
        report: AskReport,
        orders: Orders,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self {
            guest_cid,
            patience,
            report,
            metrics,
            orders,
            epoll: Arc::new(Epoll::new()?),
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            timer_at: None,
            connections: Connections::new(),
            replies: VecDeque::new(),
            next_ticket: 0,
        })
    }

    /// What wakes it, by [`Self::on_event`].
    pub(super) fn wakeups(&self) -> [Wakeup; 3] {
        [
            Wakeup::while_readable(self.epoll.as_raw_fd(), HOST_ENDS),
            Wakeup::while_readable(self.orders.bell().as_raw_fd(), ORDERS),
            Wakeup::while_readable(self.timer.as_fd().as_raw_fd(), TIMER),
        ]
    }

    pub(super) fn on_event(&mut self, token: u32) {
        match token {
            HOST_ENDS => self.look_at_host_ends(),
            ORDERS => self.take_orders(),
            // It is not readable if the time has not come.
            TIMER if self.timer.wait().is_ok() => self.end_overdue(),
            _ => {}
        }
    }

    /// Whether a driver has it.
    pub(super) fn has_driver(&self) -> bool {
        self.orders.has_driver()
    }

    /// A driver is there.
    pub(super) fn start(&self) {
        self.orders.set_driver(true);
    }

    /// After a stop, in which no time has passed for anybody.
    pub(super) fn resume(&mut self) {
        let deadline = Instant::now() + self.patience;
        self.connections.put_off(deadline);
        if self.connections.first_deadline().is_some() {
            self.set_timer(self.patience);
        }
    }

    /// The driver is gone, and all connections with it.
    pub(super) fn clear(&mut self) {
        self.orders.set_driver(false);
        self.connections.clear();
        self.replies.clear();
    }

    /// Whether packets of the guest's have to wait, until it has taken the answers to those before.
    pub(super) fn is_choked(&self) -> bool {
        self.replies.len() >= MAX_REPLIES
    }

    /// A packet of the guest's. `payload` is none if it is not there as the header says, or too long for any connection.
    /// Not to be called while [choked](Self::is_choked).
    pub(super) fn take(&mut self, header: &Header, payload: Option<&[u8]>) {
        if header.source_cid != self.guest_cid || header.target_cid != HOST_CID {
            // Nobody to answer: the guest has no other address, and there is no other host.
            count(&self.metrics.bad_packets);
            return;
        }
        let operation = header.operation();
        let ports = Ports { guest: header.source_port, host: header.target_port };
        let slot = if header.kind == STREAM { self.connections.find(ports) } else { None };
        match (slot, operation) {
            (Some(slot), operation) => self.deliver(slot, header, operation, payload),
            // An RST is never answered by one: two ends would go on for ever.
            (None, Some(Operation::Reset)) => {}
            (None, Some(Operation::Request)) if header.kind == STREAM => self.ask(ports, header),
            (None, _) => {
                count(&self.metrics.bad_packets);
                self.replies.push_back(header.refusal());
            }
        }
    }

    fn deliver(
        &mut self,
        slot: usize,
        header: &Header,
        operation: Option<Operation>,
        payload: Option<&[u8]>,
    ) {
        let Some(connection) = self.connections.get(slot) else { return };
        let was_open = connection.is_open();
        let fate = match operation {
            Some(operation) => connection.take(header, operation, payload),
            None => Fate::Refused,
        };
        match (was_open, fate) {
            (false, Fate::Stays) if connection.is_open() => count(&self.metrics.from_host),
            (false, Fate::Ends | Fate::Refused) => count(&self.metrics.refused),
            (true, Fate::Stays) if operation == Some(Operation::Data) => {
                add(&self.metrics.sent_bytes, header.length);
            }
            _ => {}
        }
        if fate == Fate::Refused {
            count(&self.metrics.bad_packets);
        }
        if let Fate::Refused | Fate::Closed { .. } = fate {
            self.replies.push_back(header.refusal());
        }
        self.settle(slot, fate);
    }

    fn ask(&mut self, ports: Ports, request: &Header) {
        if !self.connections.has_room() || !self.connections.may_ask() {
            count(&self.metrics.refused);
            self.replies.push_back(request.refusal());
            return;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let slot = self.connections.insert(Connection::asked(ports, ticket, request));
        self.set_deadline(slot, self.patience);
        (self.report)(Ask { ticket, port: ports.host });
    }

    /// Does to a connection what became of it.
    fn settle(&mut self, slot: usize, fate: Fate) {
        match fate {
            Fate::Stays => self.connections.enqueue(slot),
            Fate::Closed { lingers: true } => {
                self.connections.release_ports(slot);
                self.set_deadline(slot, self.patience * LINGER);
            }
            Fate::Ends | Fate::Refused | Fate::Closed { lingers: false } => {
                self.connections.remove(slot);
            }
        }
    }

    fn take_orders(&mut self) {
        self.orders.answer_bell();
        for _ in 0..BATCH {
            match self.orders.next() {
                Some(Order::Grant { ticket, socket }) => self.answer(ticket, Some(socket)),
                Some(Order::Refuse { ticket }) => self.answer(ticket, None),
                Some(Order::Connect { socket, guest_port, ordered }) => {
                    if ordered.elapsed() >= self.patience || !self.connect(socket, guest_port) {
                        count(&self.metrics.refused);
                    }
                }
                None => return,
            }
        }
        self.orders.ring_bell();
    }

    /// The owner's answer. If nobody waits for it any more, its socket is closed.
    fn answer(&mut self, ticket: u64, socket: Option<OwnedFd>) {
        let Some(slot) = self.connections.answered(ticket) else { return };
        let host = socket.map(|socket| HostEnd::new(socket, &self.epoll, slot as u64));
        let Some(connection) = self.connections.get(slot) else { return };
        let fate = match host {
            Some(Ok(host)) => {
                connection.grant(host);
                count(&self.metrics.from_guest);
                Fate::Stays
            }
            // What cannot be listened to is no socket, or the machine has no memory for one more.
            Some(Err(_)) | None => {
                count(&self.metrics.refused);
                connection.give_up()
            }
        };
        self.settle(slot, fate);
    }

    /// False if there is no room for it; the socket is closed.
    fn connect(&mut self, socket: OwnedFd, guest_port: u32) -> bool {
        if !self.connections.has_room() {
            return false;
        }
        let Some(ports) = self.connections.ports_to(guest_port) else { return false };
        let number = self.connections.next_slot() as u64;
        let Ok(host) = HostEnd::new(socket, &self.epoll, number) else { return false };
        let slot = self.connections.insert(Connection::calling(ports, host));
        self.set_deadline(slot, self.patience);
        true
    }

    fn look_at_host_ends(&mut self) {
        let mut events = [EpollEvent::default(); BATCH];
        // What is left wakes the worker again. Interrupted: likewise.
        let ready = self.epoll.wait(0, &mut events).unwrap_or(0);
        for event in &events[..ready] {
            let slot = usize::try_from(event.data()).unwrap_or(usize::MAX);
            let Some(connection) = self.connections.get(slot) else { continue };
            let was_calling = connection.is_calling();
            let fate = connection.host_event(event.event_set());
            // A host that takes some of the rest has time for more of it.
            let takes_rest = connection.is_lingering() && fate == Fate::Stays;
            if was_calling && (fate == Fate::Ends || !connection.is_calling()) {
                count(&self.metrics.refused);
            }
            if takes_rest {
                self.set_deadline(slot, self.patience * LINGER);
            }
            self.settle(slot, fate);
        }
    }

    fn end_overdue(&mut self) {
        self.timer_at = None;
        let now = Instant::now();
        for slot in self.connections.overdue(now) {
            self.connections.forget_ticket(slot);
            let Some(connection) = self.connections.get(slot) else { continue };
            if !connection.is_open() && !connection.is_lingering() {
                count(&self.metrics.refused);
            }
            let fate = connection.give_up();
            self.settle(slot, fate);
        }
        if let Some(first) = self.connections.first_deadline() {
            self.set_timer(first.saturating_duration_since(now));
        }
    }

    fn set_deadline(&mut self, slot: usize, wait: Duration) {
        let deadline = Instant::now() + wait;
        if let Some(connection) = self.connections.get(slot) {
            connection.deadline = Some(deadline);
        }
        if self.timer_at.is_none_or(|at| deadline < at) {
            self.set_timer(wait);
        }
    }

    fn set_timer(&mut self, wait: Duration) {
        let wait = wait.max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        // The only failures are a bad descriptor and a bad time.
        let _ = self.timer.set(once, TimerSetTimeFlags::empty());
        self.timer_at = Some(Instant::now() + wait);
    }

    /// Whether there may be a packet for the guest.
    pub(super) fn has_to_tell(&self) -> bool {
        !self.replies.is_empty() || self.connections.turns() > 0
    }

    /// The next packet for the guest, its bytes in `buffer`: no more than it holds. One connection after the other.
    pub(super) fn next_packet(&mut self, buffer: &mut [u8]) -> Option<Header> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(reply);
        }
        for _ in 0..self.connections.turns() {
            let slot = self.connections.next_turn()?;
            let Some(connection) = self.connections.get(slot) else { continue };
            let packet = connection.next_packet(buffer);
            let awaits_end = connection.awaits_end() && connection.deadline.is_none();
            let is_reset =
                packet.is_some_and(|header| header.operation() == Some(Operation::Reset));
            let fate = if is_reset { Fate::Ends } else { Fate::Stays };
            if awaits_end {
                self.set_deadline(slot, self.patience);
            }
            self.settle(slot, fate);
            if let Some(header) = packet {
                add(&self.metrics.received_bytes, header.length);
                let (source_cid, target_cid) = (HOST_CID, self.guest_cid);
                return Some(Header { source_cid, target_cid, ..header });
            }
        }
        None
    }

    /// Checks what holds at all times.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.connections.check();
        assert!(self.replies.len() <= MAX_REPLIES);
    }

    /// How many connections there are.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.count()
    }
}
