//! What driver and device have told each other of a port, and what the driver has yet to be told.
//!
//! ```text
//!   driver                       device
//!   DEVICE_READY ──────────────▶
//!                ◀────────────── DEVICE_ADD          each port
//!   PORT_READY   ──────────────▶
//!                ◀────────────── CONSOLE_PORT        if it is one
//!                ◀────────────── PORT_NAME           if it has one
//!                ◀────────────── RESIZE              a console whose size is known
//!                ◀────────────── PORT_OPEN 1         if the host has it open
//!   PORT_OPEN    ──────────────▶                     a program has it open, or no more
//!                ◀────────────── PORT_OPEN 0, then 1 the host's end went, another came
//! ```
//!
//! What waits to be told is not a list of messages but what they would say: so it is bounded, whatever driver and host
//! do while the driver has no buffers.

use serde::{Deserialize, Serialize};

use super::message::ToGuest;

/// The state of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialogue {
    /// The driver has the port.
    pub is_ready: bool,
    /// A program of the guest has it open.
    pub is_guest_open: bool,
    /// The driver believes that the host has it open.
    pub is_told_open: bool,
    /// What the driver has yet to be told, beside whether it is open.
    pub owed: Owed,
    /// What it was told to be open is not any more. Not saved: whoever loads knows that no host's end was saved.
    #[serde(skip)]
    owes_close: bool,
}

/// Messages that wait for the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owed {
    /// That the port is there.
    pub add: bool,
    /// That it is a console.
    pub console: bool,
    /// What it is called.
    pub name: bool,
    /// How large its terminal is.
    pub size: bool,
}

impl Dialogue {
    /// The driver can be told of ports: it knows nothing of this one, or nothing any more.
    pub(super) fn begin(&mut self) {
        *self = Self { owed: Owed { add: true, ..Owed::default() }, ..Self::default() };
    }

    /// The driver has the port, which has these to be told of.
    pub(super) fn accept(&mut self, owed: Owed) {
        *self = Self { is_ready: true, owed, ..Self::default() };
    }

    /// The driver cannot have the port.
    pub(super) fn refuse(&mut self) {
        *self = Self::default();
    }

    /// A program of the guest has opened it, or closed it. False if the driver has no such port.
    pub(super) fn set_guest_open(&mut self, is_open: bool) -> bool {
        self.is_guest_open = is_open && self.is_ready;
        self.is_ready
    }

    /// The driver has to be told the size, if it has the port.
    pub(super) fn owe_size(&mut self) {
        self.owed.size = self.is_ready;
    }

    /// The host's end is gone.
    pub(super) fn host_closed(&mut self) {
        self.owes_close = self.is_told_open;
    }

    /// Whether both sides know of each other, so that bytes can go to the guest.
    pub(super) fn is_open(&self) -> bool {
        self.is_guest_open && self.is_told_open && !self.owes_close
    }

    /// The next message for the driver. `is_host_open` says whether the host's end can be used now.
    pub(super) fn next(&self, is_host_open: bool) -> Option<ToGuest> {
        let Owed { add, console, name, size } = self.owed;
        let opens = is_host_open && self.is_ready && !self.is_told_open;
        [
            (add, ToGuest::Add),
            (console, ToGuest::Console),
            (name, ToGuest::Name),
            (size, ToGuest::Resize),
            (self.owes_close, ToGuest::Open(false)),
            (opens, ToGuest::Open(true)),
        ]
        .into_iter()
        .find_map(|(is_owed, message)| is_owed.then_some(message))
    }

    /// The driver got this.
    pub(super) fn told(&mut self, message: ToGuest) {
        match message {
            ToGuest::Add => self.owed.add = false,
            ToGuest::Console => self.owed.console = false,
            ToGuest::Name => self.owed.name = false,
            ToGuest::Resize => self.owed.size = false,
            ToGuest::Open(is_open) => {
                self.is_told_open = is_open;
                self.owes_close = false;
            }
        }
    }

    /// What it says that cannot be.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Owed { add, console, name, size } = self.owed;
        let is_known = self.is_guest_open || self.is_told_open || console || name || size;
        match self.is_ready {
            true if add => Err("it is yet to be added, and added already"),
            false if is_known => Err("the driver was told of it, but does not have it"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: Owed = Owed { add: false, console: true, name: true, size: true };

    /// All that the driver is told now.
    fn messages(dialogue: &mut Dialogue, is_host_open: bool) -> Vec<ToGuest> {
        std::iter::from_fn(|| {
            let message = dialogue.next(is_host_open)?;
            dialogue.told(message);
            Some(message)
        })
        .collect()
    }

    fn accepted() -> Dialogue {
        let mut dialogue = Dialogue::default();
        dialogue.begin();
        dialogue.accept(Owed::default());
        dialogue
    }

    #[test]
    fn driver_is_told_of_a_port_step_by_step() {
        use ToGuest::{Add, Console, Name, Open, Resize};
        let mut dialogue = Dialogue::default();
        assert_eq!(messages(&mut dialogue, true), []);
        dialogue.begin();
        assert_eq!(messages(&mut dialogue, true), [Add]);
        dialogue.accept(ALL);
        assert_eq!(messages(&mut dialogue, true), [Console, Name, Resize, Open(true)]);
        assert_eq!(messages(&mut dialogue, true), []);
    }

    #[test]
    fn open_is_both_sides() {
        let mut dialogue = accepted();
        assert!(dialogue.set_guest_open(true));
        assert!(!dialogue.is_open());
        messages(&mut dialogue, true);
        assert!(dialogue.is_open());
        dialogue.host_closed();
        assert!(!dialogue.is_open());
        dialogue.set_guest_open(false);
        messages(&mut dialogue, true);
        assert!(!dialogue.is_open());
    }

    #[test]
    fn host_that_came_back_was_gone_for_the_driver_too() {
        let mut dialogue = accepted();
        messages(&mut dialogue, true);
        dialogue.host_closed();
        dialogue.host_closed();
        assert_eq!(messages(&mut dialogue, true), [ToGuest::Open(false), ToGuest::Open(true)]);
    }

    #[test]
    fn host_that_came_and_went_unseen_is_not_told_of() {
        let mut dialogue = accepted();
        dialogue.host_closed();
        assert_eq!(messages(&mut dialogue, false), []);
    }

    #[test]
    fn nothing_is_open_that_the_driver_does_not_have() {
        let mut dialogue = Dialogue::default();
        assert!(!dialogue.set_guest_open(true));
        assert!(!dialogue.is_guest_open);
        dialogue.owe_size();
        assert_eq!(dialogue, Dialogue::default());
    }

    #[test]
    fn driver_that_begins_anew_knows_nothing() {
        let mut dialogue = accepted();
        messages(&mut dialogue, true);
        dialogue.host_closed();
        dialogue.begin();
        assert_eq!(messages(&mut dialogue, true), [ToGuest::Add]);
    }

    proptest! {
        #[test]
        fn every_state_that_can_be_reached_can_be(steps in prop::collection::vec(0_u8..9, 0..30)) {
            let mut dialogue = Dialogue::default();
            for step in steps {
                match step {
                    0 => dialogue.begin(),
                    1 => dialogue.accept(ALL),
                    2 => dialogue.refuse(),
                    3 => drop(dialogue.set_guest_open(true)),
                    4 => drop(dialogue.set_guest_open(false)),
                    5 => dialogue.owe_size(),
                    6 => dialogue.host_closed(),
                    _ => {
                        if let Some(message) = dialogue.next(step == 7) {
                            dialogue.told(message);
                        }
                    }
                }
                prop_assert_eq!(dialogue.check(), Ok(()));
                prop_assert!(!dialogue.owes_close || dialogue.is_told_open);
            }
        }
    }
}
