//! The agent as whoever keeps a VM has it: behind a port, told when the guest stands still, with a report of it at any time.

use std::os::fd::BorrowedFd;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use corten_link::{AgentReport, MachineDescription};
use nix::poll::PollFlags;

use super::client::GuestAgent;
use super::orders::{Notice, Order};

/// Number of the agent's stream of the console device, if the machine has one.
pub fn port_of(machine: &MachineDescription) -> Option<u32> {
    let streams = &machine.console.as_ref()?.streams;
    let at = streams.iter().position(|stream| stream == super::STREAM)?;
    u32::try_from(at + 1).ok()
}

/// A [`GuestAgent`] with what has to be known around it.
#[derive(Debug)]
pub struct KeptAgent {
    client: GuestAgent,
    port: u32,
    /// Since when the guest stands still.
    paused_at: Option<Instant>,
    connected_at: Option<SystemTime>,
    lost: String,
    clock_set_at: Option<SystemTime>,
}

impl KeptAgent {
    /// That of a guest that boots.
    pub fn new(port: u32, now: Instant) -> Self {
        Self {
            client: GuestAgent::new(now),
            port,
            paused_at: None,
            connected_at: None,
            lost: String::new(),
            clock_set_at: None,
        }
    }

    /// That of a guest that goes on from a snapshot, at once or when it is told to.
    pub fn restored(port: u32, paused: bool, now: Instant) -> Self {
        let mut agent = Self::new(port, now);
        agent.client.restored(now);
        if paused {
            agent.set_paused(true, now);
        }
        agent
    }

    /// Number of its stream.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// What to wait on.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        // A guest that stands still has nothing to say; a hang-up meanwhile is seen when it goes on.
        self.client.fd().filter(|_| self.paused_at.is_none())
    }

    /// What to wait for there.
    pub fn interest(&self) -> PollFlags {
        self.client.interest()
    }

    /// When to call [`Self::turn`] even if nothing is ready.
    pub fn deadline(&self) -> Option<Instant> {
        self.client.deadline()
    }

    /// Does what is ready and due, as [`GuestAgent::turn`], and takes note of what is worth a report.
    pub fn turn(&mut self, now: Instant, ready: PollFlags) -> Vec<Notice> {
        let notices = self.client.turn(now, ready);
        for notice in &notices {
            match notice {
                Notice::Connected => {
                    self.connected_at = Some(SystemTime::now());
                    self.lost.clear();
                }
                Notice::Lost(reason) => {
                    self.connected_at = None;
                    self.lost = reason.to_string();
                }
                Notice::TimeSet(Ok(())) => self.clock_set_at = Some(SystemTime::now()),
                _ => {}
            }
        }
        notices
    }

    /// These streams are open in the guest, as was asked for by [`Notice::LookAtPort`].
    pub fn looked(&mut self, open_ports: &[u32], now: Instant) {
        self.client.port(open_ports.contains(&self.port), now);
    }

    /// Takes an order.
    pub fn order(&mut self, ticket: u64, order: Order) {
        self.client.order(ticket, order);
    }

    /// The guest stands still, or not any more: then its clock is set if it stood for long.
    pub fn set_paused(&mut self, paused: bool, now: Instant) {
        if paused {
            self.paused_at.get_or_insert(now);
            self.client.paused();
        } else {
            let stood = self.paused_at.take().map(|at| now.saturating_duration_since(at));
            self.client.resumed(stood.unwrap_or_default(), now);
        }
    }

    /// The guest was reset.
    pub fn reset(&mut self, now: Instant) {
        self.client.reset(now);
    }

    /// The power button is about to be pressed.
    pub fn stopping(&mut self, now: Instant) {
        self.client.stopping(now);
    }

    /// How it is, and what it told.
    pub fn report(&self) -> AgentReport {
        let seconds = |at: Option<SystemTime>| Some(at?.duration_since(UNIX_EPOCH).ok()?.as_secs());
        AgentReport {
            connected: self.client.is_connected(),
            since: seconds(self.connected_at),
            lost: self.lost.clone(),
            clock_set: seconds(self.clock_set_at),
            guest: self.client.information().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::guest_agent::Outcome;
    use crate::guest_agent::testing::FakeAgent;
    use corten_link::FreezeStatus;

    const PORT: u32 = 1;

    struct Scene {
        agent: KeptAgent,
        guest: FakeAgent,
        now: Instant,
        orders: Vec<Outcome>,
    }

    impl Scene {
        fn new(agent: impl FnOnce(Instant) -> KeptAgent) -> Self {
            let now = Instant::now();
            Self { agent: agent(now), guest: FakeAgent::default(), now, orders: Vec::new() }
        }

        /// Goes on until neither has anything more to say.
        fn settle(&mut self) {
            loop {
                let notices = self.agent.turn(self.now, PollFlags::POLLIN);
                let mut idle = notices.is_empty();
                for notice in notices {
                    match notice {
                        Notice::LookAtPort => self.agent.looked(&[PORT], self.now),
                        Notice::Attach(socket) => self.guest.attach(socket),
                        Notice::Done { outcome, .. } => self.orders.push(outcome.unwrap()),
                        _ => {}
                    }
                }
                idle &= !self.guest.serve();
                if idle {
                    return;
                }
            }
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            self.settle();
        }
    }

    #[test]
    fn report_has_all_that_the_agent_told_and_since_when() {
        let mut scene = Scene::new(|now| KeptAgent::new(PORT, now));
        assert_eq!(scene.agent.report(), AgentReport::default());
        scene.settle();
        let report = scene.agent.report();
        assert!(report.connected && report.since.is_some() && report.lost.is_empty(), "{report:?}");
        assert_eq!(report.guest.os.pretty_name, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(report.guest.host_name, "greeter");
        assert_eq!(report.guest.users[0].user_name, "ada");
        assert_eq!(report.guest.file_systems.disks[0].mount_point, "/");
        assert_eq!(report.guest.interfaces[0].ip_addresses, ["10.0.2.2"]);
        assert_eq!(report.clock_set, None);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<AgentReport>(&text).unwrap(), report);
    }

    #[test]
    fn agent_that_is_gone_is_reported_with_the_reason_and_what_it_told() {
        let mut scene = Scene::new(|now| KeptAgent::new(PORT, now));
        scene.settle();
        scene.agent.looked(&[], scene.now);
        scene.agent.turn(scene.now, PollFlags::empty());
        let report = scene.agent.report();
        assert!(!report.connected && report.since.is_none(), "{report:?}");
        assert_eq!(report.lost, "it closed its port");
        assert_eq!(report.guest.host_name, "greeter");
    }

    #[test]
    fn clock_is_set_after_a_pause_that_was_long_enough_and_not_before() {
        let mut scene = Scene::new(|now| KeptAgent::new(PORT, now));
        scene.settle();
        scene.agent.set_paused(true, scene.now);
        assert!(scene.agent.fd().is_none() && scene.agent.deadline().is_none());
        scene.agent.set_paused(false, scene.now + Duration::from_millis(1));
        scene.pass(1);
        assert_eq!(scene.guest.clock_set, 0);
        scene.agent.set_paused(true, scene.now);
        scene.pass(60);
        assert_eq!(scene.guest.clock_set, 0);
        scene.agent.set_paused(false, scene.now);
        scene.settle();
        assert_eq!(scene.guest.clock_set, 1);
        assert!(scene.agent.report().clock_set.is_some());
    }

    #[test]
    fn restored_guest_has_its_clock_set_and_is_thawed_once_it_goes_on() {
        for paused in [false, true] {
            let mut scene = Scene::new(|now| KeptAgent::restored(PORT, paused, now));
            scene.guest.frozen = true;
            scene.settle();
            if paused {
                // It is left alone meanwhile.
                assert_eq!((scene.guest.frozen, scene.guest.clock_set), (true, 0));
                scene.agent.set_paused(false, scene.now);
                scene.settle();
            }
            assert_eq!((scene.guest.frozen, scene.guest.clock_set), (false, 1), "paused: {paused}");
        }
    }

    #[test]
    fn freeze_is_ordered_shown_and_undone_before_the_power_button() {
        let mut scene = Scene::new(|now| KeptAgent::new(PORT, now));
        scene.settle();
        scene.agent.order(7, Order::Freeze { limit: None });
        scene.settle();
        assert_eq!(scene.orders, [Outcome::Frozen { file_systems: 1 }]);
        assert_eq!(scene.agent.report().guest.freeze, Some(FreezeStatus::Frozen));
        scene.agent.stopping(scene.now);
        scene.settle();
        assert!(!scene.guest.frozen);
        assert_eq!(scene.agent.report().guest.freeze, Some(FreezeStatus::Thawed));
    }

    #[test]
    fn stream_of_the_agent_is_found_by_its_name() {
        let console = |streams: &[&str]| {
            let streams = streams.iter().map(|stream| (*stream).to_owned()).collect();
            let console = Some(corten_link::ConsoleDescription { streams });
            port_of(&MachineDescription { console, ..MachineDescription::default() })
        };
        assert_eq!(console(&[]), None);
        assert_eq!(console(&["other", crate::guest_agent::STREAM]), Some(2));
        assert_eq!(port_of(&MachineDescription::default()), None);
    }
}
