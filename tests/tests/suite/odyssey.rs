//! One boot of a Linux guest with every device, in the cage, through everything that may happen to a machine. Runs in a
//! node, where `guests` starts it with the TAP `left`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_link::{
    BalloonDescription, ConsoleDescription, EndReason, EntropyHost, Event, Request, Role,
    VsockDescription,
};
use corten_tests::guest::ScriptedGuest;
use corten_tests::process::{VmProcess, asset};
use corten_tests::snapshot_files::SnapshotFiles;

use crate::consoles::ask_agent;
use crate::memory::wait_until;
use crate::sockets;

/// A boot takes 10 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
const MIB: u64 = 1 << 20;
/// What the guest shouts when something was lost.
const SHOUTS: [&str; 4] = ["MEMORY LOST", "DISK LOST", "CLOCK", "CORTEN-FAILED"];
/// By how much clocks of guest and host may differ in one step of the journey, and how old a reading may be.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

const MODULES: &str =
    "virtio_net,virtio_console,virtio_rng,virtio_balloon,vmw_vsock_virtio_transport";

/// Its memory, its disks and its clocks are looked at all the time. What is typed on the terminal is what it ends by.
///
/// A clock is read as the kernel has it, in nanoseconds, by a loop on each CPU, which also looks whether it is behind what
/// another CPU has read before. The loop starts no process: in an emulated guest that takes long.
const SCRIPT: &str = r#"
echo "RANDOM $(dd if=/dev/hwrng bs=64 count=1 2>/dev/null | wc -c)"
cat >/dev/clock <<'END'
exec 3<>/dev/silence$1
last=0
while :; do
    read -r other </dev/clock$((1 - $1))
    { read -r _; read -r _; read -r _ _ now _; } </proc/timer_list
    [ "$now" -ge "$last" ] || echo "CLOCK of CPU $1 went back from $last to $now"
    [ "$now" -ge "${other:-0}" ] || echo "CLOCK of CPU $1 is at $now, behind $other of the other"
    [ "$last" = 0 ] || [ $((now - last)) -lt 60000000000 ] || echo "CLOCK of CPU $1 jumped from $last to $now"
    last=$now
    echo "$now" >/dev/clock$1
    read -r -t 0.1 -u 3
done
END
for cpu in 0 1; do
    mkfifo /dev/silence$cpu
    echo 0 >/dev/clock$cpu
done
for cpu in 0 1; do tool taskset -c $cpu bash /dev/clock $cpu & done

ip link set lo up
up eth0 10.100.0.2
echoes TCP-LISTEN:7,reuseaddr &
tool socat -U TCP-LISTEN:13,fork,reuseaddr OPEN:/dev/clock0,rdonly &
echoes VSOCK-LISTEN:6000 &
for port in 7 13; do until tool socat -u OPEN:/dev/null TCP:127.0.0.1:$port; do sleep 0.2; done; done
tool qemu-ga --method=virtio-serial --path="$(echo /dev/vport*p1)" --statedir=/dev --pidfile=/dev/agent.pid --daemonize

mkdir -p /tmp/memory
mount -t tmpfs -o size=32m memory /tmp/memory
for number in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/tmp/memory/$number bs=1M count=2 2>/dev/null; done
sha256sum /tmp/memory/? >/tmp/sums
while sha256sum -c -s /tmp/sums; do echo "MEMORY THERE"; sleep 1; done || echo "MEMORY LOST" &
while tool fio --output=/dev/null --rw=randwrite --bs=4k --size=512k --direct=1 --ioengine=psync --verify=crc32c \
    --verify_fatal=1 --name=plain --filename=/dev/vdc --name=image --filename=/dev/vdd --offset=8m
do echo "DISK THERE"; done || echo "DISK LOST" &

echo SAILING
read -r word </dev/hvc0
echo "$word" >/run/end
"#;

/// A connection to the guest's echo server with something on its way all the time.
struct Echoes {
    rounds: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    worker: JoinHandle<Result<()>>,
}

impl Echoes {
    fn start() -> Self {
        let (rounds, done) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, over) = (Arc::clone(&rounds), Arc::clone(&done));
        let worker = thread::spawn(move || {
            let mut stream = TcpStream::connect("10.100.0.2:7")?;
            stream.set_read_timeout(Some(BOOT))?;
            let mut back = vec![0; 8 << 10];
            while !over.load(Ordering::Acquire) {
                let round = counted.load(Ordering::Acquire);
                let sent: Vec<u8> =
                    (0..1024).flat_map(|at| (round * 1024 + at).to_le_bytes()).collect();
                stream.write_all(&sent)?;
                stream.read_exact(&mut back).with_context(|| format!("round {round}"))?;
                ensure!(back == sent, "other bytes came back in round {round}");
                counted.store(round + 1, Ordering::Release);
            }
            Ok(())
        });
        Self { rounds, done, worker }
    }

    fn wait_for_more(&self, process: &VmProcess) -> Result<()> {
        let goal = self.rounds.load(Ordering::Acquire) + 3;
        let deadline = Instant::now() + BOOT;
        while self.rounds.load(Ordering::Acquire) < goal {
            let over = Instant::now() > deadline || self.worker.is_finished();
            ensure!(!over, "no more echoes:\n{}", process.console());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.done.store(true, Ordering::Release);
        self.worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?
    }
}

/// The guest's monotonic clock, and a moment of the host's before it was asked.
fn clocks() -> Result<(Duration, Instant)> {
    let deadline = Instant::now() + BOOT;
    loop {
        let host = Instant::now();
        let mut text = String::new();
        TcpStream::connect("10.100.0.2:13")?.read_to_string(&mut text)?;
        // It may be read while it is written.
        if let Some(number) = text.strip_suffix('\n') {
            return Ok((Duration::from_nanos(number.parse()?), host));
        }
        ensure!(Instant::now() < deadline, "the guest has no clock");
    }
}

/// Everything is still there and goes on. What was looked at before the machine stopped does not count.
fn all_is_well(process: &mut VmProcess, echoes: &Echoes) -> Result<()> {
    echoes.wait_for_more(process)?;
    let console = process.console();
    for line in ["MEMORY THERE", "DISK THERE"] {
        process.wait_for(line, console.matches(line).count() + 2, BOOT)?;
    }
    sockets::echo(process)?;
    ask_agent(process)?;
    nothing_was_lost(&process.console())
}

fn nothing_was_lost(console: &str) -> Result<()> {
    for shout in SHOUTS {
        ensure!(!console.contains(shout), "{console}");
    }
    Ok(())
}

fn guest(data: &File, overlay: &File) -> Result<ScriptedGuest> {
    let image = asset("CORTEN_ASSET_GUEST_TINY_QCOW2", "disk.qcow2")?;
    let guest = ScriptedGuest::new(2, 320, MODULES, SCRIPT)?;
    let guest = guest.disk("data", data)?.image_disk("image", image, overlay)?;
    let mut guest = guest.network("left", 1)?;
    let streams = vec!["org.qemu.guest_agent.0".into()];
    guest.machine.console = Some(ConsoleDescription { streams });
    guest.machine.entropy = Some(EntropyHost::default());
    guest.machine.balloon = Some(BalloonDescription { deflate_on_oom: true, reporting: true });
    guest.machine.vsock = Some(VsockDescription { guest_cid: 7 });
    Ok(guest)
}

#[test]
fn guest_goes_through_pauses_snapshots_restores_and_a_reboot_and_loses_nothing() -> Result<()> {
    let (data, overlay) = (tempfile::tempfile()?, tempfile::tempfile()?);
    data.set_len(4 * MIB)?;
    let mut guest = guest(&data, &overlay)?;
    let (_shown, output) = std::io::pipe()?;
    let (input, mut typed) = std::io::pipe()?;
    guest.devices.push((Role::terminal(), output.into()));
    guest.devices.push((Role::terminal_input(), input.into()));
    let mut process = guest.boot()?;
    process.wait_for("SAILING", 1, BOOT)?;
    process.wait_for("RANDOM 64", 1, BOOT)?;
    process.must(Request::SetBalloon { bytes: 32 * MIB })?;
    wait_until(&mut process, "inflated", |memory| memory.balloon_actual >= 32 * MIB)?;
    let echoes = Echoes::start();
    all_is_well(&mut process, &echoes)?;

    process.must(Request::Pause)?;
    process.must(Request::Resume)?;
    echoes.wait_for_more(&process)?;
    for _ in 0..2 {
        let (before, asked) = clocks()?;
        process.must(Request::Pause)?;
        let paused = Instant::now();
        let files = process.must_snapshot_in(SnapshotFiles::in_memory()?)?;
        nothing_was_lost(&process.end_now()?)?;
        process = guest.restore(&files)?;
        let stopped = paused.elapsed();
        process.must(Request::Resume)?;
        let (after, _) = clocks()?;
        ensure!(after >= before, "the clock went back from {before:?} to {after:?}");
        let (went, ran) = (after - before, asked.elapsed() - stopped);
        ensure!(went <= ran + CLOCK_TOLERANCE, "the clock went {went:?} in {ran:?}");
        all_is_well(&mut process, &echoes)?;
    }
    wait_until(&mut process, "still inflated", |memory| memory.balloon_actual >= 32 * MIB)?;
    process.must(Request::SetBalloon { bytes: 0 })?;
    wait_until(&mut process, "deflated", |memory| memory.balloon_actual == 0)?;
    echoes.end()?;

    typed.write_all(b"reboot\n")?;
    let event = process.next_event(BOOT)?;
    ensure!(event == Event::Reset, "{event:?}\n{}", process.console());
    process.wait_for("SAILING", 1, BOOT)?;
    let echoes = Echoes::start();
    all_is_well(&mut process, &echoes)?;
    echoes.end()?;

    typed.write_all(b"button\n")?;
    process.wait_for("CORTEN-SCRIPT-EXIT 0", 1, BOOT)?;
    // The driver of the button is loaded after that line.
    let end = loop {
        process.must(Request::PowerButton)?;
        if let Ok(event) = process.next_event(Duration::from_secs(2)) {
            break event;
        }
    };
    ensure!(matches!(end, Event::Ended { reason: EndReason::PoweredOff, .. }), "{end:?}");
    nothing_was_lost(&process.end_now()?)
}
