//! Numbers of the interface, as in section 5.5 and in Linux's virtio_balloon.h. virtio-bindings has none of them.

/// Bytes of a page in the balloon, whatever pages the guest or the host uses.
pub const PAGE_SIZE: u64 = 1 << 12;

/// Feature: the queue for statistics.
pub(super) const F_STATS_VQ: u64 = 1 << 1;
/// Feature: the driver takes pages back by itself before it kills a process for want of memory.
pub(super) const F_DEFLATE_ON_OOM: u64 = 1 << 2;
/// Feature: the queue for reports of free pages.
pub(super) const F_REPORTING: u64 = 1 << 5;

/// What a page number takes in a list.
pub(super) const NUMBER: usize = 4;
/// What a statistic takes: a tag of two bytes and a value of eight, packed.
pub(super) const STATISTIC: usize = 10;

/// Descriptors of each queue. Linux gives up a balloon whose queue for reports has less than 32.
pub(super) const QUEUE_SIZE: u16 = 128;
/// Queues up to that for statistics.
pub(super) const QUEUES: usize = 3;
/// Queues with those that may be for reports.
pub(super) const QUEUES_WITH_REPORTING: usize = 5;

pub(super) const INFLATE: u16 = 0;
pub(super) const DEFLATE: u16 = 1;
pub(super) const STATISTICS: u16 = 2;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Inflate,
    Deflate,
    Statistics,
    Reporting,
    /// Enabled by a driver that did not take the feature: nothing is ever taken from it.
    Unused,
}

impl Role {
    /// What a queue is for under the features that the driver took.
    pub(super) fn of(queue: u16, features: u64) -> Self {
        match queue {
            INFLATE => Self::Inflate,
            DEFLATE => Self::Deflate,
            STATISTICS if features & F_STATS_VQ != 0 => Self::Statistics,
            _ if features & F_REPORTING != 0 => Self::Reporting,
            _ => Self::Unused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reporting_is_where_linux_and_where_the_specification_has_it() {
        let roles = |features| [2, 3, 4].map(|queue| Role::of(queue, features));
        let (statistics, reporting, unused) = (Role::Statistics, Role::Reporting, Role::Unused);
        assert_eq!(roles(0), [unused; 3]);
        assert_eq!(roles(F_STATS_VQ), [statistics, unused, unused]);
        assert_eq!(roles(F_REPORTING), [reporting; 3]);
        assert_eq!(roles(F_STATS_VQ | F_REPORTING), [statistics, reporting, reporting]);
        assert_eq!([0, 1].map(|queue| Role::of(queue, 0)), [Role::Inflate, Role::Deflate]);
    }
}
