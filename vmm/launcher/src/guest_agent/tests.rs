//! A scripted agent behind a socket: it sees each command and answers as the test says. Time is the test's, too.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corten_link::{FreezeStatus, GuestInformation};
use nix::poll::PollFlags;
use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    agent: GuestAgent,
    now: Instant,
    notices: Vec<Notice>,
    /// The guest's end.
    guest: Option<UnixStream>,
}

impl Scene {
    fn new() -> Self {
        let now = Instant::now();
        Self { agent: GuestAgent::new(now), now, notices: Vec::new(), guest: None }
    }

    /// One whose agent was polled for all subjects, and is idle.
    fn connected() -> Self {
        let mut scene = Self::new();
        scene.open_port();
        scene.answer_sync();
        scene.answer("guest-fsfreeze-status", &json!("thawed"));
        scene.introduce();
        scene
    }

    fn introduce(&mut self) {
        let commands = ["guest-ping", "guest-info", "guest-get-users", "guest-set-time"]
            .into_iter()
            .chain(["guest-fsfreeze-freeze", "guest-fsfreeze-thaw", "guest-fsfreeze-status"]);
        let commands: Vec<Value> =
            commands.map(|name| json!({ "name": name, "enabled": true })).collect();
        self.answer("guest-info", &json!({ "version": "10.0.3", "supported_commands": commands }));
    }

    fn open_port(&mut self) {
        self.turn();
        self.agent.port(true, self.now);
        self.turn();
    }

    fn turn(&mut self) {
        let notices = self.agent.turn(self.now, PollFlags::POLLIN);
        for notice in notices {
            match notice {
                Notice::Attach(fd) => {
                    let socket = UnixStream::from(fd);
                    socket.set_nonblocking(true).unwrap();
                    self.guest = Some(socket);
                }
                Notice::LookAtPort => {}
                other => self.notices.push(other),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.turn();
    }

    /// What the guest was sent so far.
    fn received(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = self.guest.as_mut().unwrap().read_to_end(&mut bytes);
        assert!(bytes.is_empty() || end.is_err(), "the port was closed");
        bytes
    }

    /// The only command that waits.
    fn command(&mut self) -> Value {
        let bytes = self.received();
        let line = bytes.strip_suffix(b"\n").expect("one line");
        let line = line.strip_prefix(b"\xff").unwrap_or(line);
        serde_json::from_slice(line).unwrap()
    }

    fn nothing_is_asked(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.received()), "");
    }

    fn say(&mut self, bytes: &[u8]) {
        self.guest.as_mut().unwrap().write_all(bytes).unwrap();
        self.turn();
    }

    /// Sees this command and answers it.
    fn answer(&mut self, command: &str, value: &Value) -> Value {
        let asked = self.command();
        assert_eq!(asked["execute"], command);
        self.say(format!("{}\n", json!({ "return": value })).as_bytes());
        asked
    }

    fn answer_sync(&mut self) {
        let asked = self.command();
        assert_eq!(asked["execute"], "guest-sync-delimited");
        let id = &asked["arguments"]["id"];
        self.say(b"rest of an old answer\n\0");
        let mut bytes = vec![0xff];
        bytes.extend(format!("{{\"return\": {id}}}\n").into_bytes());
        self.say(&bytes);
    }

    fn order(&mut self, ticket: u64, order: Order) {
        self.agent.order(ticket, order);
        self.turn();
    }

    /// The notices so far, as text.
    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices).iter().map(|notice| format!("{notice:?}")).collect()
    }
}

#[test]
fn agent_is_found_synced_and_asked_about_itself_first() {
    let mut scene = Scene::connected();
    assert!(scene.agent.is_connected());
    scene.answer("guest-get-users", &json!([{ "user": "root", "login-time": 1.0 }]));
    scene.nothing_is_asked();
    assert_eq!(scene.told(), ["Connected", "Learned", "Learned", "Learned"]);
    let information = scene.agent.information();
    assert_eq!(information.agent_version, "10.0.3");
    assert_eq!(information.users[0].user_name, "root");
    assert_eq!(information.freeze, Some(FreezeStatus::Thawed));
    assert_eq!(information.missing_commands().len(), 7);
    // The next sign of life.
    scene.pass(10 * SECOND);
    scene.answer("guest-get-users", &json!([]));
    assert_eq!(scene.told(), ["Learned"]);
}

#[test]
fn port_is_looked_at_until_it_opens_and_again_while_open() {
    let now = Instant::now();
    let mut agent = GuestAgent::new(now);
    let looks = |agent: &mut GuestAgent, now| {
        let notices = agent.turn(now, PollFlags::empty());
        notices.iter().any(|notice| matches!(notice, Notice::LookAtPort))
    };
    assert!(looks(&mut agent, now));
    agent.port(false, now);
    assert!(!looks(&mut agent, now + SECOND));
    assert_eq!(agent.deadline(), Some(now + 5 * SECOND));
    assert!(agent.fd().is_none());
    assert!(looks(&mut agent, now + 5 * SECOND));
    agent.port(true, now + 5 * SECOND);
    assert!(agent.fd().is_some());
    assert!(looks(&mut agent, now + 10 * SECOND));
}

#[test]
fn silent_agent_is_lost_synced_again_and_then_given_a_new_socket() {
    let mut scene = Scene::connected();
    scene.order(1, Order::Ping);
    // The poll that is under way is not answered, so the order fails, too.
    scene.command();
    scene.told();
    scene.pass(10 * SECOND);
    let told = scene.told();
    assert!(told[0].contains("NotConnected"), "{told:?}");
    assert!(told[1].starts_with("Lost(Silent { command: \"guest-get-users\""), "{told:?}");
    assert!(!scene.agent.is_connected());
    // The late answer does not confuse.
    scene.say(b"{\"return\": []}\n");
    scene.answer_sync();
    assert_eq!(scene.told(), ["Connected"]);

    scene.command();
    scene.pass(10 * SECOND);
    let first = scene.command();
    assert_eq!(first["execute"], "guest-sync-delimited");
    scene.pass(10 * SECOND);
    assert!(scene.agent.fd().is_none());
    scene.guest = None;
    scene.agent.port(true, scene.now);
    assert!(scene.agent.fd().is_none(), "not at once");
    scene.now += 10 * SECOND;
    scene.open_port();
    // The answer to the sync of before comes first.
    let (old, new) = (&first["arguments"]["id"], scene.command());
    let mut bytes = vec![0xff];
    bytes.extend(format!("{{\"return\": {old}}}\n").into_bytes());
    scene.say(&bytes);
    assert!(!scene.agent.is_connected());
    let mut bytes = vec![0xff];
    bytes.extend(format!("{{\"return\": {}}}\n", new["arguments"]["id"]).into_bytes());
    scene.say(&bytes);
    assert!(scene.agent.is_connected());
}

#[test]
fn garbage_costs_a_rest_and_nothing_is_read_meanwhile() {
    let cases: [&[u8]; 4] =
        [b"garbage\n", b"{\"neither\": 1}\n", b"{\"return\": []}\n{\"return\": []}\n", b"[]\n"];
    for garbage in cases {
        let mut scene = Scene::connected();
        scene.command();
        scene.told();
        scene.say(garbage);
        let told = scene.told();
        assert!(told[0].starts_with("Lost(Garbage("), "{told:?}");
        assert_eq!(scene.agent.interest(), PollFlags::empty());
        scene.say(b"more\n");
        scene.nothing_is_asked();
        assert_eq!(scene.agent.deadline(), Some(scene.now + SECOND));
        scene.pass(SECOND);
        scene.answer_sync();
        assert!(scene.agent.is_connected());
    }
}

#[test]
fn line_without_end_and_flood_in_search_of_a_sync_are_cut_off() {
    let mut scene = Scene::connected();
    scene.command();
    scene.told();
    for _ in 0..(protocol::MAX_LINE / 4096 + 5) {
        scene.say(&[b' '; 4096]);
    }
    let told = scene.told();
    assert!(told[0].contains("longer than"), "{told:?}");
    scene.pass(SECOND);
    scene.command();
    for _ in 0..(protocol::MAX_SKIPPED / 4096 + 5) {
        let _ = scene.guest.as_mut().unwrap().write(&[b'x'; 4096]);
        scene.turn();
    }
    assert_eq!(scene.agent.interest(), PollFlags::empty());
    assert!(!scene.agent.is_connected());
}

#[test]
fn closed_port_and_hang_up_end_the_connection_and_a_new_agent_is_taken() {
    let mut scene = Scene::connected();
    scene.told();
    scene.agent.port(false, scene.now);
    scene.turn();
    assert_eq!(scene.told(), ["Lost(PortClosed)"]);
    scene.pass(5 * SECOND);
    scene.open_port();
    scene.answer_sync();
    assert_eq!(scene.told(), ["Connected"]);
    scene.guest = None;
    scene.turn();
    assert_eq!(scene.told(), ["Lost(HungUp)"]);

    // Also when nothing was asked, and nothing is read therefore.
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.told();
    scene.guest = None;
    let notices = scene.agent.turn(scene.now, PollFlags::POLLHUP);
    assert!(matches!(notices[..], [Notice::Lost(LostReason::HungUp)]), "{notices:?}");
}

#[test]
fn orders_come_before_polls_and_tell_their_outcome() {
    let mut scene = Scene::connected();
    scene.told();
    scene.order(7, Order::Ping);
    scene.order(8, Order::SetTime);
    scene.answer("guest-get-users", &json!([]));
    scene.answer("guest-ping", &json!({}));
    let before = nanoseconds();
    let asked = scene.answer("guest-set-time", &json!({}));
    let set = asked["arguments"]["time"].as_u64().unwrap();
    assert!(set <= before && before - set < 60_000_000_000, "{set} {before}");
    let expected =
        ["Done { ticket: 7, outcome: Ok(Pong) }", "Done { ticket: 8, outcome: Ok(TimeSet) }"];
    assert_eq!(scene.told(), expected);
}

fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_nanos().try_into().unwrap()
}

#[test]
fn orders_to_nobody_and_too_many_orders_are_refused_at_once() {
    let mut scene = Scene::new();
    scene.order(1, Order::Ping);
    assert_eq!(scene.told(), ["Done { ticket: 1, outcome: Err(NotConnected) }"]);
    let mut scene = Scene::connected();
    scene.told();
    for ticket in 0..20 {
        scene.order(ticket, Order::Ping);
    }
    let told = scene.told();
    assert_eq!(told.len(), 4);
    assert_eq!(told[0], "Done { ticket: 16, outcome: Err(Busy) }");
}

#[test]
fn errors_of_the_agent_reach_whoever_ordered() {
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.told();
    scene.order(1, Order::SetTime);
    scene.command();
    scene.say(b"{\"error\": {\"class\": \"GenericError\", \"desc\": \"no clock\\nat all\"}}\n");
    let Some(Notice::Done { ticket: 1, outcome: Err(error) }) = scene.notices.pop() else {
        unreachable!()
    };
    assert_eq!(crate::log::chain(&error), "guest-set-time failed: the agent says: no clockat all");
    assert!(scene.agent.is_connected());
}

#[test]
fn freeze_ends_by_its_limit_and_polls_wait() {
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.told();
    scene.order(1, Order::Freeze { limit: Some(12 * SECOND) });
    scene.answer("guest-fsfreeze-freeze", &json!(3));
    let expected = ["Learned", "Done { ticket: 1, outcome: Ok(Frozen { file_systems: 3 }) }"];
    assert_eq!(scene.told(), expected);
    // What an agent refuses then is not asked of it.
    scene.order(2, Order::SetTime);
    assert_eq!(scene.told(), ["Done { ticket: 2, outcome: Err(Frozen) }"]);
    scene.pass(5 * SECOND);
    scene.answer("guest-fsfreeze-status", &json!("frozen"));
    scene.pass(5 * SECOND);
    scene.answer("guest-fsfreeze-status", &json!("frozen"));
    assert_eq!(scene.agent.deadline(), Some(scene.now + 2 * SECOND));
    scene.pass(2 * SECOND);
    scene.answer("guest-fsfreeze-thaw", &json!(3));
    assert_eq!(scene.told(), ["Learned", "Thawed(Ok(()))"]);
    // It said that its commands were disabled, if it was asked then; so it is asked again.
    scene.introduce();
    scene.answer("guest-get-users", &json!([]));
}

#[test]
fn second_freeze_moves_the_limit_and_thaw_is_always_possible() {
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.order(1, Order::Freeze { limit: Some(5 * SECOND) });
    scene.answer("guest-fsfreeze-freeze", &json!(1));
    scene.told();
    scene.order(2, Order::Freeze { limit: None });
    scene.nothing_is_asked();
    assert_eq!(scene.told(), ["Done { ticket: 2, outcome: Ok(Frozen { file_systems: 0 }) }"]);
    scene.pass(5 * SECOND);
    scene.answer("guest-fsfreeze-status", &json!("frozen"));
    scene.order(3, Order::Thaw);
    scene.answer("guest-fsfreeze-thaw", &json!(1));
    assert_eq!(
        scene.told().last().unwrap(),
        "Done { ticket: 3, outcome: Ok(Thawed { file_systems: 1 }) }"
    );
    scene.introduce();
    scene.command();
    scene.say(b"{\"return\": []}\n");
    scene.order(4, Order::Thaw);
    scene.answer("guest-fsfreeze-thaw", &json!(0));
    assert_eq!(
        scene.told().last().unwrap(),
        "Done { ticket: 4, outcome: Ok(Thawed { file_systems: 0 }) }"
    );
}

#[test]
fn freeze_whose_answer_was_not_seen_is_undone() {
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.told();
    scene.order(1, Order::Freeze { limit: None });
    scene.command();
    scene.pass(60 * SECOND);
    let told = scene.told();
    assert!(told[0].starts_with("Done { ticket: 1, outcome: Err(Lost(Silent"), "{told:?}");
    scene.answer_sync();
    scene.answer("guest-fsfreeze-status", &json!("frozen"));
    scene.answer("guest-fsfreeze-thaw", &json!(1));
    assert_eq!(scene.agent.information().freeze, Some(FreezeStatus::Thawed));
}

#[test]
fn thaw_that_fails_is_tried_again() {
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.order(1, Order::Freeze { limit: Some(SECOND) });
    scene.answer("guest-fsfreeze-freeze", &json!(1));
    scene.told();
    scene.pass(SECOND);
    scene.command();
    scene.say(b"{\"error\": {\"class\": \"GenericError\", \"desc\": \"busy\"}}\n");
    assert!(scene.told()[0].starts_with("Thawed(Err("));
    scene.pass(10 * SECOND);
    scene.answer("guest-fsfreeze-thaw", &json!(1));
    assert_eq!(scene.told(), ["Learned", "Thawed(Ok(()))"]);
}

#[test]
fn found_freeze_is_thawed_at_once_after_a_restore_and_then_the_clock_is_set() {
    let mut scene = Scene::new();
    scene.agent.restored(scene.now);
    scene.open_port();
    scene.answer_sync();
    scene.answer("guest-fsfreeze-status", &json!("frozen"));
    scene.answer("guest-fsfreeze-thaw", &json!(2));
    scene.introduce();
    scene.answer("guest-set-time", &json!({}));
    assert!(scene.told().contains(&"TimeSet(Ok(()))".into()));
}

#[test]
fn found_freeze_without_a_restore_gets_the_usual_limit_and_a_stop_ends_it() {
    let mut scene = Scene::new();
    scene.open_port();
    scene.answer_sync();
    scene.answer("guest-fsfreeze-status", &json!("frozen"));
    scene.nothing_is_asked();
    scene.agent.stopping(scene.now);
    scene.turn();
    scene.answer("guest-fsfreeze-thaw", &json!(2));
}

#[test]
fn pause_is_no_silence_and_the_clock_is_set_after_a_long_one() {
    let mut scene = Scene::connected();
    scene.told();
    scene.agent.paused();
    assert_eq!(scene.agent.deadline(), None);
    scene.pass(60 * SECOND);
    scene.order(1, Order::Ping);
    assert_eq!(scene.told(), ["Done { ticket: 1, outcome: Err(Paused) }"]);
    scene.agent.resumed(60 * SECOND, scene.now);
    scene.turn();
    // The poll of before the pause.
    scene.answer("guest-get-users", &json!([]));
    scene.answer("guest-set-time", &json!({}));
    assert_eq!(scene.told(), ["TimeSet(Ok(()))"]);
    scene.answer("guest-get-users", &json!([]));
    scene.agent.paused();
    scene.agent.resumed(Duration::from_millis(20), scene.now);
    scene.turn();
    scene.pass(10 * SECOND);
    scene.answer("guest-get-users", &json!([]));
}

#[test]
fn clock_waits_for_a_thaw() {
    let mut scene = Scene::connected();
    scene.answer("guest-get-users", &json!([]));
    scene.order(1, Order::Freeze { limit: None });
    scene.answer("guest-fsfreeze-freeze", &json!(1));
    scene.agent.paused();
    scene.agent.resumed(SECOND, scene.now);
    scene.turn();
    scene.nothing_is_asked();
    scene.order(2, Order::Thaw);
    scene.answer("guest-fsfreeze-thaw", &json!(1));
    scene.introduce();
    scene.answer("guest-set-time", &json!({}));
}

#[test]
fn reset_forgets_all() {
    let mut scene = Scene::connected();
    scene.told();
    scene.agent.reset(scene.now);
    scene.turn();
    assert_eq!(scene.told(), ["Lost(Reset)", "Learned"]);
    assert_eq!(*scene.agent.information(), GuestInformation::default());
    scene.open_port();
    scene.answer_sync();
    scene.answer("guest-fsfreeze-status", &json!("thawed"));
    scene.introduce();
}

#[test]
fn agent_that_does_not_know_freezing_is_not_asked_to() {
    let mut scene = Scene::new();
    scene.open_port();
    scene.answer_sync();
    scene.command();
    scene.say(b"{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"unknown\"}}\n");
    let commands = json!([{ "name": "guest-ping", "enabled": true }, { "name": "guest-fsfreeze-freeze", "enabled": false }]);
    scene.answer("guest-info", &json!({ "version": "1", "supported_commands": commands }));
    scene.answer("guest-ping", &json!({}));
    scene.told();
    scene.order(1, Order::Freeze { limit: None });
    assert_eq!(
        scene.told(),
        ["Done { ticket: 1, outcome: Err(Unsupported(\"guest-fsfreeze-freeze\")) }"]
    );
}

#[test]
fn agent_that_does_not_read_is_not_written_to_without_end() {
    let mut scene = Scene::connected();
    for _ in 0..50 {
        scene.pass(10 * SECOND);
        scene.agent.port(true, scene.now);
    }
    let mut bytes = Vec::new();
    let _ = scene.guest.as_mut().unwrap().read_to_end(&mut bytes);
    // One sync for each socket.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert_eq!(text.matches("guest-sync-delimited").count(), 1, "{text}");
}

proptest::proptest! {
    /// Whatever comes, in whatever pieces: there is no panic, bounds hold, and a good sync is found in the end.
    #[test]
    fn any_bytes_before_a_sync_are_skipped(noise in proptest::collection::vec(0_u8..=255, 0..2000), piece in 1_usize..64) {
        let mut inbox = Inbox::default();
        inbox.begin_sync();
        let mut bytes = noise;
        bytes.extend(b"\xff{\"return\": 4711}\n");
        let mut found = None;
        for piece in bytes.chunks(piece) {
            inbox.push(piece);
            while let Some(id) = inbox.sync().unwrap() {
                found = Some(id);
            }
        }
        proptest::prop_assert_eq!(found, Some(4711));
        proptest::prop_assert!(inbox.is_empty());
    }

    #[test]
    fn any_text_is_an_answer_or_an_error(text in "\\PC*", which in 0_usize..Command::PLAIN.len()) {
        let _ = Command::PLAIN[which].decode(text.as_bytes());
        let quoted = json!({ "return": text }).to_string();
        let _ = Command::PLAIN[which].decode(quoted.as_bytes());
    }
}
