//! How much flows, and when nothing does.

use super::*;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

/// Writes what a socket takes.
fn write(socket: &mut UnixStream, bytes: &[u8]) -> usize {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match socket.write(rest) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    written
}

/// Fills a socket from the guest until the guest has no credit any more; how many bytes the guest has sent.
fn exhaust(bench: &mut Bench) -> usize {
    let mut sent: usize = 0;
    let mut forwarded = 0;
    loop {
        let left = KEPT - (sent - forwarded);
        if left == 0 {
            return sent;
        }
        let part = left.min(MOST);
        bench.send_data(&pattern(part));
        sent += part;
        for (header, _) in bench.receive() {
            forwarded = header.forwarded as usize;
        }
    }
}

#[test]
fn more_than_all_buffers_hold_reaches_the_host() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let all = pattern(2 << 20);
    let (mut sent, mut forwarded, mut arrived) = (0, 0, Vec::new());
    let mut updates = 0;
    while arrived.len() < all.len() {
        let part = (KEPT - (sent - forwarded)).min(MOST).min(all.len() - sent);
        if part > 0 {
            bench.send_data(&all[sent..sent + part]);
            sent += part;
        } else {
            // Without credit, or at the end.
            arrived.extend(read(&mut theirs));
        }
        for (header, _) in bench.receive() {
            assert_eq!(header.operation(), Some(Operation::CreditUpdate));
            forwarded = header.forwarded as usize;
            updates += 1;
        }
    }
    assert!(arrived == all, "what arrived is not what was sent");
    // One for each quarter of the buffer at most.
    assert!(updates <= 4 * all.len() / KEPT, "{updates}");
    assert_eq!(bench.counters().sent_bytes, 2 << 20);
}

#[test]
fn more_than_all_buffers_hold_reaches_the_guest() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let all = pattern(1 << 20);
    let (mut sent, mut arrived) = (0, Vec::new());
    while arrived.len() < all.len() {
        sent += write(&mut theirs, &all[sent..]);
        let packets = bench.receive();
        let got = payloads(&packets);
        assert!(got.len() <= GUEST_BUFFER as usize);
        arrived.extend(got);
        let forwarded = u32::try_from(arrived.len()).unwrap();
        bench.send(Header { forwarded, ..usual(Operation::CreditUpdate) }, &[]);
    }
    assert!(arrived == all, "what arrived is not what was sent");
}

#[test]
fn host_that_does_not_read_leaves_the_guest_without_credit() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let sent = exhaust(&mut bench);
    assert_eq!(bench.receive(), []);
    let mut arrived = read(&mut theirs);
    let update = bench.receive_one(Operation::CreditUpdate);
    assert!(update.forwarded as usize > sent - KEPT);
    bench.settle();
    arrived.extend(read(&mut theirs));
    assert_eq!(arrived.len(), sent);
}

#[test]
fn guest_that_ignores_its_credit_is_reset() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let mut taken = 0;
    bench.send_data(&[1; MOST]);
    while bench.connections() > 0 {
        taken += MOST;
        bench.send_data(&[1; MOST]);
    }
    let packets = bench.receive();
    assert_eq!(packets.last().unwrap().0.operation(), Some(Operation::Reset));
    assert_eq!(bench.counters().bad_packets, 1);
    let arrived = read(&mut theirs).len();
    assert!(arrived < taken && taken - arrived <= KEPT, "{taken} were taken, {arrived} arrived");
    assert!(is_at_end(&mut theirs));
}

#[test]
fn guest_that_asks_for_credit_is_told() {
    let mut bench = Bench::running();
    let _theirs = bench.connected();
    bench.send_data(b"abc");
    bench.send(usual(Operation::CreditRequest), &[]);
    let update = bench.receive_one(Operation::CreditUpdate);
    assert_eq!((update.buffer as usize, update.forwarded), (KEPT, 3));
}

#[test]
fn guest_without_credit_is_asked_once_and_wakes_nobody() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    theirs.write_all(&pattern(GUEST_BUFFER as usize + 10)).unwrap();
    let packets = bench.receive();
    assert_eq!(payloads(&packets).len(), GUEST_BUFFER as usize);
    assert_eq!(packets.last().unwrap().0.operation(), Some(Operation::CreditRequest));
    theirs.write_all(b"more").unwrap();
    assert_eq!(bench.receive(), []);
    bench.send(usual(Operation::CreditUpdate), &[]);
    assert_eq!(bench.receive(), []);
    bench.send(Header { forwarded: 12, ..usual(Operation::CreditUpdate) }, &[]);
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Data, Operation::CreditRequest]);
    assert_eq!(packets[0].0.length, 12);
    bench.send(Header { forwarded: 14, ..usual(Operation::CreditUpdate) }, &[]);
    // Nothing is left: nothing is asked for.
    assert_eq!(operations(&bench.receive()), [Operation::Data]);
}

#[test]
fn guest_without_buffers_wakes_nobody() {
    let mut bench = Bench::without_buffers(PATIENCE);
    bench.send(usual(Operation::Request), &[]);
    let (ours, mut theirs) = pair();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    theirs.write_all(b"later").unwrap();
    bench.settle();
    drop(theirs);
    bench.settle();
    assert!(!bench.turn());
    bench.give_buffers();
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Response, Operation::Data, Operation::Shutdown]);
}

#[test]
fn connections_take_turns() {
    let mut bench = Bench::running();
    let mut sockets: Vec<UnixStream> =
        (0..3).map(|port| bench.connect(GUEST_PORT + port, HOST_PORT)).collect();
    for socket in &mut sockets {
        socket.write_all(&pattern(GUEST_BUFFER as usize)).unwrap();
    }
    let packets = bench.receive();
    let turns: Vec<u32> =
        packets.iter().map(|(header, _)| header.target_port - GUEST_PORT).take(6).collect();
    assert!(turns == [0, 1, 2, 0, 1, 2], "{turns:?}");
    assert_eq!(payloads(&packets).len(), 3 * GUEST_BUFFER as usize);
}

#[test]
fn small_buffers_get_what_they_hold() {
    let mut bench = Bench::without_buffers(PATIENCE);
    let at = GuestAddress(RECEIVE_BUFFERS);
    bench.rings[RECEIVE].describe(0, (at, 44), FakeRing::WRITE, 0);
    bench.rings[RECEIVE].describe(1, (at, 30), FakeRing::WRITE | FakeRing::NEXT, 2);
    bench.rings[RECEIVE].describe(2, (GuestAddress(at.0 + 0x100), 20), FakeRing::WRITE, 0);
    bench.send(usual(Operation::Request), &[]);
    let (ours, mut theirs) = pair();
    theirs.write_all(b"0123456789").unwrap();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    bench.rings[RECEIVE].offer(0);
    bench.driver.ring(0);
    bench.settle();
    // Nothing but a header fits: given back, as no use can be made of it.
    assert_eq!(bench.rings[RECEIVE].take_used(), [(0, 0)]);
    bench.rings[RECEIVE].offer(1);
    bench.driver.ring(0);
    bench.settle();
    assert_eq!(bench.rings[RECEIVE].take_used(), [(1, 44)]);
    bench.rings[RECEIVE].offer(1);
    bench.driver.ring(0);
    bench.settle();
    assert_eq!(bench.rings[RECEIVE].take_used(), [(1, 50)]);
    let mut data = [0; 20];
    bench.ram.read_slice(&mut data, GuestAddress(at.0 + 0x100)).unwrap();
    assert_eq!(&data[14..], b"012345");
}

#[test]
fn answers_that_the_guest_does_not_take_hold_up_its_packets() {
    let mut bench = Bench::without_buffers(PATIENCE);
    let mut sent = 0;
    let mut taken = 0;
    while sent == taken {
        bench.send(usual(Operation::CreditRequest), &[]);
        sent += 1;
        taken += bench.rings[TRANSMIT].take_used().len();
    }
    assert_eq!(taken, 256);
    bench.give_buffers();
    assert_eq!(bench.receive().len(), sent);
    assert_eq!(bench.rings[TRANSMIT].take_used().len(), 1);
}

#[test]
fn doorbells_are_asked_for_with_event_index() {
    let mut bench = Bench::running();
    let _theirs = bench.connected();
    bench.send_data(b"abc");
    assert_eq!(bench.rings[TRANSMIT].available_event(), 2);
    for _ in 0..RECEIVE_COUNT + 1 {
        bench.send(usual(Operation::CreditRequest), &[]);
    }
    // One was given again after the response; all are used, and one answer waits for a buffer.
    assert_eq!(bench.rings[RECEIVE].available_event(), RECEIVE_COUNT + 1);
}
