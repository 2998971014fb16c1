//! Segments of a length that subtitles and readers can use: the transcript of a long utterance, divided at its sentences.
//!
//! The model hears up to 30 s at a time, so that no word is cut. Afterwards, the times of the words tell where the parts begin.

use std::ops::Range;

use super::division::divide;
use super::pieces::{Piece, end_cost, joined_pieces, pieces_of};
use super::{Segment, Word};

/// Longest segment, if it has more than one word, ms.
const SEGMENT_MAX_MS: u64 = 8500;

/// The segments of an utterance: one, unless it is long.
pub fn divided(utterance: Segment) -> Vec<Segment> {
    if utterance.end_ms.saturating_sub(utterance.start_ms) <= SEGMENT_MAX_MS {
        return vec![utterance];
    }
    let pieces = pieces_of(&utterance, usize::MAX);
    let ranges = divide(pieces.len(), |range| segment_cost(&pieces, range));
    if ranges.len() < 2 {
        return vec![utterance];
    }
    let mut words = utterance.words.unwrap_or_default().into_iter().peekable();
    let has_words = words.peek().is_some();
    let (mut segments, count) = (Vec::new(), pieces.len());
    for range in ranges {
        let part = &pieces[range.clone()];
        let Some((first, last)) = part.first().zip(part.last()) else { continue };
        let is_last = range.end == count;
        let start_ms = if range.start == 0 { utterance.start_ms } else { first.start_ms };
        let end_ms = if is_last { utterance.end_ms } else { last.end_ms };
        let next_ms = pieces.get(range.end).map_or(u64::MAX, |next| next.start_ms);
        let own = std::iter::from_fn(|| words.next_if(|word: &Word| is_last || word.times_ms().0 < next_ms));
        let own: Vec<Word> = own.collect();
        segments.push(Segment {
            text: joined_pieces(part),
            start_ms,
            end_ms: end_ms.max(start_ms),
            language: utterance.language.clone(),
            words: has_words.then_some(own),
        });
    }
    segments
}

/// How much worse a bad end is in a segment than in a cue.
const END_WEIGHT: f32 = 4.0;

/// Few segments that end where sentences do, or at least clauses; `None` if one is too long.
fn segment_cost(pieces: &[Piece], range: Range<usize>) -> Option<f32> {
    let part = &pieces[range.clone()];
    let length_ms = part.last()?.end_ms.saturating_sub(part.first()?.start_ms);
    (length_ms <= SEGMENT_MAX_MS).then(|| 1.0 + END_WEIGHT * end_cost(pieces, range.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::word_times::spread_words;
    use proptest::prelude::*;

    fn utterance(text: &str, start_ms: u64, end_ms: u64, has_words: bool) -> Segment {
        let timed = spread_words(text, start_ms, end_ms).into_iter().map(|word| Word {
            word: word.word,
            start: word.start_ms as f64 / 1000.0,
            end: word.end_ms as f64 / 1000.0,
            estimated: true,
        });
        let words = has_words.then(|| timed.collect());
        Segment { text: text.into(), start_ms, end_ms, language: Some("en".into()), words }
    }

    #[test]
    fn long_utterance_is_divided_after_its_sentences() {
        let text = "She packed everything the evening before. The tickets were in her coat, and the keys were on the table. \
            But when she opened the door, there was no taxi in sight.";
        for has_words in [true, false] {
            let segments = divided(utterance(text, 1000, 16_000, has_words));
            let texts: Vec<_> = segments.iter().map(|segment| segment.text.as_str()).collect();
            assert_eq!(
                texts,
                [
                    "She packed everything the evening before.",
                    "The tickets were in her coat, and the keys were on the table.",
                    "But when she opened the door, there was no taxi in sight."
                ]
            );
            assert_eq!((segments[0].start_ms, segments[2].end_ms), (1000, 16_000));
            assert!(segments.windows(2).all(|pair| pair[0].end_ms <= pair[1].start_ms), "{segments:?}");
            let words =
                segments.iter().map(|segment| segment.words.as_ref().map_or(0, Vec::len)).collect::<Vec<_>>();
            assert_eq!(words, if has_words { [6, 13, 12] } else { [0; 3] });
        }
    }

    #[test]
    fn chinese_utterance_is_divided_after_its_sentences() {
        let text = "我们大家都应该好好学习，因为明天会有很多事情要做。没有人知道后天会发生什么，所以我们今天就开始吧。";
        let segments = divided(utterance(text, 0, 12_000, true));
        let texts: Vec<_> = segments.iter().map(|segment| segment.text.as_str()).collect();
        assert_eq!(texts, text.split_inclusive('。').collect::<Vec<_>>());
    }

    #[test]
    fn short_utterance_is_one_segment() {
        let short = utterance("One. Two. Three.", 500, 9000, true);
        assert_eq!(divided(short.clone()), [short]);
    }

    proptest! {
        #[test]
        fn segments_have_every_word_once_and_are_short(
            words in prop::collection::vec("[a-zA-Z]{1,9}[,.]?|[你好世界，。]{1,9}", 1..120),
            length_ms in 0u64..40_000,
            has_words in any::<bool>(),
        ) {
            let whole = utterance(&words.join(" "), 500, 500 + length_ms, has_words);
            let segments = divided(whole.clone());
            let spaceless = |text: &str| text.split_whitespace().collect::<String>();
            let joined: String = segments.iter().map(|segment| spaceless(&segment.text)).collect();
            prop_assert_eq!(joined, spaceless(&whole.text));
            let listed: Vec<Word> = segments.iter().flat_map(|segment| segment.words.clone().unwrap_or_default()).collect();
            prop_assert_eq!(listed, whole.words.unwrap_or_default());
            prop_assert!(segments.iter().all(|segment| segment.start_ms <= segment.end_ms), "{segments:?}");
            prop_assert!(segments.windows(2).all(|pair| pair[0].end_ms <= pair[1].start_ms), "{segments:?}");
            let is_long = |segment: &Segment| segment.end_ms - segment.start_ms > SEGMENT_MAX_MS && segment.text.chars().count() > 12;
            prop_assert!(!segments.iter().any(is_long), "{segments:?}");
        }
    }
}
