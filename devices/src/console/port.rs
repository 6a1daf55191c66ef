//! One port: what the guest sends and gets through it, and who is at the host's end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vmm_sys_util::epoll::{Epoll, EventSet};

use super::channel::{Channel, Output};
use super::config::{PortConfig, TerminalSize};
use super::dialogue::{Dialogue, Owed};
use super::message::ToGuest;
use super::metrics::{Metrics, add, count};
use super::state::PortState;
use crate::virtio::Buffers;

/// What became of a chain that the guest sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is done with.
    All,
    /// There is more in it than may be taken at once.
    Part,
    /// The host's end takes nothing now.
    Blocked,
}

/// A port, with what of the host's it has.
pub(super) struct Port {
    number: usize,
    config: PortConfig,
    pub(super) dialogue: Dialogue,
    /// Of a console: where all that it shows goes.
    output: Option<Arc<Output>>,
    channel: Option<Channel>,
    /// Bytes of the first chain that were taken already.
    sent: u64,
    /// What the guest sent to a host's end that is gone is not for the next one: it is dropped until none is left.
    is_stale: bool,
    /// The host's end takes nothing until it says so.
    is_blocked: bool,
}

impl Port {
    pub(super) fn new(number: usize, config: PortConfig, output: Option<Arc<Output>>) -> Self {
        Self {
            number,
            config,
            dialogue: Dialogue::default(),
            output,
            channel: None,
            sent: 0,
            is_stale: false,
            is_blocked: false,
        }
    }

    /// Forgets what its driver did. The host's end stays.
    pub(super) fn reset(&mut self) {
        self.dialogue = Dialogue::default();
        (self.sent, self.is_stale, self.is_blocked) = (0, false, false);
    }

    /// Has it read a descriptor that was handed in.
    pub(super) fn set_input(&mut self, input: Channel) {
        self.channel = Some(input);
    }

    /// Gives it a new host's end.
    pub(super) fn attach(&mut self, socket: OwnedFd, epoll: &Arc<Epoll>, metrics: &Metrics) {
        self.close();
        match Channel::socket(socket, epoll, self.number as u64) {
            Ok(channel) => {
                self.channel = Some(channel);
                count(&metrics.attached);
            }
            // What cannot be listened to is no socket, or the machine has no memory for one more.
            Err(_) => count(&metrics.refused),
        }
    }

    fn close(&mut self) {
        if self.channel.take().is_some() && !self.config.is_console {
            self.dialogue.host_closed();
            self.is_stale = true;
        }
        self.is_blocked = false;
    }

    /// Closes the host's end if that is over. True if it did.
    pub(super) fn close_if_over(&mut self) -> bool {
        let has_reader = self.dialogue.is_guest_open;
        let is_over = self.channel.as_ref().is_some_and(|channel| channel.is_over(has_reader));
        if is_over {
            self.close();
        }
        is_over
    }

    /// The host's end has something to tell.
    pub(super) fn host_event(&mut self, events: EventSet) {
        if let Some(channel) = &mut self.channel {
            channel.on_event(events);
            self.is_blocked = false;
        }
    }

    /// After a stop: whoever took nothing is asked again.
    pub(super) fn resume(&mut self) {
        self.is_blocked = false;
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The guest has sent nothing that was not taken or dropped.
    pub(super) fn set_drained(&mut self) {
        self.is_stale = false;
    }

    /// The driver has the port.
    pub(super) fn accept(&mut self, has_size: bool) {
        let PortConfig { name, is_console } = &self.config;
        self.dialogue.accept(Owed {
            add: false,
            console: *is_console,
            name: name.is_some(),
            size: *is_console && has_size,
        });
    }

    /// There is a new size, which only consoles have.
    pub(super) fn owe_size(&mut self) {
        if self.config.is_console {
            self.dialogue.owe_size();
        }
    }

    /// The next message for the driver.
    pub(super) fn next_message(&self) -> Option<ToGuest> {
        // A console takes whatever it is sent.
        let is_usable = self.channel.is_some() && !self.is_stale;
        self.dialogue.next(self.config.is_console || is_usable)
    }

    /// The same, as the driver gets it.
    pub(super) fn message_bytes(&self, message: ToGuest, size: TerminalSize) -> Vec<u8> {
        let name = self.config.name.as_deref().unwrap_or_default();
        message.to_bytes(u32::try_from(self.number).unwrap_or(u32::MAX), name, size)
    }

    /// Whether there may be bytes for the guest.
    pub(super) fn has_input(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_readable)
    }

    /// How many bytes for the guest were read, if any.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.channel.as_mut()?.receive(buffer)
    }

    /// Takes what the guest sends in a chain, through `buffer`, and as many bytes at most as are `left`.
    pub(super) fn take(
        &mut self,
        chain: &Buffers<'_>,
        buffer: &mut [u8],
        left: &mut usize,
        metrics: &Metrics,
    ) -> Taken {
        let length = chain.length() as u64;
        while self.sent < length {
            if !self.config.is_console && !self.is_listened_to() {
                add(&metrics.dropped_bytes, length - self.sent);
                break;
            }
            if *left == 0 {
                return Taken::Part;
            }
            let rest = usize::try_from(length - self.sent).unwrap_or(usize::MAX);
            let most = rest.min(buffer.len()).min(*left);
            let piece = &mut buffer[..most];
            // It is there: the chain is in memory, and memory stays.
            let _ = chain.read(usize::try_from(self.sent).unwrap_or(usize::MAX), piece);
            let count = if self.config.is_console {
                self.show(piece, metrics);
                most
            } else {
                self.pass(piece, metrics)
            };
            if self.is_blocked {
                return Taken::Blocked;
            }
            self.sent += count as u64;
            *left -= count;
        }
        self.skip();
        Taken::All
    }

    /// The first chain is done with, however much of it was taken.
    pub(super) fn skip(&mut self) {
        self.sent = 0;
    }

    /// Whether anybody is there for what the guest sends now.
    fn is_listened_to(&self) -> bool {
        !self.is_stale && self.channel.as_ref().is_some_and(Channel::is_writable)
    }

    /// Shows what a console is sent to everyone who looks. Nobody is waited for.
    fn show(&mut self, bytes: &[u8], metrics: &Metrics) {
        let shown = self.output.as_ref().map(|output| output.offer(bytes));
        let viewer = self.channel.as_mut().filter(|channel| channel.is_writable());
        let viewed = viewer.map(|viewer| viewer.send(bytes).unwrap_or(0));
        let taken = shown.into_iter().chain(viewed);
        let most = taken.clone().max().unwrap_or(0);
        let missed: usize = taken.map(|count| bytes.len() - count).sum();
        add(&metrics.sent_bytes, most as u64);
        let nobody = shown.is_none() && viewed.is_none();
        add(&metrics.dropped_bytes, if nobody { bytes.len() } else { missed } as u64);
    }

    /// Passes on what a stream is sent, and says how much of it is done with.
    fn pass(&mut self, bytes: &[u8], metrics: &Metrics) -> usize {
        let count = self.channel.as_mut().and_then(|channel| channel.send(bytes));
        self.is_blocked = count == Some(0);
        // If nobody will take it, the next look finds nobody to listen.
        let count = count.unwrap_or(0);
        add(&metrics.sent_bytes, count as u64);
        count
    }

    pub(super) fn state(&self) -> PortState {
        PortState {
            name: self.config.name.clone(),
            is_console: self.config.is_console,
            dialogue: self.dialogue,
            // What is left of a stream's chain is for nobody who loads it.
            sent: if self.config.is_console { self.sent } else { 0 },
        }
    }

    /// Takes over a state that was checked. The host's ends that were there are gone.
    pub(super) fn load(&mut self, state: &PortState) {
        self.reset();
        (self.dialogue, self.sent) = (state.dialogue, state.sent);
        if !self.config.is_console {
            self.dialogue.host_closed();
            self.is_stale = true;
        }
    }
}
