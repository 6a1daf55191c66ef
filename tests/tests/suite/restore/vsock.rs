//! The socket device.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};
use corten_link::{Event, MachineDescription, Request, Role, VsockDescription};
use corten_microguest::protocol::VSOCK_PORT;
use corten_microguest::{Introduction, Tally, VsockWork};
use corten_tests::caller::{Answer, Caller};
use corten_tests::lives::{Companion, Stops, reborn_in_company};
use corten_tests::process::{VmProcess, machine};

use super::talk::Talk;
use super::{MEMORY, SOON};

/// About as many exits as it takes to set up the device.
const SET_UP: u64 = 140;

/// Whom the guest talks to, in all of its lives.
struct Host(Arc<Talk>);

impl Companion for Host {
    fn born(&mut self, process: &mut VmProcess) -> Result<()> {
        let talk = Arc::clone(&self.0);
        let answer: Answer = Arc::new(move |caller, event| match *event {
            Event::Connecting { ticket, port } => {
                let (talk, caller) = (Arc::clone(&talk), caller.clone());
                thread::spawn(move || grant(&talk, &caller, ticket, port));
                true
            }
            _ => false,
        });
        process.answer_by(answer);
        Ok(())
    }
}

/// Gives the guest the stream that it asked for, and then opens one itself. Wherever the process ends, so do they.
fn grant(talk: &Talk, caller: &Caller, ticket: u64, port: u32) -> Result<()> {
    if port != VSOCK_PORT {
        talk.fault(format!("the guest wants port {port}"));
    }
    let introduction = listen(talk, given(caller, Request::GrantConnection { ticket })?)?;
    let request = Request::Connect { port: introduction.port };
    call(talk, given(caller, request)?, introduction)
}

/// The host's end of a stream that the guest gets by a request.
fn given(caller: &Caller, request: Request) -> Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    caller.ask(request, &[(Role::connection(), theirs.as_fd())])?;
    ours.set_read_timeout(Some(SOON))?;
    Ok(ours)
}

/// Hears a message of the guest's, answers it, and waits for the stream's end.
fn listen(talk: &Talk, mut stream: UnixStream) -> Result<Introduction> {
    let mut introduction = [0; Introduction::SIZE];
    stream.read_exact(&mut introduction)?;
    let introduction = Introduction::from_bytes(introduction);
    let message = talk.message(introduction.round, introduction.length);
    let message = message.or_else(|| {
        talk.fault(format!("{introduction:?}"));
        None
    });
    let message = message.context("the guest does not say what it must")?;
    let mut heard = vec![0; message.len()];
    stream.read_exact(&mut heard)?;
    if heard != *message {
        talk.fault(format!("{introduction:?}: other bytes than were sent"));
    }
    stream.write_all(&VsockWork::answer(message))?;
    stream.shutdown(Shutdown::Write)?;
    let rest = stream.read_to_end(&mut Vec::new())?;
    if rest > 0 {
        talk.fault(format!("{introduction:?}: {rest} bytes too many"));
    }
    Ok(introduction)
}

/// Says a message to the guest and hears the answer.
fn call(talk: &Talk, mut stream: UnixStream, introduction: Introduction) -> Result<()> {
    let Introduction { round, length, .. } = introduction;
    let message = talk.message(round, length).context("it was there before")?;
    stream.write_all(message)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let expected = VsockWork::answer(message);
    if answer == expected {
        talk.finish(round);
    } else if !expected.starts_with(&answer) {
        // Cut off it may be, by the end of a life.
        talk.fault(format!("round {round}: another answer than was sent"));
    }
    Ok(())
}

/// Gives back in how many processes the guest lived, and what it says of its rounds.
fn lives(stops: Stops, work: &VsockWork, settings: &str) -> Result<(u64, Tally)> {
    let vsock = Some(VsockDescription { guest_cid: 7 });
    let machine = MachineDescription { vsock, ..machine(1, MEMORY) };
    let talk = Arc::new(Talk::new(work.messages()));
    let commands = format!("{work} {settings}");
    let lives = reborn_in_company(stops, &machine, &commands, &[], &mut Host(Arc::clone(&talk)))?;
    Ok((lives.count, talk.check("vsock", &lives)?))
}

#[test]
fn guest_reborn_at_every_nth_exit_loses_its_streams_and_opens_them_again() -> Result<()> {
    let work = VsockWork { rounds: 16, seed: 0x5eed_5eed_5eed_5eed, exits: 8 };
    let (_, tally) = lives(Stops::NONE, &work, "")?;
    ensure!(tally == Tally { rounds: 16, attempts: 16, losses: 0 }, "{tally:?}");
    for (first, every, rounds, exits, settings) in [
        // From the driver's first stream on: what comes before is as with other devices.
        (SET_UP, 1, 10, 2, ""),
        (SET_UP, 3, 6, 8, "event_index=0"),
        (7, 7, 12, 16, ""),
        (31, 31, 16, 32, "event_index=0"),
    ] {
        let work = VsockWork { rounds, seed: 0x5eed_5eed_5eed_5eed + every, exits };
        let (lives, tally) = lives(Stops { first, every }, &work, settings)?;
        let Tally { rounds, attempts, losses } = tally;
        ensure!(lives > 4, "only {lives} lives at every {every}");
        ensure!((1..lives).contains(&losses) && attempts > rounds, "{lives} lives, {tally:?}");
        eprintln!("at every {every}: {lives} lives, {tally:?}");
    }
    Ok(())
}
