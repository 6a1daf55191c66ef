//! Memory of Linux guests on Corten's machine: the balloon, what guests say of their use, free pages. These run in a
//! node, in the cage, where `guests` starts them.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use corten_link::{BalloonDescription, Memory, Reply, Request};
use corten_tests::guest::ScriptedGuest;
use corten_tests::process::VmProcess;

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
const MIB: u64 = 1 << 20;

fn memory(process: &mut VmProcess) -> Result<Memory> {
    match process.ask(Request::Memory)? {
        (Reply::Memory { memory }, _) => Ok(memory),
        (other, _) => bail!("{other:?}"),
    }
}

pub(super) fn wait_until(
    process: &mut VmProcess,
    what: &str,
    is_so: impl Fn(&Memory) -> bool,
) -> Result<Memory> {
    let deadline = Instant::now() + BOOT;
    loop {
        let memory = memory(process)?;
        if is_so(&memory) {
            return Ok(memory);
        }
        ensure!(Instant::now() < deadline, "not {what}: {memory:?}\n{}", process.console());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn with_balloon(reporting: bool, script: &str) -> Result<ScriptedGuest> {
    let mut guest = ScriptedGuest::new(1, 512, "virtio_balloon", script)?;
    guest.machine.balloon = Some(BalloonDescription { deflate_on_oom: true, reporting });
    Ok(guest)
}

#[test]
fn balloon_gives_memory_to_the_host_and_back_also_after_a_restore() -> Result<()> {
    let script = r"
        mkdir -p /tmp/m
        mount -t tmpfs -o size=300m m /tmp/m
        dd if=/dev/zero of=/tmp/m/used bs=1M count=250 2>/dev/null
        rm /tmp/m/used
        echo TOUCHED
        echo idle >/run/end
    ";
    let guest = with_balloon(false, script)?;
    let mut process = guest.boot()?;
    process.wait_for("TOUCHED", 1, BOOT)?;
    let touched = memory(&mut process)?.allocated;
    ensure!(touched > 250 * MIB, "{touched} bytes");
    process.must(Request::PollMemory { seconds: 1 })?;
    let said = wait_until(&mut process, "said", |memory| memory.guest.is_some())?;
    let total = said.guest.and_then(|guest| guest.total).unwrap_or_default();
    ensure!((400 * MIB..=512 * MIB).contains(&total), "{said:?}");

    let (reply, _) = process.ask(Request::SetBalloon { bytes: 513 * MIB })?;
    ensure!(matches!(reply, Reply::Refused { .. }), "{reply:?}");
    process.must(Request::SetBalloon { bytes: 200 * MIB })?;
    let full = |memory: &Memory| memory.balloon_actual >= 200 * MIB;
    let inflated = wait_until(&mut process, "inflated", full)?;
    ensure!(inflated.allocated + 150 * MIB < touched, "{inflated:?}, before {touched}");

    process.must(Request::Pause)?;
    let saved = process.must(Request::Save)?;
    drop(process);
    let mut process = guest.load(saved)?;
    ensure!(memory(&mut process)?.balloon_actual >= 200 * MIB);
    process.must(Request::Resume)?;
    let again = |memory: &Memory| memory.guest.is_some();
    wait_until(&mut process, "asked for statistics after the restore", again)?;
    process.must(Request::SetBalloon { bytes: 0 })?;
    wait_until(&mut process, "deflated", |memory| memory.balloon_actual == 0)?;
    Ok(())
}

#[test]
fn long_pages_that_the_guest_frees_go_back_by_themselves() -> Result<()> {
    let script = r"
        mkdir -p /tmp/m
        mount -t tmpfs -o size=300m m /tmp/m
        dd if=/dev/zero of=/tmp/m/used bs=1M count=250 2>/dev/null
        echo TOUCHED
        sleep 5
        rm /tmp/m/used
        echo FREED
        echo idle >/run/end
    ";
    let mut process = with_balloon(true, script)?.boot()?;
    process.wait_for("TOUCHED", 1, BOOT)?;
    let touched = memory(&mut process)?.allocated;
    ensure!(touched > 250 * MIB, "{touched} bytes");
    process.wait_for("FREED", 1, BOOT)?;
    let lower = |memory: &Memory| memory.allocated + 150 * MIB < touched;
    wait_until(&mut process, "reported", lower)?;
    Ok(())
}
