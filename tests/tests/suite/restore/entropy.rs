//! Random numbers.

use anyhow::{Result, ensure};
use corten_link::{EntropyHost, MachineDescription};
use corten_microguest::EntropyWork;
use corten_tests::lives::{Lives, reborn_at_every, undisturbed};
use corten_tests::process::machine;

use super::MEMORY;

fn with_entropy() -> MachineDescription {
    MachineDescription { entropy: Some(EntropyHost::default()), ..machine(1, MEMORY) }
}

fn check(work: &EntropyWork, lives: &Lives) -> Result<()> {
    let line = work.console_line();
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    Ok(())
}

#[test]
fn guest_reborn_at_every_nth_exit_gets_its_random_numbers_as_if_undisturbed() -> Result<()> {
    let work = EntropyWork { rounds: 64, seed: 1 };
    check(&work, &undisturbed(&with_entropy(), &work.to_string(), &[])?)?;
    for (n, rounds, event_index) in [(1, 8, 1), (3, 16, 0), (7, 32, 1), (31, 96, 0)] {
        let work = EntropyWork { rounds, seed: n };
        let commands = format!("{work} event_index={event_index}");
        let lives = reborn_at_every(n, &with_entropy(), &commands, &[])?;
        check(&work, &lives)?;
        ensure!(lives.count > 4, "only {} lives at every {n}", lives.count);
        eprintln!("at every {n}: {} lives", lives.count);
    }
    Ok(())
}
