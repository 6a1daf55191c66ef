//! The balloon.

use anyhow::{Result, ensure};
use corten_link::{BalloonDescription, MachineDescription};
use corten_microguest::BalloonWork;
use corten_tests::lives::{Lives, reborn_at_every, undisturbed};
use corten_tests::process::machine;

use super::MEMORY;

fn with_balloon() -> MachineDescription {
    let balloon = BalloonDescription { deflate_on_oom: false, reporting: false };
    MachineDescription { balloon: Some(balloon), ..machine(1, MEMORY) }
}

fn check(work: &BalloonWork, lives: &Lives) -> Result<()> {
    let line = work.console_line();
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    Ok(())
}

#[test]
fn guest_reborn_at_every_nth_exit_gives_pages_and_takes_them_as_if_undisturbed() -> Result<()> {
    let work = BalloonWork { rounds: 64, seed: 1 };
    check(&work, &undisturbed(&with_balloon(), &work.to_string(), &[])?)?;
    for (n, rounds, event_index) in [(1, 8, 1), (3, 16, 0), (7, 32, 1), (31, 96, 0)] {
        let work = BalloonWork { rounds, seed: n };
        let commands = format!("{work} event_index={event_index}");
        let lives = reborn_at_every(n, &with_balloon(), &commands, &[])?;
        check(&work, &lives)?;
        ensure!(lives.count > 4, "only {} lives at every {n}", lives.count);
        eprintln!("at every {n}: {} lives", lives.count);
    }
    Ok(())
}
