//! A named port of the console device, and the control messages about it.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};
use corten_link::{ConsoleDescription, MachineDescription, Request, Role};
use corten_microguest::{Message, StreamsWork, Tally};
use corten_tests::caller::Caller;
use corten_tests::lives::{Companion, Stops, reborn_in_company};
use corten_tests::process::{VmProcess, machine};

use super::talk::Talk;
use super::{MEMORY, SOON};

/// About as many exits as it takes to set up the device.
const SET_UP: u64 = 200;
/// As the guest expects it.
const NAME: &str = "org.corten.echo";

/// Whom the guest talks to, in all of its lives.
struct Host(Arc<Talk>);

impl Companion for Host {
    fn born(&mut self, process: &mut VmProcess) -> Result<()> {
        let (talk, caller) = (Arc::clone(&self.0), process.caller());
        let stream = attached(&caller)?;
        thread::spawn(move || serve(&talk, &caller, stream));
        Ok(())
    }
}

/// The host's end of the port.
fn attached(caller: &Caller) -> Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    caller.ask(Request::Attach { port: 1 }, &[(Role::connection(), theirs.as_fd())])?;
    ours.set_read_timeout(Some(SOON))?;
    Ok(ours)
}

/// Answers messages for the length of a life, and comes back after each goodbye.
fn serve(talk: &Talk, caller: &Caller, mut stream: UnixStream) -> Result<()> {
    loop {
        let mut message = [0; Message::SIZE];
        stream.read_exact(&mut message)?;
        let message = Message::from_bytes(message);
        if message.length == 0 {
            drop(stream);
            stream = attached(caller)?;
            continue;
        }
        let expected = talk.message(message.round, message.length);
        let expected = expected.or_else(|| {
            talk.fault(format!("{message:?}"));
            None
        });
        let expected = expected.context("the guest does not say what it must")?;
        let mut heard = vec![0; expected.len()];
        stream.read_exact(&mut heard)?;
        if heard != *expected {
            talk.fault(format!("{message:?}: other bytes than were sent"));
        }
        // Whole cells, so that the guest gets whole cells.
        stream.write_all(&message.answer(expected))?;
        talk.finish(message.round);
    }
}

/// Gives back in how many processes the guest lived, and what it says of its rounds.
fn lives(stops: Stops, work: &StreamsWork, settings: &str) -> Result<(u64, Tally)> {
    let console = Some(ConsoleDescription { streams: vec![NAME.into()] });
    let machine = MachineDescription { console, ..machine(1, MEMORY) };
    let talk = Arc::new(Talk::new(work.messages()));
    let commands = format!("{work} {settings}");
    let lives = reborn_in_company(stops, &machine, &commands, &[], &mut Host(Arc::clone(&talk)))?;
    Ok((lives.count, talk.check("streams", &lives)?))
}

#[test]
fn guest_reborn_at_every_nth_exit_is_told_that_its_peer_went_and_came() -> Result<()> {
    let work = StreamsWork { rounds: 16, seed: 0x5eed_5eed_5eed_5eed, exits: 8 };
    let (_, tally) = lives(Stops::NONE, &work, "")?;
    ensure!(tally.attempts == 16 && (1..16).contains(&tally.losses), "{tally:?}");
    let mut repeated = 0;
    for (first, every, rounds, exits, settings) in [
        // From the first message on: what comes before is as with other devices.
        (SET_UP, 1, 10, 2, ""),
        (SET_UP, 3, 8, 8, "event_index=0"),
        (7, 7, 16, 16, ""),
        (31, 31, 32, 32, "event_index=0"),
    ] {
        let work = StreamsWork { rounds, seed: 0x5eed_5eed_5eed_5eed + every, exits };
        let (lives, tally) = lives(Stops { first, every }, &work, settings)?;
        ensure!(lives > 4, "only {lives} lives at every {every}");
        repeated += tally.attempts - tally.rounds;
        eprintln!("at every {every}: {lives} lives, {tally:?}");
    }
    ensure!(repeated > 4, "only {repeated} rounds were begun again");
    Ok(())
}
