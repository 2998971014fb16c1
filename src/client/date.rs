//! Formats seconds since 1970 as RFC 3339 in UTC, with milliseconds.

/// Formats a time, such as `2026-11-20T13:17:05.250Z`. A time before 1970 counts as 1970.
pub(crate) fn rfc3339(unix_s: f64) -> String {
    // `as` saturates NaN and values out of range.
    let ms = (unix_s * 1000.0).round() as u64;
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Converts days since 1 January 1970 to year, month and day of the Gregorian calendar. Years start in March, so that the
/// leap day is the last day of a year.
const fn civil_date(days: u64) -> (u64, u64, u64) {
    const CENTURIES4_DAYS: u64 = 146_097;
    /// From 1 March of the year 0 to 1 January 1970.
    const MARCH_0_DAYS: u64 = 719_468;
    let since = days + MARCH_0_DAYS;
    let (era, day) = (since / CENTURIES4_DAYS, since % CENTURIES4_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / (CENTURIES4_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months of 31, 30, 31, 30, 31 days from March on: 153 in five.
    let month = (5 * day + 2) / 153;
    let (of_month, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + (month <= 2) as u64, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_timestamps_are_formatted() {
        for (unix_s, written) in [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (951_782_400.0, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199.999, "2024-02-29T23:59:59.999Z"),
            (1_724_971_075.202, "2024-08-29T22:37:55.202Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00.000Z"),
            (f64::NAN, "1970-01-01T00:00:00.000Z"),
            (-5.0, "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(unix_s), written);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = civil_date(0);
        for days in 1..80_000 {
            let next = civil_date(days);
            let follows = next == (last.0, last.1, last.2 + 1)
                || (next.2 == 1 && (next.1 == last.1 + 1 || (next.1 == 1 && next.0 == last.0 + 1)));
            assert!(follows, "{last:?} {next:?}");
            last = next;
        }
    }
}
