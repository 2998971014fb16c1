//! The last segments of the user's transcript, for protocols whose messages repeat them: the slot `segments`.
//!
//! A segment is an utterance with its words. Its times do not overlap those of the segment before, because clients
//! drop segments that begin earlier.

use std::collections::VecDeque;

use crate::{
    spelling::client::SEGMENTS_MAX,
    vocabulary::{ClientEvent, Speaker},
};

/// Words of an utterance, with their position in the received audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) segment_id: u32,
    pub(super) text: String,
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    /// The words are final.
    pub(super) completed: bool,
}

/// The last segments: final ones, and the current one.
#[derive(Debug)]
pub(super) struct Segments {
    max: usize,
    finals: VecDeque<Segment>,
    current: Option<Segment>,
    /// Memory of the words, bytes.
    bytes: usize,
}

impl Segments {
    pub(super) fn new(max: usize) -> Self {
        let mut segments = Self { max: 0, finals: VecDeque::new(), current: None, bytes: 0 };
        segments.set_max(max);
        segments
    }

    /// Changes the number of segments that are kept.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max.clamp(1, SEGMENTS_MAX);
        self.drop_excess();
    }

    fn drop_excess(&mut self) {
        let excess = self.finals.len().saturating_sub(self.max);
        self.finals.drain(..excess);
    }

    /// Adds or replaces the words of an utterance. Returns false for what is no transcript of the user.
    pub(super) fn note(&mut self, event: &ClientEvent) -> bool {
        match event {
            ClientEvent::TranscriptPartial {
                speaker: Speaker::User,
                text,
                segment_id,
                audio_ms,
                start_ms,
            } => {
                self.current = self.segment(text, *segment_id, *start_ms, start_ms + audio_ms);
            }
            ClientEvent::TranscriptFinal { speaker: Speaker::User, text, segment_id, speech_ms, .. } => {
                self.current.take_if(|current| current.segment_id <= *segment_id);
                if let Some(segment) = self.segment(text, *segment_id, speech_ms.0, speech_ms.1) {
                    self.finals.push_back(Segment { completed: true, ..segment });
                    self.drop_excess();
                }
            }
            _ => return false,
        }
        self.bytes = self.finals.iter().chain(&self.current).map(|segment| segment.text.len()).sum();
        true
    }

    /// Memory of the words, bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A segment behind the final ones; `None` without words.
    fn segment(&self, text: &str, segment_id: u32, from_ms: u64, to_ms: u64) -> Option<Segment> {
        let text = text.trim();
        let from_ms = from_ms.max(self.finals.back().map_or(0, |last| last.to_ms));
        let segment = Segment {
            segment_id,
            text: text.to_owned(),
            from_ms,
            to_ms: to_ms.max(from_ms),
            completed: false,
        };
        (!text.is_empty()).then_some(segment)
    }

    /// The last segments, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        let count = self.finals.len() + usize::from(self.current.is_some());
        self.finals.iter().chain(&self.current).skip(count.saturating_sub(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(segment_id: u32, text: &str, start_ms: u64) -> ClientEvent {
        let (speaker, text) = (Speaker::User, text.to_owned());
        ClientEvent::TranscriptPartial { speaker, text, segment_id, audio_ms: 500, start_ms }
    }

    fn final_words(segment_id: u32, text: &str, speech_ms: (u64, u64)) -> ClientEvent {
        ClientEvent::TranscriptFinal {
            speaker: Speaker::User,
            text: text.to_owned(),
            segment_id,
            duration_ms: 0,
            start_ms: 0,
            speech_ms,
            utterance_ended: true,
            finalized: false,
            language: None,
            words: Vec::new(),
        }
    }

    fn texts(segments: &Segments) -> Vec<(&str, u64, bool)> {
        segments.iter().map(|it| (it.text.as_str(), it.from_ms, it.completed)).collect()
    }

    #[test]
    fn the_last_segments_are_repeated_without_overlap() {
        let mut segments = Segments::new(2);
        assert!(segments.note(&partial(1, "go", 100)));
        assert!(segments.note(&partial(1, " go forward ", 100)));
        assert_eq!(texts(&segments), [("go forward", 100, false)]);
        assert!(segments.note(&final_words(1, "Go forward.", (200, 1400))));
        assert!(segments.note(&final_words(2, " ", (0, 0))));
        assert_eq!(texts(&segments), [("Go forward.", 200, true)]);
        assert!(segments.note(&partial(3, "ten", 1300)));
        assert_eq!(texts(&segments), [("Go forward.", 200, true), ("ten", 1400, false)]);
        assert!(segments.note(&final_words(3, "Ten.", (1350, 2000))));
        assert!(segments.note(&partial(4, "meters", 2100)));
        assert_eq!(texts(&segments), [("Ten.", 1400, true), ("meters", 2100, false)]);
        assert_eq!(segments.bytes(), "Go forward.Ten.meters".len());
        segments.set_max(0);
        assert_eq!(texts(&segments), [("meters", 2100, false)]);
        segments.set_max(usize::MAX);
        assert!((5..500).all(|id| segments.note(&final_words(id, "x", (0, 0)))));
        assert_eq!(segments.iter().count(), SEGMENTS_MAX);
    }
}
