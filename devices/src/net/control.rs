//! The control queue (virtio 1.2, section 5.1.6.5): what a driver asks for, and who does it.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_bindings::virtio_net::{
    VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK, VIRTIO_NET_CTRL_MAC,
    VIRTIO_NET_CTRL_MAC_ADDR_SET, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_CTRL_MQ,
    VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI,
    VIRTIO_NET_CTRL_RX_ALLUNI, VIRTIO_NET_CTRL_RX_NOBCAST, VIRTIO_NET_CTRL_RX_NOMULTI,
    VIRTIO_NET_CTRL_RX_NOUNI, VIRTIO_NET_CTRL_RX_PROMISC, VIRTIO_NET_ERR,
    VIRTIO_NET_F_CTRL_MAC_ADDR, VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_RX_EXTRA,
    VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_MQ, VIRTIO_NET_OK,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::buffers::{GuestBuffers, Writer};
use super::filter::{MAX_TABLE, MacTable, ReceiveFilter};
use super::mac::MacAddress;
use super::metrics::count;
use super::worker::Shared;
use crate::virtio::{DrainError, GuestRam, QueueTask, VirtQueue, Wakeup};

/// Commands done before other tasks of the worker have their turn.
const BATCH: usize = 16;
/// Descriptors of a command: more than any queue has.
const MAX_SEGMENTS: usize = 256;

/// Kinds of frames that a driver wants, or wants none of, by a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Promiscuous,
    AllMulticast,
    AllUnicast,
    NoMulticast,
    NoUnicast,
    NoBroadcast,
}

/// What a driver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Switch a kind of frames on or off.
    Receive(Mode, bool),
    /// Listen to these addresses, and to none of those before.
    Tables { unicast: MacTable, multicast: MacTable },
    /// Have this address.
    Address(MacAddress),
    /// It has announced its addresses.
    Announced,
    /// Use this many pairs of queues.
    Pairs(u16),
}

impl Command {
    /// Reads one, as a driver with these features may give it; none if it is none.
    pub(super) fn parse(bytes: &[u8], features: u64) -> Option<Self> {
        let has = |feature: u32| features & 1 << feature != 0;
        let (&[class, command], data) = bytes.split_first_chunk()?;
        let command = match (u32::from(class), u32::from(command)) {
            (VIRTIO_NET_CTRL_RX, mode) => {
                let (mode, feature) = mode_of(mode)?;
                let &[is_on] = data else { return None };
                return has(feature).then_some(Self::Receive(mode, is_on != 0));
            }
            (VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET) if has(VIRTIO_NET_F_CTRL_RX) => {
                let (unicast, rest) = table(data)?;
                let (multicast, rest) = table(rest)?;
                rest.is_empty().then_some(Self::Tables { unicast, multicast })?
            }
            (VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET)
                if has(VIRTIO_NET_F_CTRL_MAC_ADDR) =>
            {
                let mac = MacAddress(data.try_into().ok()?);
                mac.is_valid().then_some(Self::Address(mac))?
            }
            (VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK)
                if has(VIRTIO_NET_F_GUEST_ANNOUNCE) =>
            {
                data.is_empty().then_some(Self::Announced)?
            }
            (VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET) if has(VIRTIO_NET_F_MQ) => {
                Self::Pairs(u16::from_le_bytes(data.try_into().ok()?))
            }
            _ => return None,
        };
        Some(command)
    }
}

/// The kind of frames with this number, and the feature that it comes with.
fn mode_of(number: u32) -> Option<(Mode, u32)> {
    Some(match number {
        VIRTIO_NET_CTRL_RX_PROMISC => (Mode::Promiscuous, VIRTIO_NET_F_CTRL_RX),
        VIRTIO_NET_CTRL_RX_ALLMULTI => (Mode::AllMulticast, VIRTIO_NET_F_CTRL_RX),
        VIRTIO_NET_CTRL_RX_ALLUNI => (Mode::AllUnicast, VIRTIO_NET_F_CTRL_RX_EXTRA),
        VIRTIO_NET_CTRL_RX_NOMULTI => (Mode::NoMulticast, VIRTIO_NET_F_CTRL_RX_EXTRA),
        VIRTIO_NET_CTRL_RX_NOUNI => (Mode::NoUnicast, VIRTIO_NET_F_CTRL_RX_EXTRA),
        VIRTIO_NET_CTRL_RX_NOBCAST => (Mode::NoBroadcast, VIRTIO_NET_F_CTRL_RX_EXTRA),
        _ => return None,
    })
}

/// Reads a table, and gives what is behind it.
fn table(bytes: &[u8]) -> Option<(MacTable, &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (addresses, rest) = rest.split_at_checked(count.checked_mul(6)?)?;
    if count > MAX_TABLE {
        return Some((MacTable::TooMany, rest));
    }
    let (addresses, _) = addresses.as_chunks();
    Some((MacTable::Listed(addresses.iter().copied().map(MacAddress).collect()), rest))
}

/// A command's bytes, and where its answer goes; none if there is no place for an answer.
///
/// The bytes are none where they are not in memory, or more than a packet has: whatever they say, that is no command.
pub(super) fn read(
    chain: impl Iterator<Item = Descriptor>,
    ram: &GuestRam,
) -> Option<(Option<Vec<u8>>, GuestAddress)> {
    let descriptors: Vec<Descriptor> = chain.take(MAX_SEGMENTS + 1).collect();
    let first = descriptors.iter().position(|descriptor| descriptor.is_write_only())?;
    let (asked, answers) = descriptors.split_at(first);
    let is_room = |descriptor: &&Descriptor| descriptor.len() > 0;
    let answer = answers.iter().find(is_room).map(|descriptor| descriptor.addr())?;
    let is_chain = descriptors.len() <= MAX_SEGMENTS
        && answers.iter().all(|descriptor| descriptor.is_write_only())
        && answers.last().is_some_and(|descriptor| !descriptor.has_next());
    if !is_chain || !GuestMemory::check_range(&**ram, answer, 1, Permissions::Write) {
        return None;
    }
    let mut buffers = GuestBuffers::new(ram.clone());
    // They do go on, with the answer.
    let ended = asked.iter().map(|asked| Descriptor::new(asked.addr().0, asked.len(), 0, 0));
    let bytes = buffers.add(ended, Writer::Driver).ok().map(|shape| {
        let mut bytes = vec![0; shape.length];
        buffers.read(0, &mut bytes);
        bytes
    });
    Some((bytes, answer))
}

/// Serves the control queue.
pub struct ControlTask {
    queue: VirtQueue,
    shared: Arc<Shared>,
    features: u64,
    /// As many pairs as the driver has set up.
    pairs: u16,
}

impl ControlTask {
    pub(super) fn new(queue: VirtQueue, shared: Arc<Shared>, features: u64, pairs: u16) -> Self {
        Self { queue, shared, features, pairs }
    }

    pub(super) fn into_queue(self) -> VirtQueue {
        self.queue
    }

    fn serve(&mut self) {
        for _ in 0..BATCH {
            let Some(chain) = self.queue.pop() else {
                if self.queue.resume_doorbell() {
                    continue;
                }
                return;
            };
            let head = chain.head_index();
            let Some((bytes, answer)) = read(chain, self.queue.ram()) else {
                count(&self.shared.metrics.malformed);
                self.queue.put_back();
                self.queue.fail();
                // Those that take no chains themselves do not see it.
                self.shared.nudge();
                return;
            };
            let command = bytes.and_then(|bytes| Command::parse(&bytes, self.features));
            let is_done = command.is_some_and(|command| self.execute(command));
            if !is_done {
                count(&self.shared.metrics.malformed);
            }
            let code = if is_done { VIRTIO_NET_OK } else { VIRTIO_NET_ERR };
            // It was in memory when the chain was taken, and memory stays.
            let _ = self.queue.ram().write_slice(&code.to_le_bytes()[..1], answer);
            self.queue.push(head, 1);
            self.queue.signal();
        }
        // There may be more.
        self.queue.ring_doorbell();
    }

    /// False if it cannot be done.
    fn execute(&self, command: Command) -> bool {
        match command {
            Command::Receive(mode, is_on) => self.change_filter(|filter| {
                let switch = match mode {
                    Mode::Promiscuous => &mut filter.promiscuous,
                    Mode::AllMulticast => &mut filter.all_multicast,
                    Mode::AllUnicast => &mut filter.all_unicast,
                    Mode::NoMulticast => &mut filter.no_multicast,
                    Mode::NoUnicast => &mut filter.no_unicast,
                    Mode::NoBroadcast => &mut filter.no_broadcast,
                };
                *switch = is_on;
            }),
            Command::Tables { unicast, multicast } => self.change_filter(|filter| {
                filter.unicast = unicast;
                filter.multicast = multicast;
            }),
            Command::Address(mac) => self.change_filter(|filter| filter.mac = mac),
            Command::Announced => self.shared.announce.store(false, Ordering::Release),
            Command::Pairs(pairs) => {
                let can_be = (1..=self.pairs).contains(&pairs);
                return can_be && self.shared.set_active(pairs).is_ok();
            }
        }
        true
    }

    fn change_filter(&self, change: impl FnOnce(&mut ReceiveFilter)) {
        let mut filter = (*self.shared.filter()).clone();
        change(&mut filter);
        self.shared.set_filter(filter);
    }
}

impl QueueTask for ControlTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        vec![Wakeup::while_readable(self.queue.doorbell().as_raw_fd(), 0)]
    }

    fn on_event(&mut self, _token: u32) {
        self.queue.answer_doorbell();
        self.serve();
    }

    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {
        self.queue.rearm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::guest_ram;

    const ALL: u64 = u64::MAX;
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;

    fn tables(counts: [u32; 2], addresses: usize) -> Vec<u8> {
        let mut bytes = vec![1, 0];
        bytes.extend(counts[0].to_le_bytes());
        bytes.extend(std::iter::repeat_n(2, 6 * addresses));
        bytes.extend(counts[1].to_le_bytes());
        bytes
    }

    #[test]
    fn commands_are_what_they_say() {
        let mac = MacAddress([2, 0, 0, 0, 0, 7]);
        for (bytes, expected) in [
            (vec![0, 0, 1], Command::Receive(Mode::Promiscuous, true)),
            (vec![0, 5, 0], Command::Receive(Mode::NoBroadcast, false)),
            (vec![1, 1, 2, 0, 0, 0, 0, 7], Command::Address(mac)),
            (vec![3, 0], Command::Announced),
            (vec![4, 0, 2, 1], Command::Pairs(0x102)),
        ] {
            assert_eq!(Command::parse(&bytes, ALL), Some(expected), "{bytes:?}");
            assert_eq!(Command::parse(&bytes, 0), None, "without the feature: {bytes:?}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for bytes in [
            &[][..],
            &[0],
            &[0, 0],
            &[0, 0, 1, 1],
            &[0, 6, 1],
            &[1, 1, 2, 0, 0, 0, 0],
            &[1, 1, 1, 0, 0, 0, 0, 7],
            &[1, 1, 0, 0, 0, 0, 0, 0],
            &[1, 2],
            &[2, 0, 1, 0],
            &[3, 0, 0],
            &[4, 0, 2],
            &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xff, 0xff],
        ] {
            assert_eq!(Command::parse(bytes, ALL), None, "{bytes:?}");
        }
    }

    #[test]
    fn tables_are_as_long_as_they_say_and_no_longer_than_is_kept() {
        let parse = |bytes: &[u8]| Command::parse(bytes, ALL);
        let listed = |count| MacTable::Listed(vec![MacAddress([2; 6]); count]);
        let is = |unicast| Some(Command::Tables { unicast, multicast: listed(0) });
        assert_eq!(parse(&tables([0, 0], 0)), is(listed(0)));
        assert_eq!(parse(&tables([64, 0], 64)), is(listed(64)));
        assert_eq!(parse(&tables([65, 0], 65)), is(MacTable::TooMany));
        for wrong in
            [tables([2, 0], 1), tables([1, 0], 2), tables([u32::MAX, 0], 1), tables([0, 1], 0)]
        {
            assert_eq!(parse(&wrong), None, "{wrong:?}");
        }
        assert_eq!(parse(&[1, 0, 0, 0]), None);
    }

    #[test]
    fn command_has_a_place_for_its_answer_or_fails_the_queue() {
        let ram = guest_ram();
        ram.write_slice(&[4, 0, 1, 0], GuestAddress(0x100)).unwrap();
        let ask = |address, length, flags| Descriptor::new(address, length, flags | NEXT, 0);
        let answer = |address, length| Descriptor::new(address, length, WRITE, 0);
        let good = [ask(0x100, 1, 0), ask(0x101, 3, 0), ask(0x300, 0, WRITE), answer(0x200, 1)];
        let read_back = read(good.into_iter(), &ram).unwrap();
        assert_eq!(read_back, (Some(vec![4, 0, 1, 0]), GuestAddress(0x200)));
        for wrong in [
            vec![],
            vec![Descriptor::new(0x100, 4, 0, 0)],
            vec![ask(0x100, 4, 0), answer(0x200, 0)],
            vec![ask(0x100, 4, 0), answer(0x1_0000, 1)],
            vec![ask(0x100, 4, 0), ask(0x200, 1, WRITE)],
            vec![ask(0x200, 1, WRITE), Descriptor::new(0x100, 4, 0, 0)],
            vec![ask(0x100, 1, 0); 300],
        ] {
            assert_eq!(read(wrong.into_iter(), &ram), None);
        }
        for nowhere in [(0xffff, 2), (0, u32::MAX)] {
            let chain = [ask(nowhere.0, nowhere.1, 0), answer(0x200, 1)];
            assert_eq!(read(chain.into_iter(), &ram), Some((None, GuestAddress(0x200))));
        }
    }
}
