//! A transcript in progress: what of a recording was transcribed, what failed, and what is still to be asked.

use super::{Gap, Segment};

/// Silence that belongs to an utterance before and after it, ms.
const MARGIN_MS: u64 = 300;

/// A span of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Start, ms.
    pub from_ms: u64,
    /// End; `None` for the end of the recording.
    pub to_ms: Option<u64>,
}

impl Span {
    /// The whole recording.
    pub const WHOLE: Self = Self { from_ms: 0, to_ms: None };

    fn has(&self, gap: &Gap) -> bool {
        gap.start_ms >= self.from_ms && self.to_ms.is_none_or(|to_ms| gap.start_ms < to_ms)
    }
}

/// A transcript in progress, in the order of speech.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartialTranscript {
    segments: Vec<Segment>,
    gaps: Vec<Gap>,
    /// Gaps of an earlier run. Their audio is asked for again.
    earlier_gaps: Vec<Gap>,
}

/// A part of a transcript.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part<'p> {
    /// A transcribed segment.
    Segment(&'p Segment),
    /// A gap.
    Gap(&'p Gap),
}

impl Part<'_> {
    const fn start_ms(&self) -> u64 {
        match self {
            Self::Segment(segment) => segment.start_ms,
            Self::Gap(gap) => gap.start_ms,
        }
    }
}

impl PartialTranscript {
    /// A transcript without parts.
    pub const fn new() -> Self {
        Self { segments: Vec::new(), gaps: Vec::new(), earlier_gaps: Vec::new() }
    }

    /// Adds a segment. True if it is the last part, so that a file can be continued.
    pub fn add_segment(&mut self, segment: Segment) -> bool {
        let (start_ms, end_ms) = (segment.start_ms, segment.end_ms);
        let is_last = self.parts().last().is_none_or(|last| last.start_ms() <= start_ms)
            && !self.earlier_gaps.iter().any(|gap| start_ms < gap.end_ms);
        let at = self.segments.partition_point(|known| known.start_ms <= start_ms);
        self.segments.insert(at, segment);
        // An earlier gap is closed from its start on.
        for gap in self.earlier_gaps.iter_mut().filter(|gap| gap.start_ms < end_ms && start_ms < gap.end_ms) {
            gap.start_ms = end_ms;
        }
        self.earlier_gaps.retain(|gap| gap.start_ms < gap.end_ms);
        is_last
    }

    /// Adds a gap. True if it is the last part.
    pub fn add_gap(&mut self, gap: Gap) -> bool {
        let is_last = self.parts().last().is_none_or(|last| last.start_ms() <= gap.start_ms);
        let at = self.gaps.partition_point(|known| known.start_ms <= gap.start_ms);
        self.gaps.insert(at, gap);
        is_last
    }

    /// Makes all gaps those of an earlier run.
    pub fn begin_run(&mut self) {
        self.earlier_gaps.append(&mut self.gaps);
        self.earlier_gaps.sort_by_key(|gap| gap.start_ms);
    }

    /// The earlier gaps in this span were asked for again: what is left of them is silence. True if there were any.
    pub fn complete(&mut self, span: Span) -> bool {
        let before = self.earlier_gaps.len();
        self.earlier_gaps.retain(|gap| !span.has(gap));
        self.earlier_gaps.len() < before
    }

    /// The segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// All gaps, in the order of speech.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = self.gaps.iter().chain(&self.earlier_gaps).cloned().collect();
        gaps.sort_by_key(|gap| gap.start_ms);
        gaps
    }

    /// All parts, in the order of speech.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let gaps = self.gaps.iter().chain(&self.earlier_gaps).map(Part::Gap);
        let mut parts: Vec<Part<'_>> = self.segments.iter().map(Part::Segment).chain(gaps).collect();
        parts.sort_by_key(Part::start_ms);
        parts
    }

    /// The end of what was transcribed or failed.
    pub fn end_ms(&self) -> u64 {
        let gaps = self.gaps.iter().chain(&self.earlier_gaps).map(|gap| gap.end_ms);
        self.segments.iter().map(|segment| segment.end_ms).chain(gaps).max().unwrap_or(0)
    }

    /// The spans that are still to be asked for: earlier gaps that lie between segments, and the rest of the recording.
    pub fn missing(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let rest_from_ms = self.segments.iter().map(|segment| segment.end_ms).max().unwrap_or(0);
        for gap in self.earlier_gaps.iter().filter(|gap| gap.start_ms < rest_from_ms) {
            let before = self.segments.iter().filter(|segment| segment.start_ms < gap.start_ms);
            let before_ms = before.map(|segment| segment.end_ms).max().unwrap_or(0);
            let after = self.segments.iter().find(|segment| segment.start_ms >= gap.start_ms);
            let after_ms = after.map_or(u64::MAX, |segment| segment.start_ms);
            let from_ms = gap.start_ms.saturating_sub(MARGIN_MS).max(before_ms);
            let to_ms = gap.end_ms.saturating_add(MARGIN_MS).min(after_ms);
            match spans.last_mut().filter(|last| last.to_ms.is_some_and(|to_ms| to_ms >= from_ms)) {
                Some(last) => last.to_ms = last.to_ms.max(Some(to_ms)),
                None => spans.push(Span { from_ms, to_ms: Some(to_ms) }),
            }
        }
        spans.push(Span { from_ms: rest_from_ms, to_ms: None });
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start_ms: u64, end_ms: u64) -> Segment {
        Segment { text: "words".into(), start_ms, end_ms, ..Segment::default() }
    }

    fn gap(start_ms: u64, end_ms: u64) -> Gap {
        Gap { start_ms, end_ms, message: "busy".into() }
    }

    fn starts(transcript: &PartialTranscript) -> Vec<u64> {
        transcript.parts().iter().map(Part::start_ms).collect()
    }

    #[test]
    fn new_transcript_lacks_the_whole_recording_and_a_finished_one_its_rest() {
        let mut transcript = PartialTranscript::default();
        assert_eq!(transcript.missing(), [Span::WHOLE]);
        assert!(transcript.add_segment(segment(100, 900)) && transcript.add_segment(segment(900, 2000)));
        assert_eq!(transcript.missing(), [Span { from_ms: 2000, to_ms: None }]);
    }

    #[test]
    fn gaps_are_asked_for_again_without_the_speech_beside_them() {
        let mut transcript = PartialTranscript::default();
        transcript.add_segment(segment(100, 2000));
        transcript.add_gap(gap(2000, 4000));
        transcript.add_gap(gap(4200, 5000));
        transcript.add_segment(segment(6000, 7000));
        transcript.add_gap(gap(7500, 8000));
        assert_eq!(transcript.missing().len(), 1, "gaps of this run are not asked for again");
        transcript.begin_run();
        let rest = Span { from_ms: 7000, to_ms: None };
        assert_eq!(transcript.missing(), [Span { from_ms: 2000, to_ms: Some(5300) }, rest]);
        assert!(!transcript.add_segment(segment(2100, 3000)));
        assert_eq!(starts(&transcript), [100, 2100, 3000, 4200, 6000, 7500]);
        assert!(!transcript.add_gap(gap(3100, 3500)), "another utterance fails");
        assert!(!transcript.add_segment(segment(3500, 3900)));
        assert!(transcript.complete(Span { from_ms: 2000, to_ms: Some(5300) }));
        assert_eq!(starts(&transcript), [100, 2100, 3100, 3500, 6000, 7500]);
        assert!(transcript.complete(rest) && !transcript.complete(rest));
        assert_eq!(transcript.gaps(), [gap(3100, 3500)]);
    }
}
