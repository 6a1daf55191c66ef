//! The console device of Linux guests on Corten's machine: terminal and guest agent; and their random numbers. These run
//! in a node, in the cage, where `guests` starts them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_link::{ConsoleDescription, EntropyHost, Info, Reply, Request, Role};
use corten_tests::guest::ScriptedGuest;
use corten_tests::process::VmProcess;

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);

const SCRIPT: &str = r#"
echo "RANDOM $(cat /sys/class/misc/hw_random/rng_current) $(dd if=/dev/hwrng bs=64 count=1 2>/dev/null | wc -c)"
exec 4<>/dev/hvc0
echo "TO THE TERMINAL" >&4
read -r line <&4
echo "FROM THE TERMINAL: $line"
tool qemu-ga --method=virtio-serial --path="$(echo /dev/vport*p1)" --statedir=/dev --pidfile=/dev/agent.pid --daemonize
echo STARTED
echo idle >/run/end
"#;

fn info(process: &mut VmProcess) -> Result<Info> {
    match process.ask(Request::Info)? {
        (Reply::Info { info }, _) => Ok(info),
        (other, _) => bail!("{other:?}"),
    }
}

/// Attaches to the agent's port and has it answer.
pub(super) fn ask_agent(process: &mut VmProcess) -> Result<()> {
    let deadline = Instant::now() + BOOT;
    while info(process)?.open_ports != [1] {
        ensure!(Instant::now() < deadline, "no agent:\n{}", process.console());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (ours, theirs) = UnixStream::pair()?;
    process.must_with(Request::Attach { port: 1 }, &[(Role::connection(), theirs.as_fd())])?;
    drop(theirs);
    ours.set_read_timeout(Some(BOOT))?;
    let mut answers = BufReader::new(ours.try_clone()?);
    let mut ours = ours;
    ours.write_all(b"{\"execute\":\"guest-sync\",\"arguments\":{\"id\":4711}}\n")?;
    loop {
        let mut line = String::new();
        ensure!(answers.read_line(&mut line)? > 0, "the port was closed");
        // What an agent was asked before may be answered first.
        if line.contains("4711") {
            return Ok(());
        }
    }
}

#[test]
fn terminal_agent_and_random_numbers_work_also_after_two_restores() -> Result<()> {
    let mut guest = ScriptedGuest::new(1, 256, "virtio_console,virtio_rng", SCRIPT)?;
    let streams = vec!["org.qemu.guest_agent.0".into()];
    guest.machine.console = Some(ConsoleDescription { streams });
    guest.machine.entropy = Some(EntropyHost::default());
    let (mut shown, output) = std::io::pipe()?;
    let (input, mut typed) = std::io::pipe()?;
    guest.devices.push((Role::terminal(), output.into()));
    guest.devices.push((Role::terminal_input(), input.into()));
    let mut process = guest.boot()?;

    let mut line = [0; 15];
    shown.read_exact(&mut line).context("nothing on the terminal")?;
    ensure!(&line == b"TO THE TERMINAL", "{:?}", String::from_utf8_lossy(&line));
    typed.write_all(b"typed by a person\n")?;
    process.wait_for("FROM THE TERMINAL: typed by a person", 1, BOOT)?;
    process.wait_for("RANDOM virtio_rng.0 64", 1, BOOT)?;
    process.wait_for("STARTED", 1, BOOT)?;

    ask_agent(&mut process)?;
    // Another peer takes over.
    ask_agent(&mut process)?;
    for _ in 0..2 {
        process = guest.reborn(process)?;
        ask_agent(&mut process)?;
    }
    Ok(())
}
