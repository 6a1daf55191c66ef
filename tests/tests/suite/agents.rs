//! The QEMU guest agent of a Linux guest, as the launcher's client of it sees it. These run in a node, in the cage, where
//! `guests` starts them with the TAP `left`.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_launcher::guest_agent::{GuestAgent, LostReason, Notice, Order, Outcome, STREAM};
use corten_link::{ConsoleDescription, FreezeStatus, GuestInformation, Reply, Request, Role};
use corten_tests::guest::{AGENT, PLACE_FOR_AGENT, ScriptedGuest};
use corten_tests::process::VmProcess;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);

/// The first stream behind the terminal.
const PORT: u32 = 1;

/// What happens beside the agent: the clock is said to be right once it is, one loop writes to the disk, and another
/// one only counts.
const BESIDE: &str = r#"
( while [ "$(date +%s)" -lt 1700000000 ]; do sleep 0.2; done; echo "CLOCK IS RIGHT" ) &
( while :; do echo line >/mnt/home/file; echo WROTE; sleep 0.2; done ) &
( while :; do echo TICK; sleep 0.2; done ) &
"#;

fn script() -> String {
    let interfaces = "up eth0 10.77.0.2\nip link set lo up\nscratch=/dev/vdc\n";
    format!("{interfaces}{PLACE_FOR_AGENT}{BESIDE}{AGENT}echo idle >/run/end\n")
}

/// A guest with its process and the client of its agent.
struct Scene {
    process: VmProcess,
    agent: GuestAgent,
    notices: Vec<Notice>,
    ready: PollFlags,
}

impl Scene {
    fn new(process: VmProcess) -> Self {
        let agent = GuestAgent::new(Instant::now());
        Self { process, agent, notices: Vec::new(), ready: PollFlags::empty() }
    }

    /// One round of the loop that a launcher has.
    fn turn(&mut self) -> Result<()> {
        for notice in self.agent.turn(Instant::now(), self.ready) {
            match notice {
                Notice::LookAtPort => {
                    let (Reply::Info { info }, _) = self.process.ask(Request::Info)? else {
                        bail!("no info");
                    };
                    self.agent.port(info.open_ports.contains(&PORT), Instant::now());
                }
                Notice::Attach(socket) => {
                    let given = [(Role::connection(), socket.as_fd())];
                    self.process.must_with(Request::Attach { port: PORT }, &given)?;
                }
                other => self.notices.push(other),
            }
        }
        let left = self.agent.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        // The launcher waits for other things, too; here it is the notice that was just made.
        let left = left.unwrap_or_default().min(Duration::from_millis(100));
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1))?;
        self.ready = PollFlags::empty();
        match self.agent.fd() {
            Some(fd) => {
                let mut list = [PollFd::new(fd, self.agent.interest())];
                poll(&mut list, timeout)?;
                self.ready = list[0].revents().unwrap_or(PollFlags::empty());
            }
            None => std::thread::sleep(left),
        }
        Ok(())
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + BOOT;
        loop {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            let told = &self.notices;
            ensure!(Instant::now() < deadline, "no {what}; {told:?}\n{}", self.process.console());
            let turned = self.turn();
            turned.with_context(|| self.process.console())?;
        }
    }

    /// Waits until enough is known of the guest.
    fn until_known(
        &mut self,
        enough: impl Fn(&GuestInformation) -> bool,
    ) -> Result<GuestInformation> {
        self.until("information", |scene| {
            let information = scene.agent.information();
            enough(information).then(|| information.clone())
        })
    }

    fn until_told(&mut self, what: &str, is_it: impl Fn(&Notice) -> bool) -> Result<Notice> {
        self.until(what, |scene| {
            let at = scene.notices.iter().position(&is_it)?;
            Some(scene.notices.remove(at))
        })
    }

    fn order(&mut self, order: Order) -> Result<Outcome> {
        self.agent.order(4711, order);
        let is_it = |notice: &Notice| matches!(notice, Notice::Done { ticket: 4711, .. });
        match self.until_told("outcome", is_it)? {
            Notice::Done { outcome, .. } => outcome.with_context(|| format!("{order:?}")),
            other => bail!("{other:?}"),
        }
    }

    fn count(&self, text: &str) -> usize {
        self.process.console().matches(text).count()
    }

    /// Lets the guest go on for so many ticks.
    fn ticks(&self, number: usize) -> Result<()> {
        self.process.wait_for("TICK", self.count("TICK") + number, BOOT)
    }
}

fn guest(scratch: &File) -> Result<ScriptedGuest> {
    let guest = ScriptedGuest::new(1, 256, "virtio_console,virtio_net", &script())?;
    let mut guest = guest.disk("scratch", scratch)?.network("left", 1)?;
    guest.machine.console = Some(ConsoleDescription { streams: vec![STREAM.into()] });
    Ok(guest)
}

#[test]
fn guest_is_known_by_its_agent_frozen_thawed_and_set_right_also_after_a_restore() -> Result<()> {
    let scratch = tempfile::tempfile()?;
    scratch.set_len(32 << 20)?;
    let guest = guest(&scratch)?;
    let mut scene = Scene::new(guest.boot()?);

    // What is asked right after the connection.
    let known = scene.until_known(|known| {
        !known.users.is_empty()
            && !known.interfaces.is_empty()
            && !known.file_systems.disks.is_empty()
            && !known.timezone.is_empty()
    })?;
    scene.until_told("connection", |notice| matches!(notice, Notice::Connected))?;
    ensure!(known.os.id == "debian" && known.os.version_id == "12", "{known:?}");
    ensure!(
        known.os.kernel_release.starts_with("6.12.") && known.os.machine == "x86_64",
        "{known:?}"
    );
    ensure!(known.timezone.ends_with(", 0"), "{known:?}");
    ensure!(known.freeze == Some(FreezeStatus::Thawed), "{known:?}");
    ensure!(known.missing_commands().is_empty(), "{:?}", known.missing_commands());
    let interface = known.interfaces.iter().find(|interface| interface.interface_name == "eth0");
    let interface = interface.with_context(|| format!("{known:?}"))?;
    ensure!(
        interface.mac == "02:c0:47:e4:00:00" && interface.ip_address == "10.77.0.2",
        "{known:?}"
    );
    let disk = known.file_systems.disks.iter().find(|disk| disk.mount_point == "/home");
    let disk = disk.with_context(|| format!("{known:?}"))?;
    ensure!(disk.file_system_type == "ext4" && disk.total_bytes > 1 << 20, "{known:?}");

    ensure!(known.users[0].user_name == "person" && known.users[0].login_time == 1e9, "{known:?}");

    // Orders.
    ensure!(scene.order(Order::Ping)? == Outcome::Pong);
    ensure!(scene.count("CLOCK IS RIGHT") == 0, "{}", scene.process.console());
    ensure!(scene.order(Order::SetTime)? == Outcome::TimeSet);
    scene.process.wait_for("CLOCK IS RIGHT", 1, BOOT)?;

    // A freeze: who writes stands still, who does not goes on.
    let outcome = scene.order(Order::Freeze { limit: None })?;
    ensure!(matches!(outcome, Outcome::Frozen { file_systems: 1.. }), "{outcome:?}");
    scene.ticks(2)?;
    let written = scene.count("WROTE");
    scene.ticks(10)?;
    ensure!(scene.count("WROTE") == written, "{}", scene.process.console());
    let outcome = scene.order(Order::Thaw)?;
    ensure!(matches!(outcome, Outcome::Thawed { file_systems: 1.. }), "{outcome:?}");
    scene.process.wait_for("WROTE", written + 2, BOOT)?;

    // A limit ends one, too.
    scene.order(Order::Freeze { limit: Some(Duration::from_secs(1)) })?;
    scene.until_told("thaw", |notice| matches!(notice, Notice::Thawed(Ok(()))))?;

    // A frozen guest in a new process: it is found, thawed, and its clock is set.
    scene.order(Order::Freeze { limit: None })?;
    scene.process = guest.reborn(scene.process)?;
    scene.notices.clear();
    scene.agent.restored(Instant::now());
    scene.until_told("end", |notice| matches!(notice, Notice::Lost(LostReason::Restored)))?;
    scene.until_told("thaw", |notice| matches!(notice, Notice::Thawed(Ok(()))))?;
    scene.until_told("time", |notice| matches!(notice, Notice::TimeSet(Ok(()))))?;
    scene.process.wait_for("WROTE", scene.count("WROTE") + 2, BOOT)?;

    // A pause.
    scene.process.must(Request::Pause)?;
    scene.agent.paused();
    scene.turn()?;
    scene.process.must(Request::Resume)?;
    scene.agent.resumed(Duration::from_secs(1), Instant::now());
    scene.until_told("time", |notice| matches!(notice, Notice::TimeSet(Ok(()))))?;
    Ok(())
}
