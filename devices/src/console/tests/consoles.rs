//! Consoles, with and without multiport.

use super::*;

#[test]
fn output_is_shown_and_input_is_given() {
    let mut bench = Bench::running();
    bench.send(0, b"login: ");
    assert!(bench.is_sent(0));
    assert!(was_raised(&bench.interrupts[2]));
    assert_eq!(bench.terminal.shown(), b"login: ");
    bench.terminal.type_in(b"root\n");
    assert_eq!(bench.received(0), b"root\n");
    assert!(was_raised(&bench.interrupts[1]));
    let counters = bench.counters();
    assert_eq!((counters.sent_bytes, counters.received_bytes), (7, 5));
    assert_eq!(counters.dropped_bytes, 0);
}

#[test]
fn driver_without_multiport_has_the_first_port() {
    let mut bench = Bench::new(&config());
    bench.start(FakeDriver::VERSION_1);
    bench.give_buffers();
    // A stream's end comes and goes meanwhile.
    let mut peer = bench.attach(AGENT);
    peer.write_all(b"x").unwrap();
    bench.send(0, b"login: ");
    assert_eq!(bench.terminal.shown(), b"login: ");
    bench.terminal.type_in(b"root\n");
    assert_eq!(bench.received(0), b"root\n");
    drop(peer);
    bench.settle();
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.send(AGENT, b"x");
    assert!(!bench.is_sent(AGENT));
    assert_eq!(bench.rings[CONTROL_RECEIVE].take_used(), []);
    assert_eq!(bench.counters().bad_messages, 0);
    bench.pause();
    bench.resume();
    bench.send(0, b"again");
    assert_eq!(bench.terminal.shown(), b"again");
}

#[test]
fn input_waits_until_the_console_is_open_and_has_buffers() {
    let mut bench = Bench::new(&config());
    bench.start(bench.driver.offered());
    bench.terminal.type_in(b"early");
    bench.terminal.input = None;
    bench.settle();
    bench.give_buffers();
    assert_eq!(bench.received(0), b"");
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(0, PORT_READY, 1);
    assert_eq!(bench.received(0), b"");
    bench.say(0, PORT_OPEN, 1);
    assert_eq!(bench.received(0), b"early");
    // The end of it is nothing that the guest is told of.
    let messages = bench.messages();
    assert_eq!(messages.last().unwrap(), &message(0, PORT_OPEN, 1));
}

#[test]
fn more_input_than_there_are_buffers_comes_as_they_do() {
    let mut bench = Bench::running();
    let typed: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    bench.terminal.type_in(&typed);
    assert_eq!(bench.received(0), typed);
}

#[test]
fn reader_that_takes_nothing_costs_bytes_which_are_counted_and_no_time() {
    let mut bench = Bench::running();
    for _ in 0..40 {
        bench.send(0, &[b'x'; MOST]);
        assert!(bench.is_sent(0));
    }
    let dropped = usize::try_from(bench.counters().dropped_bytes).unwrap();
    assert!(dropped > 0);
    assert_eq!(bench.terminal.shown().len(), 40 * MOST - dropped);
    bench.send(0, b"back");
    assert_eq!(bench.terminal.shown(), b"back");
}

#[test]
fn reader_that_is_gone_costs_bytes_which_are_counted() {
    let mut bench = Bench::running();
    (bench.terminal.output, _) = pipe().unwrap();
    bench.send(0, b"abc");
    assert!(bench.is_sent(0));
    assert_eq!(bench.counters().dropped_bytes, 3);
}

#[test]
fn viewer_sees_what_is_shown_and_takes_over_the_input() {
    let mut bench = Bench::running();
    let mut viewer = bench.attach(0);
    bench.send(0, b"hello");
    assert_eq!(read(&mut viewer), b"hello");
    assert_eq!(bench.terminal.shown(), b"hello");
    viewer.write_all(b"ls\n").unwrap();
    assert_eq!(bench.received(0), b"ls\n");
    drop(viewer);
    bench.send(0, b"alone");
    assert_eq!(bench.terminal.shown(), b"alone");
    let mut next = bench.attach(0);
    next.write_all(b"w\n").unwrap();
    assert_eq!(bench.received(0), b"w\n");
    assert_eq!(bench.messages(), []);
}

#[test]
fn viewer_that_takes_nothing_holds_up_nobody() {
    let mut bench = Bench::running();
    let _viewer = bench.attach(0);
    let mut shown = 0;
    for _ in 0..100 {
        bench.send(0, &[b'x'; MOST]);
        assert!(bench.is_sent(0));
        shown += bench.terminal.shown().len();
    }
    assert_eq!(shown, 100 * MOST);
    assert!(bench.counters().dropped_bytes > 0);
}

#[test]
fn console_without_host_end_takes_what_it_is_sent() {
    let console = Console::new(&config(), vec![PortEnd::Nothing, PortEnd::Nothing]).unwrap();
    let mut bench = Bench::new(&config());
    let (wiring, _, _) = wiring(3, QUEUES.into());
    (bench.side, bench.ram) = (console.host_side(), wiring.ram.clone());
    bench.function = VirtioPci::new(console, wiring).unwrap();
    let function = &bench.function;
    bench.driver = FakeDriver::new(Arc::clone(function) as _, Arc::clone(function) as _);
    bench.rings.iter_mut().for_each(|ring| ring.move_to(&bench.ram));
    bench.driver.set_config(8, b"!\0\0\0");
    bench.start(bench.driver.offered());
    bench.send(0, b"abc");
    assert!(bench.is_sent(0));
    assert_eq!(bench.counters().dropped_bytes, 4);
}

#[test]
fn size_is_told_when_the_console_is_there_and_when_it_changes() {
    let size = TerminalSize { columns: 80, rows: 25 };
    let mut bench = Bench::new(&ConsoleConfig { size, ..config() });
    bench.start(bench.driver.offered());
    bench.give_buffers();
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(0, PORT_READY, 1);
    bench.say(1, PORT_READY, 1);
    let resized = |columns: u8, rows: u8| (0, RESIZE, 1, vec![columns, 0, rows, 0]);
    assert_eq!(bench.messages()[3], resized(80, 25));
    bench.function.change_config(|console| {
        console.set_size(TerminalSize { columns: 132, rows: 43 });
        console.set_size(TerminalSize { columns: 100, rows: 50 });
    });
    assert_eq!(bench.messages(), [resized(100, 50)]);
    let mut bytes = [0; 4];
    bench.driver.config(0, &mut bytes);
    assert_eq!(bytes, [100, 0, 50, 0]);
    // Also if nobody looked before a pause, or in one.
    bench.function.change_config(|console| console.set_size(size));
    bench.pause();
    bench.resume();
    assert_eq!(bench.messages(), [resized(80, 25)]);
    bench.pause();
    bench.function.change_config(|console| {
        console.set_size(TerminalSize { columns: 90, rows: 30 });
    });
    bench.resume();
    assert_eq!(bench.messages(), [resized(90, 30)]);
}

#[test]
fn driver_that_takes_no_sizes_is_told_none() {
    let size = TerminalSize { columns: 80, rows: 25 };
    let mut bench = Bench::new(&ConsoleConfig { size, ..config() });
    bench.start(FakeDriver::VERSION_1 | 0b010);
    bench.give_buffers();
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(0, PORT_READY, 1);
    bench.function.change_config(|console| console.set_size(size));
    bench.pause();
    bench.function.change_config(|console| console.set_size(size));
    bench.resume();
    assert!(bench.messages().iter().all(|(_, event, _, _)| *event != RESIZE));
}

#[test]
fn character_is_shown_in_an_emergency() {
    let mut bench = Bench::new(&config());
    for character in b"panic" {
        bench.driver.set_config(8, &u32::from(*character).to_le_bytes());
    }
    bench.driver.set_config(9, b"x");
    bench.driver.set_config(0, b"x");
    assert_eq!(bench.terminal.shown(), b"panic");
    bench.start(bench.driver.offered());
    bench.driver.set_config(8, b"!");
    assert_eq!(bench.terminal.shown(), b"!");
    assert_eq!(bench.counters().sent_bytes, 6);
}
