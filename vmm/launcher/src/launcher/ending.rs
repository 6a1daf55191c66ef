//! The way to the end: signals, power button, kill, and how the VM process ended.

use std::time::Instant;

use corten_link::{EndReason, Request, RunState};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::Launcher;
use super::vm::Asked;
use crate::log::{chain, say};
use crate::stop::Step;
use crate::termination::End;

impl Launcher {
    pub(super) fn on_signals(&mut self) -> Option<End> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if Signal::try_from(number) == Ok(Signal::SIGCHLD) {
                continue;
            }
            if self.running.is_none() {
                let detail = "it was terminated before a VM was started".into();
                return Some(End { reason: EndReason::Killed, detail });
            }
            let step = self.stop.terminate(Instant::now());
            self.take(step);
        }
        // Signals of one kind merge, so each time all children are looked at.
        self.reap()
    }

    /// Waits for all children that have ended, also those that others left to the first process.
    fn reap(&mut self) -> Option<End> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(status) => status,
            };
            let vmm = self.running.as_ref().map(|running| running.vmm.pid());
            if status.pid() == vmm {
                return Some(self.end_of(status));
            }
        }
    }

    /// How the VM ended, by what it told and else by how its process ended.
    fn end_of(&mut self, status: WaitStatus) -> End {
        // Its last words may not have been read yet.
        while self.on_vmm() {}
        let told = self.running.as_mut().and_then(|running| running.told.take());
        let mut end = told.unwrap_or_else(|| End::by_status(status, self.stop.is_killing()));
        if end.detail.is_empty() {
            match end.reason {
                EndReason::Killed => end.detail = self.stop.detail(),
                EndReason::PoweredOff if self.stop.is_pressed() => {
                    end.detail = "it was asked to by its power button".into();
                }
                _ => {}
            }
        }
        end
    }

    /// Does what is due on the way to the end.
    pub(super) fn take(&mut self, step: Step) {
        if self.running.is_none() {
            return;
        }
        match step {
            Step::Nothing => {}
            Step::PowerButton => {
                say("terminating: the guest's power button is pressed");
                self.thaw_guest();
                self.press();
            }
            Step::Kill => {
                say("the VM is killed");
                if self.stop.is_pressed() {
                    // Whether it has taken notice of the button is told with its end.
                    self.ask_own(Request::Info);
                }
                self.ask_own(Request::Kill);
            }
            Step::Force => {
                say("the VM process does not end and is killed by signal");
                if let Some(running) = &self.running {
                    running.vmm.force();
                }
            }
        }
    }

    fn press(&mut self) {
        let Some(running) = &mut self.running else { return };
        // A guest that stands still cannot see the button.
        if running.state == Some(RunState::Paused) {
            let _ = running.ask(Request::Resume, Asked::Resume(None));
        }
        match running.ask(Request::PowerButton, Asked::Own) {
            Ok(number) => {
                running.button = Some(number);
                self.button_pressed(Instant::now());
            }
            // If it cannot be asked any more, it is ending, or the next step is force.
            Err(error) => say(&format!("the VM process does not take it: {}", chain(&error))),
        }
    }
}
