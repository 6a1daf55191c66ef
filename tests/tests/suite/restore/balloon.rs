//! The balloon.

use anyhow::{Result, bail, ensure};
use corten_link::{BalloonDescription, MachineDescription, Reply, Request};
use corten_microguest::BalloonWork;
use corten_tests::lives::{Companion, Lives, Stops, reborn_in_company};
use corten_tests::process::{VmProcess, machine};

use super::MEMORY;

/// Asks the guest how it uses its memory.
#[derive(Default)]
struct Host {
    was_told_how_often: bool,
    /// What it said it has, at each stop.
    said: Vec<u64>,
}

impl Companion for Host {
    /// How often it is asked goes with the machine.
    fn born(&mut self, process: &mut VmProcess) -> Result<()> {
        if !std::mem::replace(&mut self.was_told_how_often, true) {
            process.must(Request::PollMemory { seconds: 1 })?;
        }
        Ok(())
    }

    fn stopped(&mut self, process: &mut VmProcess) -> Result<()> {
        let (Reply::Memory { memory }, _) = process.ask(Request::Memory)? else {
            bail!("the process does not say how memory is used")
        };
        // What it said before it was loaded is forgotten.
        if let Some(guest) = memory.guest {
            let total = guest.total.unwrap_or_default();
            ensure!(guest.free == Some(BalloonWork::free_of(total)), "{guest:?}");
            self.said.push(total);
        }
        Ok(())
    }
}

fn lives(stops: Stops, work: &BalloonWork, event_index: u8) -> Result<(Lives, Vec<u64>)> {
    let balloon = BalloonDescription { deflate_on_oom: false, reporting: true };
    let machine = MachineDescription { balloon: Some(balloon), ..machine(1, MEMORY) };
    let commands = format!("{work} event_index={event_index}");
    let mut host = Host::default();
    let lives = reborn_in_company(stops, &machine, &commands, &[], &mut host)?;
    let line = work.console_line();
    ensure!(lives.console.contains(&line), "not {line:?} on the console: {lives:?}");
    Ok((lives, host.said))
}

#[test]
fn guest_reborn_at_every_nth_exit_gives_pages_and_takes_them_as_if_undisturbed() -> Result<()> {
    lives(Stops::NONE, &BalloonWork { rounds: 64, seed: 1, asked: 1 }, 1)?;
    for (n, rounds, event_index) in [(1, 8, 1), (3, 16, 0), (7, 32, 1), (31, 96, 0)] {
        let work = BalloonWork { rounds, seed: n, asked: 2 };
        let (lives, said) = lives(Stops::at_every(n), &work, event_index)?;
        let count = lives.count;
        ensure!(count > 4, "only {count} lives at every {n}");
        ensure!(said.is_sorted() && said.last() >= Some(&1), "it said {said:?}");
        eprintln!("at every {n}: {count} lives, which said {said:?}");
    }
    Ok(())
}
