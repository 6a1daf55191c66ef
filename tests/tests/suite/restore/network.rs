//! A network interface.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use corten_devices::testing::{Wire, in_new_network};
use corten_link::{NetworkDescription, NetworkHost, Role};
use corten_microguest::{FiltersWork, NetworkWork};
use corten_net::Tap;
use corten_tests::lives::{Alone, Lives, Stops, reborn_in_company};
use corten_tests::process::machine;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::MEMORY;

/// About as many exits as it takes to set up the device with two pairs of queues.
const SET_UP: u64 = 160;

/// Answers every frame, until it is told to stop. Gives back what came.
fn peer(wire: &Wire, stop: &AtomicBool, answers: Answers) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    while !stop.load(Ordering::Acquire) {
        // SAFETY: the wire is open as long as it is borrowed here.
        let fd = unsafe { BorrowedFd::borrow_raw(wire.as_raw_fd()) };
        poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::from(50_u8))?;
        while let Some(frame) = wire.try_receive() {
            answers(&frame).iter().for_each(|answer| wire.send(answer));
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// What a peer sends for a frame.
type Answers = fn(&[u8]) -> Vec<Vec<u8>>;

/// How the guest lived, and which frames it sent.
fn lives(
    stops: Stops,
    pairs: u16,
    commands: &str,
    answers: Answers,
) -> Result<(Lives, Vec<Vec<u8>>)> {
    let mut machine = machine(1, MEMORY);
    machine.networks = vec![NetworkDescription {
        name: "wire".into(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: None,
        pairs,
        host: NetworkHost::default(),
    }];
    // Held all along: frames of the peer wait in it for the guest.
    let queues = Tap::create("tap0", pairs)?.into_queues();
    let queue = |(number, queue)| Ok((Role::tap("wire", number)?, queue));
    let devices = (0..).zip(queues).map(queue).collect::<Result<Vec<_>>>()?;
    let (wire, stop) = (Wire::new(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let peer = thread::spawn(move || peer(&wire, &stopped, answers));
    let lives = reborn_in_company(stops, &machine, commands, &devices, &mut Alone);
    stop.store(true, Ordering::Release);
    let frames = peer.join().map_err(|_| anyhow::anyhow!("the peer panicked"))??;
    Ok((lives?, frames))
}

/// Gives back in how many processes the guest lived whose frames are sent back.
fn echoed(stops: Stops, work: &NetworkWork, settings: &str) -> Result<u64> {
    let commands = format!("{work} {settings}");
    let (lives, frames) = lives(stops, 1, &commands, |frame| vec![frame.to_vec()])?;
    let line = work.console_line();
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    ensure!(frames == work.frames(), "{} frames came, or others", frames.len());
    Ok(lives.count)
}

/// Gives back in how many processes the guest lived that asks for some frames, and how often it announced itself.
fn filtered(stops: Stops, work: &FiltersWork, settings: &str) -> Result<(u64, u64)> {
    let answers = |frame: &[u8]| FiltersWork::answers(frame).unwrap_or_default();
    let (lives, frames) = lives(stops, 2, &format!("{work} {settings}"), answers)?;
    let line = work.console_line();
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    let addresses = work.addresses();
    let from = frames.iter().map(|frame| &frame[6..12]);
    ensure!(from.eq(addresses.iter().map(|address| &address[..])), "{} came", frames.len());
    let announced = lives.console.lines().find_map(|line| line.strip_prefix("announced: 0x"));
    let announced = announced.context("it does not say how often it announced itself")?;
    Ok((lives.count, u64::from_str_radix(announced, 16)?))
}

fn every_nth_exit() -> Result<()> {
    echoed(Stops::NONE, &NetworkWork { rounds: 64, seed: 1 }, "")?;
    for (n, rounds, settings) in
        [(1, 8, ""), (3, 16, "event_index=0"), (7, 32, ""), (31, 96, "event_index=0")]
    {
        let lives = echoed(Stops::at_every(n), &NetworkWork { rounds, seed: n }, settings)?;
        ensure!(lives > 4, "only {lives} lives at every {n}");
        eprintln!("at every {n}: {lives} lives");
    }
    Ok(())
}

fn filters_at_every_nth_exit() -> Result<()> {
    let work = FiltersWork { rounds: 64, seed: 0x5eed_5eed_5eed_5eed };
    let (_, announced) = filtered(Stops::NONE, &work, "")?;
    ensure!(announced == 0, "it announced itself {announced} times");
    for (first, every, rounds, settings) in [
        // From the first command on: what comes before is as with other devices.
        (SET_UP, 1, 8, ""),
        (SET_UP, 3, 8, "event_index=0"),
        (7, 7, 12, ""),
        (31, 31, 64, "event_index=0"),
    ] {
        let work = FiltersWork { rounds, seed: 0x5eed_5eed_5eed_5eed + every };
        let (lives, announced) = filtered(Stops { first, every }, &work, settings)?;
        ensure!(lives > 4, "only {lives} lives at every {every}");
        ensure!((1..lives).contains(&announced), "announced {announced} times in {lives} lives");
        eprintln!("at every {every}: {lives} lives, announced {announced} times");
    }
    Ok(())
}

#[test]
fn guest_reborn_at_every_nth_exit_sends_and_receives_as_if_undisturbed() {
    in_new_network(|| every_nth_exit().expect("nothing was lost"));
}

#[test]
fn guest_reborn_at_every_nth_exit_receives_what_it_asked_for() {
    in_new_network(|| filters_at_every_nth_exit().expect("nothing was lost"));
}
