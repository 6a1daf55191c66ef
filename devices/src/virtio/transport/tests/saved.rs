//! What is saved: golden, damaged, and in every small state that can be reached.

use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("golden-v1.json");

#[test]
fn state_of_version_1_reads_as_it_did() {
    let golden: Records = serde_json::from_str(GOLDEN).unwrap();
    let mut bench = Bench::new();
    bench.load(&golden).unwrap();
    assert_eq!(bench.save(), golden);
    bench.resume();
    assert_eq!(bench.tasks.len(), 2);
}

#[test]
fn impossible_states_are_refused() {
    type Damage = fn(&mut TransportState);
    let damages: &[(&str, Damage)] = &[
        ("another device type", |state| state.device_type = 1),
        ("cannot hold", |state| state.configuration.command |= 1),
        ("cannot hold", |state| state.configuration.bars[1] = 4),
        ("it offers", |state| state.offered_features |= 1 << 50),
        ("was not offered", |state| state.driver_features |= 1 << 50),
        ("was not offered", |state| state.driver_features = 0),
        ("its status cannot be", |state| state.status = 0x40),
        ("its status cannot be", |state| state.status = FakeDriver::DRIVER_OK),
        ("no driver to be reset for", |state| {
            state.status = 0;
            state.leaving = true;
        }),
        ("interrupt status", |state| state.isr = 4),
        ("its vector is not there", |state| state.config_vector = 3),
        ("number of queues", |state| state.queues.truncate(1)),
        ("queue 1: its vector is not there", |state| state.queues[1].vector = 0x100),
        ("its largest size", |state| state.queues[0].max_size = 32),
        ("its size cannot be", |state| state.queues[0].size = 0),
        ("its size cannot be", |state| state.queues[0].size = 32),
        ("it is enabled but cannot be", |state| state.queues[0].descriptors = 0x1_0000),
        ("it is enabled but cannot be", |state| state.queues[0].available = 0),
        ("it is enabled but cannot be", |state| state.queues[0].next_available = 9),
        ("used before it could be", |state| {
            state.queues[0].enabled = false;
            state.queues[0].next_used = 1;
        }),
        ("it is enabled but cannot be", |state| state.status = 3),
    ];
    let (mut bench, _ring) = Bench::running();
    bench.pause();
    let good = bench.state();
    for (text, damage) in damages {
        let mut state = good.clone();
        damage(&mut state);
        let mut records = bench.save();
        let _: TransportState = records.take("3").unwrap();
        records.put("3", &state).unwrap();
        let fresh = Bench::new();
        let before = fresh.save();
        let error = fresh.load(&records).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        assert_eq!(fresh.save(), before);
        assert_eq!(fresh.routes.updates(), []);
    }
}

/// What can happen to a function, most of it near what a driver does.
#[derive(Clone, Debug)]
enum Step {
    Bar(u64, Vec<u8>),
    Configuration(usize, Vec<u8>),
    Status(u8),
    SetUp(u8),
    Start,
    Mask { vector: u16, masked: bool },
    Ask,
    Ring { available: u16, descriptor: [u16; 8] },
    Owner(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let data = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..10),
            any::<u32>().prop_map(|word| word.to_le_bytes().to_vec()),
            (0_u16..20).prop_map(|short| short.to_le_bytes().to_vec()),
            Just(vec![0xff; 4]),
        ]
    };
    prop_oneof![
        1 => (any::<u64>(), data()).prop_map(|(offset, data)| Step::Bar(offset, data)),
        2 => (0_u64..0x9000, data()).prop_map(|(offset, data)| Step::Bar(offset, data)),
        4 => (0_u64..0x20, data()).prop_map(|(field, data)| Step::Bar(field * 2, data)),
        3 => (0_u64..0x10, data()).prop_map(|(field, data)| Step::Bar(0x4000 + field * 4, data)),
        4 => (0_usize..0x100, data()).prop_map(|(at, data)| Step::Configuration(at, data)),
        1 => prop::sample::select(vec![6, 0]).prop_map(|on| Step::Configuration(4, vec![on, 4])),
        2 => prop::sample::select(vec![0, 0, 1, 3, 11, 15, 0x80, 0x4f]).prop_map(Step::Status),
        2 => (0_u8..5).prop_map(Step::SetUp),
        3 => Just(Step::Start),
        4 => (0_u16..3, any::<bool>()).prop_map(|(vector, masked)| Step::Mask { vector, masked }),
        6 => Just(Step::Ask),
        1 => (0_u16..12, any::<[u16; 8]>())
            .prop_map(|(available, descriptor)| Step::Ring { available, descriptor }),
        8 => (0_u8..6).prop_map(Step::Owner),
    ]
}

impl Bench {
    fn take(&mut self, step: Step) {
        match step {
            Step::Bar(offset, data) => {
                let _ = self.function.write(offset, &data);
                self.function.read(offset, &mut vec![0; data.len()]);
            }
            Step::Configuration(register, data) => {
                let _ = self.function.write_configuration(register, &data);
                self.function.read_configuration(register, &mut vec![0; data.len()]);
            }
            Step::Status(status) => {
                let _ = self.driver.set_common(0x14, 1, status.into());
            }
            Step::SetUp(0) => drop(self.driver.negotiate(FEATURES)),
            Step::SetUp(1) => self.driver.enable_msix(3),
            Step::SetUp(queue) => {
                let (queue, ring) = (u16::from(queue) - 2, self.ring(u64::from(queue) - 2));
                self.driver.set_up_queue(queue, &ring, queue + 1);
            }
            Step::Start => {
                let _ = self.driver.reset();
                self.take(Step::Owner(2));
                (0..4).for_each(|part| self.take(Step::SetUp(part)));
                let _ = self.driver.set_common(0x10, 2, 0);
                let _ = self.driver.ready();
                self.take(Step::Owner(2));
            }
            Step::Mask { vector, masked } => self.driver.set_vector(vector, 3, masked.into()),
            Step::Ask => {
                let mut ring = self.ring(0);
                let before = self.ram.read_obj(GuestAddress(ring.available().0 + 2)).unwrap();
                ring.set_available_index(before);
                ask(self, &mut ring);
                self.driver.ring(0);
            }
            Step::Ring { available, descriptor } => {
                let mut ring = self.ring(0);
                for (at, word) in (0..).zip(descriptor) {
                    self.ram.write_obj(word, GuestAddress(0x1000 + 2 * at)).unwrap();
                }
                ring.set_available_index(available);
                self.driver.ring(0);
            }
            Step::Owner(0 | 1) => self.work(),
            Step::Owner(2 | 3) => match self.function.pending() {
                Effect::Activate { .. } => self.resume(),
                Effect::Deactivate { .. } => {
                    self.pause();
                    self.function.deactivated().unwrap();
                }
                _ => {}
            },
            Step::Owner(4) => self.pause(),
            Step::Owner(_) => self.function.change_config(|_| ()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_state_that_can_be_reached_survives(steps in prop::collection::vec(step(), 0..60)) {
        let mut bench = Bench::new();
        for step in steps {
            bench.take(step);
        }
        bench.pause();
        let saved = bench.save();
        let loaded = Bench::new();
        loaded.load(&saved).unwrap();
        prop_assert_eq!(loaded.save(), saved);
        prop_assert_eq!(loaded.routes.connected(), bench.routes.connected());
        prop_assert_eq!(loaded.function.pending(), bench.function.pending());
        for register in 0..256 {
            let read = |bench: &Bench| bench.driver.configuration(register, 1);
            prop_assert_eq!(read(&loaded), read(&bench), "register {:#x}", register);
        }
        for offset in (0..0x40).chain(0x2000..0x2010).chain(0x4000..0x4040).chain(0x5000..0x5010) {
            let read = |bench: &Bench| {
                let mut data = [0];
                bench.function.read(offset, &mut data);
                data[0]
            };
            prop_assert_eq!(read(&loaded), read(&bench), "offset {:#x}", offset);
        }
    }
    #[test]
    fn damaged_state_is_refused_or_does_no_harm(
        damages in prop::collection::vec((any::<prop::sample::Index>(), damaged()), 1..4)
    ) {
        let mut records: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
        for (index, value) in damages {
            let mut numbers = Vec::new();
            numbers_in(&mut records, &mut numbers);
            let index = index.index(numbers.len());
            *numbers[index] = value;
        }
        let records: Records = serde_json::from_value(records).unwrap();
        let mut bench = Bench::new();
        if bench.load(&records).is_ok() {
            prop_assert_eq!(bench.save(), records);
            bench.tasks = bench.function.activate().unwrap_or_default();
            bench.tasks.iter_mut().for_each(|task| task.rearm());
            bench.take(Step::Ask);
            bench.work();
            bench.pause();
        }
    }
}

fn damaged() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        any::<u64>().prop_map(Into::into),
        any::<u16>().prop_map(Into::into),
        (0_u8..32).prop_map(Into::into),
        Just(serde_json::Value::Null),
        Just((-1).into()),
    ]
}

/// Every number of the payloads.
fn numbers_in<'a>(value: &'a mut serde_json::Value, found: &mut Vec<&'a mut serde_json::Value>) {
    match value {
        serde_json::Value::Number(_) => found.push(value),
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| numbers_in(value, found));
        }
        serde_json::Value::Object(fields) => {
            let fields = fields.iter_mut().filter(|(name, _)| *name != "version");
            fields.for_each(|(_, value)| numbers_in(value, found));
        }
        _ => {}
    }
}
