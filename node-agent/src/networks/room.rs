//! How many descriptors the interfaces of a guest may have, as all of them come in one message.

use corten_link::MAX_DESCRIPTORS;

use super::NetworkError;

/// KVM and userfaultfd.
const OTHERS: usize = 2;
/// Sockets for DHCP, DHCPv6 and router solicitations.
const SOCKETS: usize = 3;

/// What is left in the message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Queue pairs that each interface may have.
    each: u16,
    /// Descriptors beyond the queues and sockets of all.
    left: usize,
    interfaces: usize,
}

impl Room {
    /// Room for so many interfaces, each with a queue pair at least.
    pub(super) fn for_interfaces(interfaces: usize) -> Result<Self, NetworkError> {
        let left = interfaces
            .checked_mul(SOCKETS + 1)
            .and_then(|needed| MAX_DESCRIPTORS.checked_sub(OTHERS + needed))
            .ok_or(NetworkError::TooMany(interfaces))?;
        let each = 1 + left.checked_div(interfaces).unwrap_or(0);
        Ok(Self { each: u16::try_from(each).unwrap_or(u16::MAX), left, interfaces })
    }

    /// How many queue pairs an interface has that is to have `wanted`.
    pub(super) fn pairs(&self, wanted: u16) -> u16 {
        wanted.min(self.each)
    }

    /// Takes note of an interface with so many pairs of queues; whether there is room for a vhost-net for each, too. What other
    /// interfaces may still need is left to them.
    pub(super) fn take(&mut self, pairs: u16) -> bool {
        let more = usize::from(pairs.saturating_sub(1));
        self.left = self.left.saturating_sub(more);
        self.interfaces = self.interfaces.saturating_sub(1);
        let reserved = self.interfaces * more;
        match self.left.checked_sub(usize::from(pairs) + reserved) {
            Some(rest) => {
                self.left = rest + reserved;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of each interface and whether it has vhost-net, and all descriptors.
    fn taken(interfaces: usize, wanted: u16) -> (Vec<(u16, bool)>, usize) {
        let mut room = Room::for_interfaces(interfaces).unwrap();
        let all: Vec<_> = (0..interfaces)
            .map(|_| {
                let pairs = room.pairs(wanted);
                (pairs, room.take(pairs))
            })
            .collect();
        let of = |(pairs, vhost): &(u16, bool)| {
            SOCKETS + usize::from(*pairs) * if *vhost { 2 } else { 1 }
        };
        (all.clone(), OTHERS + all.iter().map(of).sum::<usize>())
    }

    #[test]
    fn each_interface_has_its_pairs_and_vhost_as_far_as_a_message_holds_them() {
        let table = [
            (1, 1, vec![(1, true)]),
            (1, 61, vec![(61, true)]),
            (1, 127, vec![(123, false)]),
            (2, 40, vec![(40, true), (40, false)]),
            (2, 127, vec![(60, false), (60, false)]),
        ];
        for (interfaces, wanted, expected) in table {
            let (all, descriptors) = taken(interfaces, wanted);
            assert_eq!(all, expected, "{interfaces} {wanted}");
            assert!(descriptors <= MAX_DESCRIPTORS, "{descriptors}");
        }
        for interfaces in 1..=31 {
            for wanted in [1, 2, 8, 127] {
                let (all, descriptors) = taken(interfaces, wanted);
                assert!(descriptors <= MAX_DESCRIPTORS, "{interfaces} {wanted}: {all:?}");
            }
        }
    }

    #[test]
    fn more_interfaces_than_a_message_holds_are_refused() {
        assert!(Room::for_interfaces(31).is_ok());
        for many in [32, 1000, usize::MAX] {
            let error = Room::for_interfaces(many).unwrap_err();
            assert!(matches!(error, NetworkError::TooMany(count) if count == many), "{error}");
        }
    }
}
