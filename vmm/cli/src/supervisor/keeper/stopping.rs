//! The way to the end: power button, grace, kill, force.

use std::time::{Duration, Instant};

use corten_launcher::stop::{Step, Stop};
use corten_launcher::termination::End;
use corten_link::{EndReason, Request};

use super::Keeper;
use crate::supervisor::say;
use crate::supervisor::vm::Asked;

impl Keeper {
    /// Begins the way to the end: power button, grace, kill, force.
    pub(super) fn terminate(&mut self, grace: Option<u32>) -> Option<End> {
        if let Some(grace) = grace.filter(|_| !self.stopping) {
            self.stop = Stop::new(Duration::from_secs(grace.into()));
        }
        self.stopping = true;
        if self.vm.is_none() {
            return Some(before_start());
        }
        let step = self.stop.terminate(Instant::now());
        self.take(step);
        None
    }

    pub(super) fn kill(&mut self) -> Option<End> {
        self.stopping = true;
        if self.vm.is_none() {
            return Some(before_start());
        }
        let step = self.stop.kill(Instant::now());
        self.take(step);
        None
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Nothing => {}
            Step::PowerButton => {
                self.tell("its power button was pressed".into());
                if let Some(agent) = self.vm.as_mut().and_then(|vm| vm.agent.as_mut()) {
                    agent.kept.stopping(Instant::now());
                }
                // A guest that is paused cannot see the button.
                self.ask_own(Request::Resume, Asked::Resume { by: None });
                self.ask_own(Request::PowerButton, Asked::Own);
            }
            Step::Kill => {
                say("the VM is killed");
                self.ask_own(Request::Kill, Asked::Own);
            }
            Step::Force => {
                say("the VM process does not end and is killed by signal");
                if let Some(vm) = &self.vm {
                    vm.vmm.force();
                }
            }
        }
    }
}

fn before_start() -> End {
    End { reason: EndReason::Killed, detail: "it was stopped before it was started".into() }
}
