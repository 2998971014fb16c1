//! Text of an answer while it grows: bounded, and reported in parts whose sum is bounded, too.
//!
//! Every partial transcript repeats all text so far. If each piece of a long text gave one, an answer that never ends
//! would cost the square of its length.

/// Longest text of one answer, bytes. Half a minute of speech, the longest request, has a fiftieth of it.
pub(crate) const TEXT_MAX_BYTES: usize = 64 * 1024;
/// Up to this length, bytes, every piece is worth a report.
const EAGER_BYTES: usize = 2048;

/// Text of one answer.
#[derive(Debug, Default)]
pub(crate) struct GrowingText {
    text: String,
    /// Length at the last report.
    reported_bytes: usize,
}

impl GrowingText {
    /// The text so far.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Appends a piece. Returns false if the text would be too long; then it keeps what it has.
    pub(crate) fn push(&mut self, piece: &str) -> bool {
        let fits = self.text.len() + piece.len() <= TEXT_MAX_BYTES;
        if fits {
            self.text.push_str(piece);
        }
        fits
    }

    /// The text, if it is time to report it: always while it is short, and later each time it has grown by a sixteenth.
    pub(crate) fn due_report(&mut self) -> Option<&str> {
        let text = self.text.trim();
        let is_due = !text.is_empty() && is_report_due(self.text.len(), &mut self.reported_bytes);
        is_due.then_some(text)
    }
}

/// True if it is time to report a text of `len` bytes. Remembers the length if so.
pub(crate) fn is_report_due(len: usize, reported_bytes: &mut usize) -> bool {
    let is_due = len <= EAGER_BYTES || len.saturating_sub(*reported_bytes) >= len / 16;
    if is_due {
        *reported_bytes = len;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_reported_at_every_piece() {
        let mut text = GrowingText::default();
        assert!(text.push(" ") && text.due_report().is_none());
        for (piece, whole) in [("Hello", "Hello"), (" ", "Hello"), ("you", "Hello you")] {
            assert!(text.push(piece));
            assert_eq!(text.due_report(), Some(whole));
        }
    }

    #[test]
    fn endless_text_is_bounded_and_so_is_the_sum_of_its_reports() {
        let (mut text, mut pieces, mut reported) = (GrowingText::default(), 0, 0);
        while text.push("a") {
            pieces += 1;
            reported += text.due_report().map_or(0, str::len);
        }
        assert_eq!(pieces, TEXT_MAX_BYTES);
        assert!(reported < 64 * TEXT_MAX_BYTES, "{reported} bytes");
    }
}
