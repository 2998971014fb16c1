//! Formats a time since 1970 as RFC 3339 in UTC, with milliseconds.

use time::OffsetDateTime;

/// Formats seconds since 1970, such as `2026-11-20T13:17:05.250Z`. A time before 1970 counts as 1970, and one after 9999 too.
pub(crate) fn rfc3339(unix_s: f64) -> String {
    // `as` saturates NaN and values out of range.
    let ms = (unix_s * 1000.0).round() as u64;
    let date = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second, ms) = date.to_hms_milli();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
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
            (1_735_689_599.999, "2024-12-31T23:59:59.999Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00.000Z"),
            (f64::NAN, "1970-01-01T00:00:00.000Z"),
            (-5.0, "1970-01-01T00:00:00.000Z"),
            (f64::INFINITY, "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(unix_s), written);
        }
    }
}
