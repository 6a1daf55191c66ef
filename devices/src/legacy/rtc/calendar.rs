//! Seconds since 1970 as a date and back, in UTC, without leap seconds, for the years 0 to 9999.

/// 0000-01-01 00:00:00.
pub(super) const FIRST: i64 = -62_167_219_200;
/// 9999-12-31 23:59:59.
pub(super) const LAST: i64 = 253_402_300_799;

const SECONDS_A_DAY: i64 = 86_400;
/// Days of 400 years, after which the calendar begins anew.
const DAYS_AN_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// A date and time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// From 1 on.
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
}

impl Date {
    /// The date of so many seconds after 1970 began; the first or last one we know if it is beyond.
    pub(super) fn from_seconds(seconds: i64) -> Self {
        let seconds = seconds.clamp(FIRST, LAST);
        // Years from March on, so that the leap day is the last of its year.
        let days = seconds.div_euclid(SECONDS_A_DAY) + DAYS_TO_1970;
        let of_day = seconds.rem_euclid(SECONDS_A_DAY);
        let (era, of_era) = (days.div_euclid(DAYS_AN_ERA), days.rem_euclid(DAYS_AN_ERA));
        let year_of_era =
            (of_era - of_era / 1460 + of_era / 36_524 - of_era / (DAYS_AN_ERA - 1)) / 365;
        let of_year = of_era - days_before(year_of_era);
        let month_from_march = (5 * of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// Seconds since 1970 began, if there is such a date in the years we know.
    pub(super) fn to_seconds(self) -> Option<i64> {
        let known = (0..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second);
        if !known {
            return None;
        }
        let year = self.year - i64::from(self.month <= 2);
        let month_from_march = (self.month + 9) % 12;
        let of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        let of_era = days_before(year.rem_euclid(400)) + of_year;
        let days = year.div_euclid(400) * DAYS_AN_ERA + of_era - DAYS_TO_1970;
        let seconds = days * SECONDS_A_DAY + self.hour * 3600 + self.minute * 60 + self.second;
        // The 31st of a shorter month became another date.
        (Self::from_seconds(seconds) == self).then_some(seconds)
    }

    /// Day of the week: 1 is Sunday, as the clock chip counts.
    pub(super) fn weekday_of(seconds: i64) -> i64 {
        // 1970 began on a Thursday.
        (seconds.clamp(FIRST, LAST).div_euclid(SECONDS_A_DAY) + 4).rem_euclid(7) + 1
    }
}

/// Days of an era before its year of that number.
fn days_before(year_of_era: i64) -> i64 {
    year_of_era * 365 + year_of_era / 4 - year_of_era / 100
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date(year: i64, month: i64, day: i64) -> Date {
        Date { year, month, day, hour: 0, minute: 0, second: 0 }
    }

    #[test]
    fn known_dates_are_right() {
        for (seconds, year, month, day, weekday) in [
            (0, 1970, 1, 1, 5),
            (951_782_400, 2000, 2, 29, 3),
            (951_868_800, 2000, 3, 1, 4),
            (4_107_456_000, 2100, 2, 28, 1),
            (4_107_542_400, 2100, 3, 1, 2),
            (1_794_787_200, 2026, 11, 16, 2),
            (-86_400, 1969, 12, 31, 4),
            (FIRST, 0, 1, 1, 7),
            (LAST - 86_399, 9999, 12, 31, 6),
        ] {
            assert_eq!(Date::from_seconds(seconds), date(year, month, day));
            assert_eq!(date(year, month, day).to_seconds(), Some(seconds));
            assert_eq!(Date::weekday_of(seconds), weekday, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn dates_that_are_none_are_refused() {
        for (year, month, day) in [
            (2023, 2, 29),
            (2100, 2, 29),
            (2024, 2, 30),
            (2024, 4, 31),
            (2024, 0, 1),
            (2024, 13, 1),
        ] {
            assert_eq!(date(year, month, day).to_seconds(), None);
        }
        assert_eq!(Date { hour: 24, ..date(2024, 1, 1) }.to_seconds(), None);
        assert_eq!(date(10_000, 1, 1).to_seconds(), None);
        assert_eq!(date(i64::MAX, i64::MAX, i64::MIN).to_seconds(), None);
    }

    #[test]
    fn seconds_beyond_the_years_known_give_the_first_and_last_date() {
        assert_eq!(Date::from_seconds(i64::MIN), date(0, 1, 1));
        assert_eq!(Date::from_seconds(i64::MAX).to_seconds(), Some(LAST));
    }

    proptest! {
        #[test]
        fn every_second_has_a_date_and_the_date_that_second(seconds in FIRST..=LAST) {
            prop_assert_eq!(Date::from_seconds(seconds).to_seconds(), Some(seconds));
        }
    }
}
