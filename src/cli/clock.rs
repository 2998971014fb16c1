//! Positions in recordings, as people write them.

use std::time::Duration;

/// A position in a recording, such as `0:12` or `1:02:03`.
pub(super) fn clock(at: Duration) -> String {
    let (hours, minutes, seconds) = (at.as_secs() / 3600, at.as_secs() / 60 % 60, at.as_secs() % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_hours_only_where_needed() {
        assert_eq!(
            [0, 12, 61, 3599, 3723].map(|s| clock(Duration::from_secs(s))),
            ["0:00", "0:12", "1:01", "59:59", "1:02:03"]
        );
    }
}
