//! Corten's VM process with a guest that does everything wrong with one device of any kind, while its neighbour, a disk, works
//! on.
//!
//! What fails for a seed fails for it again: the guest draws its attacks from that alone.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corten_devices::testing::in_new_network;
use corten_link::{
    BalloonDescription, ConsoleDescription, Counters, DiskDescription, DiskEngine, DiskHost,
    EndReason, EntropyHost, Event, MachineDescription, NetworkDescription, NetworkHost, Rate,
    Reply, Request, Role, RunState, VsockDescription,
};
use corten_microguest::HostileWork;
use corten_net::Tap;
use corten_tests::exit_stop::{Stopped, resume_for_exits};
use corten_tests::process::{VmProcess, disk, grants_of, machine};
use corten_tests::vmm::microguest;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;
const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";
/// How often the guest is stopped and looked at.
const STOPS: u64 = 12;
/// What the process may take beside its guest's memory, in KiB. Idle it takes about a third.
const MOST_MEMORY: u64 = 8 << 10;

/// A machine with its neighbour's disk and the one that is attacked.
struct Machine {
    cpus: u16,
    work: HostileWork,
    host: DiskHost,
    queues: u16,
    neighbour: File,
    victim: File,
}

impl Machine {
    fn new(work: HostileWork, host: DiskHost, queues: u16) -> Result<Self> {
        let file = |name, size| -> Result<File> {
            let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
            file.set_len(size)?;
            Ok(file)
        };
        let (neighbour, victim) = (file("neighbour", HostileWork::SIZE)?, file("victim", 1 << 20)?);
        Ok(Self { cpus: 1, work, host, queues, neighbour, victim })
    }

    fn disks(&self) -> [(&str, &File); 2] {
        [("neighbour", &self.neighbour), ("victim", &self.victim)]
    }

    fn start(&self) -> Result<VmProcess> {
        let neighbour_host = DiskHost { engine: self.host.engine, ..DiskHost::default() };
        let mut machine = machine(self.cpus, MEMORY);
        machine.disks = vec![
            DiskDescription { host: neighbour_host, ..disk("neighbour") },
            DiskDescription { host: self.host.clone(), queues: self.queues, ..disk("victim") },
        ];
        let source = microguest(&format!("{} cpus={} {POWER_OFF}", self.work, self.cpus))?;
        VmProcess::boot_machine(machine, source, &self.disks())
    }

    /// Sees the guest to its end, and checks what its neighbour found and left.
    fn finish(&self, mut process: VmProcess, before: &str) -> Result<()> {
        let event = process.next_event(SOON)?;
        let console = before.to_owned() + &process.end_now()?;
        ensure!(
            matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
            "{event:?}\n{console}"
        );
        let mut expected = vec![0; usize::try_from(HostileWork::SIZE)?];
        let line = self.work.console_line(self.work.apply(&mut expected));
        ensure!(console.contains(&line), "not {line:?} on the console:\n{console}");
        let mut found = vec![0; expected.len()];
        self.neighbour.read_exact_at(&mut found, 0)?;
        ensure!(found == expected, "the neighbour's disk is not as it left it");
        Ok(())
    }

    fn named(&self) -> String {
        format!("{} on {:?} with {} queues", self.work, self.host, self.queues)
    }
}

fn on(engine: DiskEngine) -> DiskHost {
    DiskHost { engine, ..DiskHost::default() }
}

/// Few enough requests a second that queues are stopped for them.
fn limited() -> DiskHost {
    DiskHost { requests: Some(Rate { per_second: 100, burst: 10 }), ..on(DiskEngine::Pool) }
}

fn undisturbed(work: HostileWork, host: DiskHost, queues: u16) -> Result<()> {
    let machine = Machine::new(work, host, queues)?;
    let outcome = machine.start().and_then(|process| machine.finish(process, ""));
    outcome.with_context(|| machine.named())
}

#[test]
fn neighbour_goes_on_and_the_device_works_again() -> Result<()> {
    for (seed, host, queues) in [
        (1, on(DiskEngine::Ring), 1),
        (2, limited(), 1),
        (3, on(DiskEngine::Ring), 4),
        (4, on(DiskEngine::Pool), 3),
    ] {
        undisturbed(HostileWork { rounds: 16, steps: 16, seed }, host, queues)?;
    }
    Ok(())
}

/// The second one attacks the device all the time, also while the first sets it up: nothing has its turn.
fn with_two_cpus(work: HostileWork, host: DiskHost) -> Result<()> {
    let machine = Machine { cpus: 2, ..Machine::new(work, host, 2)? };
    let outcome = machine.start().and_then(|process| machine.finish(process, ""));
    outcome.with_context(|| machine.named())
}

#[test]
fn neighbour_goes_on_while_two_cpus_attack() -> Result<()> {
    for (seed, engine) in [(8, DiskEngine::Ring), (9, DiskEngine::Pool)] {
        with_two_cpus(HostileWork { rounds: 8, steps: 16, seed }, on(engine))?;
    }
    Ok(())
}

/// A kind of device other than a disk, that is attacked.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Network,
    Console,
    Entropy,
    Balloon,
    Vsock,
}

/// What is at the other end of it, until the guest has ended.
type OtherEnds = Vec<OwnedFd>;

impl Victim {
    /// Adds it to a machine: what it is made of, and what is at the other end.
    fn add(self, machine: &mut MachineDescription) -> Result<(Vec<(Role, OwnedFd)>, OtherEnds)> {
        match self {
            Self::Network => {
                machine.networks = vec![NetworkDescription {
                    name: "victim".into(),
                    mac: [2, 0, 0, 0, 0, 1],
                    mtu: None,
                    pairs: 2,
                    host: NetworkHost::default(),
                }];
                let queues = (0..).zip(Tap::create("tap0", 2)?.into_queues());
                let role = |(number, queue)| Ok((Role::tap("victim", number)?, queue));
                return Ok((queues.map(role).collect::<Result<_>>()?, Vec::new()));
            }
            Self::Console => {
                machine.console = Some(ConsoleDescription { streams: vec!["stream".into()] });
                // What is shown is not read: once it is full, the device has to wait.
                let (shown, output) = std::io::pipe()?;
                let (ours, theirs) = UnixStream::pair()?;
                let granted =
                    vec![(Role::terminal(), output.into()), (Role::port(1), theirs.into())];
                return Ok((granted, vec![shown.into(), ours.into()]));
            }
            Self::Entropy => machine.entropy = Some(EntropyHost::default()),
            Self::Balloon => {
                machine.balloon =
                    Some(BalloonDescription { deflate_on_oom: true, reporting: true });
            }
            Self::Vsock => machine.vsock = Some(VsockDescription { guest_cid: 3 }),
        }
        Ok((Vec::new(), Vec::new()))
    }

    /// Attacks it beside a disk on the same worker, if there is one vCPU.
    fn attack(self, work: HostileWork, cpus: u16) -> Result<()> {
        let host = on(DiskEngine::Auto);
        let hostile = Machine { cpus, ..Machine::new(work, host.clone(), 1)? };
        let mut machine = machine(cpus, MEMORY);
        machine.disks = vec![DiskDescription { host, ..disk("neighbour") }];
        let (mut granted, _ends) = self.add(&mut machine)?;
        granted.extend(grants_of(&[("neighbour", &hostile.neighbour)])?);
        let source = microguest(&format!("{work} cpus={cpus} {POWER_OFF}"))?;
        let process = VmProcess::boot_granted(machine, source, granted);
        let outcome = process.and_then(|process| hostile.finish(process, ""));
        outcome.with_context(|| format!("{work} on {self:?} with {cpus} CPUs"))
    }
}

fn attacked(victim: Victim, seeds: Range<u64>, rounds: u64) -> Result<()> {
    for seed in seeds {
        victim.attack(HostileWork { rounds, steps: 16, seed }, 1)?;
        victim.attack(HostileWork { rounds, steps: 16, seed }, 2)?;
    }
    Ok(())
}

#[test]
fn disk_goes_on_while_its_neighbours_are_attacked() -> Result<()> {
    for victim in [Victim::Console, Victim::Entropy, Victim::Balloon, Victim::Vsock] {
        attacked(victim, 0x20..0x22, 12)?;
    }
    Ok(())
}

#[test]
fn disk_goes_on_while_an_interface_is_attacked() {
    in_new_network(|| attacked(Victim::Network, 0x20..0x22, 12).expect("the disk goes on"));
}

#[test]
fn long_disk_goes_on_while_its_neighbours_are_attacked_with_many_seeds() {
    in_new_network(|| {
        for victim in
            [Victim::Network, Victim::Console, Victim::Entropy, Victim::Balloon, Victim::Vsock]
        {
            attacked(victim, 0x300..0x310, 32).expect("the disk goes on");
        }
    });
}

/// Lets a paused guest run for a moment, in which the process is asked this and that.
fn ask_in_between(process: &mut VmProcess) -> Result<Counters> {
    let requests = [Request::Resume, Request::Info, Request::Counters, Request::Pause];
    let ids = requests.map(|request| process.send(request));
    let [resumed, info, counters, paused] = ids;
    process.must_reply(resumed?)?;
    let (Reply::Info { info }, _) = process.reply_to(info?)? else { bail!("no info") };
    ensure!(info.state == RunState::Running && info.resets == 0, "{info:?}");
    let (Reply::Counters { counters }, _) = process.reply_to(counters?)? else {
        bail!("no counters")
    };
    process.must_reply(paused?)?;
    Ok(counters)
}

#[test]
fn control_is_answered_and_nothing_grows() -> Result<()> {
    let work = HostileWork { rounds: 32, steps: 16, seed: 5 };
    let machine = Machine::new(work, on(DiskEngine::Auto), 2)?;
    let mut process = machine.start()?;
    process.must(Request::Pause)?;
    let descriptors = process.open_descriptors()?;
    for stop in 0..STOPS {
        let stopped = resume_for_exits(&mut process, 0, 500)?;
        ensure!(stopped == Stopped::AtExit, "ended before stop {stop}");
        process.must(Request::Save)?;
        ask_in_between(&mut process)?;
        let (memory, open) = (process.own_memory()?, process.open_descriptors()?);
        ensure!(memory < MOST_MEMORY, "{memory} KiB at stop {stop}");
        // Those of the answer may not be closed yet.
        ensure!(open <= descriptors + 4, "{open} descriptors, {descriptors} before");
    }
    let counters = ask_in_between(&mut process)?;
    let victim = counters.disks.get("victim").context("no counters of the disk")?;
    ensure!(victim.bad_requests > 0 && victim.reads > 0 && victim.writes > 0, "{victim:?}");
    process.must(Request::Resume)?;
    machine.finish(process, "")
}

/// Stops the guest at every `n`-th exit, saves it, and goes on in a new process. Gives back in how many it lived.
fn reborn_at_every(n: u64, work: HostileWork, queues: u16) -> Result<u64> {
    let machine = Machine::new(work, on(DiskEngine::Auto), queues)?;
    let mut process = machine.start()?;
    process.must(Request::Pause)?;
    let (mut console, mut lives) = (String::new(), 1);
    loop {
        let life = || format!("life {lives} of {}", machine.named());
        let stopped = resume_for_exits(&mut process, 0, n).with_context(life)?;
        // Its last exit may have been the one that ended it.
        let saved = match stopped {
            Stopped::AtExit => process.must(Request::Save).ok(),
            Stopped::Ended => None,
        };
        let Some(saved) = saved else { break };
        console += &process.end_now()?;
        process = VmProcess::load_with_disks(saved, &machine.disks()).with_context(life)?;
        process.ask(Request::Info)?;
        lives += 1;
    }
    machine.finish(process, &console).with_context(|| machine.named())?;
    Ok(lives)
}

#[test]
fn hostile_guest_goes_on_in_new_processes() -> Result<()> {
    for (n, seed, queues) in [(331, 6, 1), (997, 7, 4)] {
        let lives = reborn_at_every(n, HostileWork { rounds: 16, steps: 16, seed }, queues)?;
        ensure!(lives > 3, "only {lives} lives at every {n}");
    }
    Ok(())
}

#[test]
fn long_neighbour_goes_on_for_many_seeds() -> Result<()> {
    for seed in 0x100..0x120 {
        for (host, queues) in [(on(DiskEngine::Ring), 4), (on(DiskEngine::Pool), 2)] {
            undisturbed(HostileWork { rounds: 32, steps: 32, seed }, host, queues)?;
        }
    }
    Ok(())
}

#[test]
fn long_neighbour_goes_on_while_two_cpus_attack() -> Result<()> {
    for seed in 0x180..0x190 {
        for engine in [DiskEngine::Ring, DiskEngine::Pool] {
            with_two_cpus(HostileWork { rounds: 16, steps: 16, seed }, on(engine))?;
        }
    }
    Ok(())
}

#[test]
fn long_hostile_guest_goes_on_in_many_new_processes() -> Result<()> {
    for seed in 0x200..0x210 {
        reborn_at_every(101 + seed, HostileWork { rounds: 32, steps: 16, seed }, 3)?;
    }
    Ok(())
}
