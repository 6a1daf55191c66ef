//! How connections end, one direction at a time or at once.

use super::*;

fn shutdown(flags: u32) -> Header {
    Header { flags, ..usual(Operation::Shutdown) }
}

/// Sends until the socket takes no more and the device keeps some of it; how much it was.
fn fill(bench: &mut Bench) -> usize {
    let mut sent = 0;
    let mut forwarded = 0;
    while sent - forwarded < MOST {
        bench.send_data(&[3; MOST]);
        sent += MOST;
        bench.send(usual(Operation::CreditRequest), &[]);
        forwarded = bench.receive().last().unwrap().0.forwarded as usize;
    }
    sent
}

#[test]
fn guest_that_sends_no_more_still_receives() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send_data(b"last");
    bench.send(shutdown(SHUT_SEND), &[]);
    assert_eq!(read(&mut theirs), b"last");
    assert!(is_at_end(&mut theirs));
    theirs.write_all(b"answer").unwrap();
    assert_eq!(payloads(&bench.receive()), b"answer");
    drop(theirs);
    assert_eq!(bench.receive_one(Operation::Shutdown).flags, SHUT_BOTH);
    bench.send(usual(Operation::Reset), &[]);
    assert_eq!(bench.connections(), 0);
    assert_eq!(bench.receive(), []);
}

#[test]
fn guest_that_receives_no_more_still_sends() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send(shutdown(SHUT_RECEIVE), &[]);
    assert_eq!(theirs.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    bench.send_data(b"still here");
    assert_eq!(read(&mut theirs), b"still here");
    assert_eq!(bench.receive(), []);
}

#[test]
fn host_that_sends_no_more_still_receives() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    theirs.write_all(b"last").unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Data, Operation::Shutdown]);
    assert_eq!(packets[1].0.flags, SHUT_SEND);
    bench.send_data(b"answer");
    assert_eq!(read(&mut theirs), b"answer");
    bench.send(shutdown(SHUT_SEND), &[]);
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.receive_one(Operation::Shutdown).flags, SHUT_BOTH);
}

#[test]
fn host_that_receives_no_more_still_sends() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    theirs.shutdown(std::net::Shutdown::Read).unwrap();
    bench.send_data(b"nobody reads this");
    let shut = bench.receive_one(Operation::Shutdown);
    assert_eq!((shut.flags, shut.forwarded), (SHUT_RECEIVE, 17));
    bench.send_data(b"nor this");
    theirs.write_all(b"but the guest reads").unwrap();
    let packets = bench.receive();
    assert_eq!(payloads(&packets), b"but the guest reads");
    assert_eq!(packets[0].0.forwarded, 25);
}

#[test]
fn host_that_closes_is_told_after_its_last_bytes() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    theirs.write_all(&[7; GUEST_BUFFER as usize + 1]).unwrap();
    drop(theirs);
    let packets = bench.receive();
    assert_eq!(packets.last().unwrap().0.operation(), Some(Operation::CreditRequest));
    bench.send(Header { forwarded: 1, ..usual(Operation::CreditUpdate) }, &[]);
    let packets = bench.receive();
    assert_eq!(operations(&packets), [Operation::Data, Operation::Shutdown]);
    assert_eq!(packets[1].0.flags, SHUT_BOTH);
    bench.send(usual(Operation::Reset), &[]);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn end_is_told_without_credit() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    theirs.write_all(&[7; GUEST_BUFFER as usize]).unwrap();
    assert_eq!(payloads(&bench.receive()).len(), GUEST_BUFFER as usize);
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(bench.receive_one(Operation::Shutdown).flags, SHUT_SEND);
}

#[test]
fn guest_that_does_not_answer_the_end_is_reset() {
    let mut bench = Bench::without_buffers(Duration::from_millis(20));
    bench.give_buffers();
    drop(bench.connected());
    assert_eq!(operations(&bench.wait_for_packets()), [Operation::Shutdown]);
    assert_eq!(operations(&bench.wait_for_packets()), [Operation::Reset]);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn connection_that_is_open_has_no_deadline() {
    let mut bench = Bench::without_buffers(Duration::from_millis(1));
    bench.give_buffers();
    bench.send(usual(Operation::Request), &[]);
    let (ours, mut theirs) = pair();
    bench.side.grant(bench.asks()[0].ticket, ours.into()).unwrap();
    bench.receive();
    std::thread::sleep(Duration::from_millis(10));
    theirs.write_all(b"late").unwrap();
    assert_eq!(payloads(&bench.receive()), b"late");
}

#[test]
fn guest_that_closes_gets_its_reset_at_once() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send_data(b"last");
    bench.send(shutdown(SHUT_BOTH), &[]);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
    assert_eq!(read(&mut theirs), b"last");
    assert!(is_at_end(&mut theirs));
}

#[test]
fn guest_that_closes_one_after_the_other_gets_its_reset() {
    let mut bench = Bench::running();
    let _theirs = bench.connected();
    bench.send(shutdown(SHUT_SEND), &[]);
    assert_eq!(bench.receive(), []);
    bench.send(shutdown(SHUT_RECEIVE), &[]);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn what_was_sent_before_the_close_reaches_a_slow_host() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let sent = fill(&mut bench);
    bench.send(shutdown(SHUT_BOTH), &[]);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 1);
    // The guest may use its ports again at once.
    let mut again = bench.connected();
    let mut arrived = read(&mut theirs);
    bench.settle();
    arrived.extend(read(&mut theirs));
    assert_eq!(arrived.len(), sent);
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.connections(), 1);
    bench.send_data(b"new");
    assert_eq!(read(&mut again), b"new");
}

#[test]
fn host_that_never_takes_the_rest_loses_it() {
    let mut bench = Bench::without_buffers(Duration::from_millis(20));
    bench.give_buffers();
    let _theirs = bench.connected();
    fill(&mut bench);
    bench.send(shutdown(SHUT_BOTH), &[]);
    bench.receive_one(Operation::Reset);
    let refused = bench.counters().refused;
    let end = Instant::now() + PATIENCE;
    while bench.connections() > 0 {
        assert!(Instant::now() < end, "it is kept for good");
        std::thread::sleep(Duration::from_millis(1));
        bench.settle();
    }
    assert_eq!(bench.counters().refused, refused, "it had been granted");
}

#[test]
fn host_that_goes_while_the_rest_waits_ends_it() {
    let mut bench = Bench::running();
    let theirs = bench.connected();
    for _ in 0..100 {
        bench.send_data(&[3; 0x100]);
    }
    bench.send_data(&[3; MOST]);
    drop(theirs);
    bench.send(shutdown(SHUT_BOTH), &[]);
    bench.receive();
    assert_eq!(bench.connections(), 0);
}

#[test]
fn reset_by_the_guest_closes_the_socket() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    bench.send(usual(Operation::Reset), &[]);
    assert!(is_at_end(&mut theirs));
    assert_eq!(bench.connections(), 0);
    assert_eq!(bench.receive(), []);
}

#[test]
fn socket_that_breaks_resets_the_guest() {
    let mut bench = Bench::running();
    let theirs = bench.connected();
    bench.send_data(b"unread");
    // Closed with something unread: a reset, as far as a Unix socket has one.
    drop(theirs);
    bench.receive_one(Operation::Reset);
    assert_eq!(bench.connections(), 0);
}

#[test]
fn driver_that_resets_the_device_loses_all() {
    let mut bench = Bench::running();
    let mut theirs = bench.connected();
    let (ours, mut waiting) = pair();
    bench.side.connect(ours.into(), 22).unwrap();
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    assert!(is_at_end(&mut theirs));
    assert!(is_at_end(&mut waiting));
}
