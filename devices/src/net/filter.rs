//! Which frames a driver wants to receive (virtio 1.2, section 5.1.6.5.1 and 5.1.6.5.2).

use serde::{Deserialize, Serialize};

use super::mac::MacAddress;

/// As many addresses as a table holds. A driver that wants more gets all there is and chooses itself.
pub(super) const MAX_TABLE: usize = 64;

/// Addresses that a driver listens to, beside its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MacTable {
    /// These.
    Listed(Vec<MacAddress>),
    /// More than are kept: every frame passes.
    TooMany,
}

impl MacTable {
    fn has(&self, address: MacAddress) -> bool {
        match self {
            Self::Listed(addresses) => addresses.contains(&address),
            Self::TooMany => true,
        }
    }

    /// Whether it is one that is ever kept.
    pub(super) fn can_be(&self) -> bool {
        match self {
            Self::Listed(addresses) => addresses.len() <= MAX_TABLE,
            Self::TooMany => true,
        }
    }
}

/// What a driver wants to receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveFilter {
    /// The interface's own address, as the driver may have set it.
    pub mac: MacAddress,
    /// Everything, whatever else is said.
    pub promiscuous: bool,
    /// All that is for a group.
    pub all_multicast: bool,
    /// All that is for one interface.
    pub all_unicast: bool,
    /// Nothing for a group, but for everybody.
    pub no_multicast: bool,
    /// Nothing for one interface.
    pub no_unicast: bool,
    /// Nothing for everybody.
    pub no_broadcast: bool,
    /// Further addresses of its own.
    pub unicast: MacTable,
    /// The groups it is in.
    pub multicast: MacTable,
}

impl ReceiveFilter {
    /// That of a driver that has said nothing: everything passes, as a driver without the control queue expects.
    pub(super) fn new(mac: MacAddress) -> Self {
        Self {
            mac,
            promiscuous: true,
            all_multicast: false,
            all_unicast: false,
            no_multicast: false,
            no_unicast: false,
            no_broadcast: false,
            unicast: MacTable::Listed(Vec::new()),
            multicast: MacTable::Listed(Vec::new()),
        }
    }

    /// Whether a frame to this address passes.
    pub(super) fn accepts(&self, destination: MacAddress) -> bool {
        if self.promiscuous {
            return true;
        }
        if destination == MacAddress::BROADCAST {
            return !self.no_broadcast;
        }
        if destination.is_multicast() {
            return !self.no_multicast && (self.all_multicast || self.multicast.has(destination));
        }
        let is_ours = destination == self.mac || self.unicast.has(destination);
        !self.no_unicast && (self.all_unicast || is_ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 0, 0, 1]);

    fn quiet() -> ReceiveFilter {
        ReceiveFilter { promiscuous: false, ..ReceiveFilter::new(OWN) }
    }

    /// Own address, another, a group, everybody.
    fn accepted(filter: &ReceiveFilter) -> [bool; 4] {
        [OWN, OTHER, GROUP, MacAddress::BROADCAST].map(|address| filter.accepts(address))
    }

    #[test]
    fn every_mode_lets_pass_what_it_says() {
        let listed = |address| MacTable::Listed(vec![address]);
        let too_many = MacTable::TooMany;
        let silent =
            ReceiveFilter { no_unicast: true, no_multicast: true, no_broadcast: true, ..quiet() };
        for (filter, expected) in [
            (ReceiveFilter::new(OWN), [true; 4]),
            (quiet(), [true, false, false, true]),
            (ReceiveFilter { all_multicast: true, ..quiet() }, [true, false, true, true]),
            (ReceiveFilter { all_unicast: true, ..quiet() }, [true, true, false, true]),
            (ReceiveFilter { multicast: listed(GROUP), ..quiet() }, [true, false, true, true]),
            (ReceiveFilter { unicast: listed(OTHER), ..quiet() }, [true, true, false, true]),
            (ReceiveFilter { unicast: listed(GROUP), ..quiet() }, [true, false, false, true]),
            (ReceiveFilter { unicast: too_many.clone(), ..quiet() }, [true, true, false, true]),
            (ReceiveFilter { multicast: too_many, ..quiet() }, [true, false, true, true]),
            (silent.clone(), [false; 4]),
            (
                ReceiveFilter { all_multicast: true, all_unicast: true, ..silent.clone() },
                [false; 4],
            ),
            (ReceiveFilter { promiscuous: true, ..silent }, [true; 4]),
        ] {
            assert_eq!(accepted(&filter), expected, "{filter:?}");
        }
    }
}
