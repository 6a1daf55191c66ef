//! The guest's time: its clock, and the time stamp counters that go with it.

use kvm_bindings::{KVM_CLOCK_HOST_TSC, kvm_clock_data};
use serde::{Deserialize, Serialize};

use corten_devices::State;

/// The clock as it was when the machine stopped.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClockState {
    pub(super) clock: kvm_clock_data,
    pub(super) tsc_khz: u32,
}

impl State for ClockState {
    const KIND: &'static str = "clock";
    const VERSION: u16 = 1;
}

/// The offset with which time stamp counters go on as if the host's had never differed: the algorithm of the kernel's
/// documentation (virt/kvm/devices/vcpu.rst, section 4). None where KVM does not tell the host's counter.
pub(super) fn offset_after(old: u64, saved: &ClockState, now: &kvm_clock_data) -> Option<u64> {
    let known = |clock: &kvm_clock_data| clock.flags & KVM_CLOCK_HOST_TSC != 0;
    if !known(&saved.clock) || !known(now) {
        return None;
    }
    let nanoseconds = i128::from(saved.clock.clock) - i128::from(now.clock);
    let ticks = nanoseconds * i128::from(saved.tsc_khz) / 1_000_000;
    let hosts = i128::from(saved.clock.host_tsc) - i128::from(now.host_tsc);
    // Offsets are numbers modulo 2^64.
    let offset = i128::from(old) - ticks + hosts;
    Some(u64::try_from(offset.rem_euclid(1 << 64)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(clock: u64, host_tsc: u64) -> kvm_clock_data {
        kvm_clock_data { clock, host_tsc, flags: KVM_CLOCK_HOST_TSC, ..Default::default() }
    }

    fn saved(nanoseconds: u64, host_tsc: u64) -> ClockState {
        ClockState { clock: clock(nanoseconds, host_tsc), tsc_khz: 2_000_000 }
    }

    /// The guest's counter at a moment.
    fn counter(offset: u64, host_tsc: u64) -> u64 {
        host_tsc.wrapping_add(offset)
    }

    #[test]
    fn counter_stands_still_while_the_clock_does() {
        let before = saved(1_000, 50_000);
        let offset = offset_after(7, &before, &clock(1_000, 90_000)).unwrap();
        assert_eq!(counter(offset, 90_000), counter(7, 50_000));
    }

    #[test]
    fn counter_advances_with_the_clock() {
        let before = saved(1_000, 50_000);
        // Half a second later: 10^9 ticks at 2 GHz.
        let offset = offset_after(7, &before, &clock(500_001_000, 90_000)).unwrap();
        assert_eq!(counter(offset, 90_000), counter(7, 50_000) + 1_000_000_000);
    }

    #[test]
    fn host_whose_counter_is_younger_gives_an_offset_that_wraps() {
        let before = saved(1_000, 1 << 50);
        let offset = offset_after(0, &before, &clock(1_000, 5)).unwrap();
        assert_eq!(counter(offset, 5), 1 << 50);
        let back = offset_after(offset, &saved(1_000, 5), &clock(1_000, 1 << 50)).unwrap();
        assert_eq!(back, 0);
    }

    #[test]
    fn without_the_hosts_counter_there_is_no_offset() {
        let unknown = kvm_clock_data { clock: 1, ..Default::default() };
        assert_eq!(offset_after(7, &saved(1, 1), &unknown), None);
    }
}
