//! How much was spoken to the client: since the last `flushed` or `cleared`, and in the session.

use crate::vocabulary::{ClientEvent, Slot, SlotValue};

/// Characters and audio, in ms, of texts.
#[derive(Debug, Default, Clone, Copy)]
struct Amount {
    chars: u64,
    audio_ms: u64,
}

/// Counts of the characters and audio spoken on one connection. A text counts once it is begun.
#[derive(Debug, Default)]
pub(super) struct SpokenAmounts {
    /// Since the last report, which is a `flushed` or `cleared`.
    since_report: Amount,
    before_report: Amount,
    /// A text was begun since the last report.
    has_begun: bool,
    /// The newest text is not the first one since the last report.
    is_continued: bool,
}

impl SpokenAmounts {
    /// Counts the beginning or the end of a text or turn.
    pub(super) fn note(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::SpeakingStarted { text, .. } => {
                self.since_report.chars += text.chars().count() as u64;
                self.is_continued = std::mem::replace(&mut self.has_begun, true);
            }
            ClientEvent::SpeakingEnded { audio_ms, .. } => self.since_report.audio_ms += audio_ms,
            _ => {}
        }
    }

    /// Begins to count anew, because the report was sent.
    pub(super) fn note_report(&mut self) {
        let Amount { chars, audio_ms } = std::mem::take(&mut self.since_report);
        self.before_report.chars += chars;
        self.before_report.audio_ms += audio_ms;
        self.has_begun = false;
    }

    /// The value of a slot, if it is one of these.
    pub(super) fn value(&self, slot: Slot) -> Option<SlotValue<'static>> {
        let Amount { chars, audio_ms } = self.since_report;
        let number = match slot {
            Slot::Continued => return Some(SlotValue::Bool(self.is_continued)),
            Slot::SpokenChars => chars,
            Slot::SpokenMs => audio_ms,
            Slot::TotalSpokenChars => self.before_report.chars + chars,
            Slot::TotalSpokenMs => self.before_report.audio_ms + audio_ms,
            _ => return None,
        };
        Some(SlotValue::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speak(amounts: &mut SpokenAmounts, text: &str, audio_ms: u64) {
        let request_id = String::new();
        amounts.note(&ClientEvent::SpeakingStarted {
            request_id: request_id.clone(),
            at_ms: 1,
            text: text.to_owned(),
            is_requested: true,
        });
        amounts.note(&ClientEvent::SpeakingEnded { request_id, at_ms: 2, cancelled: false, audio_ms });
    }

    /// The value of a slot; a flag as 0 or 1.
    fn value(amounts: &SpokenAmounts, slot: Slot) -> Option<i64> {
        match amounts.value(slot)? {
            SlotValue::Int(number) => Some(number),
            SlotValue::Bool(flag) => Some(flag.into()),
            _ => None,
        }
    }

    fn values(amounts: &SpokenAmounts) -> [Option<i64>; 5] {
        [Slot::Continued, Slot::SpokenChars, Slot::SpokenMs, Slot::TotalSpokenChars, Slot::TotalSpokenMs]
            .map(|slot| value(amounts, slot))
    }

    #[test]
    fn amounts_since_a_report_begin_anew_and_totals_go_on() {
        let mut amounts = SpokenAmounts::default();
        speak(&mut amounts, "Wie schön. ", 700);
        assert_eq!(values(&amounts), [0, 11, 700, 11, 700].map(Some));
        speak(&mut amounts, "Ja.", 300);
        assert_eq!(values(&amounts), [1, 14, 1000, 14, 1000].map(Some));
        amounts.note_report();
        assert_eq!(values(&amounts)[1..], [0, 0, 14, 1000].map(Some));
        speak(&mut amounts, "Nein.", 400);
        assert_eq!(values(&amounts), [0, 5, 400, 19, 1400].map(Some));
        assert_eq!(value(&amounts, Slot::Text), None);
    }
}
