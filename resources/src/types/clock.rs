//! Clock and timers of a machine.

use super::fields::object;

object! {
    /// Clock and timers of a machine.
    pub struct Clock {
        /// Timers that the guest can use.
        pub timer: Option<Timer>,
        /// The clock shows the time of this zone.
        pub timezone: Option<String>,
        /// The clock shows universal time.
        pub utc: Option<UtcOffset>,
    }

    /// How far the clock is from universal time.
    pub struct UtcOffset {
        /// So many seconds ahead.
        pub offset_seconds: Option<i32>,
    }

    /// Timers of a machine.
    pub struct Timer {
        /// The high-precision event timer.
        pub hpet: Option<TickTimer>,
        /// The reference time of Hyper-V.
        pub hyperv: Option<PresentTimer>,
        /// The clock of KVM.
        pub kvm: Option<PresentTimer>,
        /// The programmable interval timer.
        pub pit: Option<TickTimer>,
        /// The real-time clock.
        pub rtc: Option<RtcTimer>,
    }

    /// A timer that is there or is not.
    pub struct PresentTimer {
        /// It is there unless this says no.
        pub present: Option<bool>,
    }

    /// A timer that ticks.
    pub struct TickTimer {
        /// It is there unless this says no.
        pub present: Option<bool>,
        /// What becomes of ticks that the guest missed.
        pub tick_policy: Option<String>,
    }

    /// The real-time clock.
    pub struct RtcTimer {
        /// It is there unless this says no.
        pub present: Option<bool>,
        /// What becomes of ticks that the guest missed.
        pub tick_policy: Option<String>,
        /// What it follows: `guest` or `wall`.
        pub track: Option<String>,
    }
}
