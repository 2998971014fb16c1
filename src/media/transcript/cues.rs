//! Cues of subtitles: transcripts divided into texts that are short enough to be read while they are shown.
//!
//! A cue ends where its sentence or clause ends, if that is possible within the limits. Its times are those of its words, which
//! are estimated if the transcript has none.

use std::ops::Range;

use super::Segment;
use super::division::divide;
use super::pieces::{Piece, end_cost, has_space_between, joined_pieces, pieces_of};
use crate::audio::sentence_marks::ends_sentence;

/// Limits of a cue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CueRules {
    /// Most columns of a line. A Chinese, Japanese or Korean character takes two.
    pub max_line: usize,
    /// Most lines.
    pub max_lines: usize,
    /// Longest time, ms.
    pub max_cue_ms: u64,
}

impl Default for CueRules {
    /// The limits of broadcasters for most languages.
    fn default() -> Self {
        Self { max_line: 42, max_lines: 2, max_cue_ms: 7000 }
    }
}

/// A text and when it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    /// Start, from the start of the recording, ms.
    pub start_ms: u64,
    /// End. It may be later than that of its words, so that it can be read.
    pub end_ms: u64,
    /// End of its words.
    pub words_end_ms: u64,
    /// The text, without control characters.
    pub lines: Vec<String>,
}

impl Cue {
    /// Ends before a cue that begins at this point, if that one begins later.
    pub(super) fn end_before(&mut self, next_start_ms: u64) {
        if next_start_ms > self.start_ms {
            self.end_ms = self.end_ms.min(next_start_ms);
        }
    }

    /// Ends with its words, or within a recording of this length.
    pub(super) fn end_within(&mut self, length_ms: u64) {
        self.end_ms = self.end_ms.min(length_ms.max(self.words_end_ms)).max(self.start_ms + 1);
    }
}

/// A shorter cue is shown longer, if it can be, ms.
const READABLE_MS: u64 = 1000;
/// Silence that follows an utterance of its own. A short cue may be shown in it, ms.
const SILENCE_MS: u64 = 300;
/// Costs of a cue's end, in cues: where it is better to end a cue too many than in the middle of a clause.
mod cost {
    pub(super) const CUE: f32 = 1.0;
    /// A sentence that ends within a cue.
    pub(super) const SENTENCE_INSIDE: f32 = 0.6;
    /// A cue without any time to read it.
    pub(super) const TOO_SHORT: f32 = 1.5;
    /// A line: more than its form.
    pub(super) const LINE: f32 = 100.0;
}

/// The cues of a segment.
pub fn cues_of(segment: &Segment, rules: &CueRules) -> Vec<Cue> {
    let pieces = pieces_of(segment, rules.max_line.max(2));
    let cost = |range: Range<usize>| cue_cost(&pieces, range, rules);
    let mut cues: Vec<Cue> =
        divide(pieces.len(), cost).into_iter().map(|range| cue_of(&pieces[range], rules)).collect();
    for at in 0..cues.len() {
        let next_ms = cues.get(at + 1).map(|next| next.start_ms);
        lengthen(&mut cues[at], next_ms, rules);
    }
    cues
}

/// Shows a cue as long as it takes to read it, if there is time before the next.
fn lengthen(cue: &mut Cue, next_ms: Option<u64>, rules: &CueRules) {
    let after_start = |ms: u64| cue.start_ms.saturating_add(ms);
    let free_ms = next_ms.unwrap_or(cue.end_ms.saturating_add(SILENCE_MS));
    let readable_ms = after_start(READABLE_MS).min(free_ms);
    cue.end_ms = cue.end_ms.max(readable_ms).clamp(after_start(1), after_start(rules.max_cue_ms.max(1)));
}

fn cue_of(pieces: &[Piece], rules: &CueRules) -> Cue {
    let lines = divide(pieces.len(), |range| line_cost(pieces, range, rules.max_line));
    let line = |range: Range<usize>| joined_pieces(&pieces[range]);
    let times = |piece: &Piece| (piece.start_ms, piece.end_ms);
    let (start_ms, _) = pieces.first().map(times).unwrap_or_default();
    let (_, end_ms) = pieces.last().map(times).unwrap_or_default();
    Cue { start_ms, end_ms, words_end_ms: end_ms, lines: lines.into_iter().map(line).collect() }
}

/// Cost of a cue; `None` if it exceeds the limits.
fn cue_cost(pieces: &[Piece], range: Range<usize>, rules: &CueRules) -> Option<f32> {
    let cue = &pieces[range.clone()];
    let [first, .., last] = cue else {
        return Some(end_cost(pieces, range.end) + cost::CUE + cost::TOO_SHORT);
    };
    let duration_ms = last.end_ms.saturating_sub(first.start_ms);
    if duration_ms > rules.max_cue_ms || count_lines(cue, rules.max_line) > rules.max_lines {
        return None;
    }
    let sentences = cue[..cue.len() - 1].iter().filter(|piece| ends_sentence(&piece.text)).count();
    let missing = READABLE_MS.saturating_sub(duration_ms) as f32 / READABLE_MS as f32;
    Some(
        cost::CUE
            + cost::SENTENCE_INSIDE * sentences as f32
            + cost::TOO_SHORT * missing
            + end_cost(pieces, range.end),
    )
}

/// Cost of a line: lines of like lengths, ended as cues are; `None` if it is too long.
fn line_cost(pieces: &[Piece], range: Range<usize>, max_line: usize) -> Option<f32> {
    let width = width_of_line(&pieces[range.clone()]);
    let unused = max_line.checked_sub(width)? as f32 / max_line as f32;
    Some(cost::LINE + 4.0 * unused * unused + end_cost(pieces, range.end))
}

/// Lines that the pieces need.
fn count_lines(pieces: &[Piece], max_line: usize) -> usize {
    let (mut lines, mut line_width) = (1, 0);
    for (at, piece) in pieces.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| pieces.get(at)).filter(|_| line_width > 0);
        let space = before.is_some_and(|before| has_space_between(&before.text, &piece.text));
        let longer = line_width + usize::from(space) + piece.width;
        if longer > max_line && line_width > 0 {
            (lines, line_width) = (lines + 1, piece.width);
        } else {
            line_width = longer;
        }
    }
    lines
}

fn width_of_line(pieces: &[Piece]) -> usize {
    let spaces = pieces.windows(2).filter(|pair| has_space_between(&pair[0].text, &pair[1].text)).count();
    pieces.iter().map(|piece| piece.width).sum::<usize>() + spaces
}

#[cfg(test)]
mod tests {
    use super::super::Word;
    use super::super::pieces::width;
    use super::*;
    use proptest::prelude::*;

    fn segment(text: &str, start_ms: u64, end_ms: u64) -> Segment {
        Segment { text: text.to_owned(), start_ms, end_ms, ..Segment::default() }
    }

    fn texts(cues: &[Cue]) -> Vec<String> {
        cues.iter().map(|cue| cue.lines.join("|")).collect()
    }

    #[test]
    fn cues_end_with_sentences_and_clauses_and_lines_are_balanced() {
        let text = "And so, my fellow Americans, ask not what your country can do for you. Ask what you can do for your \
            country, and do it before anybody else has done it.";
        let cues = cues_of(&segment(text, 1000, 12_000), &CueRules::default());
        assert_eq!(
            texts(&cues),
            [
                "And so, my fellow Americans,|ask not what your country can do for you.",
                "Ask what you can do for your country,|and do it before anybody else has done it."
            ]
        );
        assert_eq!((cues[0].start_ms, cues[1].end_ms), (1000, 12_000));
        assert!(cues[0].end_ms <= cues[1].start_ms);
    }

    #[test]
    fn chinese_characters_take_two_columns_and_need_no_spaces() {
        let text = "我们大家都应该好好学习，因为明天会有很多事情要做，而且没有人知道后天会发生什么。";
        let cues = cues_of(&segment(text, 0, 9000), &CueRules::default());
        assert_eq!(texts(&cues).join("").replace('|', ""), text);
        let lines: Vec<&String> = cues.iter().flat_map(|cue| &cue.lines).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 21), "{lines:?}");
        assert!(cues.len() > 1 && texts(&cues)[0].ends_with('，'), "{lines:?}");
    }

    #[test]
    fn times_of_the_words_are_used_although_their_punctuation_is_missing() {
        let words = [("Go", 1.0, 1.2), ("on", 5.0, 5.1), ("now", 9.5, 10.0)].map(|(word, start, end)| Word {
            word: word.into(),
            start,
            end,
            estimated: false,
        });
        let segment = Segment { words: Some(words.to_vec()), ..segment("Go. On, now!", 1000, 10_000) };
        let cues = cues_of(&segment, &CueRules::default());
        let times: Vec<_> = cues.iter().map(|cue| (cue.start_ms, cue.end_ms)).collect();
        assert_eq!(
            (texts(&cues), times),
            (vec!["Go.".into(), "On, now!".into()], vec![(1000, 2000), (5000, 10_000)])
        );
    }

    #[test]
    fn short_utterance_is_shown_into_the_silence_behind_it() {
        let (yes, next) = (segment("Yes.", 1000, 1400), segment("No.", 1600, 3000));
        let ends = |segments: &[Segment], duration_ms| {
            let cues = |segment| cues_of(segment, &CueRules::default());
            let mut cues: Vec<Cue> = segments.iter().flat_map(cues).collect();
            let next = cues.get(1).map(|next| next.start_ms);
            cues[0].end_before(next.unwrap_or(duration_ms));
            cues.last_mut().unwrap().end_within(duration_ms);
            cues.iter().map(|cue| cue.end_ms).collect::<Vec<_>>()
        };
        assert_eq!(ends(&[yes.clone(), next], 9000), [1600, 3000]);
        assert_eq!(ends(std::slice::from_ref(&yes), 9000), [1700]);
        assert_eq!(ends(&[yes], 1500), [1500]);
    }

    proptest! {
        #[test]
        fn cues_are_within_their_limits_and_hold_every_word(
            words in prop::collection::vec("[a-zA-Z]{1,12}[,.]?|[你好世界，。]{1,40}|[a-z]{60,90}", 0..80),
            length_ms in 0u64..60_000,
            max_line in 10usize..60,
            max_lines in 1usize..4,
            max_cue_ms in 1000u64..10_000,
        ) {
            let rules = CueRules { max_line, max_lines, max_cue_ms };
            let text = words.join(" ");
            let cues = cues_of(&segment(&text, 500, 500 + length_ms), &rules);
            let joined: String = cues.iter().flat_map(|cue| cue.lines.concat().chars().collect::<Vec<_>>()).collect();
            let spaceless = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(spaceless(&joined), spaceless(&text));
            for cue in &cues {
                prop_assert!(cue.lines.len() <= max_lines && cue.start_ms < cue.end_ms, "{cue:?}");
                prop_assert!(cue.end_ms - cue.start_ms <= max_cue_ms, "{cue:?}");
                prop_assert!(cue.lines.iter().all(|line| width(line) <= max_line), "{cue:?}");
            }
            prop_assert!(cues.windows(2).all(|pair| pair[0].start_ms <= pair[1].start_ms), "{cues:?}");
        }
    }
}
