//! Streams, whose host's ends come and go.

use super::*;

#[test]
fn agent_and_peer_talk() {
    let (mut bench, mut peer) = Bench::with_agent();
    peer.write_all(b"{\"execute\":\"guest-ping\"}\n").unwrap();
    assert_eq!(bench.received(AGENT), b"{\"execute\":\"guest-ping\"}\n");
    assert!(was_raised(&bench.interrupts[5]));
    bench.send(AGENT, b"{\"return\":{}}\n");
    assert!(bench.is_sent(AGENT));
    assert!(was_raised(&bench.interrupts[6]));
    assert_eq!(read(&mut peer), b"{\"return\":{}}\n");
    assert_eq!(bench.counters().attached, 1);
}

#[test]
fn socket_that_was_there_before_the_driver_is_told_of() {
    let mut bench = Bench::new(&config());
    let mut peer = bench.attach(AGENT);
    peer.write_all(b"early").unwrap();
    bench.start(bench.driver.offered());
    bench.give_buffers();
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(1, PORT_READY, 1);
    bench.say(1, PORT_OPEN, 1);
    assert_eq!(bench.messages()[2..], [name(), message(AGENT, PORT_OPEN, 1)]);
    assert_eq!(bench.received(AGENT), b"early");
}

#[test]
fn socket_that_the_device_is_made_with_is_its_host_end() {
    let (ours, mut theirs) = pair();
    let console = Console::new(&config(), vec![PortEnd::Nothing, PortEnd::Socket(ours.into())]);
    let console = console.unwrap();
    assert!(!is_at_end(&mut theirs));
    drop(console);
    assert!(is_at_end(&mut theirs));
}

#[test]
fn guest_is_told_when_the_peer_leaves_and_when_another_comes() {
    let (mut bench, peer) = Bench::with_agent();
    drop(peer);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 0)]);
    bench.send(AGENT, b"for nobody");
    assert!(bench.is_sent(AGENT));
    assert_eq!(bench.counters().dropped_bytes, 10);
    let mut next = bench.attach(AGENT);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 1)]);
    bench.send(AGENT, b"hello");
    assert_eq!(read(&mut next), b"hello");
}

#[test]
fn new_peer_takes_the_place_of_the_old() {
    let (mut bench, mut peer) = Bench::with_agent();
    let mut next = bench.attach(AGENT);
    assert!(is_at_end(&mut peer));
    let expected = [message(AGENT, PORT_OPEN, 0), message(AGENT, PORT_OPEN, 1)];
    assert_eq!(bench.messages(), expected);
    next.write_all(b"hi").unwrap();
    assert_eq!(bench.received(AGENT), b"hi");
}

#[test]
fn what_a_peer_wrote_before_it_left_arrives() {
    let (mut bench, mut peer) = Bench::with_agent();
    let bytes = vec![7; 20_000];
    peer.write_all(&bytes).unwrap();
    drop(peer);
    assert_eq!(bench.received(AGENT), bytes);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 0)]);
}

#[test]
fn peer_that_wrote_and_left_before_the_guest_was_told_is_heard() {
    let mut bench = Bench::running();
    bench.say(1, PORT_OPEN, 1);
    let (ours, mut theirs) = pair();
    theirs.write_all(b"shut down").unwrap();
    drop(theirs);
    bench.side.attach(AGENT, ours.into()).unwrap();
    let expected = [message(AGENT, PORT_OPEN, 1), message(AGENT, PORT_OPEN, 0)];
    assert_eq!(bench.messages(), expected);
    assert_eq!(bench.received(AGENT), b"shut down");
}

#[test]
fn peer_that_leaves_while_nobody_has_the_port_open_is_gone_at_once() {
    let mut bench = Bench::running();
    let mut peer = bench.attach(AGENT);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 1)]);
    peer.write_all(b"unheard").unwrap();
    drop(peer);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 0)]);
    bench.say(1, PORT_OPEN, 1);
    assert_eq!(bench.received(AGENT), b"");
}

#[test]
fn guest_that_closes_the_port_lets_a_peer_go_that_has_left() {
    let mut bench = Bench::new(&config());
    bench.start(bench.driver.offered());
    (0..16).for_each(|index| bench.give_control_buffer(index));
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(1, PORT_READY, 1);
    bench.say(1, PORT_OPEN, 1);
    let mut peer = bench.attach(AGENT);
    // There are no buffers for it.
    peer.write_all(b"unread").unwrap();
    drop(peer);
    assert_eq!(bench.messages().last().unwrap(), &message(AGENT, PORT_OPEN, 1));
    bench.say(1, PORT_OPEN, 0);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 0)]);
}

#[test]
fn peer_that_sends_no_more_still_gets_its_answer() {
    let (mut bench, mut peer) = Bench::with_agent();
    peer.write_all(b"last words").unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(bench.received(AGENT), b"last words");
    assert_eq!(bench.messages(), []);
    bench.send(AGENT, b"answer");
    assert_eq!(read(&mut peer), b"answer");
    drop(peer);
    assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 0)]);
}

#[test]
fn input_waits_in_the_socket_until_a_program_opens_the_port() {
    let mut bench = Bench::running();
    let mut peer = bench.attach(AGENT);
    peer.write_all(b"wait").unwrap();
    assert_eq!(bench.received(AGENT), b"");
    bench.say(1, PORT_OPEN, 1);
    assert_eq!(bench.received(AGENT), b"wait");
    bench.say(1, PORT_OPEN, 0);
    peer.write_all(b"again").unwrap();
    assert_eq!(bench.received(AGENT), b"");
    bench.say(1, PORT_OPEN, 1);
    assert_eq!(bench.received(AGENT), b"again");
}

#[test]
fn peer_that_takes_nothing_makes_the_guest_wait_and_loses_nothing() {
    let (mut bench, mut peer) = Bench::with_agent();
    let mut sent = 0_usize;
    loop {
        bench.send(AGENT, &[sent.to_le_bytes()[0]; MOST]);
        sent += 1;
        if !bench.is_sent(AGENT) {
            break;
        }
        assert!(sent < 10_000, "the socket takes everything");
    }
    bench.pause();
    bench.resume();
    bench.settle();
    assert!(!bench.is_sent(AGENT));
    let mut seen = Vec::new();
    while seen.len() < sent * MOST {
        let more = read(&mut peer);
        assert!(!more.is_empty(), "bytes are lost");
        seen.extend(more);
        bench.settle();
    }
    assert!(bench.is_sent(AGENT));
    let expected = (0..sent).flat_map(|count| [count.to_le_bytes()[0]; MOST]);
    assert!(seen.into_iter().eq(expected));
    assert_eq!(bench.counters().dropped_bytes, 0);
    // The console went on all the time.
    bench.send(0, b"x");
    assert!(bench.is_sent(0));
}

#[test]
fn new_peer_gets_nothing_of_what_the_old_one_did_not_take() {
    let (mut bench, peer) = Bench::with_agent();
    let mut sent = 0;
    loop {
        bench.send(AGENT, &[b'x'; MOST]);
        sent += 1;
        if !bench.is_sent(AGENT) {
            break;
        }
        assert!(sent < 10_000, "the socket takes everything");
    }
    let mut next = bench.attach(AGENT);
    assert!(bench.is_sent(AGENT));
    assert!(bench.counters().dropped_bytes > 0);
    let expected = [message(AGENT, PORT_OPEN, 0), message(AGENT, PORT_OPEN, 1)];
    assert_eq!(bench.messages(), expected);
    bench.send(AGENT, b"fresh");
    assert_eq!(read(&mut next), b"fresh");
    drop(peer);
}

#[test]
fn what_is_no_socket_is_refused_and_the_guest_not_told() {
    let mut bench = Bench::running();
    bench.side.attach(AGENT, tempfile::tempfile().unwrap().into()).unwrap();
    assert_eq!(bench.messages(), []);
    assert_eq!(bench.counters().refused, 1);
    // A pipe can be listened to, but not received from.
    bench.say(1, PORT_OPEN, 1);
    let (reader, mut writer) = pipe().unwrap();
    bench.side.attach(AGENT, reader.into()).unwrap();
    writer.write_all(b"x").unwrap();
    let expected = [message(AGENT, PORT_OPEN, 1), message(AGENT, PORT_OPEN, 0)];
    assert_eq!(bench.messages(), expected);
}

#[test]
fn driver_that_is_reset_leaves_the_peer_connected() {
    let (mut bench, mut peer) = Bench::with_agent();
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    assert!(!bench.side.is_open(AGENT));
    for ring in &mut bench.rings {
        let base = GuestAddress(ring.descriptors().0);
        bench.ram.write_slice(&[0; 0x1000], base).unwrap();
        *ring = FakeRing::new(&bench.ram, base, 16);
    }
    bench.start(bench.driver.offered());
    bench.give_buffers();
    assert_eq!(bench.messages(), []);
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(1, PORT_READY, 1);
    bench.say(1, PORT_OPEN, 1);
    assert_eq!(bench.messages()[2..], [name(), message(AGENT, PORT_OPEN, 1)]);
    peer.write_all(b"still here").unwrap();
    assert_eq!(bench.received(AGENT), b"still here");
}
