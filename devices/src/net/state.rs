//! What is saved of an interface.

use serde::{Deserialize, Serialize};

use super::filter::ReceiveFilter;
use super::mac::MacAddress;
use crate::State;

/// An interface as it was saved: what the guest was promised of it, and what its driver has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetState {
    /// Its address, before its driver set another.
    pub mac: MacAddress,
    /// The MTU that the guest was told, if it was.
    pub mtu: Option<u16>,
    /// How many pairs of queues it has.
    pub pairs: u16,
    /// What its driver wants to receive, with the address that it set.
    pub filter: ReceiveFilter,
    /// How many pairs carry packets.
    pub active_pairs: u16,
    /// The driver was asked to announce its addresses and has not said that it did.
    pub announce: bool,
}

impl State for NetState {
    const KIND: &'static str = "net";
    const VERSION: u16 = 1;
}

impl NetState {
    /// Whether `saved` is of this interface: what it says that cannot be.
    pub(super) fn check(&self, saved: &Self) -> Result<(), String> {
        if saved.mac != self.mac {
            return Err(format!("its address was {}, this interface's is {}", saved.mac, self.mac));
        }
        if saved.mtu != self.mtu {
            let text = |mtu: Option<u16>| mtu.map_or("not told".into(), |mtu| mtu.to_string());
            let (was, is) = (text(saved.mtu), text(self.mtu));
            return Err(format!("its MTU was {was}, this interface's is {is}"));
        }
        if saved.pairs != self.pairs {
            let (was, is) = (saved.pairs, self.pairs);
            return Err(format!("it had {was} pairs of queues, this interface has {is}"));
        }
        if !(1..=self.pairs).contains(&saved.active_pairs) {
            let (active, pairs) = (saved.active_pairs, saved.pairs);
            return Err(format!("{active} of its {pairs} pairs of queues are active"));
        }
        if !saved.filter.unicast.can_be() || !saved.filter.multicast.can_be() {
            return Err("it listens to more addresses than are kept".into());
        }
        Ok(())
    }
}
