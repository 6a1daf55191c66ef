//! What is saved of a console device. Not its host's ends: they stay behind.

use serde::{Deserialize, Serialize};

use super::config::TerminalSize;
use super::dialogue::Dialogue;
use crate::State;

/// A console device as it was saved: what the guest was promised of it, and what it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleState {
    /// How large the consoles' terminals are.
    pub size: TerminalSize,
    /// Its ports.
    pub ports: Vec<PortState>,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortState {
    /// What the guest knows it by.
    pub name: Option<String>,
    /// Whether it is a console.
    pub is_console: bool,
    /// What the driver has said and was told of it.
    pub dialogue: Dialogue,
    /// Of a console: bytes of the next chain that were shown already.
    pub sent: u64,
}

impl State for ConsoleState {
    const KIND: &'static str = "console";
    const VERSION: u16 = 1;
}

impl ConsoleState {
    /// Whether `saved` is of this device: what it says that cannot be.
    pub(super) fn check(&self, saved: &Self) -> Result<(), String> {
        let (was, is) = (saved.ports.len(), self.ports.len());
        if was != is {
            return Err(format!("it had {was} ports, this device has {is}"));
        }
        for (number, (own, saved)) in self.ports.iter().zip(&saved.ports).enumerate() {
            let kind = |is_console| if is_console { "a console" } else { "a stream" };
            if saved.is_console != own.is_console {
                let (was, is) = (kind(saved.is_console), kind(own.is_console));
                return Err(format!("its port {number} was {was}, this device's is {is}"));
            }
            if saved.name != own.name {
                let name = |name: &Option<String>| name.clone().unwrap_or("nothing".into());
                let (was, is) = (name(&saved.name), name(&own.name));
                return Err(format!("its port {number} was called {was}, this device's is {is}"));
            }
            let wrong = |what: &str| Err(format!("its port {number}: {what}"));
            saved.dialogue.check().or_else(wrong)?;
            let owed = saved.dialogue.owed;
            if !own.is_console && (owed.console || owed.size || saved.sent > 0) {
                return wrong("it is a stream, with what only consoles have");
            }
            if own.name.is_none() && owed.name {
                return wrong("it has no name that could be told");
            }
        }
        Ok(())
    }
}
