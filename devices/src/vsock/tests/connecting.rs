//! How connections begin, or do not.

use super::*;
use crate::vsock::table::{MAX_ASKS, MAX_CONNECTIONS};

/// A host's connection to a port of the guest's, up to the request.
fn call(bench: &mut Bench, guest_port: u32) -> (UnixStream, Header) {
    let (ours, theirs) = pair();
    bench.side.connect(ours.into(), guest_port).unwrap();
    let request = bench.receive_one(Operation::Request);
    assert_eq!(request.target_port, guest_port);
    (theirs, request)
}

/// The guest's answer.
fn answer(operation: Operation, request: &Header) -> Header {
    packet(operation, (request.target_port, request.source_port))
}

#[test]
fn guest_connects_and_bytes_flow_both_ways() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send_data(b"from the guest");
    assert_eq!(read(&mut theirs), b"from the guest");
    theirs.write_all(b"from the host").unwrap();
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Data]);
    assert_eq!(packets[0].1, b"from the host");
    assert_eq!(packets[0].0.forwarded, 14);
    assert!(was_raised(&bench.interrupts[1]));
    assert!(was_raised(&bench.interrupts[2]));
    let counters = bench.counters();
    assert_eq!((counters.from_guest, counters.sent_bytes, counters.received_bytes), (1, 14, 13));
    assert_eq!((counters.refused, counters.bad_packets), (0, 0));
}

#[test]
fn bytes_that_wait_in_a_granted_socket_come_after_the_response() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    let (ours, mut theirs) = pair();
    theirs.write_all(b"early").unwrap();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Response, Operation::Data]);
    assert_eq!(packets[1].1, b"early");
}

#[test]
fn guest_that_the_owner_refuses_is_reset() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    bench.side.refuse(bench.asks()[0].ticket).unwrap();
    let reset = bench.receive_one(Operation::Reset);
    assert_eq!((reset.source_port, reset.target_port), (HOST_PORT, GUEST_PORT));
    assert_eq!(bench.connections(), 0);
    assert_eq!(bench.counters().refused, 1);
}

#[test]
fn owner_that_never_answers_refuses() {
    let mut bench = Bench::without_buffers(Duration::from_millis(20));
    bench.give_buffers();
    bench.send(usual(Operation::Request), &[]);
    assert_eq!(operations(&bench.wait_for_packets()), [Operation::Reset]);
    assert_eq!(bench.connections(), 0);
    let (ours, mut theirs) = pair();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    assert_eq!(bench.receive(), []);
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.counters().refused, 1);
}

#[test]
fn what_is_no_socket_is_no_grant() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    let file = tempfile::tempfile().unwrap();
    bench.side.grant(bench.asks()[0].ticket, file.into()).unwrap();
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn answers_that_nobody_asked_for_close_their_sockets() {
    let mut bench = Bench::running();
    let (ours, mut theirs) = pair();
    bench.side.grant(77, ours.into()).unwrap();
    bench.side.refuse(78).unwrap();
    bench.settle();
    assert!(is_at_end(&mut theirs));
    bench.send(usual(Operation::Request), &[]);
    let ticket = bench.asks()[0].ticket;
    let pairs = [pair(), pair()];
    let [first, mut second] = pairs.map(|(ours, theirs)| {
        bench.side.grant(ticket, ours.into()).unwrap();
        theirs
    });
    bench.receive_one(Operation::Response);
    assert!(is_at_end(&mut second));
    drop(first);
}

#[test]
fn guest_that_gives_up_before_the_answer_loses_the_socket() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    bench.send(usual(Operation::Reset), &[]);
    assert_eq!(bench.connections(), 0);
    let (ours, mut theirs) = pair();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    bench.settle();
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.receive(), []);
}

#[test]
fn tickets_are_never_used_twice() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    let first = bench.asks()[0].ticket;
    bench.pause();
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    bench.rings = [0x1000, 0x2000, 0x3000]
        .map(|base| FakeRing::new(&bench.ram, GuestAddress(base), 16))
        .into();
    bench.ram.write_slice(&[0; 0x3000], GuestAddress(0x1000)).unwrap();
    bench.start();
    assert_eq!(bench.connections(), 0);
    bench.send(usual(Operation::Request), &[]);
    assert_ne!(bench.asks()[0].ticket, first);
}

#[test]
fn host_connects_and_bytes_flow_both_ways() {
    let mut bench = Bench::running();
    let (mut theirs, request) = call(&mut bench, 22);
    assert!(request.source_port >= 1 << 30);
    theirs.write_all(b"hello").unwrap();
    assert_eq!(bench.receive(), []);
    bench.send(answer(Operation::Response, &request), &[]);
    assert_eq!(payloads(&bench.receive()), b"hello");
    let data = Header { length: 2, ..answer(Operation::Data, &request) };
    bench.send(data, b"hi");
    assert_eq!(read(&mut theirs), b"hi");
    assert_eq!(bench.counters().from_host, 1);
}

#[test]
fn two_connections_to_one_port_have_ports_of_their_own() {
    let mut bench = Bench::running();
    let (_first, one) = call(&mut bench, 22);
    let (_second, other) = call(&mut bench, 22);
    assert_ne!(one.source_port, other.source_port);
}

#[test]
fn guest_that_refuses_has_the_socket_closed() {
    let mut bench = Bench::running();
    let (mut theirs, request) = call(&mut bench, 22);
    bench.send(answer(Operation::Reset, &request), &[]);
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.connections(), 0);
    assert_eq!(bench.counters().refused, 1);
}

#[test]
fn guest_that_never_answers_is_reset_and_the_socket_closed() {
    let mut bench = Bench::without_buffers(Duration::from_millis(20));
    bench.give_buffers();
    let (ours, mut theirs) = pair();
    bench.side.connect(ours.into(), 22).unwrap();
    assert_eq!(operations(&bench.wait_for_packets()), [Operation::Request]);
    assert_eq!(operations(&bench.wait_for_packets()), [Operation::Reset]);
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.connections(), 0);
}

#[test]
fn guest_without_buffers_never_hears_of_a_connection_that_timed_out() {
    let mut bench = Bench::without_buffers(Duration::from_millis(1));
    let (ours, mut theirs) = pair();
    bench.side.connect(ours.into(), 22).unwrap();
    let end = Instant::now() + PATIENCE;
    while !is_at_end(&mut theirs) {
        assert!(Instant::now() < end, "the socket is not closed");
        bench.settle();
    }
    bench.give_buffers();
    assert_eq!(bench.receive(), []);
}

#[test]
fn host_that_gives_up_before_the_answer_resets_the_guest() {
    let mut bench = Bench::running();
    let (theirs, request) = call(&mut bench, 22);
    drop(theirs);
    let reset = bench.receive_one(Operation::Reset);
    assert_eq!(reset.source_port, request.source_port);
    bench.send(answer(Operation::Response, &request), &[]);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn connection_that_waits_lives_through_a_pause() {
    let mut bench = Bench::running();
    bench.send(usual(Operation::Request), &[]);
    bench.pause();
    let (ours, mut theirs) = pair();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    theirs.write_all(b"meanwhile").unwrap();
    bench.resume();
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Response, Operation::Data]);
    assert_eq!(bench.rings[EVENTS].take_used(), []);
}

#[test]
fn asks_are_bounded() {
    let mut bench = Bench::running();
    let most = u32::try_from(MAX_ASKS).unwrap();
    for port in 0..most {
        bench.send(packet(Operation::Request, (port, HOST_PORT)), &[]);
    }
    assert_eq!(bench.receive(), []);
    bench.send(packet(Operation::Request, (most, HOST_PORT)), &[]);
    assert_eq!(bench.receive_one(Operation::Reset).target_port, most);
    let asks = bench.asks();
    assert_eq!(asks.len(), MAX_ASKS);
    bench.side.refuse(asks[0].ticket).unwrap();
    bench.receive_one(Operation::Reset);
    bench.send(packet(Operation::Request, (most, HOST_PORT)), &[]);
    assert_eq!(bench.asks().len(), 1);
}

#[test]
fn asks_that_the_guest_withdrew_count_until_they_are_answered() {
    let mut bench = Bench::running();
    for _ in 0..MAX_ASKS {
        bench.send(usual(Operation::Request), &[]);
        bench.send(usual(Operation::Reset), &[]);
    }
    assert_eq!(bench.connections(), 0);
    let asks = bench.asks();
    assert_eq!(asks.len(), MAX_ASKS);
    bench.send(usual(Operation::Request), &[]);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.asks(), []);
    bench.side.refuse(asks[7].ticket).unwrap();
    bench.settle();
    bench.send(usual(Operation::Request), &[]);
    assert_eq!(bench.asks().len(), 1);
}

#[test]
fn asks_that_the_guest_withdrew_are_forgotten_in_time() {
    let mut bench = Bench::without_buffers(Duration::from_millis(5));
    bench.give_buffers();
    let end = Instant::now() + PATIENCE;
    let mut asked = 0;
    while asked <= MAX_ASKS {
        assert!(Instant::now() < end, "the guest cannot connect any more");
        bench.send(usual(Operation::Request), &[]);
        bench.send(usual(Operation::Reset), &[]);
        bench.receive();
        asked += bench.asks().len();
    }
}

#[test]
fn connections_are_bounded() {
    let mut bench = Bench::without_buffers(PATIENCE);
    let most = u32::try_from(MAX_CONNECTIONS).unwrap();
    // Those refused stay until the guest can be told.
    for port in 0..most {
        bench.send(packet(Operation::Request, (port, HOST_PORT)), &[]);
        bench.side.refuse(bench.asks()[0].ticket).unwrap();
        bench.settle();
    }
    assert_eq!(bench.connections(), MAX_CONNECTIONS);
    bench.send(packet(Operation::Request, (most, HOST_PORT)), &[]);
    assert_eq!(bench.asks(), []);
    let (ours, mut theirs) = pair();
    bench.side.connect(ours.into(), 22).unwrap();
    bench.settle();
    assert!(is_at_end(&mut theirs));
    bench.give_buffers();
    assert_eq!(bench.receive().len(), MAX_CONNECTIONS + 1);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn host_connects_to_no_guest_without_driver() {
    let bench = Bench::new(PATIENCE);
    let (ours, _theirs) = pair();
    assert_eq!(bench.side.connect(ours.into(), 22), Err(OrderError::NoDriver));
}
