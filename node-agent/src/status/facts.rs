//! What is known of one VM.

use std::collections::BTreeMap;

use corten_link::launcher::{ConnectedInterface, ToAgent};
use corten_link::{AgentReport, RunState};
use jiff::Timestamp;

use super::conditions::Claim;
use super::phase::Times;

/// What is known of one VM, by its launcher and by who gave it what it has. An agent that has just started knows nothing:
/// the launcher says it all again, and until then what is written stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Since when it runs. Until then nothing but conditions is written.
    pub times: Option<Times>,
    /// Whether its guest runs or stands still.
    pub run: Option<Run>,
    /// What the agent in its guest told.
    pub guest: Option<Box<AgentReport>>,
    /// What its interfaces are connected to, by name. An agent that came later does not know.
    pub interfaces: BTreeMap<String, Connected>,
    /// Whether its launcher heeds the object as it is.
    pub heeds: Option<Heeds>,
    /// Conditions that others of the agent's want to be said, or taken away, by their type. None of those in this folder.
    pub conditions: BTreeMap<&'static str, Option<Claim>>,
}

/// Whether a guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// It does, or it stands still.
    pub state: RunState,
    /// Why it stands still, where nobody asked for that.
    pub cause: String,
}

/// Whether a launcher heeds an object that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heeds {
    /// It does.
    All,
    /// It says why not.
    Refuses(String),
}

/// What an interface is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The guest's Ethernet address.
    pub mac: [u8; 6],
    /// Pairs of queues.
    pub pairs: u16,
    /// The Pod's interface behind it.
    pub uplink: Option<String>,
}

impl Connected {
    /// By what the launcher is told, behind the Pod's interface `uplink`.
    pub fn new(interface: &ConnectedInterface, uplink: Option<String>) -> Self {
        Self { mac: interface.mac, pairs: interface.pairs, uplink }
    }
}

impl Facts {
    /// Takes in what a launcher told.
    pub(crate) fn hear(&mut self, message: &ToAgent) {
        match message {
            ToAgent::Vm { state, cause } => {
                self.run = Some(Run { state: *state, cause: cause.clone() });
            }
            ToAgent::Guest { report } => self.guest = Some(report.clone()),
            _ => {}
        }
    }

    /// Its vCPUs run. When they first did is when that was first told.
    pub(crate) fn runs(&mut self, scheduled: Timestamp, running: Timestamp) {
        self.times.get_or_insert(Times { scheduled, running });
    }
}
