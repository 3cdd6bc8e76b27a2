//! Times of superblocks as text, in UTC.
//!
//! Source: the Gregorian calendar, in years that begin on 1 March so that the leap day is last: 153
//! days are five months of 31, 30, 31, 30, 31.
//!
//! No library is used. The times of a superblock reach the year 36812, but the crates jiff and time
//! end with the year 9999. A feature of time extends this to the year 999999, but the feature would
//! also apply to the dates of certificates; and a `u64` of seconds goes further still.

use crate::MdTime;

/// A point in time as calendar date and clock time.
struct Civil {
    year: u64,
    /// Month of the year, from 1 for January.
    month: u64,
    day: u64,
    /// Time of day, such as `07:04:14`.
    clock: String,
}

impl Civil {
    fn of(secs: u64) -> Self {
        /// Days in 400 years, after which the calendar repeats.
        const ERA: u64 = 146_097;

        // 1970-01-01 is 719,468 days after 0000-03-01.
        let shifted = secs / 86_400 + 719_468;
        let (era, day) = (shifted / ERA, shifted % ERA);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let since_march = (5 * day + 2) / 153;
        Self {
            year: era * 400 + year + u64::from(since_march >= 10),
            month: (since_march + 2) % 12 + 1,
            day: day - (153 * since_march + 2) / 5 + 1,
            clock: format!("{:02}:{:02}:{:02}", secs / 3600 % 24, secs / 60 % 60, secs % 60),
        }
    }
}

impl MdTime {
    /// Formats the time like ctime(3) and mdadm, in UTC: `Fri Nov 20 07:04:14 2026`.
    #[must_use]
    pub fn to_ctime(self) -> String {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let Civil { year, month, day, clock } = Civil::of(self.secs);
        let pick = |names: &[&'static str], index: u64| {
            usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("???")
        };
        let (weekday, month) = (pick(&DAYS, self.secs / 86_400 % 7), pick(&MONTHS, month - 1));
        format!("{weekday} {month} {day:2} {clock} {year}")
    }

    /// Formats the time by RFC 3339, in UTC and whole seconds: `2026-11-20T07:04:14Z`. Years after
    /// 9999 have five digits.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let Civil { year, month, day, clock } = Civil::of(self.secs);
        format!("{year:04}-{month:02}-{day:02}T{clock}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_fall_where_date_puts_them() {
        // `date -u -d @N`
        for (secs, ctime, rfc3339) in [
            (0, "Thu Jan  1 00:00:00 1970", "1970-01-01T00:00:00Z"),
            (951_782_400, "Tue Feb 29 00:00:00 2000", "2000-02-29T00:00:00Z"),
            (951_868_799, "Tue Feb 29 23:59:59 2000", "2000-02-29T23:59:59Z"),
            (951_868_800, "Wed Mar  1 00:00:00 2000", "2000-03-01T00:00:00Z"),
            (1_795_158_254, "Fri Nov 20 07:04:14 2026", "2026-11-20T07:04:14Z"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100", "2100-02-28T23:59:59Z"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100", "2100-03-01T00:00:00Z"),
            // The latest time that a superblock can hold.
            ((1 << 40) - 1, "Mon Feb 20 00:36:15 36812", "36812-02-20T00:36:15Z"),
        ] {
            let time = MdTime::from_secs(secs);
            assert_eq!((time.to_ctime(), time.to_rfc3339()), (ctime.into(), rfc3339.into()));
        }
    }
}
