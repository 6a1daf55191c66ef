//! What is saved and what may be loaded.

use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::virtio::Device;

const GOLDEN: &str = include_str!("golden-v1.json");

impl Bench {
    pub(super) fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("balloon", &mut records).unwrap();
        records
    }

    pub(super) fn load(&self, records: &Records) -> Result<(), RecordError> {
        let mut records = records.clone();
        self.function.load("balloon", &mut records)?;
        records.finish()
    }

    /// The rings with the memory of another, as a migration does. The driver's side goes on where it was.
    pub(super) fn take_over(&mut self, other: &mut Bench) {
        let mut bytes = vec![0; 0x2_0000];
        other.ram.read_slice(&mut bytes, GuestAddress(0)).unwrap();
        self.ram.write_slice(&bytes, GuestAddress(0)).unwrap();
        std::mem::swap(&mut self.rings, &mut other.rings);
        self.rings.iter_mut().for_each(|ring| ring.move_to(&self.ram));
    }
}

fn saved(balloon: &Balloon) -> Records {
    let mut records = Records::default();
    balloon.save("balloon", &mut records).unwrap();
    records
}

#[test]
fn state_of_version_1_reads_as_it_did() {
    let golden: Records = serde_json::from_str(GOLDEN).unwrap();
    let mut balloon = Balloon::new(WITH_ALL).unwrap();
    balloon.load("balloon", &mut golden.clone()).unwrap();
    assert_eq!(saved(&balloon), golden);
    assert_eq!((balloon.target_pages(), balloon.actual_pages()), (131_072, 65_536));
}

#[test]
fn saved_balloon_goes_on_where_it_was() {
    let mut bench = Bench::running();
    bench.function.change_config(|balloon| balloon.set_target_pages(77));
    bench.driver.set_config(4, &[76, 0, 0, 0]);
    bench.tell(3, &[(4, 1)]);
    // Offered, but not looked at before the pause.
    bench.ram.write_obj(0x300_u32, GuestAddress(LIST + 0x100)).unwrap();
    bench.rings[0].describe(6, (GuestAddress(LIST + 0x100), 4), 0, 0);
    bench.rings[0].offer(6);
    bench.pause();
    let records = bench.save();
    let state: BalloonState = records.clone().take("balloon").unwrap();
    assert_eq!(state.held, Some(3));
    let mut target = Bench::new(WITH_ALL);
    target.take_over(&mut bench);
    target.load(&records).unwrap();
    assert_eq!(target.save(), records);
    target.fill();
    target.resume();
    target.settle();
    assert_eq!(target.rings[0].take_used(), [(6, 0)]);
    assert_eq!(target.content(0x2ff..0x302), [7, 0, 7]);
    assert!(was_raised(&target.interrupts[0]));
    let mut config = [0; 8];
    target.driver.config(0, &mut config);
    assert_eq!(config, [77, 0, 0, 0, 76, 0, 0, 0]);
    // What was held is what asks.
    assert_eq!(target.rings[2].take_used(), []);
    assert_eq!(target.statistics(), None);
    target.ask();
    assert_eq!(target.rings[2].take_used(), [(3, 0)]);
    target.tell(3, &[(4, 2)]);
    assert_eq!(target.statistics().unwrap().free, Some(2));
}

#[test]
fn loaded_interval_asks_without_the_owner() {
    let mut bench = Bench::running();
    bench.tell(3, &[(4, 1)]);
    bench.function.device(|balloon| balloon.set_statistics_interval(Some(PATIENCE)));
    bench.pause();
    let mut records = bench.save();
    let state: BalloonState = records.take("balloon").unwrap();
    assert_eq!(state.statistics_interval, Some(PATIENCE));
    let soon = Some(Duration::from_millis(1));
    records.put("balloon", &BalloonState { statistics_interval: soon, ..state }).unwrap();
    let mut target = Bench::new(WITH_ALL);
    target.take_over(&mut bench);
    target.load(&records).unwrap();
    target.resume();
    let timer = *target.tasks[0].wakeups().last().unwrap();
    assert!(is_readable(timer, PollTimeout::try_from(PATIENCE).unwrap()));
    target.tasks[0].on_event(timer.token);
    assert_eq!(target.rings[2].take_used(), [(3, 0)]);
}

#[test]
fn balloon_that_is_another_is_refused() {
    let mut bench = Bench::running();
    bench.pause();
    let target = Bench::new(BalloonConfig { deflate_on_oom: false, reporting: true });
    let error = target.load(&bench.save()).unwrap_err().to_string();
    assert!(error.contains("it offers"), "{error}");
}

#[test]
fn chain_that_cannot_be_is_refused() {
    let mut balloon = Balloon::new(WITH_ALL).unwrap();
    let good: BalloonState = saved(&balloon).take("balloon").unwrap();
    let mut records = Records::default();
    records.put("balloon", &BalloonState { held: Some(128), ..good.clone() }).unwrap();
    let error = balloon.load("balloon", &mut records).unwrap_err().to_string();
    assert!(error.contains("it holds descriptor 128 of a queue of 128"), "{error}");
    assert_eq!(saved(&balloon).take::<BalloonState>("balloon").unwrap(), good);
}

/// A state as a damaged one is, of a balloon that holds a chain if `is_held`.
fn start_damaged(is_held: bool, damage: fn(&mut BalloonState)) -> ActivateError {
    let mut bench = Bench::running();
    let chains: &[(u16, u64)] = if is_held { &[(4, 1)] } else { &[] };
    chains.iter().for_each(|chain| bench.tell(3, &[*chain]));
    bench.pause();
    let mut records = bench.save();
    let mut state: BalloonState = records.take("balloon").unwrap();
    damage(&mut state);
    records.put("balloon", &state).unwrap();
    let target = Bench::new(WITH_ALL);
    target.load(&records).unwrap();
    let error = target.function.activate().err().unwrap();
    assert!(target.needs_reset());
    error
}

#[test]
fn held_chains_that_do_not_fit_the_queue_do_not_start() {
    for error in [
        start_damaged(false, |state| state.held = Some(3)),
        start_damaged(true, |state| state.held = None),
        // The driver's queue has 16 descriptors.
        start_damaged(true, |state| state.held = Some(16)),
    ] {
        assert_eq!(error.to_string(), "queue 2 has chains in flight that nobody holds");
    }
}

#[test]
fn interval_too_long_for_a_timer_is_kept_and_never_comes() {
    let mut bench = Bench::running();
    let timer = *bench.tasks[0].wakeups().last().unwrap();
    let soon = Some(Duration::from_nanos(1));
    bench.function.device(|balloon| balloon.set_statistics_interval(soon));
    assert!(is_readable(timer, PollTimeout::try_from(PATIENCE).unwrap()));
    bench.function.device(|balloon| balloon.set_statistics_interval(Some(Duration::MAX)));
    assert!(!is_readable(timer, PollTimeout::ZERO));
    bench.pause();
    let state: BalloonState = bench.save().take("balloon").unwrap();
    assert_eq!(state.statistics_interval, Some(Duration::MAX));
}

proptest! {
    #[test]
    fn save_load_save_is_equal(
        target_pages: u32,
        actual_pages: u32,
        statistics_interval in option::of((1..u64::MAX).prop_map(Duration::from_nanos)),
        held in option::of(0_u16..128),
    ) {
        let state = BalloonState { target_pages, actual_pages, statistics_interval, held };
        let mut records = Records::default();
        records.put("balloon", &state).unwrap();
        let mut balloon = Balloon::new(WITH_ALL).unwrap();
        balloon.load("balloon", &mut records.clone()).unwrap();
        prop_assert_eq!(saved(&balloon), records);
    }
}
