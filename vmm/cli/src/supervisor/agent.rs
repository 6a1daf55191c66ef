//! The guest's agent, and clients that wait for what they ordered of it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use corten_launcher::guest_agent::{KeptAgent, Notice, Order, Outcome};
use corten_launcher::log::chain;
use nix::poll::PollFlags;

use crate::protocol::Answer;

/// The agent of one VM.
pub(super) struct Agent {
    pub(super) kept: KeptAgent,
    /// Client and question, by the ticket of the order.
    waiting: BTreeMap<u64, (u64, u64)>,
    last_ticket: u64,
}

/// What the supervisor has to do for it.
#[derive(Debug)]
pub(super) enum Wish {
    /// Ask the VM process which streams are open.
    Look,
    /// Attach this to its port.
    Attach { port: u32, socket: OwnedFd },
    /// It answers.
    Connected,
    /// Write it down.
    Say(String),
    /// Answer a client.
    Answer { client: u64, id: u64, answer: Answer },
}

impl Agent {
    pub(super) fn new(kept: KeptAgent) -> Self {
        Self { kept, waiting: BTreeMap::new(), last_ticket: 0 }
    }

    /// Orders something for a client; [`Wish::Answer`] tells what came of it.
    pub(super) fn order(&mut self, (client, id): (u64, u64), order: Order) {
        self.last_ticket += 1;
        self.waiting.insert(self.last_ticket, (client, id));
        self.kept.order(self.last_ticket, order);
    }

    /// Does what is ready and due.
    pub(super) fn turn(&mut self, now: Instant, ready: PollFlags) -> Vec<Wish> {
        let notices = self.kept.turn(now, ready);
        notices.into_iter().filter_map(|notice| self.wish(notice)).collect()
    }

    fn wish(&mut self, notice: Notice) -> Option<Wish> {
        Some(match notice {
            Notice::LookAtPort => Wish::Look,
            Notice::Attach(socket) => Wish::Attach { port: self.kept.port(), socket },
            Notice::Connected => Wish::Connected,
            Notice::Lost(reason) => Wish::Say(format!("the guest's agent is gone: {reason}")),
            Notice::TimeSet(Ok(())) => Wish::Say("the guest's clock was set".into()),
            Notice::TimeSet(Err(error)) => {
                Wish::Say(format!("the guest's clock was not set: {}", chain(&error)))
            }
            Notice::Thawed(Ok(())) => Wish::Say("the guest's file systems were thawed".into()),
            Notice::Thawed(Err(error)) => {
                Wish::Say(format!("file systems were not thawed: {}", chain(&error)))
            }
            // It is there for whoever asks.
            Notice::Learned => return None,
            Notice::Done { ticket, outcome } => {
                let (client, id) = self.waiting.remove(&ticket)?;
                let answer = match outcome {
                    Ok(Outcome::Frozen { file_systems } | Outcome::Thawed { file_systems }) => {
                        Answer::FileSystems { count: file_systems }
                    }
                    Ok(Outcome::Pong | Outcome::TimeSet) => Answer::Done,
                    Err(error) => Answer::Refused { reason: chain(&error) },
                };
                Wish::Answer { client, id, answer }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use corten_launcher::guest_agent::testing::FakeAgent;

    use super::*;

    const PORT: u32 = 1;

    struct Scene {
        agent: Agent,
        guest: FakeAgent,
        now: Instant,
        answers: Vec<(u64, u64, Answer)>,
        said: Vec<String>,
    }

    impl Scene {
        fn new(kept: impl FnOnce(Instant) -> KeptAgent) -> Self {
            let now = Instant::now();
            let (agent, guest) = (Agent::new(kept(now)), FakeAgent::default());
            Self { agent, guest, now, answers: Vec::new(), said: Vec::new() }
        }

        /// Does what a supervisor does, until nobody wants anything more.
        fn settle(&mut self) {
            loop {
                let wishes = self.agent.turn(self.now, PollFlags::POLLIN);
                let wanted = !wishes.is_empty();
                for wish in wishes {
                    match wish {
                        Wish::Look => self.agent.kept.looked(&[PORT], self.now),
                        Wish::Attach { port: PORT, socket } => self.guest.attach(socket),
                        Wish::Attach { port, .. } => panic!("{port} is another port"),
                        Wish::Connected => self.said.push("connected".into()),
                        Wish::Say(text) => self.said.push(text),
                        Wish::Answer { client, id, answer } => {
                            self.answers.push((client, id, answer));
                        }
                    }
                }
                if !self.guest.serve() && !wanted {
                    return;
                }
            }
        }
    }

    #[test]
    fn client_that_orders_a_freeze_is_told_what_came_of_it_and_no_other_is() {
        let mut scene = Scene::new(|now| KeptAgent::new(PORT, now));
        scene.settle();
        assert_eq!(scene.said, ["connected"]);
        scene.agent.order((3, 7), Order::Freeze { limit: None });
        scene.agent.order((4, 1), Order::Thaw);
        scene.settle();
        let done = Answer::FileSystems { count: 1 };
        assert_eq!(scene.answers, [(3, 7, done.clone()), (4, 1, done)]);
        assert!(!scene.guest.frozen);
    }

    #[test]
    fn order_to_an_agent_that_is_not_there_is_refused_with_what_to_do() {
        let mut scene = Scene::new(|now| KeptAgent::new(PORT, now));
        scene.agent.order((3, 7), Order::Thaw);
        scene.settle();
        let Some((3, 7, Answer::Refused { reason })) = scene.answers.pop() else {
            panic!("{:?}", scene.answers)
        };
        assert!(reason.contains("is it installed and running in the guest?"), "{reason}");
    }

    #[test]
    fn restored_guest_has_its_clock_set_which_is_written_down() {
        let mut scene = Scene::new(|now| KeptAgent::restored(PORT, false, now));
        scene.settle();
        assert_eq!(scene.guest.clock_set, 1);
        assert!(scene.said.contains(&"the guest's clock was set".to_owned()), "{:?}", scene.said);
    }
}
