//! When an alarm of the real-time clock goes off next.

use super::calendar::LAST;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// A time of day at which the alarm goes off. A field without a number is any: the alarm goes off in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    /// 0 to 23.
    pub(super) hour: Option<i64>,
    /// 0 to 59.
    pub(super) minute: Option<i64>,
    /// 0 to 59.
    pub(super) second: Option<i64>,
}

impl Alarm {
    /// The first second after `seconds` (since 1970, within the calendar) at which it goes off, if the calendar does not
    /// end before.
    pub(super) fn next_after(self, seconds: i64) -> Option<i64> {
        let mut at = seconds + 1;
        // From the smallest field up: each step goes to the first moment at which one more field is right, and a step
        // to a later minute or hour begins that one anew.
        at += steps(at.rem_euclid(MINUTE), self.second, MINUTE);
        let minutes = steps(at.div_euclid(MINUTE).rem_euclid(60), self.minute, 60);
        if minutes > 0 {
            at += minutes * MINUTE;
            at = at - at.rem_euclid(MINUTE) + self.second.unwrap_or(0);
        }
        let hours = steps(at.div_euclid(HOUR).rem_euclid(24), self.hour, 24);
        if hours > 0 {
            at += hours * HOUR;
            at = at - at.rem_euclid(HOUR)
                + self.minute.unwrap_or(0) * MINUTE
                + self.second.unwrap_or(0);
        }
        (at <= LAST).then_some(at)
    }
}

/// How far it is from `now` to the field that is wanted, around a `circle`.
fn steps(now: i64, wanted: Option<i64>, circle: i64) -> i64 {
    wanted.map_or(0, |wanted| (wanted - now).rem_euclid(circle))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::calendar::{Date, FIRST};
    use super::*;

    const DAY: i64 = 24 * HOUR;

    fn time(hour: i64, minute: i64, second: i64) -> i64 {
        hour * HOUR + minute * MINUTE + second
    }

    fn alarm(
        hour: impl Into<Option<i64>>,
        minute: impl Into<Option<i64>>,
        second: impl Into<Option<i64>>,
    ) -> Alarm {
        Alarm { hour: hour.into(), minute: minute.into(), second: second.into() }
    }

    #[test]
    fn next_alarm_is_the_first_after_now() {
        let now = time(13, 45, 30);
        for (alarm, next) in [
            // Later today, and at the earliest in the next second.
            (alarm(13, 45, 31), time(13, 45, 31)),
            (alarm(13, 46, 0), time(13, 46, 0)),
            (alarm(23, 59, 59), time(23, 59, 59)),
            // Tomorrow: it is that time already, or it was.
            (alarm(13, 45, 30), DAY + now),
            (alarm(13, 45, 29), DAY + time(13, 45, 29)),
            (alarm(0, 0, 0), DAY),
            // One field is any.
            (alarm(None, 45, 30), time(14, 45, 30)),
            (alarm(None, 50, 7), time(13, 50, 7)),
            (alarm(None, 10, 59), time(14, 10, 59)),
            (alarm(13, None, 30), time(13, 46, 30)),
            (alarm(13, None, 31), time(13, 45, 31)),
            (alarm(14, None, 31), time(14, 0, 31)),
            (alarm(12, None, 5), DAY + time(12, 0, 5)),
            (alarm(13, 45, None), time(13, 45, 31)),
            (alarm(13, 44, None), DAY + time(13, 44, 0)),
            (alarm(13, 46, None), time(13, 46, 0)),
            // Two or three are.
            (alarm(None, None, 30), time(13, 46, 30)),
            (alarm(None, None, 31), time(13, 45, 31)),
            (alarm(None, 45, None), time(13, 45, 31)),
            (alarm(None, 44, None), time(14, 44, 0)),
            (alarm(13, None, None), time(13, 45, 31)),
            (alarm(12, None, None), DAY + time(12, 0, 0)),
            (alarm(15, None, None), time(15, 0, 0)),
            (alarm(None, None, None), time(13, 45, 31)),
        ] {
            assert_eq!(alarm.next_after(now), Some(next), "{alarm:?}");
            // Days are all alike, also before 1970.
            assert_eq!(alarm.next_after(now - 3 * DAY), Some(next - 3 * DAY), "{alarm:?}");
        }
    }

    #[test]
    fn last_second_of_a_span_goes_over_into_the_next() {
        assert_eq!(alarm(13, 45, None).next_after(time(13, 45, 59)), Some(DAY + time(13, 45, 0)));
        assert_eq!(alarm(13, None, None).next_after(time(13, 59, 59)), Some(DAY + time(13, 0, 0)));
        assert_eq!(alarm(None, None, None).next_after(time(23, 59, 59)), Some(DAY));
    }

    #[test]
    fn no_alarm_is_beyond_the_calendar() {
        assert_eq!(alarm(23, 59, 59).next_after(LAST - 1), Some(LAST));
        for alarm in [alarm(23, 59, 59), alarm(0, 0, 0), alarm(None, None, None)] {
            assert_eq!(alarm.next_after(LAST), None);
        }
        assert_eq!(alarm(0, 0, 0).next_after(LAST - 10), None);
    }

    /// Looks at one second after the other.
    fn slowly(alarm: Alarm, seconds: i64) -> Option<i64> {
        let is = |wanted: Option<i64>, found| wanted.is_none_or(|wanted| wanted == found);
        (seconds + 1..=LAST.min(seconds + DAY)).find(|at| {
            let date = Date::from_seconds(*at);
            is(alarm.hour, date.hour)
                && is(alarm.minute, date.minute)
                && is(alarm.second, date.second)
        })
    }

    proptest! {
        // A day has many seconds to look at.
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn next_alarm_is_what_looking_at_each_second_finds(
            hour in proptest::option::of(0..24_i64),
            minute in proptest::option::of(0..60_i64),
            second in proptest::option::of(0..60_i64),
            seconds in prop_oneof![3 => FIRST..=LAST, 1 => LAST - DAY..=LAST],
        ) {
            let alarm = Alarm { hour, minute, second };
            prop_assert_eq!(alarm.next_after(seconds), slowly(alarm, seconds));
        }
    }
}
