//! What is saved and what may be loaded.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::virtio::Device;

const GOLDEN: &str = include_str!("golden-v1.json");

impl Bench {
    pub(super) fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("vda", &mut records).unwrap();
        records
    }

    pub(super) fn load(&self, records: &Records) -> Result<(), RecordError> {
        let mut records = records.clone();
        self.function.load("vda", &mut records)?;
        records.finish()
    }

    /// As a migration does.
    pub(super) fn take_memory(&self, other: &Bench) {
        self.fill(0, &other.memory(0, 0x1_0000));
    }

    /// Works until that many failures were told, then pauses.
    pub(super) fn pause_after_failures(&mut self, count: usize) {
        let end = Instant::now() + PATIENCE;
        while self.failures.lock().unwrap().len() < count {
            assert!(Instant::now() < end, "nobody is told");
            self.turn(Duration::from_millis(1));
        }
        self.pause();
    }
}

fn block(config: BlockConfig) -> (Block, NamedTempFile) {
    let file = disk_of(0);
    (Block::new(open(&file), config, Arc::new(|_| {})).unwrap(), file)
}

fn load(block: &mut Block, state: &BlockState) -> Result<(), RecordError> {
    let mut records = Records::default();
    records.put("vda", state).unwrap();
    block.load("vda", &mut records)
}

fn saved(block: &Block) -> Records {
    let mut records = Records::default();
    block.save("vda", &mut records).unwrap();
    records
}

#[test]
fn state_of_version_1_reads_as_it_did() {
    let golden: Records = serde_json::from_str(GOLDEN).unwrap();
    let (mut block, _file) = block(BlockConfig { queues: 2, ..with(Engine::Pool) });
    block.load("vda", &mut golden.clone()).unwrap();
    assert_eq!(saved(&block), golden);
}

#[test]
fn disk_that_is_another_is_refused_by_what_differs() {
    type Change = fn(&mut BlockState);
    let held = |queue| {
        let status = GuestAddress(0x4100);
        HeldRequest { queue, request: Request { head: 0, status, action: Action::Flush } }
    };
    let (mut block, _file) = block(with(Engine::Pool));
    let good: BlockState = saved(&block).take("vda").unwrap();
    let changes: &[(&str, Change)] = &[
        ("its capacity was 4096, this disk's is 2048", |state| state.capacity = 4096),
        ("its block size was 4096, this disk's is 512", |state| state.block_size = 4096),
        ("it was read-only, this disk is writable", |state| state.read_only = true),
        ("its serial was \"other\"", |state| state.serial = "other".into()),
    ];
    for (text, change) in changes {
        let mut state = good.clone();
        change(&mut state);
        let error = load(&mut block, &state).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let state = BlockState { held: vec![held(1)], ..good.clone() };
    let error = load(&mut block, &state).unwrap_err().to_string();
    assert!(error.contains("a request of queue 1, which is not"), "{error}");
    let state = BlockState { held: vec![held(0); 257], ..good.clone() };
    let error = load(&mut block, &state).unwrap_err().to_string();
    assert!(error.contains("holds 257 requests"), "{error}");
    assert_eq!(saved(&block).take::<BlockState>("vda").unwrap(), good);
}

#[test]
fn saved_disk_goes_on_where_it_was() {
    for engine in engines() {
        let file = disk_of(0);
        let config = BlockConfig { lock: false, ..with(engine) };
        let mut bench = Bench::running(open(&file), config.clone());
        bench.driver.set_config(32, &[0]);
        bench.fill(DATA, &[4; 512]);
        assert_eq!(bench.ask(WRITE, 1, &[(DATA, 512)]), OK);
        let status = bench.describe(0, 0, (READ, 1), &[(0x8000, 512)]);
        bench.offer(0, 0);
        bench.pause();
        let records = bench.save();
        let mut target = Bench::new(open(&file), config);
        target.take_memory(&bench);
        target.load(&records).unwrap();
        assert_eq!(target.save(), records);
        target.resume();
        assert_eq!(target.used(0, 2), [(0, 1), (0, 513)]);
        assert_eq!(target.status(status), OK);
        assert_eq!(target.memory(0x8000, 512), [4; 512]);
        target.pause();
        let mut loaded = target.save();
        assert!(!loaded.take::<BlockState>("vda").unwrap().writeback);
    }
}

#[test]
fn held_requests_that_cannot_be_do_not_start() {
    let file = disk_of(0);
    let config = BlockConfig { lock: false, ..with(Engine::Pool) };
    let mut bench = Bench::running(open(&file), config.clone());
    bench.pause();
    let mut records = bench.save();
    let good: BlockState = records.take("vda").unwrap();
    let request = Request { head: 0, status: GuestAddress(0x4100), action: Action::Flush };
    let state = BlockState { held: vec![HeldRequest { queue: 0, request }], ..good };
    records.put("vda", &state).unwrap();
    let target = Bench::new(open(&file), config);
    target.load(&records).unwrap();
    let error = target.function.activate().err().unwrap();
    assert_eq!(error.to_string(), "queue 0 has chains in flight that nobody holds");
    assert_ne!(target.driver.status() & FakeDriver::NEEDS_RESET, 0);
}

fn action() -> impl Strategy<Value = Action> {
    let segment = (any::<u64>(), any::<u32>())
        .prop_map(|(address, length)| Segment { address: GuestAddress(address), length });
    let segments = vec(segment, 0..4);
    let range = (any::<u64>(), any::<u32>(), any::<bool>())
        .prop_map(|(sector, sectors, unmap)| SectorRange { sector, sectors, unmap });
    let ranges = vec(range, 0..4);
    prop_oneof![
        (any::<u64>(), segments.clone())
            .prop_map(|(sector, segments)| Action::Read { sector, segments }),
        (any::<u64>(), segments.clone())
            .prop_map(|(sector, segments)| Action::Write { sector, segments }),
        Just(Action::Flush),
        segments.prop_map(|segments| Action::GetId { segments }),
        ranges.clone().prop_map(|ranges| Action::Discard { ranges }),
        ranges.prop_map(|ranges| Action::WriteZeroes { ranges }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    (any::<u16>(), any::<u64>(), action()).prop_map(|(head, status, action)| Request {
        head,
        status: GuestAddress(status),
        action,
    })
}

proptest! {
    #[test]
    fn save_load_save_is_equal(
        writeback: bool,
        first in vec(request(), 0..8),
        second in vec(request(), 0..8),
    ) {
        let (mut block, _file) = block(BlockConfig { queues: 2, ..with(Engine::Pool) });
        let held = |queue| move |request| HeldRequest { queue, request };
        let held = first.into_iter().map(held(0)).chain(second.into_iter().map(held(1))).collect();
        let usual: BlockState = saved(&block).take("vda").unwrap();
        let state = BlockState { writeback, held, ..usual };
        load(&mut block, &state).unwrap();
        prop_assert_eq!(saved(&block).take::<BlockState>("vda").unwrap(), state);
    }
}
