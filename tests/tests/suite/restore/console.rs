//! The terminal of the console device.

use std::io::{Read, Write};

use anyhow::{Result, ensure};
use corten_link::{ConsoleDescription, Role};
use corten_microguest::ConsoleWork;
use corten_tests::lives::{reborn_at_every, undisturbed};
use corten_tests::process::machine;

use super::MEMORY;

/// Gives back in how many processes the guest lived. Whatever is sent and received fits into pipes.
fn lives(n: Option<u64>, work: &ConsoleWork, settings: &str) -> Result<u64> {
    let mut machine = machine(1, MEMORY);
    machine.console = Some(ConsoleDescription { streams: Vec::new() });
    let (mut shown, output) = std::io::pipe()?;
    let (input, mut typed) = std::io::pipe()?;
    let stream = work.stream();
    typed.write_all(&stream)?;
    let devices = [(Role::terminal(), output.into()), (Role::terminal_input(), input.into())];
    let commands = format!("{work} {settings}");
    let lives = match n {
        Some(n) => reborn_at_every(n, &machine, &commands, &devices)?,
        None => undisturbed(&machine, &commands, &devices)?,
    };
    drop(devices);
    let line = work.console_line();
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    let mut bytes = Vec::new();
    shown.read_to_end(&mut bytes)?;
    ensure!(bytes == stream, "{} bytes were shown, not the {} sent", bytes.len(), stream.len());
    Ok(lives.count)
}

#[test]
fn guest_reborn_at_every_nth_exit_shows_and_reads_as_if_undisturbed() -> Result<()> {
    lives(None, &ConsoleWork { rounds: 64, seed: 1 }, "")?;
    for (n, rounds, settings) in
        [(1, 8, ""), (3, 16, "event_index=0"), (7, 32, ""), (31, 96, "event_index=0")]
    {
        let lives = lives(Some(n), &ConsoleWork { rounds, seed: n }, settings)?;
        ensure!(lives > 4, "only {lives} lives at every {n}");
        eprintln!("at every {n}: {lives} lives");
    }
    Ok(())
}
