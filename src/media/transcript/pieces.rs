//! Pieces of a transcript: its words with their times, and where a text is best divided between them.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use super::{Segment, Word, append, is_unspaced};
use crate::audio::sentence_marks::{ends_clause, ends_sentence};
use crate::audio::word_times::{WordTime, spread_words};

/// A pause between words that counts as the end of a clause, ms.
const PAUSE_MS: u64 = 200;

/// Costs of an end between two words, in groups of words: where it is better to have one more group than to end in a clause.
mod cost {
    pub(super) const AFTER_CLAUSE: f32 = 0.3;
    pub(super) const BEFORE_CONJUNCTION: f32 = 0.7;
    pub(super) const AFTER_WORD: f32 = 1.4;
}

/// English words that begin a clause: a place to end a cue where a transcript has no punctuation.
const CONJUNCTIONS: [&str; 16] = [
    "and", "because", "but", "for", "had", "if", "or", "so", "than", "that", "then", "when", "where",
    "which", "while", "who",
];

/// A word, or a part of one that is longer than a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) width: usize,
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
}

/// The words of a segment; those that are longer than a line in parts. None begins before the one before it.
pub(super) fn pieces_of(segment: &Segment, max_line: usize) -> Vec<Piece> {
    let spread = spread_words(&segment.text, segment.start_ms, segment.end_ms);
    // Servers may return words without punctuation; then only their times count.
    let timed = segment.words.as_deref().filter(|words| words.len() == spread.len());
    let mut earliest_ms = 0;
    let piece = |(at, word): (usize, WordTime)| {
        let times = timed.and_then(|words| words.get(at)).map(Word::times_ms);
        let (start_ms, end_ms) = times.unwrap_or((word.start_ms, word.end_ms));
        let start_ms = start_ms.max(earliest_ms);
        earliest_ms = start_ms;
        let text: String = word.word.chars().filter(|letter| !letter.is_control()).collect();
        split_wide(Piece { width: width(&text), text, start_ms, end_ms: end_ms.max(start_ms) }, max_line)
    };
    spread.into_iter().enumerate().flat_map(piece).collect()
}

/// The text of pieces.
pub(super) fn joined_pieces(pieces: &[Piece]) -> String {
    pieces.iter().fold(String::new(), |mut text, piece| {
        append(&mut text, &piece.text);
        text
    })
}

/// Cost of ending a cue, a line or a segment before this piece.
pub(super) fn end_cost(pieces: &[Piece], at: usize) -> f32 {
    let (Some(before), Some(after)) = (at.checked_sub(1).and_then(|at| pieces.get(at)), pieces.get(at))
    else {
        return 0.0;
    };
    if ends_sentence(&before.text) {
        0.0
    } else if ends_clause(&before.text) || after.start_ms.saturating_sub(before.end_ms) >= PAUSE_MS {
        cost::AFTER_CLAUSE
    } else if CONJUNCTIONS.iter().any(|word| after.text.eq_ignore_ascii_case(word)) {
        cost::BEFORE_CONJUNCTION
    } else {
        cost::AFTER_WORD
    }
}

/// True if [`append`] puts a space between them.
pub(super) fn has_space_between(text: &str, next: &str) -> bool {
    [text.chars().next_back(), next.chars().next()]
        .iter()
        .all(|end| end.is_some_and(|letter| !is_unspaced(letter)))
}

/// Columns of a text. Chinese, Japanese, Korean and emoji have two, combining marks none.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// True if a text may be divided before this letter. A mark belongs to the letter before it, and a joiner also to the one after.
fn can_divide(text: &str, next: char) -> bool {
    let is_emoji_modifier = matches!(next, '\u{1F3FB}'..='\u{1F3FF}');
    next.width() != Some(0) && !is_emoji_modifier && !text.ends_with('\u{200D}')
}

fn split_wide(piece: Piece, max_line: usize) -> Vec<Piece> {
    if piece.width <= max_line {
        return vec![piece];
    }
    let (mut parts, mut part) = (Vec::new(), String::new());
    for letter in piece.text.chars() {
        if can_divide(&part, letter) && width(&part) + letter.width().unwrap_or(0) > max_line {
            parts.push(std::mem::take(&mut part));
        }
        part.push(letter);
    }
    parts.push(part);
    let (count, length_ms) = (parts.len() as u64, piece.end_ms.saturating_sub(piece.start_ms));
    let at_ms = |number: u64| piece.start_ms + length_ms * number / count;
    let numbered = (0..).zip(parts);
    let part = |(number, text): (u64, String)| Piece {
        width: width(&text),
        text,
        start_ms: at_ms(number),
        end_ms: at_ms(number + 1),
    };
    numbered.map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn korean_and_emoji_take_two_columns_and_joined_letters_stay_together() {
        assert_eq!([width("한국어"), width("👍"), width("e\u{301}"), width("ｱｲ")], [6, 2, 1, 2]);
        let pieces = |text: &str| {
            let piece = Piece { width: width(text), text: text.to_owned(), start_ms: 0, end_ms: 900 };
            split_wide(piece, 4).into_iter().map(|part| part.text).collect::<Vec<_>>()
        };
        assert_eq!(pieces("한국어한"), ["한국", "어한"]);
        assert_eq!(pieces(&"e\u{301}".repeat(6)), ["e\u{301}".repeat(4), "e\u{301}".repeat(2)]);
        let family = "👩\u{200D}👩\u{200D}👧";
        assert_eq!(pieces(&family.repeat(3)), [family.repeat(2), family.to_owned()]);
    }

    #[test]
    fn words_with_overlapping_times_become_cues_in_order() {
        let words = [("One.", 1.0, 4.0), ("Two.", 0.5, 2.0), ("Three.", 3.0, 2.5)]
            .map(|(word, start, end)| Word { word: word.into(), start, end, estimated: false });
        let segment = Segment {
            words: Some(words.to_vec()),
            text: "One. Two. Three.".into(),
            start_ms: 1000,
            end_ms: 4000,
            language: None,
        };
        let pieces = pieces_of(&segment, 42);
        let times: Vec<_> = pieces.iter().map(|piece| (piece.start_ms, piece.end_ms)).collect();
        assert_eq!(times, [(1000, 4000), (1000, 2000), (3000, 3000)]);
    }
}
