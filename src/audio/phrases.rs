//! Phrases: which words of a text lie between which pauses of its speech.
//!
//! Speakers pause where the text has punctuation, and a phrase is about as long as its letters suggest. The division into phrases
//! that fits both best has the least cost.

use std::ops::Range;

/// A word of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct PhraseWord {
    /// Its letters: how long it probably is.
    pub(super) letters: usize,
    /// It ends a clause or a sentence.
    pub(super) has_mark: bool,
}

/// More words or phrases than 30 s of speech have. Their division would take long.
const WORDS_MAX: usize = 400;
const PHRASES_MAX: usize = 200;

/// Deviation of the length of a single letter, samples at 16 kHz: that of a phrase grows with the root of its letters.
const LETTER_DEVIATION_SAMPLES: f32 = 1600.0;
/// Cost of a phrase that ends without a mark.
const NO_MARK: f32 = 2.0;
/// Cost of a phrase without words, such as a breath.
const NO_WORDS: f32 = 2.0;
/// A phrase does not get words that would take twice its length and a second more, samples at 16 kHz.
const TOO_LONG_SAMPLES: f32 = 16_000.0;

/// The words of each phrase, for phrases of these lengths in samples at 16 kHz; `None` if there are too many.
pub(super) fn divide_into_phrases(words: &[PhraseWord], lengths: &[usize]) -> Option<Vec<Range<usize>>> {
    if words.len() > WORDS_MAX || lengths.len() > PHRASES_MAX || words.is_empty() || lengths.is_empty() {
        return None;
    }
    let letters: usize = words.iter().map(|word| word.letters).sum();
    let samples_of_letter = lengths.iter().sum::<usize>() as f32 / letters.max(1) as f32;
    // For each number of words: the least cost of the phrases so far, and where the last of them starts.
    let mut costs = vec![f32::INFINITY; words.len() + 1];
    costs[0] = 0.0;
    let mut starts = Vec::new();
    for (at, length) in lengths.iter().enumerate() {
        let is_last = at + 1 == lengths.len();
        let row = add_phrase(words, &costs, *length as f32, is_last, samples_of_letter);
        (costs, _) = row.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>();
        starts.push(row);
    }
    let mut end = words.len();
    let mut phrases: Vec<Range<usize>> = Vec::new();
    for row in starts.iter().rev() {
        let start = row[end].1;
        phrases.push(start..end);
        end = start;
    }
    phrases.reverse();
    Some(phrases)
}

/// For each end of a phrase of this length: the least cost up to it, and the start of the phrase.
fn add_phrase(
    words: &[PhraseWord],
    costs: &[f32],
    length: f32,
    is_last: bool,
    samples_of_letter: f32,
) -> Vec<(f32, usize)> {
    let mut row = vec![(f32::INFINITY, 0); words.len() + 1];
    for (start, cost) in costs.iter().enumerate().filter(|(_, cost)| cost.is_finite()) {
        let mut letters = 0;
        for end in start..=words.len() {
            letters += if end > start { words[end - 1].letters } else { 0 };
            let expected = letters as f32 * samples_of_letter;
            if end > start + 1 && !is_last && expected > 2.0 * length + TOO_LONG_SAMPLES {
                break;
            }
            let deviation = (length - expected) / LETTER_DEVIATION_SAMPLES;
            let ending = match end.checked_sub(1).filter(|_| end > start) {
                None => NO_WORDS,
                Some(last) if is_last || words[last].has_mark => 0.0,
                Some(_) => NO_MARK,
            };
            let total = cost + deviation * deviation / (2 * letters.max(1)) as f32 + ending;
            if total < row[end].0 {
                row[end] = (total, start);
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<PhraseWord> {
        let word = |word: &str| PhraseWord { letters: word.len() + 1, has_mark: word.ends_with([',', '.']) };
        text.split(' ').map(word).collect()
    }

    #[test]
    fn phrases_end_at_marks_if_their_lengths_allow_it() {
        let words = words("When they met again, nobody remembered the harbour. He left.");
        let divided = |lengths: &[usize]| divide_into_phrases(&words, lengths).unwrap();
        assert_eq!(divided(&[20_000, 28_000, 9_000]), [0..4, 4..8, 8..10]);
        // The first two are spoken without a pause.
        assert_eq!(divided(&[48_000, 9_000]), [0..8, 8..10]);
        // A breath, and a pause within a phrase.
        assert_eq!(divided(&[1000, 20_000, 12_000, 16_000, 9_000]), [0..0, 0..4, 4..6, 6..8, 8..10]);
        assert!(matches!(divided(&[57_000]).as_slice(), [Range { start: 0, end: 10 }]));
    }

    #[test]
    fn more_words_than_are_spoken_are_not_divided() {
        let many = vec![PhraseWord { letters: 1, has_mark: false }; WORDS_MAX + 1];
        assert!(divide_into_phrases(&many, &[100, 100]).is_none());
        assert!(divide_into_phrases(&[], &[100]).is_none());
    }

    proptest! {
        #[test]
        fn each_word_is_in_one_phrase(
            words in prop::collection::vec((1usize..30, any::<bool>()), 1..60),
            lengths in prop::collection::vec(1usize..100_000, 1..20),
        ) {
            let word = |(letters, has_mark): &(usize, bool)| PhraseWord { letters: *letters, has_mark: *has_mark };
            let words: Vec<_> = words.iter().map(word).collect();
            let phrases = divide_into_phrases(&words, &lengths).unwrap();
            prop_assert_eq!(phrases.len(), lengths.len());
            let mut next = 0;
            for phrase in phrases {
                prop_assert_eq!(phrase.start, next);
                prop_assert!(phrase.end >= next);
                next = phrase.end;
            }
            prop_assert_eq!(next, words.len());
        }
    }
}
