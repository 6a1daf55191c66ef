//! Why an interface does without vhost.

use std::io;

use thiserror::Error;

/// Why an interface does without vhost. It works all the same, by itself.
#[derive(Debug, Error)]
pub enum VhostRefusal {
    /// Not one descriptor for each pair.
    #[error("{given} descriptors of vhost for {pairs} pairs of queues")]
    Count {
        /// How many were given.
        given: usize,
        /// How many the interface has.
        pairs: u16,
    },
    /// The kernel knows of no limits.
    #[error("vhost cannot keep to rate limits")]
    Limited,
    /// Drivers are offered more than it can do.
    #[error("vhost of queue pair {pair} lacks features {missing:#x}, which drivers are offered")]
    Features {
        /// Which one.
        pair: u16,
        /// Those that it lacks.
        missing: u64,
    },
    /// It is no vhost, or somebody else's.
    #[error("the descriptor of vhost for queue pair {pair} cannot be used")]
    Descriptor {
        /// Which one.
        pair: u16,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
