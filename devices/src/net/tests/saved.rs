//! What is saved and what may be loaded.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("golden-v1.json");

impl Bench {
    pub(super) fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("net1", &mut records).unwrap();
        records
    }

    fn load(&self, records: &Records) -> Result<(), RecordError> {
        let mut records = records.clone();
        self.function.load("net1", &mut records)?;
        records.finish()
    }
}

fn saved(net: &Net) -> Records {
    let mut records = Records::default();
    net.save("net1", &mut records).unwrap();
    records
}

#[test]
fn state_of_version_1_reads_as_it_did() {
    in_new_network(|| {
        let golden: Records = serde_json::from_str(GOLDEN).unwrap();
        let config = NetConfig { mtu: Some(1450), ..NetConfig::new(MAC) };
        let mut net = Net::new(&config, taps(2)).unwrap();
        net.load("net1", &mut golden.clone()).unwrap();
        assert_eq!(saved(&net), golden);
    });
}

#[test]
fn interface_that_is_another_is_refused_by_what_differs() {
    type Change = fn(&mut NetState);
    in_new_network(|| {
        let mut net = Net::new(&NetConfig::new(MAC), taps(2)).unwrap();
        let good: NetState = saved(&net).take("net1").unwrap();
        let changes: &[(&str, Change)] = &[
            ("its address was 02:00:00:00:00:02", |state| state.mac = PEER),
            ("its MTU was 1400, this interface's is not told", |state| state.mtu = Some(1400)),
            ("it had 1 pairs of queues, this interface has 2", |state| state.pairs = 1),
            ("0 of its 2 pairs", |state| state.active_pairs = 0),
            ("3 of its 2 pairs", |state| state.active_pairs = 3),
            ("more addresses than are kept", |state| {
                state.filter.unicast = MacTable::Listed(vec![PEER; 65]);
            }),
        ];
        for (text, change) in changes {
            let mut state = good.clone();
            change(&mut state);
            let mut records = Records::default();
            records.put("net1", &state).unwrap();
            let error = net.load("net1", &mut records).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(saved(&net).take::<NetState>("net1").unwrap(), good);
    });
}

#[test]
fn saved_interface_goes_on_where_it_was() {
    in_new_network(|| {
        let mut bench = Bench::running(2);
        let address = [&[1, 1][..], &PEER.0].concat();
        for command in [&[4, 0, 2, 0][..], &[0, 0, 0], &address] {
            assert_eq!(bench.command(command), 0);
        }
        assert!(bench.function.change_config(Net::announce));
        bench.post(2, 100);
        bench.fill(DATA + 200, &[&[0; 12][..], &frame(MAC, 60)].concat());
        bench.settle();
        // Offered, but not rung for.
        let ring = &mut bench.rings[1];
        ring.describe(5, (GuestAddress(DATA + 200), 72), 0, 0);
        ring.offer(5);
        bench.pause();
        let records = bench.save();
        let memory = bench.memory(0, 0x1_0000);
        drop(bench);

        let mut target = Bench::new(&NetConfig::new(MAC), taps(2));
        let wire = Wire::new();
        target.fill(0, &memory);
        target.load(&records).unwrap();
        assert_eq!(target.save(), records);
        target.resume();
        target.turn();
        assert_eq!(target.config(0, 8), [&PEER.0[..], &[3, 0]].concat());
        assert_eq!(wire.receive(), frame(MAC, 60));
        wire.send(&frame(MAC, 60));
        wire.send(&frame(PEER, 70));
        target.settle();
        assert_eq!((target.counters().filtered, target.counters().received), (1, 1));
        assert_eq!(target.memory(DATA + 12, 70), frame(PEER, 70));
        target.pause();
        assert!(target.save().take::<NetState>("net1").unwrap().announce);
    });
}

#[test]
fn chains_in_flight_that_nobody_holds_do_not_start() {
    use crate::virtio::TransportState;
    in_new_network(|| {
        let mut bench = Bench::running(1);
        bench.pause();
        let mut records = bench.save();
        drop(bench);
        let mut state: TransportState = records.take("net1").unwrap();
        state.queues[0].next_available = 1;
        records.put("net1", &state).unwrap();
        let target = Bench::new(&NetConfig::new(MAC), taps(1));
        target.load(&records).unwrap();
        let error = target.function.activate().err().unwrap();
        assert_eq!(error.to_string(), "queue 0 has chains in flight that nobody holds");
    });
}

fn table() -> impl Strategy<Value = MacTable> {
    let listed = vec(any::<[u8; 6]>().prop_map(MacAddress), 0..=64).prop_map(MacTable::Listed);
    prop_oneof![4 => listed, 1 => Just(MacTable::TooMany)]
}

fn filter() -> impl Strategy<Value = ReceiveFilter> {
    let mac = any::<[u8; 6]>().prop_map(MacAddress).prop_filter("of nobody", |mac| mac.is_valid());
    (mac, any::<[bool; 6]>(), table(), table()).prop_map(|(mac, modes, unicast, multicast)| {
        let [promiscuous, all_multicast, all_unicast, no_multicast, no_unicast, no_broadcast] =
            modes;
        ReceiveFilter {
            mac,
            promiscuous,
            all_multicast,
            all_unicast,
            no_multicast,
            no_unicast,
            no_broadcast,
            unicast,
            multicast,
        }
    })
}

#[test]
fn save_load_save_is_equal() {
    in_new_network(|| {
        let net = Net::new(&NetConfig::new(MAC), taps(2)).unwrap();
        let usual: NetState = saved(&net).take("net1").unwrap();
        let net = RefCell::new(net);
        proptest!(|(filter in filter(), active_pairs in 1_u16..=2, announce: bool)| {
            let state = NetState { filter, active_pairs, announce, ..usual.clone() };
            let mut records = Records::default();
            records.put("net1", &state).unwrap();
            net.borrow_mut().load("net1", &mut records.clone()).unwrap();
            prop_assert_eq!(saved(&net.borrow()), records);
        });
    });
}
