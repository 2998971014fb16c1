//! Words of one speaker in a session of OpenAI's Live protocol: fragments without an end, each with its time. Clients append them, so
//! that a fragment begins with the space between it and the words before it.

use crate::vocabulary::needs_no_spaces;

/// Part of a transcript.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) text: String,
    /// Start and end in the session, ms.
    pub(super) span_ms: (u64, u64),
}

/// The words of one speaker.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// The newest utterance or turn.
    segment_id: Option<u32>,
    /// What was sent of it.
    sent: String,
    /// Last letter of the words before it.
    before: Option<char>,
    /// Its start, and the end of its last fragment, ms.
    span_ms: (u64, u64),
}

impl Words {
    /// The words that are new in an utterance or turn with this number, text and time so far.
    ///
    /// A decode may revise words that were sent, and the end of an interrupted turn repeats what was heard of it, which is shorter.
    /// Neither is new.
    pub(super) fn take_new(
        &mut self,
        segment_id: u32,
        text: &str,
        from_ms: u64,
        to_ms: u64,
    ) -> Option<Fragment> {
        if self.segment_id != Some(segment_id) {
            self.before = self.sent.chars().next_back().or(self.before);
            let span_ms = (from_ms, from_ms);
            *self = Self { segment_id: Some(segment_id), sent: String::new(), span_ms, ..*self };
        }
        let new = text.strip_prefix(self.sent.as_str()).filter(|new| !new.is_empty())?;
        let is_first = self.sent.is_empty();
        let ends = [self.before, new.chars().next()];
        let is_letter =
            |end: &Option<char>| end.is_some_and(|it| !it.is_whitespace() && !needs_no_spaces(it));
        let space = if is_first && ends.iter().all(is_letter) { " " } else { "" };
        let start_ms = self.span_ms.1;
        self.span_ms.1 = start_ms.max(to_ms);
        self.sent.push_str(new);
        Some(Fragment { text: format!("{space}{new}"), span_ms: (start_ms, self.span_ms.1) })
    }

    /// Start of the utterance or turn with this number, ms; `None` if it is another one.
    pub(super) fn start_ms(&self, segment_id: u32) -> Option<u64> {
        (self.segment_id == Some(segment_id)).then_some(self.span_ms.0)
    }

    /// True for a turn before the newest one.
    pub(super) fn is_earlier(&self, segment_id: u32) -> bool {
        self.segment_id.is_some_and(|newest| segment_id < newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_append_to_the_transcript_and_follow_each_other_in_time() {
        let mut words = Words::default();
        let mut fragments = Vec::new();
        for (segment_id, text, (from_ms, to_ms)) in [
            (1, "Go", (100, 400)),
            (1, "Go on", (100, 900)),
            (1, "Go", (100, 900)),
            (2, "", (2000, 2000)),
            (2, "And now", (2000, 2500)),
            (2, "And, now", (2000, 2500)),
            (3, "你好", (5000, 5500)),
            (4, "Bye", (7000, 7500)),
        ] {
            let new = words.take_new(segment_id, text, from_ms, to_ms);
            fragments.extend(new.map(|fragment| (fragment.text, fragment.span_ms)));
        }
        let expected = [
            ("Go", (100, 400)),
            (" on", (400, 900)),
            (" And now", (2000, 2500)),
            ("你好", (5000, 5500)),
            ("Bye", (7000, 7500)),
        ];
        assert_eq!(fragments, expected.map(|(text, span_ms)| (text.to_owned(), span_ms)));
    }
}
