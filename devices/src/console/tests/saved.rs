//! What is saved and what may be loaded.

use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("golden-v1.json");

impl Bench {
    pub(super) fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("console", &mut records).unwrap();
        records
    }

    /// A device just made, with this state and the memory of this one.
    pub(super) fn loaded(&self, records: &Records) -> Self {
        let target = Self::new(&config());
        let mut memory = vec![0; 0x1_0000];
        self.ram.read_slice(&mut memory, GuestAddress(0)).unwrap();
        target.ram.write_slice(&memory, GuestAddress(0)).unwrap();
        let mut records = records.clone();
        target.function.load("console", &mut records).unwrap();
        records.finish().unwrap();
        target
    }

    /// One that goes on where this one was paused.
    fn moved(&self) -> Self {
        let records = self.save();
        let mut target = self.loaded(&records);
        assert_eq!(target.save(), records);
        target.go_on();
        target
    }

    /// The driver goes on where it was, and so does the device.
    fn go_on(&mut self) {
        for ring in &mut self.rings {
            let index = self.ram.read_obj(GuestAddress(ring.available().0 + 2)).unwrap();
            ring.set_available_index(index);
            ring.take_used();
        }
        self.resume();
        self.settle();
    }
}

fn console() -> Console {
    Console::new(&config(), vec![PortEnd::Nothing, PortEnd::Nothing]).unwrap()
}

fn state(console: &Console) -> ConsoleState {
    let mut records = Records::default();
    console.save("console", &mut records).unwrap();
    records.take("console").unwrap()
}

fn load(saved: &ConsoleState) -> Result<Console, String> {
    let mut records = Records::default();
    records.put("console", saved).unwrap();
    let mut console = console();
    let before = state(&console);
    match console.load("console", &mut records) {
        Ok(()) => Ok(console),
        Err(error) => {
            assert!(matches!(error, RecordError::Impossible { .. }));
            assert_eq!(state(&console), before);
            Err(error.to_string())
        }
    }
}

#[test]
fn state_of_version_1_reads_as_it_did() {
    let golden: Records = serde_json::from_str(GOLDEN).unwrap();
    let mut console = console();
    console.load("console", &mut golden.clone()).unwrap();
    let mut records = Records::default();
    console.save("console", &mut records).unwrap();
    assert_eq!(records, golden);
    assert!(console.host_side().is_open(AGENT));
}

#[test]
fn states_of_other_devices_are_refused() {
    let usual = state(&console());
    let refused = |change: &dyn Fn(&mut ConsoleState)| {
        let mut saved = usual.clone();
        change(&mut saved);
        load(&saved).err().unwrap()
    };
    let error = refused(&|saved| drop(saved.ports.pop()));
    assert!(error.contains("it had 1 ports, this device has 2"), "{error}");
    let error = refused(&|saved| saved.ports[1].is_console = true);
    assert!(error.contains("its port 1 was a console, this device's is a stream"), "{error}");
    let error = refused(&|saved| saved.ports[0].name = Some("x".into()));
    assert!(error.contains("its port 0 was called x, this device's is nothing"), "{error}");
}

#[test]
fn states_that_cannot_be_are_refused() {
    let mut usual = state(&console());
    usual.ports[0].dialogue.is_ready = true;
    usual.ports[1].dialogue.is_ready = true;
    assert!(load(&usual).is_ok());
    let changes: [&dyn Fn(&mut ConsoleState); 7] = [
        &|saved| saved.ports[0].dialogue.owed.add = true,
        &|saved| saved.ports[0].dialogue.owed.name = true,
        &|saved| saved.ports[1].dialogue.owed.console = true,
        &|saved| saved.ports[1].dialogue.owed.size = true,
        &|saved| saved.ports[1].sent = 1,
        &|saved| {
            saved.ports[1].dialogue.is_ready = false;
            saved.ports[1].dialogue.is_guest_open = true;
        },
        &|saved| {
            saved.ports[1].dialogue.is_ready = false;
            saved.ports[1].dialogue.is_told_open = true;
        },
    ];
    for change in changes {
        let mut saved = usual.clone();
        change(&mut saved);
        assert!(load(&saved).is_err(), "{saved:?}");
    }
}

#[test]
fn records_that_are_damaged_are_refused() {
    for (from, to) in [
        ("\"is_ready\": true,", ""),
        ("\"is_ready\": true", "\"is_ready\": 1"),
        ("\"sent\": 0", "\"sent\": -1"),
        ("\"sent\": 0", "\"sent\": 0, \"x\": 0"),
        ("\"columns\": 80", "\"columns\": 65536"),
    ] {
        let mut records: Records = serde_json::from_str(&GOLDEN.replacen(from, to, 1)).unwrap();
        let error = console().load("console", &mut records).unwrap_err();
        assert!(matches!(error, RecordError::Damaged { .. }), "{error}");
    }
}

#[test]
fn guest_that_was_moved_is_told_that_its_peer_is_gone() {
    let (mut bench, mut peer) = Bench::with_agent();
    bench.pause();
    let mut target = bench.moved();
    assert!(target.side.is_open(AGENT));
    assert_eq!(target.messages(), [message(AGENT, PORT_OPEN, 0)]);
    let mut next = target.attach(AGENT);
    assert_eq!(target.messages(), [message(AGENT, PORT_OPEN, 1)]);
    next.write_all(b"hi").unwrap();
    assert_eq!(target.received(AGENT), b"hi");
    target.send(0, b"and the console");
    assert_eq!(target.terminal.shown(), b"and the console");
    target.terminal.type_in(b"too");
    assert_eq!(target.received(0), b"too");
    // The source works on as if nothing had been saved.
    bench.resume();
    bench.send(AGENT, b"still here");
    assert_eq!(read(&mut peer), b"still here");
    assert_eq!(bench.messages(), []);
}

#[test]
fn peer_that_is_there_when_the_guest_goes_on_is_told_of_as_another() {
    let (mut bench, _peer) = Bench::with_agent();
    bench.pause();
    let records = bench.save();
    let mut target = bench.loaded(&records);
    let (ours, mut theirs) = pair();
    target.side.attach(AGENT, ours.into()).unwrap();
    assert_eq!(target.save(), records);
    target.go_on();
    let expected = [message(AGENT, PORT_OPEN, 0), message(AGENT, PORT_OPEN, 1)];
    assert_eq!(target.messages(), expected);
    target.send(AGENT, b"hello");
    assert_eq!(read(&mut theirs), b"hello");
}

#[test]
fn new_peer_gets_nothing_that_was_sent_before_the_move() {
    let (mut bench, _peer) = Bench::with_agent();
    bench.post(TRANSMIT[AGENT], &long_chain());
    bench.settle();
    assert!(!bench.is_sent(AGENT), "the socket takes it all");
    bench.pause();
    let records = bench.save();
    let mut target = bench.loaded(&records);
    let (ours, mut theirs) = pair();
    target.side.attach(AGENT, ours.into()).unwrap();
    target.go_on();
    assert_eq!(read(&mut theirs), b"");
    target.send(AGENT, b"fresh");
    assert_eq!(read(&mut theirs), b"fresh");
}

#[test]
fn messages_that_waited_are_told_after_two_moves() {
    let mut bench = Bench::new(&config());
    bench.start(bench.driver.offered());
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(0, PORT_READY, 1);
    bench.pause();
    let mut first = bench.moved();
    first.pause();
    first.function.change_config(|console| {
        console.set_size(TerminalSize { columns: 90, rows: 30 });
    });
    let mut second = first.moved();
    (0..16).for_each(|index| second.give_control_buffer(index));
    second.driver.ring(2);
    let expected = [
        message(0, CONSOLE_PORT, 1),
        (0, RESIZE, 1, vec![90, 0, 30, 0]),
        message(0, PORT_OPEN, 1),
        message(AGENT, DEVICE_ADD, 1),
    ];
    assert_eq!(second.messages(), expected);
}

#[test]
fn output_that_was_shown_in_part_goes_on_where_it_was() {
    let mut bench = Bench::running();
    bench.post(TRANSMIT[0], &long_chain());
    bench.turn();
    let first = bench.terminal.shown().len();
    assert!(0 < first && first < LONG_CHAIN);
    bench.pause();
    let mut target = bench.moved();
    let counters = target.counters();
    let rest = counters.sent_bytes + counters.dropped_bytes;
    assert_eq!(first as u64 + rest, LONG_CHAIN as u64);
    target.send(0, b"x");
    assert!(target.is_sent(0));
}

/// Any that a port can be in.
fn dialogue(is_console: bool) -> impl Strategy<Value = Dialogue> {
    any::<[bool; 6]>().prop_map(move |[is_ready, guest, told, first, second, third]| {
        let mut dialogue = Dialogue::default();
        dialogue.is_ready = is_ready;
        dialogue.is_guest_open = is_ready && guest;
        dialogue.is_told_open = is_ready && told;
        dialogue.owed = Owed {
            add: !is_ready && first,
            console: is_ready && is_console && first,
            name: is_ready && !is_console && second,
            size: is_ready && is_console && third,
        };
        dialogue
    })
}

proptest! {
    #[test]
    fn save_load_save_is_equal(
        first in dialogue(true),
        second in dialogue(false),
        sent: u64,
        columns: u16,
        rows: u16,
    ) {
        let mut saved = state(&console());
        saved.size = TerminalSize { columns, rows };
        saved.ports[0].dialogue = first;
        saved.ports[0].sent = sent;
        saved.ports[1].dialogue = second;
        let again = state(&load(&saved).unwrap());
        let bytes = |state: &ConsoleState| serde_json::to_string(state).unwrap();
        prop_assert_eq!(bytes(&again), bytes(&saved));
    }
}
