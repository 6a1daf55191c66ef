//! Records of a device in which anything was changed are refused, or are those of a device that can be saved and loaded again and
//! that comes to rest when it works.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use corten_devices::balloon::{Balloon, BalloonConfig};
use corten_devices::block::gated_disk;
use corten_devices::console::{Console, ConsoleConfig, PortConfig, PortEnd, TerminalSize};
use corten_devices::rng::Rng;
use corten_devices::testing::{FakeDriver, FakeRing, give_back, settle, wiring};
use corten_devices::virtio::{Device, Transport, VirtioPci};
use corten_devices::vsock::{Vsock, VsockConfig};
use corten_devices::{RateLimits, Records};
use libfuzzer_sys::fuzz_target;
use vm_memory::GuestAddress;

const DEVICES: usize = 5;
const NAME: &str = "device";

fn console() -> Console {
    let port =
        |name: Option<&str>| PortConfig { name: name.map(Into::into), is_console: name.is_none() };
    let ports = vec![port(None), port(Some("stream"))];
    let config = ConsoleConfig { ports, size: TerminalSize { columns: 80, rows: 25 } };
    Console::new(&config, vec![PortEnd::Nothing, PortEnd::Nothing]).expect("it can be made")
}

fn vsock() -> Vsock {
    let config = VsockConfig { guest_cid: 3, patience: Duration::from_secs(60) };
    Vsock::new(config, Arc::new(|_| {})).expect("it can be made")
}

fn balloon() -> Balloon {
    let config = BalloonConfig { deflate_on_oom: true, reporting: true };
    Balloon::new(config).expect("it can be made")
}

/// Does something with a new device of the kind.
fn with_device<R>(kind: usize, then: impl Fn(&dyn Transport, &FakeDriver, u16) -> R) -> R {
    fn wired<D: Device, R>(device: D, then: impl Fn(&dyn Transport, &FakeDriver, u16) -> R) -> R {
        let queues = device.queue_sizes().len();
        let (wiring, _, _) = wiring(3, queues);
        let function = VirtioPci::new(device, wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        then(&*function, &driver, u16::try_from(queues).expect("there are few"))
    }
    match kind % DEVICES {
        0 => wired(gated_disk(0).0, then),
        1 => wired(Rng::new(RateLimits::default()).expect("it can be made"), then),
        2 => wired(console(), then),
        3 => wired(balloon(), then),
        _ => wired(vsock(), then),
    }
}

fn save(function: &dyn Transport) -> Records {
    let mut records = Records::default();
    function.save(NAME, &mut records).expect("a device at rest can be saved");
    records
}

/// Good records of each, with a driver that is ready.
static GOOD: LazyLock<Vec<String>> = LazyLock::new(|| {
    let of = |kind| {
        with_device(kind, |function, driver, queues| {
            let ram = corten_devices::testing::guest_ram();
            assert!(driver.negotiate(driver.offered()));
            for queue in 0..queues {
                let base = GuestAddress(0x1000 * (u64::from(queue) + 1));
                assert!(driver.set_up_queue(queue, &FakeRing::new(&ram, base, 16), 0xffff));
            }
            let _ = driver.ready();
            serde_json::to_string(&save(function)).expect("records are text")
        })
    };
    (0..DEVICES).map(of).collect()
});

/// What to change: at which place, how many bytes, and to what.
type Change<'a> = (u16, u8, &'a [u8]);

fuzz_target!(|input: (u8, Vec<Change<'_>>)| {
    let (kind, changes) = input;
    let kind = usize::from(kind);
    let mut text = GOOD[kind % DEVICES].clone().into_bytes();
    for (at, length, bytes) in changes.into_iter().take(8) {
        let start = usize::from(at) % text.len().max(1);
        let end = text.len().min(start + usize::from(length % 32));
        text.splice(start..end, bytes.iter().copied());
    }
    let Ok(records) = serde_json::from_slice::<Records>(&text) else { return };
    let Some(again) = with_device(kind, |function, _, _| {
        function.load(NAME, &mut records.clone()).ok()?;
        let again = save(function);
        // Whatever is in its rings, which are all zeroes.
        if let Ok(mut tasks) = function.activate() {
            tasks.iter_mut().for_each(|task| task.rearm());
            settle(&mut tasks);
            give_back(function, tasks);
        }
        Some(again)
    }) else {
        return;
    };
    with_device(kind, |function, _, _| {
        function.load(NAME, &mut again.clone()).expect("what was saved can be loaded");
        assert_eq!(save(function), again);
    });
});
