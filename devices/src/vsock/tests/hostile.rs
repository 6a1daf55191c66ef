//! Guests that write anything anywhere.

use proptest::prelude::*;

use super::*;

/// What a packet is answered with, beside a connection that it must not touch.
fn answer_to(header: Header) -> Vec<(Header, Vec<u8>)> {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send(header, &[]);
    let packets = bench.receive();
    bench.send_data(b"alive");
    assert_eq!(read(&mut theirs), b"alive");
    packets
}

/// Whether a packet on a connection resets it, and nothing else.
fn is_reset_by(header: Header, payload: &[u8]) -> bool {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send(header, payload);
    let packets = bench.receive();
    let is_gone = bench.connections() == 0 && is_at_end(&mut theirs);
    is_gone && operations(&packets) == [Operation::Reset] && bench.counters().bad_packets == 1
}

#[test]
fn packets_between_other_addresses_are_dropped() {
    for (source_cid, target_cid) in [(6, 2), (5, 3), (2, 5), (5 | 1 << 32, 2), (5, 2 | 1 << 32)] {
        let other = Header { source_cid, target_cid, ..usual(Operation::Reset) };
        assert_eq!(answer_to(other), []);
        let other = Header { source_cid, target_cid, ..packet(Operation::Request, (1, 1)) };
        assert_eq!(answer_to(other), []);
    }
}

#[test]
fn sockets_of_another_type_are_reset_by_themselves() {
    for kind in [0, 2, u16::MAX] {
        for operation in [Operation::Request, Operation::Data, Operation::Shutdown] {
            let packets = answer_to(Header { kind, ..usual(operation) });
            assert_eq!(operations(&packets), [Operation::Reset]);
            assert_eq!(packets[0].0.kind, kind);
        }
        assert_eq!(answer_to(Header { kind, ..usual(Operation::Reset) }), []);
    }
}

#[test]
fn packets_of_no_connection_are_reset_but_for_a_reset() {
    let nobody = (GUEST_PORT, HOST_PORT + 1);
    for operation in [
        Operation::Response,
        Operation::Shutdown,
        Operation::Data,
        Operation::CreditUpdate,
        Operation::CreditRequest,
    ] {
        let packets = answer_to(packet(operation, nobody));
        assert_eq!(operations(&packets), [Operation::Reset]);
        assert_eq!(
            (packets[0].0.source_port, packets[0].0.target_port),
            (HOST_PORT + 1, GUEST_PORT)
        );
    }
    for operation in [0, 8, u16::MAX] {
        let packets = answer_to(Header { operation, ..packet(Operation::Data, nobody) });
        assert_eq!(operations(&packets), [Operation::Reset]);
    }
    assert_eq!(answer_to(packet(Operation::Reset, nobody)), []);
}

#[test]
fn packets_that_cannot_be_reset_their_connection() {
    assert!(is_reset_by(usual(Operation::Request), &[]));
    assert!(is_reset_by(usual(Operation::Response), &[]));
    assert!(is_reset_by(Header { operation: 0, ..usual(Operation::Data) }, &[]));
    assert!(is_reset_by(Header { operation: 8, ..usual(Operation::Data) }, &[]));
}

#[test]
fn data_that_is_not_there_resets_its_connection() {
    for length in [4, 0x1_0001, u32::MAX] {
        assert!(is_reset_by(Header { length, ..usual(Operation::Data) }, b"abc"));
    }
}

#[test]
fn data_behind_the_end_resets_its_connection() {
    let mut bench = Bench::running();
    let _theirs = bench.connected();
    bench.send(Header { flags: SHUT_SEND, ..usual(Operation::Shutdown) }, &[]);
    bench.send_data(b"x");
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn length_of_other_packets_means_nothing() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send(Header { length: u32::MAX, ..usual(Operation::CreditRequest) }, b"abc");
    bench.receive_one(Operation::CreditUpdate);
    bench.send_data(b"");
    assert_eq!(bench.receive(), []);
    bench.send_data(b"alive");
    assert_eq!(read(&mut theirs), b"alive");
}

#[test]
fn second_request_withdraws_the_first() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    bench.send(usual(Operation::Request), &[]);
    assert_eq!(bench.asks().len(), 1);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn data_before_the_answer_resets() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    bench.send_data(b"early");
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn packets_in_any_number_of_pieces_are_whole() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let mut bytes = Header { length: 6, ..usual(Operation::Data) }.to_bytes().to_vec();
    bytes.extend(b"pieces");
    bench.ram.write_slice(&bytes, GuestAddress(OUTGOING)).unwrap();
    let mut at = OUTGOING;
    for (index, length) in (0_u16..).zip([1_u32, 0, 20, 22, 3, 4]) {
        let flags = if index < 5 { FakeRing::NEXT } else { 0 };
        bench.rings[TRANSMIT].describe(index, (GuestAddress(at), length), flags, index + 1);
        at += u64::from(length);
    }
    bench.rings[TRANSMIT].offer(0);
    bench.driver.ring(1);
    bench.settle();
    assert_eq!(read(&mut theirs), b"pieces");
}

#[test]
fn chains_that_hold_no_packet_are_given_back() {
    let mut bench = Bench::running();
    let at = GuestAddress(OUTGOING);
    let chains: [&[(GuestAddress, u32, u16)]; 4] = [
        &[(at, 43, 0)],
        &[(at, 0, 0)],
        &[(at, 44, FakeRing::WRITE)],
        &[(at, 44, FakeRing::NEXT), (at, 44, FakeRing::WRITE)],
    ];
    for chain in chains {
        for (index, (address, length, flags)) in (0_u16..).zip(chain) {
            bench.rings[TRANSMIT].describe(index, (*address, *length), *flags, index + 1);
        }
        bench.rings[TRANSMIT].offer(0);
        bench.driver.ring(1);
        bench.settle();
        assert_eq!(bench.rings[TRANSMIT].take_used(), [(0, 0)]);
    }
    assert_eq!(bench.counters().bad_packets, 4);
    assert_eq!(bench.receive(), []);
}

#[test]
fn chains_that_are_none_have_the_device_reset() {
    let at = GuestAddress(RECEIVE_BUFFERS);
    for (queue, address, flags) in [
        (TRANSMIT, at, FakeRing::NEXT),
        (TRANSMIT, GuestAddress(0xffff_0000), 0),
        (RECEIVE, at, FakeRing::WRITE | FakeRing::NEXT),
        (RECEIVE, GuestAddress(0xfff0), FakeRing::WRITE),
    ] {
        let mut bench = Bench::without_buffers(PATIENCE);
        // There is something to tell.
        bench.send(usual(Operation::Data), &[]);
        bench.rings[TRANSMIT].take_used();
        bench.rings[queue].describe(0, (address, 0x1000), flags, 0);
        bench.rings[queue].offer(0);
        bench.driver.ring(u16::try_from(queue).unwrap());
        bench.settle();
        assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0, "{queue} {flags}");
        assert_eq!(bench.rings[queue].take_used(), []);
        bench.pause();
    }
}

#[test]
fn buffers_that_cannot_be_written_are_given_back() {
    let mut bench = Bench::without_buffers(PATIENCE);
    let at = GuestAddress(RECEIVE_BUFFERS);
    bench.rings[RECEIVE].describe(0, (at, 0x1000), 0, 0);
    bench.rings[RECEIVE].describe(1, (at, 44), FakeRing::WRITE, 0);
    bench.rings[RECEIVE].offer(0);
    bench.rings[RECEIVE].offer(1);
    bench.give_buffer(2);
    bench.send(usual(Operation::Data), &[]);
    let used = bench.rings[RECEIVE].take_used();
    assert_eq!(used, [(0, 0), (1, 0), (2, 44)]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A packet that is nearly right, with less in it than it says.
    Send {
        header: Header,
        missing: usize,
    },
    /// A descriptor with anything in it.
    Describe {
        queue: usize,
        index: u16,
        address: u64,
        length: u32,
        flags: u16,
    },
    Offer {
        queue: usize,
        head: u16,
    },
    /// The driver gives all buffers that came back again.
    Refill,
    Grant,
    Refuse,
    Connect(u32),
    HostWrite {
        socket: usize,
        length: usize,
    },
    HostRead(usize),
    HostShut {
        socket: usize,
        write: bool,
    },
    HostClose(usize),
    Turn,
    Settle,
    Stop,
}

fn operation() -> impl Strategy<Value = u16> {
    use Operation::{CreditRequest, CreditUpdate, Data, Request, Reset, Response, Shutdown};
    prop_oneof![
        6 => Just(Request.number()),
        3 => Just(Response.number()),
        8 => Just(Data.number()),
        2 => Just(CreditUpdate.number()),
        1 => Just(CreditRequest.number()),
        1 => Just(Shutdown.number()),
        1 => Just(Reset.number()),
        1 => any::<u16>(),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let cid = |usual: u64| prop_oneof![40 => Just(usual), 1 => any::<u64>()];
    let guest_port = prop_oneof![6 => Just(22_u32), 1 => Just(23)];
    let called = 1_u32 << 30;
    let host_port = prop_oneof![6 => Just(80_u32), 3 => called..called + 3, 1 => any::<u32>()];
    let kind = prop_oneof![40 => Just(STREAM), 1 => any::<u16>()];
    let length = prop_oneof![8 => 0..MOST, 1 => any::<usize>()];
    let length = length.prop_map(|length| u32::try_from(length).unwrap_or(u32::MAX));
    let flags = prop_oneof![2 => Just(SHUT_SEND), 2 => Just(SHUT_RECEIVE), 1 => any::<u32>()];
    let credit = prop_oneof![6 => Just(GUEST_BUFFER), 1 => 0_u32..4, 1 => any::<u32>()];
    let forwarded = prop_oneof![12 => Just(0_u32), 2 => 0_u32..0x100, 1 => any::<u32>()];
    let ends = (cid(GUEST_CID), cid(HOST_CID), guest_port, host_port);
    let rest = (length, kind, operation(), flags, credit, forwarded);
    (ends, rest).prop_map(|(ends, rest)| {
        let (source_cid, target_cid, source_port, target_port) = ends;
        let (length, kind, operation, flags, buffer, forwarded) = rest;
        Header {
            source_cid,
            target_cid,
            source_port,
            target_port,
            length,
            kind,
            operation,
            flags,
            buffer,
            forwarded,
        }
    })
}

/// What a guest does whose rings are whole.
fn packet_step() -> impl Strategy<Value = Step> {
    let missing = prop_oneof![20 => Just(0_usize), 1 => 1_usize..100];
    let written = prop_oneof![1_usize..100, 1_usize..0x1_0000];
    prop_oneof![
        16 => (header(), missing).prop_map(|(header, missing)| Step::Send { header, missing }),
        6 => Just(Step::Refill),
        8 => Just(Step::Grant),
        1 => Just(Step::Refuse),
        3 => prop_oneof![4 => Just(22_u32), 1 => any::<u32>()].prop_map(Step::Connect),
        4 => (0_usize..3, written).prop_map(|(socket, length)| Step::HostWrite { socket, length }),
        2 => (0_usize..3).prop_map(Step::HostRead),
        1 => (0_usize..3, any::<bool>())
            .prop_map(|(socket, write)| Step::HostShut { socket, write }),
        1 => (0_usize..3).prop_map(Step::HostClose),
        4 => Just(Step::Turn),
        4 => Just(Step::Settle),
        1 => Just(Step::Stop),
    ]
}

/// What any guest does.
fn step() -> impl Strategy<Value = Step> {
    let address = prop_oneof![0x4000_u64..0x1_0100, any::<u64>()];
    let length = prop_oneof![Just(44_u32), Just(0x1000), 0_u32..100, any::<u32>()];
    let describe = (0_usize..3, 0_u16..16, address, length, 0_u16..8);
    prop_oneof![
        16 => packet_step(),
        1 => describe.prop_map(|(queue, index, address, length, flags)| {
            Step::Describe { queue, index, address, length, flags }
        }),
        1 => (0_usize..3, 0_u16..16).prop_map(|(queue, head)| Step::Offer { queue, head }),
    ]
}

/// The other ends of all sockets, and what the owner was asked.
#[derive(Default)]
struct Host {
    sockets: Vec<UnixStream>,
    asks: Vec<Ask>,
}

impl Host {
    fn pair(&mut self) -> UnixStream {
        let (ours, theirs) = pair();
        self.sockets.push(theirs);
        ours
    }

    fn socket(&mut self, number: usize) -> Option<&mut UnixStream> {
        // The newest first: others are closed already, most likely.
        let count = self.sockets.len().max(1);
        self.sockets.iter_mut().rev().nth(number % count)
    }
}

impl Bench {
    fn take(&mut self, step: Step, host: &mut Host) {
        host.asks.extend(self.asks());
        match step {
            Step::Send { header, missing } => {
                let length = (header.length as usize).min(MOST).saturating_sub(missing);
                self.post(header, &vec![7; length]);
                self.turn();
            }
            Step::Describe { queue, index, address, length, flags } => {
                let buffer = (GuestAddress(address), length);
                self.rings[queue].describe(index, buffer, flags, (index + 1) % 16);
            }
            Step::Offer { queue, head } => {
                self.rings[queue].offer(head);
                self.driver.ring(u16::try_from(queue).unwrap());
            }
            Step::Refill => {
                for (head, _) in self.rings[RECEIVE].take_used() {
                    self.rings[RECEIVE].offer(u16::try_from(head).unwrap());
                }
                self.driver.ring(0);
            }
            Step::Grant => {
                if let Some(ask) = host.asks.pop() {
                    self.side.grant(ask.ticket, host.pair().into()).unwrap();
                }
            }
            Step::Refuse => {
                if let Some(ask) = host.asks.pop() {
                    self.side.refuse(ask.ticket).unwrap();
                }
            }
            Step::Connect(port) => self.side.connect(host.pair().into(), port).unwrap(),
            Step::HostWrite { socket, length } => {
                host.socket(socket).map(|socket| socket.write(&vec![9; length]));
            }
            Step::HostRead(socket) => {
                host.socket(socket).map(read);
            }
            Step::HostShut { socket, write } => {
                let how = if write { std::net::Shutdown::Write } else { std::net::Shutdown::Read };
                host.socket(socket).map(|socket| socket.shutdown(how));
            }
            Step::HostClose(socket) => {
                if !host.sockets.is_empty() {
                    host.sockets.swap_remove(socket % host.sockets.len());
                }
            }
            Step::Turn => {
                self.turn();
            }
            Step::Settle => self.settle(),
            Step::Stop => {
                self.pause();
                self.resume();
            }
        }
    }
}

/// Whatever the guest did, its driver can begin anew, and then nothing is left.
fn play(steps: &[Step]) -> VsockCounters {
    let mut bench = Bench::running();
    let mut host = Host::default();
    steps.iter().for_each(|step| bench.take(*step, &mut host));
    bench.settle();
    bench.pause();
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    for socket in &mut host.sockets {
        read(socket);
        assert!(is_at_end(socket));
    }
    bench.counters()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn no_packets_break_bounds_or_keep_the_worker_awake(
        steps in prop::collection::vec(packet_step(), 1..150),
    ) {
        play(&steps);
    }

    #[test]
    fn no_rings_break_bounds_or_keep_the_worker_awake(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        play(&steps);
    }
}
