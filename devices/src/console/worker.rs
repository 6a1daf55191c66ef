//! What serves the queues: bytes of each port, and control messages.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use vmm_sys_util::epoll::{Epoll, EpollEvent};

use super::config::{MAX_PORTS, TerminalSize};
use super::host_side::{Mailbox, Waiting};
use super::lane::{BATCH, Lane};
use super::message::{FromGuest, HEADER, ToGuest};
use super::metrics::{Metrics, count};
use super::port::Port;
use crate::virtio::{BadChain, Buffers, Direction, DrainError, QueueTask, VirtQueue, Wakeup};

/// The queue of messages to the driver.
pub(super) const CONTROL_RECEIVE: u16 = 2;
/// The queue of messages from the driver.
pub(super) const CONTROL_TRANSMIT: u16 = 3;

/// Bytes that go through memory of our own at once.
const PIECE: usize = 4096;

/// No queue has these numbers.
const HOST_ENDS: u32 = 0x1_0000;
const MAIL: u32 = 0x1_0001;

/// What the device has apart from its queues, made before the vmm is locked in.
pub(super) struct Core {
    pub(super) ports: Vec<Port>,
    pub(super) epoll: Arc<Epoll>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) size: TerminalSize,
    pub(super) metrics: Arc<Metrics>,
    /// Bytes of a port, on their way.
    pub(super) buffer: Vec<u8>,
}

impl Core {
    /// A buffer for them.
    pub(super) fn piece() -> Vec<u8> {
        vec![0; PIECE]
    }

    /// The consoles have a new size.
    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.size = size;
        self.ports.iter_mut().for_each(Port::owe_size);
    }

    /// Has the owner see which ports are open.
    pub(super) fn publish(&self) {
        for (number, port) in self.ports.iter().enumerate() {
            self.mailbox.set_open(number, port.dialogue.is_guest_open);
        }
    }

    /// Takes a message of the driver's. False if there is no sense in it.
    fn take_message(&mut self, message: FromGuest, has_size: bool) -> bool {
        let has_size = has_size && self.size.is_known();
        match message {
            FromGuest::DeviceReady { is_ready } => {
                for port in &mut self.ports {
                    if is_ready { port.dialogue.begin() } else { port.dialogue.refuse() }
                }
                true
            }
            FromGuest::PortReady { port, is_ready } => {
                let port = self.port(port);
                let is_there = port.is_some();
                match port {
                    Some(port) if is_ready => port.accept(has_size),
                    Some(port) => port.dialogue.refuse(),
                    None => {}
                }
                is_there
            }
            FromGuest::PortOpen { port, is_open } => {
                self.port(port).is_some_and(|port| port.dialogue.set_guest_open(is_open))
            }
        }
    }

    /// The port of which the driver speaks.
    fn port(&mut self, number: u32) -> Option<&mut Port> {
        self.ports.get_mut(usize::try_from(number).ok()?)
    }

    /// The next message for the driver, and the port that it is of.
    fn next_message(&self) -> Option<(usize, ToGuest)> {
        let mut ports = self.ports.iter().enumerate();
        ports.find_map(|(number, port)| Some((number, port.next_message()?)))
    }
}

/// The queues of the device.
pub(super) struct Queues {
    /// By port: of all, or of the first alone if the driver knows of no others.
    pub(super) lanes: Vec<Lane>,
    /// If the driver knows of several ports.
    pub(super) control: Option<Lane>,
    /// Enabled for no use.
    pub(super) unused: Vec<VirtQueue>,
}

impl Queues {
    /// All that have a use.
    fn used(&self) -> impl Iterator<Item = &VirtQueue> {
        let lanes = self.lanes.iter().chain(&self.control);
        lanes.flat_map(|lane| [&lane.receive, &lane.transmit])
    }

    pub(super) fn into_all(self) -> Vec<VirtQueue> {
        let lanes = self.lanes.into_iter().chain(self.control);
        lanes.flat_map(|lane| [lane.receive, lane.transmit]).chain(self.unused).collect()
    }
}

/// Serves a console device.
pub struct ConsoleTask {
    queues: Queues,
    core: Box<Core>,
    /// The driver takes sizes.
    has_size: bool,
}

impl ConsoleTask {
    pub(super) fn new(queues: Queues, core: Box<Core>, has_size: bool) -> Self {
        Self { queues, core, has_size }
    }

    pub(super) fn into_parts(self) -> (Queues, Box<Core>) {
        (self.queues, self.core)
    }

    /// The driver has rung for a queue. One to the guest is looked at after every event.
    fn answer(&mut self, queue: u16) {
        match queue {
            CONTROL_TRANSMIT => self.take_messages(),
            1 => self.transmit(0),
            // Behind the control queues, each port has its two.
            _ if queue % 2 == 1 => self.transmit(usize::from(queue / 2) - 1),
            _ => {}
        }
    }

    fn transmit(&mut self, number: usize) {
        let Core { ports, buffer, metrics, .. } = &mut *self.core;
        if let (Some(lane), Some(port)) = (self.queues.lanes.get_mut(number), ports.get_mut(number))
        {
            lane.transmit(port, buffer, metrics);
        }
    }

    /// Takes control messages.
    fn take_messages(&mut self) {
        let Some(Lane { transmit: queue, .. }) = &mut self.queues.control else { return };
        let (mut is_pushed, mut has_more) = (false, true);
        for _ in 0..BATCH {
            let Some(chain) = queue.pop() else {
                if queue.resume_doorbell() {
                    continue;
                }
                has_more = false;
                break;
            };
            let head = chain.head_index();
            let mut bytes = [0; HEADER];
            let chain = Buffers::of(chain, Direction::FromGuest, queue.ram());
            let message = match chain {
                Ok(chain) if chain.read(0, &mut bytes) => FromGuest::from_bytes(bytes),
                Err(BadChain::Broken) => {
                    count(&self.core.metrics.bad_chains);
                    queue.refuse();
                    continue;
                }
                _ => None,
            };
            if !message.is_some_and(|message| self.core.take_message(message, self.has_size)) {
                count(&self.core.metrics.bad_messages);
            }
            queue.push(head, 0);
            is_pushed = true;
        }
        if has_more {
            queue.ring_doorbell();
        }
        if is_pushed {
            queue.signal();
            self.core.publish();
        }
    }

    /// Tells the driver what it has yet to be told, as long as it has buffers.
    fn give_messages(&mut self) {
        let Some(Lane { receive: queue, .. }) = &mut self.queues.control else { return };
        let core = &mut *self.core;
        let (mut is_pushed, mut taken) = (false, 0);
        while let Some((number, message)) = core.next_message() {
            if taken == BATCH {
                queue.ring_doorbell();
                break;
            }
            taken += 1;
            let Some(chain) = queue.pop() else {
                if queue.resume_doorbell() {
                    continue;
                }
                break;
            };
            let head = chain.head_index();
            let port = &mut core.ports[number];
            let bytes = port.message_bytes(message, core.size);
            let written = match Buffers::of(chain, Direction::ToGuest, queue.ram()) {
                Ok(chain) if chain.length() >= bytes.len() && chain.write(0, &bytes) => {
                    port.dialogue.told(message);
                    bytes.len()
                }
                Err(BadChain::Broken) => {
                    count(&core.metrics.bad_chains);
                    queue.refuse();
                    break;
                }
                _ => {
                    count(&core.metrics.bad_chains);
                    0
                }
            };
            queue.push(head, u32::try_from(written).unwrap_or(0));
            is_pushed = true;
        }
        if is_pushed {
            queue.signal();
        }
    }

    fn look_at_host_ends(&mut self) {
        let mut events = [EpollEvent::default(); MAX_PORTS];
        // No more than there are ports. Interrupted: what is left wakes the worker again.
        let ready = self.core.epoll.wait(0, &mut events).unwrap_or(0);
        for event in &events[..ready] {
            let number = usize::try_from(event.data()).unwrap_or(usize::MAX);
            if let Some(port) = self.core.ports.get_mut(number) {
                port.host_event(event.event_set());
                self.transmit(number);
            }
        }
    }

    fn take_mail(&mut self) {
        let Waiting { sockets, size } = self.core.mailbox.take();
        for (number, socket) in sockets.into_iter().enumerate() {
            let Core { ports, epoll, metrics, .. } = &mut *self.core;
            if let (Some(socket), Some(port)) = (socket, ports.get_mut(number)) {
                port.attach(socket, epoll, metrics);
                self.transmit(number);
            }
        }
        match size {
            Some(size) if self.has_size => self.core.resize(size),
            Some(size) => self.core.size = size,
            None => {}
        }
    }

    fn receive(&mut self) {
        let is_multiport = self.queues.control.is_some();
        let Core { ports, buffer, metrics, .. } = &mut *self.core;
        for (lane, port) in self.queues.lanes.iter_mut().zip(ports) {
            if !is_multiport || port.dialogue.is_open() {
                lane.receive(port, buffer, metrics);
            }
        }
    }

    /// Closes host's ends that are over. True if there was one.
    fn close_ended(&mut self) -> bool {
        let mut has_closed = false;
        for number in 0..self.core.ports.len() {
            if self.core.ports[number].close_if_over() {
                has_closed = true;
                // What it was sent is for nobody.
                self.transmit(number);
            }
        }
        has_closed
    }

    /// What any event may have made possible. Each turn but the last closes a host's end, so there are few.
    fn settle(&mut self) {
        loop {
            self.give_messages();
            self.receive();
            if !self.close_ended() {
                return;
            }
        }
    }
}

impl QueueTask for ConsoleTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        let doorbell = |queue: &VirtQueue| {
            Wakeup::while_readable(queue.doorbell().as_raw_fd(), queue.index().into())
        };
        let host = [
            Wakeup::while_readable(self.core.epoll.as_raw_fd(), HOST_ENDS),
            Wakeup::while_readable(self.core.mailbox.bell().as_raw_fd(), MAIL),
        ];
        self.queues.used().map(doorbell).chain(host).collect()
    }

    fn on_event(&mut self, token: u32) {
        match token {
            HOST_ENDS => self.look_at_host_ends(),
            MAIL => self.take_mail(),
            _ => {
                let rung = self.queues.used().find(|queue| u32::from(queue.index()) == token);
                let rung = rung.inspect(|queue| queue.answer_doorbell()).map(VirtQueue::index);
                if let Some(queue) = rung {
                    self.answer(queue);
                }
            }
        }
        self.settle();
    }

    /// Nothing is ever in flight: a chain that is taken is given or put back before the call returns.
    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {
        self.core.ports.iter_mut().for_each(Port::resume);
        let lanes = self.queues.lanes.iter_mut().chain(&mut self.queues.control);
        for Lane { receive, transmit } in lanes {
            receive.rearm();
            transmit.rearm();
        }
    }
}
