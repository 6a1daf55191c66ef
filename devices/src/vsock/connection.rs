//! One connection: what packets, the host's end and time do to it, and what the guest has to be told of it.
//!
//! ```text
//!   guest asks ─▶ Asked ── granted ──▶ Open ◀── RESPONSE ── Calling ◀── host connects
//!                   │                 │ │ │                    │
//!   refused, time ──┤   host breaks ──┘ │ └── guest shut both  ├── host gives up, time
//!                   ▼   or time   ▼     │        │             ▼
//!                   └────────▶ Reset ◀──┘        └─▶ Lingering until the host has taken all, or time
//!                        RST to the guest, gone        RST to the guest at once
//! ```
//!
//! An RST of the guest's ends it from anywhere. Both directions shut by the host: the guest is told, and has to answer
//! by RST within a time.

use std::time::Instant;

use vmm_sys_util::epoll::EventSet;

use super::credit::{GuestCredit, KEPT_TOLD, Kept};
use super::packet::{Header, Operation, SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, STREAM};
use crate::host_end::{HostEnd, Received, Sent};

/// What tells connections apart: there is one guest and one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ports {
    pub(super) guest: u32,
    pub(super) host: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The guest wants it; the owner was asked.
    Asked { ticket: u64 },
    /// The host wants it; the guest is asked, or will be.
    Calling { is_told: bool },
    /// Bytes flow.
    Open,
    /// It is over; the guest will be told.
    Reset,
    /// It is over for the guest; the host takes the rest.
    Lingering,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Stays,
    /// It is gone, and the guest knows.
    Ends,
    /// It is gone, and the guest is told by RST: it did what it must not.
    Refused,
    /// It is gone for the guest, which closed it and is told by RST; gone for good if the host has taken all.
    Closed {
        /// The host has not.
        lingers: bool,
    },
}

/// A connection, with the host's end if it has one.
pub(super) struct Connection {
    ports: Ports,
    phase: Phase,
    host: Option<HostEnd>,
    credit: GuestCredit,
    kept: Kept,
    /// What the guest has shut: bits of SHUTDOWN.
    guest_shut: u32,
    /// What the host has shut, as the guest has to be told.
    host_shut: u32,
    /// What of it the guest was told.
    told_shut: u32,
    /// There may be something to read.
    is_readable: bool,
    is_hung_up: bool,
    /// The host's end was told that the guest sends no more.
    has_ended_sending: bool,
    owes_response: bool,
    owes_credit: bool,
    /// The guest was asked for credit and gave none since.
    asked_credit: bool,
    /// When to give up waiting for the owner, the guest, or a host that does not take the rest.
    pub(super) deadline: Option<Instant>,
    /// It stands in the queue of those that have something to tell.
    pub(super) is_queued: bool,
}

impl Connection {
    /// One that the guest wants by this packet, and that the owner was asked for.
    pub(super) fn asked(ports: Ports, ticket: u64, request: &Header) -> Self {
        let mut connection = Self::new(ports, Phase::Asked { ticket });
        connection.credit.update(request.buffer, request.forwarded);
        connection
    }

    /// One that the host wants.
    pub(super) fn calling(ports: Ports, host: HostEnd) -> Self {
        Self { host: Some(host), ..Self::new(ports, Phase::Calling { is_told: false }) }
    }

    fn new(ports: Ports, phase: Phase) -> Self {
        Self {
            ports,
            phase,
            host: None,
            credit: GuestCredit::default(),
            kept: Kept::default(),
            guest_shut: 0,
            host_shut: 0,
            told_shut: 0,
            is_readable: false,
            is_hung_up: false,
            has_ended_sending: false,
            owes_response: false,
            owes_credit: false,
            asked_credit: false,
            deadline: None,
            is_queued: false,
        }
    }

    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    /// What the owner was asked with, if it has not answered.
    pub(super) fn ticket(&self) -> Option<u64> {
        match self.phase {
            Phase::Asked { ticket } => Some(ticket),
            _ => None,
        }
    }

    /// Whether the host wants it, and the guest has not answered.
    pub(super) fn is_calling(&self) -> bool {
        matches!(self.phase, Phase::Calling { .. })
    }

    /// Whether the guest has accepted it, or the owner.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether the guest has forgotten it.
    pub(super) fn is_lingering(&self) -> bool {
        self.phase == Phase::Lingering
    }

    /// Whether all is over but the guest's answer.
    pub(super) fn awaits_end(&self) -> bool {
        self.phase == Phase::Open && self.told_shut == SHUT_BOTH
    }

    /// The owner gave the host's end.
    pub(super) fn grant(&mut self, host: HostEnd) {
        self.phase = Phase::Open;
        self.host = Some(host);
        self.owes_response = true;
        self.deadline = None;
    }

    /// It cannot be, or its time is over.
    pub(super) fn give_up(&mut self) -> Fate {
        if let Phase::Lingering | Phase::Calling { is_told: false } = self.phase {
            return Fate::Ends;
        }
        self.phase = Phase::Reset;
        self.host = None;
        self.kept.clear();
        self.deadline = None;
        Fate::Stays
    }

    /// A packet of the guest's. `payload` is none if it is not there as the header says, or too long to be kept.
    pub(super) fn take(
        &mut self,
        header: &Header,
        operation: Operation,
        payload: Option<&[u8]>,
    ) -> Fate {
        self.credit.update(header.buffer, header.forwarded);
        self.asked_credit &= self.credit.left() == 0;
        match (operation, self.phase) {
            (Operation::Reset, _) => Fate::Ends,
            // Sent before the guest could know.
            (_, Phase::Reset) => Fate::Stays,
            (Operation::Response, Phase::Calling { is_told: true }) => {
                self.phase = Phase::Open;
                self.deadline = None;
                Fate::Stays
            }
            (Operation::CreditRequest, Phase::Open) => {
                self.owes_credit = true;
                Fate::Stays
            }
            // The numbers were taken above, and there is nothing to answer before it is open.
            (Operation::CreditUpdate | Operation::CreditRequest, _) => Fate::Stays,
            (Operation::Data, Phase::Open) => match payload {
                Some(bytes) => self.take_data(bytes),
                None => Fate::Refused,
            },
            (Operation::Shutdown, Phase::Open) => self.take_shutdown(header.flags),
            _ => Fate::Refused,
        }
    }

    fn take_data(&mut self, bytes: &[u8]) -> Fate {
        if self.guest_shut & SHUT_SEND != 0 || !self.kept.has_room(bytes.len()) {
            return Fate::Refused;
        }
        let mut rest = bytes;
        // What is kept goes first.
        while self.kept.is_empty() && !rest.is_empty() {
            match self.send(rest) {
                Sent::Bytes(count) => {
                    self.kept.pass(count);
                    rest = &rest[count..];
                }
                Sent::Nothing => break,
                Sent::Deaf => {
                    self.kept.pass(rest.len());
                    self.host_shut |= SHUT_RECEIVE;
                    self.settle();
                    return Fate::Stays;
                }
            }
        }
        self.kept.push(rest);
        Fate::Stays
    }

    fn send(&self, bytes: &[u8]) -> Sent {
        match &self.host {
            Some(host) if self.host_shut & SHUT_RECEIVE == 0 => host.send(bytes),
            _ => Sent::Deaf,
        }
    }

    fn take_shutdown(&mut self, flags: u32) -> Fate {
        let added = flags & SHUT_BOTH & !self.guest_shut;
        self.guest_shut |= added;
        if self.guest_shut == SHUT_BOTH {
            let lingers = !self.kept.is_empty();
            if lingers {
                self.phase = Phase::Lingering;
            }
            return Fate::Closed { lingers };
        }
        if added & SHUT_RECEIVE != 0
            && let Some(host) = &self.host
        {
            host.end_receiving();
        }
        self.settle();
        Fate::Stays
    }

    /// Something changed at the host's end.
    pub(super) fn host_event(&mut self, events: EventSet) -> Fate {
        let over = EventSet::READ_HANG_UP | EventSet::HANG_UP | EventSet::ERROR;
        self.is_readable |= events.intersects(over | EventSet::IN);
        self.is_hung_up |= events.contains(EventSet::HANG_UP);
        if let Phase::Calling { .. } = self.phase {
            return if self.is_hung_up { self.give_up() } else { Fate::Stays };
        }
        self.flush();
        if self.is_lingering() {
            return if self.kept.is_empty() { Fate::Ends } else { Fate::Stays };
        }
        self.settle();
        Fate::Stays
    }

    /// Has the host take what is kept.
    fn flush(&mut self) {
        while !self.kept.is_empty() {
            match self.send(self.kept.front()) {
                Sent::Bytes(count) => self.kept.pop(count),
                Sent::Nothing => return,
                Sent::Deaf => {
                    self.kept.clear();
                    self.host_shut |= SHUT_RECEIVE;
                }
            }
        }
    }

    /// Draws conclusions from what each side has shut.
    fn settle(&mut self) {
        let Some(host) = &self.host else { return };
        let guest_is_done = self.guest_shut & SHUT_SEND != 0 && self.kept.is_empty();
        if guest_is_done && !self.has_ended_sending {
            self.has_ended_sending = true;
            host.end_sending();
        }
        let nothing_to_guest =
            self.host_shut & SHUT_SEND != 0 || self.guest_shut & SHUT_RECEIVE != 0;
        let nothing_to_host =
            self.is_hung_up || self.host_shut & SHUT_RECEIVE != 0 || guest_is_done;
        if nothing_to_guest && nothing_to_host {
            self.host_shut = SHUT_BOTH;
            self.kept.clear();
            self.host = None;
        }
    }

    /// Whether something of the host's may be read for the guest.
    fn may_read(&self) -> bool {
        self.is_readable && self.host_shut & SHUT_SEND == 0 && self.guest_shut & SHUT_RECEIVE == 0
    }

    /// Whether there may be a packet for the guest now.
    pub(super) fn has_to_tell(&self) -> bool {
        match self.phase {
            Phase::Asked { .. } | Phase::Calling { is_told: true } | Phase::Lingering => false,
            Phase::Calling { is_told: false } | Phase::Reset => true,
            Phase::Open => {
                self.owes_response
                    || self.owes_credit
                    || self.kept.owes_update()
                    || self.host_shut != self.told_shut
                    || self.may_read() && (self.credit.left() > 0 || !self.asked_credit)
            }
        }
    }

    /// The next packet for the guest, its bytes in `buffer`: no more than it holds. After an RST nothing is left to do.
    pub(super) fn next_packet(&mut self, buffer: &mut [u8]) -> Option<Header> {
        let (operation, flags, length) = match self.phase {
            Phase::Asked { .. } | Phase::Calling { is_told: true } | Phase::Lingering => {
                return None;
            }
            Phase::Calling { is_told: false } => {
                self.phase = Phase::Calling { is_told: true };
                (Operation::Request, 0, 0)
            }
            Phase::Reset => (Operation::Reset, 0, 0),
            Phase::Open => self.next_while_open(buffer)?,
        };
        Some(self.header(operation, flags, length))
    }

    fn next_while_open(&mut self, buffer: &mut [u8]) -> Option<(Operation, u32, u32)> {
        if std::mem::take(&mut self.owes_response) {
            return Some((Operation::Response, 0, 0));
        }
        if std::mem::take(&mut self.owes_credit) || self.kept.owes_update() {
            return Some((Operation::CreditUpdate, 0, 0));
        }
        // That the host sends no more is found out by reading to the end, so bytes are never behind it.
        self.next_shutdown().or_else(|| self.next_data(buffer)).or_else(|| self.next_shutdown())
    }

    fn next_shutdown(&mut self) -> Option<(Operation, u32, u32)> {
        if self.host_shut == self.told_shut {
            return None;
        }
        self.told_shut = self.host_shut;
        Some((Operation::Shutdown, self.host_shut, 0))
    }

    fn next_data(&mut self, buffer: &mut [u8]) -> Option<(Operation, u32, u32)> {
        if !self.may_read() {
            return None;
        }
        let host = self.host.as_ref()?;
        let left = usize::try_from(self.credit.left()).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        // Without credit only the end can be told, which a guest that has read all waits for.
        let received = if left == 0 { host.look() } else { host.receive(&mut buffer[..most]) };
        match received {
            Received::Bytes(_) if left == 0 => {
                let asks = !std::mem::replace(&mut self.asked_credit, true);
                return asks.then_some((Operation::CreditRequest, 0, 0));
            }
            Received::Bytes(count) => {
                let length = u32::try_from(count).unwrap_or(u32::MAX);
                self.credit.send(length);
                return Some((Operation::Data, 0, length));
            }
            Received::Nothing => self.is_readable = false,
            Received::End => {
                self.host_shut |= SHUT_SEND;
                self.settle();
            }
            Received::Broken => {
                self.give_up();
                return Some((Operation::Reset, 0, 0));
            }
        }
        None
    }

    fn header(&mut self, operation: Operation, flags: u32, length: u32) -> Header {
        Header {
            source_port: self.ports.host,
            target_port: self.ports.guest,
            length,
            kind: STREAM,
            operation: operation.number(),
            flags,
            buffer: KEPT_TOLD,
            forwarded: self.kept.tell(),
            ..Header::default()
        }
    }

    /// Bytes of memory that it keeps.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.kept.memory()
    }
}
