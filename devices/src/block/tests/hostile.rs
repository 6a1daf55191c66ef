//! Guests that write anything anywhere, and hosts that allow little.

use proptest::prelude::*;

use super::*;
use crate::virtio::TransportState;

#[derive(Clone, Debug)]
enum Step {
    /// A descriptor with anything in it.
    Describe {
        index: u16,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    },
    /// A request that is nearly right.
    Ask {
        first: u16,
        kind: u32,
        sector: u64,
        data: Vec<(u64, u32)>,
    },
    Offer(u16),
    Turn,
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    let address = || prop_oneof![0x4000_u64..0x1_0100, 0_u64..0x3000, any::<u64>()];
    let length = || prop_oneof![Just(16_u32), Just(512), Just(1), 0_u32..0x2000, any::<u32>()];
    let kind = prop_oneof![Just(READ), Just(WRITE), Just(FLUSH), 0_u32..16];
    let sector = prop_oneof![0_u64..2050, any::<u64>()];
    let sectors = (0x5000_u64..0xf000, 0_u32..4).prop_map(|(at, sectors)| (at, sectors * 512));
    let data = prop::collection::vec(sectors, 0..3);
    prop_oneof![
        2 => (0_u16..17, address(), length(), 0_u16..8, 0_u16..18).prop_map(
            |(index, address, length, flags, next)| Step::Describe {
                index, address, length, flags, next,
            }
        ),
        4 => (0_u16..12, kind, sector, data).prop_map(
            |(first, kind, sector, data)| Step::Ask { first, kind, sector, data }
        ),
        1 => (0_u16..17).prop_map(Step::Offer),
        2 => Just(Step::Turn),
        1 => Just(Step::Stop),
    ]
}

impl Bench {
    fn take(&mut self, step: Step) {
        match step {
            Step::Describe { index, address, length, flags, next } => {
                self.rings[0].describe(index, (GuestAddress(address), length), flags, next);
            }
            Step::Ask { first, kind, sector, data } => {
                self.describe(0, first, (kind, sector), &data);
                self.offer(0, first);
            }
            Step::Offer(head) => self.offer(0, head),
            Step::Turn => self.turn(Duration::ZERO),
            Step::Stop => {
                self.pause();
                let records = self.save();
                assert_eq!(self.save(), records);
                self.resume();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_guest_stops_a_pause(
        steps in prop::collection::vec(step(), 1..40),
        pool in any::<bool>(),
    ) {
        let file = disk_of(7);
        let engine = if pool { Engine::Pool } else { Engine::Auto };
        let mut bench = Bench::running(open(&file), with(engine));
        for step in steps {
            bench.take(step);
        }
        bench.pause();
        assert_eq!(file.as_file().metadata().unwrap().len(), 1 << 20);
    }
}

/// How many of 40 requests for zeroes, of that many sectors each, are at the backend at a time.
fn zeroes_at_a_time(sectors: u32) -> u16 {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(128 << 20).unwrap();
    let mut bench = Bench::new(open(&file), with(Engine::Auto));
    bench.rings = vec![FakeRing::new(&bench.ram, GuestAddress(0x1000), 64)];
    bench.start(bench.driver.offered());
    // To be unmapped, so that they take no room anywhere.
    bench.put_range(0, sectors, 1);
    bench.describe(0, 0, (WRITE_ZEROES, 0), &[(DATA, 16)]);
    (0..40).for_each(|_| bench.offer(0, 0));
    bench.tasks[0].on_event(0);
    bench.pause();
    let mut records = bench.save();
    records.take::<TransportState>("vda").unwrap().queues[0].next_available
}

#[test]
fn zeroes_are_not_all_done_at_once() {
    // A pause waits for them, and where the host cannot make zeroes they are written from memory of our own.
    assert_eq!(zeroes_at_a_time(1 << 17), 1);
    assert_eq!(zeroes_at_a_time(8), 16);
}

/// As a container's filter does, for this thread alone.
fn deny_rings() {
    let code = |code: u32| u16::try_from(code).unwrap();
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let denied = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let line = |op, jt, jf, k| libc::sock_filter { code: code(op), jt, jf, k };
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, denied),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: lines.as_mut_ptr() };
    // SAFETY: takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its four lines live longer than the call.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(result, 0);
}

#[test]
fn threads_serve_the_disk_where_rings_are_denied() {
    let denied = std::thread::spawn(|| {
        deny_rings();
        let file = disk_of(7);
        let config = BlockConfig { lock: false, ..with(Engine::Ring) };
        let ring = Block::new(open(&file), config, Arc::new(|_| {}));
        assert!(matches!(ring.err(), Some(BlockError::Backend(_))));
        let started = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&started);
        let start: ThreadStart = Arc::new(move || *seen.lock().unwrap() += 1);
        let config = BlockConfig { thread_start: Some(start), ..with(Engine::Auto) };
        let mut bench = Bench::running(open(&file), config);
        assert_eq!(bench.function.device(Block::engine), Engine::Pool);
        assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
        assert_eq!(bench.memory(DATA, 512), [7; 512]);
        assert!(*started.lock().unwrap() > 0);
    });
    denied.join().unwrap();
}
