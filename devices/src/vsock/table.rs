//! All connections of a device, and whose turn it is to tell the guest something.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::connection::{Connection, Ports};

/// Connections of a device. Each may keep [`KEPT`](super::credit::KEPT) bytes: 64 MiB in all.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// Connections that wait for the owner.
pub(super) const MAX_ASKS: usize = 64;
/// Ports of the host's end where the host connects: far from those that services have.
const HOST_PORTS: std::ops::Range<u32> = 1 << 30..(1 << 30) + (1 << 20);

/// Connections, each in a slot of its own as long as it lives.
pub(super) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Those that the guest knows of.
    by_ports: BTreeMap<Ports, usize>,
    /// Those that the owner was asked for.
    by_ticket: BTreeMap<u64, usize>,
    /// Tickets that the owner has not answered though nobody waits for it any more, and when they are forgotten. A guest
    /// that connects and gives up at once could have the owner asked without end otherwise.
    withdrawn: BTreeMap<u64, Instant>,
    /// Those that have something to tell, in the order of their turns.
    ready: VecDeque<usize>,
    next_host_port: u32,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_ports: BTreeMap::new(),
            by_ticket: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            ready: VecDeque::new(),
            next_host_port: HOST_PORTS.start,
        }
    }

    /// Whether there can be one more.
    pub(super) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < MAX_CONNECTIONS
    }

    /// Whether the owner can be asked for one more.
    pub(super) fn may_ask(&self) -> bool {
        self.by_ticket.len() + self.withdrawn.len() < MAX_ASKS
    }

    /// The slot that the next connection gets.
    pub(super) fn next_slot(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Puts a connection into the next slot. There is room, and its ports are not in use.
    pub(super) fn insert(&mut self, connection: Connection) -> usize {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.by_ports.insert(connection.ports(), slot);
        if let Some(ticket) = connection.ticket() {
            self.by_ticket.insert(ticket, slot);
        }
        self.slots[slot] = Some(connection);
        self.enqueue(slot);
        slot
    }

    pub(super) fn get(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(super) fn find(&self, ports: Ports) -> Option<usize> {
        self.by_ports.get(&ports).copied()
    }

    /// The connection that the owner was asked for by this ticket: it is answered.
    pub(super) fn answered(&mut self, ticket: u64) -> Option<usize> {
        self.withdrawn.remove(&ticket);
        self.by_ticket.remove(&ticket)
    }

    /// The owner did not answer in time.
    pub(super) fn forget_ticket(&mut self, slot: usize) {
        if let Some(ticket) = self.get(slot).and_then(|connection| connection.ticket()) {
            self.by_ticket.remove(&ticket);
        }
    }

    /// Nobody waits for the owner's answer any more.
    fn withdraw_ticket(&mut self, slot: usize) {
        let Some(connection) = self.get(slot) else { return };
        if let (Some(ticket), Some(deadline)) = (connection.ticket(), connection.deadline) {
            self.by_ticket.remove(&ticket);
            self.withdrawn.insert(ticket, deadline);
        }
    }

    /// The guest knows of it no more: its ports may be used again.
    pub(super) fn release_ports(&mut self, slot: usize) {
        let Some(ports) = self.get(slot).map(|connection| connection.ports()) else { return };
        // One that lingers has none: they may be another's by now.
        if self.by_ports.get(&ports) == Some(&slot) {
            self.by_ports.remove(&ports);
        }
    }

    /// Forgets a connection and closes its host's end.
    pub(super) fn remove(&mut self, slot: usize) {
        self.withdraw_ticket(slot);
        self.release_ports(slot);
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        if connection.is_queued {
            self.ready.retain(|ready| *ready != slot);
        }
        self.free.push(slot);
    }

    /// Gives it a turn, if it has something to tell and no turn yet.
    pub(super) fn enqueue(&mut self, slot: usize) {
        let Some(connection) = self.get(slot) else { return };
        if connection.has_to_tell() && !connection.is_queued {
            connection.is_queued = true;
            self.ready.push_back(slot);
        }
    }

    /// Whose turn it is. It has to be [enqueued](Self::enqueue) again for another.
    pub(super) fn next_turn(&mut self) -> Option<usize> {
        let slot = self.ready.pop_front()?;
        if let Some(connection) = self.get(slot) {
            connection.is_queued = false;
        }
        Some(slot)
    }

    pub(super) fn turns(&self) -> usize {
        self.ready.len()
    }

    /// Slots whose time is over. Tickets whose time is over are forgotten.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<usize> {
        self.withdrawn.retain(|_, deadline| *deadline > now);
        let is_due = |connection: &Connection| connection.deadline.is_some_and(|at| at <= now);
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| slot.as_ref().is_some_and(is_due)).map(|(at, _)| at).collect()
    }

    /// When the next one's time is over.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let waiting = self.slots.iter().flatten().filter_map(|connection| connection.deadline);
        waiting.chain(self.withdrawn.values().copied()).min()
    }

    /// Gives all that wait for somebody time until then.
    pub(super) fn put_off(&mut self, deadline: Instant) {
        for connection in self.slots.iter_mut().flatten() {
            connection.deadline = connection.deadline.map(|until| until.max(deadline));
        }
        self.withdrawn.values_mut().for_each(|until| *until = deadline);
    }

    /// Ports for a connection from the host to this port of the guest's. Those used last come last.
    pub(super) fn ports_to(&mut self, guest: u32) -> Option<Ports> {
        // One more than there can be in use.
        for _ in 0..=MAX_CONNECTIONS {
            let host = self.next_host_port;
            self.next_host_port =
                if HOST_PORTS.contains(&(host + 1)) { host + 1 } else { HOST_PORTS.start };
            let ports = Ports { guest, host };
            if !self.by_ports.contains_key(&ports) {
                return Some(ports);
            }
        }
        None
    }

    /// Forgets all connections and closes their host's ends.
    pub(super) fn clear(&mut self) {
        (0..self.slots.len()).for_each(|slot| self.remove(slot));
    }

    /// Checks what holds at all times.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let all: Vec<&Connection> = self.slots.iter().flatten().collect();
        assert!(self.slots.len() <= MAX_CONNECTIONS);
        assert_eq!(all.len() + self.free.len(), self.slots.len());
        let known = all.iter().filter(|connection| !connection.is_lingering()).count();
        assert_eq!(known, self.by_ports.len());
        let asked = all.iter().filter(|connection| connection.ticket().is_some()).count();
        assert_eq!(asked, self.by_ticket.len());
        assert!(asked + self.withdrawn.len() <= MAX_ASKS);
        let queued = all.iter().filter(|connection| connection.is_queued).count();
        assert_eq!(queued, self.ready.len());
        assert!(all.iter().all(|connection| connection.memory() <= super::credit::KEPT));
        assert!(all.iter().all(|connection| connection.is_queued || !connection.has_to_tell()));
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
