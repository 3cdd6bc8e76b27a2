//! Time and host as texts. Times are UTC, whatever the zone of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

use weft_ondisk::MdTime;

/// Seconds since 1970.
pub(crate) fn epoch_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// The name of this machine.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// `2026-11-20T07:04:14Z`.
pub(crate) fn rfc3339(time: MdTime) -> String {
    let civil = Civil::of(time.secs);
    let (h, m, s) = civil.clock;
    format!("{:04}-{:02}-{:02}T{h:02}:{m:02}:{s:02}Z", civil.year, civil.month, civil.day)
}

/// Today, `2026-11-20`.
pub(crate) fn today() -> String {
    let civil = Civil::of(epoch_secs());
    format!("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day)
}

/// `Fri Nov 20 07:04:14 2026`, as ctime(3) and mdadm.
pub(crate) fn mdadm(secs: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let civil = Civil::of(secs);
    let (h, m, s) = civil.clock;
    let pick = |names: &[&'static str], index: u64| {
        usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("???")
    };
    let (day, month) = (pick(&DAYS, secs / 86_400 % 7), pick(&MONTHS, civil.month - 1));
    format!("{day} {month} {:2} {h:02}:{m:02}:{s:02} {}", civil.day, civil.year)
}

/// A moment in the calendar.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    clock: (u64, u64, u64),
}

impl Civil {
    /// Years begin in March here, so that the leap day comes last; eras of 400 years are 146 097
    /// days long.
    ///
    /// Source   H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`
    fn of(secs: u64) -> Self {
        let days = secs / 86_400;
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let rest = secs % 86_400;
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            clock: (rest / 3600, rest / 60 % 60, rest % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_fall_where_date_puts_them() {
        // `date -u -d @N`
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_158_254, "2026-11-20T07:04:14Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(MdTime::from_secs(secs)), text);
        }
        assert_eq!(mdadm(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(mdadm(1_795_158_254), "Fri Nov 20 07:04:14 2026");
        // As late as a superblock can say.
        assert_eq!(rfc3339(MdTime::from_secs((1 << 40) - 1)).len(), 21);
    }
}
