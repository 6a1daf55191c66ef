//! What an interface is made with, and what it cannot be made with.

use std::io;

use thiserror::Error;

use super::mac::MacAddress;
use super::tap::TapFault;
use crate::RateLimits;
use crate::virtio::MAX_QUEUES;

/// As many pairs of queues as there can be, with the control queue.
const MAX_PAIRS: usize = (MAX_QUEUES - 1) / 2;
/// What every link of IPv4 carries, and the least that the configuration may say (5.1.4.1).
const MIN_MTU: u16 = 68;

/// What an interface is made with. What the guest sees of it is part of the blueprint: it stays the same for the
/// machine's life, on every host.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Its address, until its driver sets another.
    pub mac: MacAddress,
    /// The largest packet that the guest is to send; none for what it thinks itself.
    pub mtu: Option<u16>,
    /// The largest size of each queue: a power of two from 16 to 256.
    pub queue_size: u16,
    /// Whether segmentation of UDP is offered; none for whether the TAP has it. A machine that was planned has it pinned:
    /// a TAP without it is then refused.
    pub uso: Option<bool>,
    /// How much the guest may receive.
    pub receive: RateLimits,
    /// How much the guest may transmit.
    pub transmit: RateLimits,
}

impl NetConfig {
    /// An interface with this address, and nothing special.
    pub fn new(mac: MacAddress) -> Self {
        let (receive, transmit) = (RateLimits::default(), RateLimits::default());
        Self { mac, mtu: None, queue_size: 256, uso: None, receive, transmit }
    }

    /// Whether an interface can be so, whatever it is on.
    pub(super) fn check(&self, pairs: usize) -> Result<(), NetError> {
        if !self.mac.is_valid() {
            return Err(NetError::Mac(self.mac));
        }
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < MIN_MTU) {
            return Err(NetError::Mtu(mtu));
        }
        let size = self.queue_size;
        let size_can_be = size.is_power_of_two() && (16..=256).contains(&size);
        if pairs == 0 || pairs > MAX_PAIRS || !size_can_be {
            return Err(NetError::Queues { pairs, size });
        }
        Ok(())
    }
}

/// Why there can be no such interface.
#[derive(Debug, Error)]
pub enum NetError {
    /// Of nobody, or of a group.
    #[error("no interface can have the address {0}")]
    Mac(MacAddress),
    /// Less than a link must carry.
    #[error("no interface can have an MTU of {0} bytes: {MIN_MTU} is the least")]
    Mtu(u16),
    /// There are limits.
    #[error("no interface has {pairs} pairs of queues of {size} descriptors")]
    Queues {
        /// How many: one for each descriptor of the TAP.
        pairs: usize,
        /// Of which size.
        size: u16,
    },
    /// No queue of a TAP.
    #[error("the descriptor for queue pair {pair} cannot be used")]
    Tap {
        /// Which one.
        pair: u16,
        /// Why.
        #[source]
        source: TapFault,
    },
    /// No more descriptors.
    #[error("cannot make a descriptor for queue pair {pair}")]
    Descriptor {
        /// Which one.
        pair: u16,
        /// Why.
        #[source]
        source: io::Error,
    },
}
