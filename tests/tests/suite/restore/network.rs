//! A network interface.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use corten_devices::testing::{Wire, in_new_network};
use corten_link::{NetworkDescription, NetworkHost, Role};
use corten_microguest::NetworkWork;
use corten_net::Tap;
use corten_tests::lives::{reborn_at_every, undisturbed};
use corten_tests::process::machine;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::MEMORY;

/// Sends every frame back, until it is told to stop. Gives back what came.
fn peer(wire: &Wire, stop: &AtomicBool) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    while !stop.load(Ordering::Acquire) {
        // SAFETY: the wire is open as long as it is borrowed here.
        let fd = unsafe { BorrowedFd::borrow_raw(wire.as_raw_fd()) };
        poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::from(50_u8))?;
        while let Some(frame) = wire.try_receive() {
            wire.send(&frame);
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Gives back in how many processes the guest lived.
fn lives(n: Option<u64>, work: &NetworkWork, settings: &str) -> Result<u64> {
    let tap = Tap::create("tap0", 1)?.into_queues().pop().context("a queue was made")?;
    let mut machine = machine(1, MEMORY);
    machine.networks = vec![NetworkDescription {
        name: "wire".into(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: None,
        pairs: 1,
        host: NetworkHost::default(),
    }];
    // Held all along: frames of the peer wait in it for the guest.
    let devices = [(Role::tap("wire", 0)?, tap)];
    let (wire, stop) = (Wire::new(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let peer = thread::spawn(move || peer(&wire, &stopped));
    let commands = format!("{work} {settings}");
    let lives = match n {
        Some(n) => reborn_at_every(n, &machine, &commands, &devices),
        None => undisturbed(&machine, &commands, &devices),
    };
    stop.store(true, Ordering::Release);
    let frames = peer.join().map_err(|_| anyhow::anyhow!("the peer panicked"))??;
    let (lives, line) = (lives?, work.console_line());
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    ensure!(frames == work.frames(), "{} frames came, or others", frames.len());
    Ok(lives.count)
}

fn every_nth_exit() -> Result<()> {
    lives(None, &NetworkWork { rounds: 64, seed: 1 }, "")?;
    for (n, rounds, settings) in
        [(1, 8, ""), (3, 16, "event_index=0"), (7, 32, ""), (31, 96, "event_index=0")]
    {
        let lives = lives(Some(n), &NetworkWork { rounds, seed: n }, settings)?;
        ensure!(lives > 4, "only {lives} lives at every {n}");
        eprintln!("at every {n}: {lives} lives");
    }
    Ok(())
}

#[test]
fn guest_reborn_at_every_nth_exit_sends_and_receives_as_if_undisturbed() {
    in_new_network(|| every_nth_exit().expect("nothing was lost"));
}
