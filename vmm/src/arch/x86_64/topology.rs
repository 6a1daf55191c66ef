//! Sockets, cores and threads, and the APIC ids that express them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a guest's processors are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Packages.
    pub sockets: u16,
    /// Cores of a package.
    pub cores: u16,
    /// Threads of a core.
    pub threads: u16,
}

/// Most vCPUs of one machine: APIC ids stay in 8 bits, as every guest understands them.
pub const MAX_VCPUS: u32 = 254;

/// Why an arrangement is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TopologyError {
    /// Nothing of one kind.
    #[error("{sockets} sockets of {cores} cores of {threads} threads are no processor", sockets = .0.sockets, cores = .0.cores, threads = .0.threads)]
    Empty(Topology),
    /// Too many.
    #[error("{0} vCPUs are over the limit of {MAX_VCPUS}")]
    TooMany(u32),
    /// Too many once each level is rounded up to whole bits.
    #[error(
        "the APIC id {0} does not fit into 8 bits: fewer sockets, or cores and threads by powers of two, would"
    )]
    ApicId(u32),
}

impl Topology {
    /// Checks it.
    pub fn new(sockets: u16, cores: u16, threads: u16) -> Result<Self, TopologyError> {
        let topology = Self { sockets, cores, threads };
        let count =
            u32::from(sockets).saturating_mul(u32::from(cores)).saturating_mul(u32::from(threads));
        if count == 0 {
            return Err(TopologyError::Empty(topology));
        }
        if count > MAX_VCPUS {
            return Err(TopologyError::TooMany(count));
        }
        match topology.apic_ids().last() {
            Some(last) if last > MAX_VCPUS => Err(TopologyError::ApicId(last)),
            _ => Ok(topology),
        }
    }

    /// How many vCPUs there are.
    pub fn vcpus(self) -> u32 {
        u32::from(self.sockets) * u32::from(self.cores) * u32::from(self.threads)
    }

    /// Bits of an APIC id that number threads.
    pub fn thread_bits(self) -> u32 {
        bits(self.threads)
    }

    /// Bits of an APIC id that number cores and threads.
    pub fn package_bits(self) -> u32 {
        self.thread_bits() + bits(self.cores)
    }

    /// The APIC ids of all vCPUs, ascending. Not every number is one: each level takes whole bits.
    pub fn apic_ids(self) -> impl Iterator<Item = u32> {
        let each = |count: u16| 0..u32::from(count);
        each(self.sockets).flat_map(move |socket| {
            each(self.cores).flat_map(move |core| {
                each(self.threads).map(move |thread| {
                    socket << self.package_bits() | core << self.thread_bits() | thread
                })
            })
        })
    }
}

/// Bits to number that many things.
fn bits(count: u16) -> u32 {
    u32::from(count).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(sockets: u16, cores: u16, threads: u16) -> Vec<u32> {
        Topology::new(sockets, cores, threads).unwrap().apic_ids().collect()
    }

    #[test]
    fn levels_that_are_no_powers_of_two_leave_gaps() {
        assert_eq!(ids(1, 3, 2), [0, 1, 2, 3, 4, 5]);
        assert_eq!(ids(2, 3, 2), [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]);
        assert_eq!(ids(2, 1, 3), [0, 1, 2, 4, 5, 6]);
        assert_eq!(ids(1, 1, 1), [0]);
    }

    #[test]
    fn impossible_arrangements_are_refused() {
        assert!(matches!(Topology::new(0, 1, 1), Err(TopologyError::Empty(_))));
        assert_eq!(Topology::new(1, 255, 1), Err(TopologyError::TooMany(255)));
        assert_eq!(
            Topology::new(u16::MAX, u16::MAX, u16::MAX),
            Err(TopologyError::TooMany(u32::MAX))
        );
        assert!(matches!(Topology::new(80, 3, 1), Err(TopologyError::ApicId(_))));
        assert_eq!(Topology::new(1, 254, 1).unwrap().vcpus(), 254);
    }
}
