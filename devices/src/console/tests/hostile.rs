//! Guests that write anything anywhere.

use proptest::prelude::*;

use super::*;

#[test]
fn messages_without_sense_change_nothing() {
    let (mut bench, mut peer) = Bench::with_agent();
    for (port, event, value) in [
        (2, PORT_READY, 1),
        (NO_PORT, PORT_READY, 1),
        (2, PORT_OPEN, 1),
        (NO_PORT, PORT_OPEN, 0),
        (0, DEVICE_ADD, 1),
        (0, 2, 1),
        (0, CONSOLE_PORT, 1),
        (0, RESIZE, 1),
        (0, PORT_NAME, 1),
        (0, 8, 1),
        (0, u16::MAX, u16::MAX),
    ] {
        bench.say(port, event, value);
    }
    assert_eq!(bench.counters().bad_messages, 11);
    assert_eq!(bench.messages(), []);
    bench.send(AGENT, b"alive");
    assert_eq!(read(&mut peer), b"alive");
}

#[test]
fn port_that_was_not_added_cannot_be_opened() {
    let mut bench = Bench::started();
    bench.say(1, PORT_OPEN, 1);
    assert!(!bench.side.is_open(AGENT));
    assert_eq!(bench.counters().bad_messages, 1);
}

#[test]
fn chains_that_hold_no_message_are_given_back() {
    let mut bench = Bench::running();
    let at = GuestAddress(MESSAGE);
    bench.ram.write_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0], at).unwrap();
    let chains: [&[(GuestAddress, u32, u16)]; 4] = [
        &[(at, 7, 0)],
        &[(at, 0, 0)],
        &[(at, 8, FakeRing::WRITE)],
        &[(at, 8, FakeRing::NEXT), (at, 8, FakeRing::WRITE)],
    ];
    for chain in chains {
        bench.offer(CONTROL_TRANSMIT, chain);
        assert_eq!(bench.rings[CONTROL_TRANSMIT].take_used(), [(0, 0)]);
    }
    assert_eq!(bench.counters().bad_messages, 4);
    assert_eq!(bench.messages(), []);
    // In pieces, with more behind it, it is a message.
    let next = |offset: u64| GuestAddress(MESSAGE + offset);
    let pieces = [(at, 3, FakeRing::NEXT), (next(3), 4, FakeRing::NEXT), (next(7), 100, 0)];
    bench.offer(CONTROL_TRANSMIT, &pieces);
    assert_eq!(bench.messages().len(), 2);
}

#[test]
fn chains_that_hold_no_bytes_are_given_back() {
    for port in [0, AGENT] {
        let (mut bench, mut peer) = Bench::with_agent();
        let at = GuestAddress(OUTGOING[port]);
        let chains: [&[(GuestAddress, u32, u16)]; 3] = [
            &[(at, 0, 0)],
            &[(at, 8, FakeRing::WRITE)],
            &[(at, 8, FakeRing::NEXT), (at, 8, FakeRing::WRITE)],
        ];
        for chain in chains {
            bench.offer(TRANSMIT[port], chain);
            assert_eq!(bench.rings[TRANSMIT[port]].take_used(), [(0, 0)]);
        }
        assert_eq!(bench.counters().bad_chains, 3);
        assert_eq!((bench.terminal.shown(), read(&mut peer)), (Vec::new(), Vec::new()));
    }
}

#[test]
fn buffers_that_cannot_be_filled_are_given_back() {
    let mut bench = Bench::new(&config());
    bench.start(bench.driver.offered());
    (0..16).for_each(|index| bench.give_control_buffer(index));
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(1, PORT_READY, 1);
    bench.say(1, PORT_OPEN, 1);
    let mut peer = bench.attach(AGENT);
    peer.write_all(b"abc").unwrap();
    let at = GuestAddress(RECEIVE_BUFFERS[AGENT]);
    for chain in [(at, 8, 0), (at, 0, FakeRing::WRITE)] {
        bench.offer(RECEIVE[AGENT], &[chain]);
        assert_eq!(bench.rings[RECEIVE[AGENT]].take_used(), [(0, 0)]);
    }
    assert_eq!(bench.counters().bad_chains, 2);
    bench.offer(RECEIVE[AGENT], &[(at, 2, FakeRing::WRITE)]);
    assert_eq!(bench.rings[RECEIVE[AGENT]].take_used(), [(0, 2)]);
    bench.offer(RECEIVE[AGENT], &[(at, 2, FakeRing::WRITE)]);
    assert_eq!(bench.rings[RECEIVE[AGENT]].take_used(), [(0, 1)]);
}

#[test]
fn chains_that_are_none_have_the_device_reset() {
    let nowhere = GuestAddress(0xfffc);
    for (queue, address, flags) in [
        (TRANSMIT[AGENT], GuestAddress(OUTGOING[AGENT]), FakeRing::NEXT),
        (TRANSMIT[AGENT], nowhere, 0),
        (CONTROL_TRANSMIT, GuestAddress(MESSAGE), FakeRing::NEXT),
        (CONTROL_TRANSMIT, nowhere, 0),
        (RECEIVE[AGENT], GuestAddress(RECEIVE_BUFFERS[AGENT]), FakeRing::WRITE | FakeRing::NEXT),
        (RECEIVE[AGENT], nowhere, FakeRing::WRITE),
    ] {
        let mut bench = Bench::new(&config());
        bench.start(bench.driver.offered());
        (0..16).for_each(|index| bench.give_control_buffer(index));
        bench.say(NO_PORT, DEVICE_READY, 1);
        bench.say(1, PORT_READY, 1);
        bench.say(1, PORT_OPEN, 1);
        let mut peer = bench.attach(AGENT);
        peer.write_all(b"abc").unwrap();
        bench.rings[queue].take_used();
        bench.rings[queue].describe(0, (address, 8), flags, 0);
        bench.rings[queue].offer(0);
        bench.driver.ring(u16::try_from(queue).unwrap());
        bench.settle();
        assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0, "{queue} {flags}");
        assert_eq!((bench.rings[queue].take_used(), bench.counters().bad_chains), (vec![], 1));
        bench.pause();
    }
}

#[test]
fn message_that_does_not_fit_waits_for_a_buffer_that_it_fits() {
    let mut bench = Bench::new(&config());
    bench.start(bench.driver.offered());
    let at = GuestAddress(CONTROL_BUFFERS);
    bench.say(1, PORT_READY, 1);
    let short = u32::try_from(8 + NAME.len()).unwrap() - 1;
    for chain in [(at, 0, FakeRing::WRITE), (at, short, FakeRing::WRITE), (at, 64, 0)] {
        bench.offer(CONTROL_RECEIVE, &[chain]);
        assert_eq!(bench.rings[CONTROL_RECEIVE].take_used(), [(0, 0)]);
    }
    bench.offer(CONTROL_RECEIVE, &[(at, short + 1, FakeRing::WRITE)]);
    assert_eq!(bench.rings[CONTROL_RECEIVE].take_used(), [(0, short + 1)]);
    assert_eq!(bench.counters().bad_chains, 3);
}

#[test]
fn what_a_driver_without_buffers_is_not_told_stays_bounded() {
    let mut bench = Bench::new(&config());
    bench.start(bench.driver.offered());
    for _ in 0..100 {
        bench.say(NO_PORT, DEVICE_READY, 1);
        bench.say(0, PORT_READY, 1);
        bench.say(1, PORT_READY, 1);
        drop(bench.attach(AGENT));
    }
    let _peer = bench.attach(AGENT);
    (0..16).for_each(|index| bench.give_control_buffer(index));
    bench.driver.ring(2);
    let expected = [
        message(0, CONSOLE_PORT, 1),
        message(0, PORT_OPEN, 1),
        name(),
        message(AGENT, PORT_OPEN, 1),
    ];
    assert_eq!(bench.messages(), expected);
}

#[test]
fn chain_of_any_length_is_taken_in_parts() {
    let mut bench = Bench::running();
    bench.post(TRANSMIT[0], &long_chain());
    bench.turn();
    assert!(!bench.is_sent(0));
    let first = bench.terminal.shown().len();
    assert!(0 < first && first < LONG_CHAIN);
    bench.send(AGENT, b"others have their turn");
    assert!(bench.is_sent(AGENT));
    bench.settle();
    assert!(bench.is_sent(0));
    let counters = bench.counters();
    assert_eq!(counters.sent_bytes + counters.dropped_bytes, LONG_CHAIN as u64 + 22);
}

#[test]
fn chain_that_shrinks_while_it_is_taken_is_given_back() {
    let mut bench = Bench::running();
    bench.post(TRANSMIT[0], &long_chain());
    bench.turn();
    bench.rings[TRANSMIT[0]].describe(0, (GuestAddress(0x8000), 1), 0, 0);
    bench.settle();
    assert!(bench.is_sent(0));
    bench.terminal.shown();
    bench.send(0, b"next");
    assert_eq!(bench.terminal.shown(), b"next");
}

#[test]
fn ring_that_runs_ahead_has_the_device_reset() {
    let (mut bench, mut peer) = Bench::with_agent();
    bench.rings[TRANSMIT[AGENT]].set_available_index(100);
    bench.driver.ring(5);
    bench.settle();
    assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    peer.write_all(b"x").unwrap();
    bench.settle();
    drop(peer);
    bench.settle();
    bench.pause();
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    assert_eq!(bench.driver.status(), 0);
}

#[test]
fn reset_in_mid_flight_forgets_the_chain() {
    let (mut bench, mut peer) = Bench::with_agent();
    bench.post(TRANSMIT[AGENT], &long_chain());
    bench.settle();
    assert!(!bench.is_sent(AGENT), "the socket takes it all");
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    for ring in &mut bench.rings {
        let base = GuestAddress(ring.descriptors().0);
        bench.ram.write_slice(&[0; 0x1000], base).unwrap();
        *ring = FakeRing::new(&bench.ram, base, 16);
    }
    read(&mut peer);
    bench.start(bench.driver.offered());
    bench.send(AGENT, b"whole");
    assert_eq!(read(&mut peer), b"whole");
}

#[derive(Clone, Debug)]
enum Step {
    Say { port: u32, event: u16, value: u16 },
    Describe { queue: usize, index: u16, address: u64, length: u32, flags: u16, next: u16 },
    Offer { queue: usize, index: u16 },
    Attach { port: usize },
    Write { length: usize },
    Read,
    Leave,
    Pause,
}

fn step() -> impl Strategy<Value = Step> {
    let queue = 0_usize..6;
    prop_oneof![
        3 => (prop_oneof![0_u32..3, any::<u32>()], 0_u16..9, 0_u16..2)
            .prop_map(|(port, event, value)| Step::Say { port, event, value }),
        3 => (
            queue.clone(),
            0_u16..16,
            prop_oneof![0x7000_u64..0x1_0100, any::<u64>()],
            prop_oneof![0_u32..0x2000, any::<u32>()],
            0_u16..8,
            0_u16..17,
        )
            .prop_map(|(queue, index, address, length, flags, next)| {
                Step::Describe { queue, index, address, length, flags, next }
            }),
        3 => (queue, 0_u16..17).prop_map(|(queue, index)| Step::Offer { queue, index }),
        1 => (0_usize..2).prop_map(|port| Step::Attach { port }),
        1 => (0_usize..0x4000).prop_map(|length| Step::Write { length }),
        1 => Just(Step::Read),
        1 => Just(Step::Leave),
        1 => Just(Step::Pause),
    ]
}

proptest! {
    #[test]
    fn whatever_a_guest_does_the_worker_comes_to_rest(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut bench, peer) = Bench::with_agent();
        let mut peers = vec![peer];
        for step in steps {
            match step {
                Step::Say { port, event, value } => bench.say(port, event, value),
                Step::Describe { queue, index, address, length, flags, next } => {
                    let buffer = (GuestAddress(address), length);
                    bench.rings[queue].describe(index, buffer, flags, next);
                }
                Step::Offer { queue, index } => {
                    bench.rings[queue].offer(index);
                    bench.driver.ring(u16::try_from(queue).unwrap());
                }
                Step::Attach { port } => peers.push(bench.attach(port)),
                Step::Write { length } => {
                    drop(peers.last_mut().map(|peer| peer.write(&vec![1; length])));
                }
                Step::Read => drop(peers.last_mut().map(read)),
                Step::Leave => drop(peers.pop()),
                Step::Pause => {
                    bench.pause();
                    bench.resume();
                }
            }
            bench.settle();
        }
        bench.pause();
        let records = bench.save();
        prop_assert_eq!(bench.loaded(&records).save(), records);
    }
}
