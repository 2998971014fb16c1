//! Text normalization for speech: removes the marks of Markdown, replaces symbols that the model cannot say, and splits long texts
//! into parts.
//!
//! In streaming speech the model must not say `: ： ； # “ ” ‘ ’ @ * 【 】 「 」 ( ) （ ） [ ] & / $`
//! (mappings/notes/minicpm-o.md#chat). It drops or rephrases such symbols at random unless they are spelled out.

use std::collections::BTreeMap;

use super::abbreviations::is_inside_sentence;
use crate::markdown;

/// Longest word that may be abbreviated by a full stop.
const ABBREVIATION_MAX_CHARS: usize = 4;

/// Spells out or drops all symbols that the model cannot say. Returns an empty text if no word is left.
pub(crate) fn normalize_text(text: &str, symbols: Option<&BTreeMap<String, String>>) -> String {
    let text = markdown::without_marks(text);
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() + 16);
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        let before = at.checked_sub(1).and_then(|at| letters.get(at)).copied().unwrap_or(' ');
        let after = letters.get(at + 1).copied().unwrap_or(' ');
        let word = symbols.and_then(|symbols| symbols.get(letter.encode_utf8(&mut [0; 4])));
        at += 1;
        match (letter, word) {
            // "$5" is read "5 dollars".
            ('$', Some(word)) if after.is_ascii_digit() => {
                let number = leading_number(&letters[at..]);
                at += number.len();
                out.extend(number);
                out.push_str(word);
            }
            // "2 * 3" is read "2 times 3". Other asterisks are marks.
            ('*', Some(word)) if is_between_digits(&letters, at - 1) => out.push_str(word),
            ('*', Some(_)) => out.push(' '),
            // "C#" has no number, nor has "#topic".
            ('#', _) if before.is_alphabetic() && !after.is_alphanumeric() => out.push_str(" sharp"),
            ('#', Some(_)) if after.is_alphabetic() => out.push(' '),
            (_, Some(word)) => out.push_str(word),
            (':' | '：', None) if before.is_ascii_digit() && after.is_ascii_digit() => out.push(' '),
            (':' | '(' | ')' | '[' | ']', None) => out.push_str(", "),
            ('：' | '；' | '（' | '）' | '【' | '】' | '「' | '」', None) => out.push('，'),
            // A curly apostrophe inside a word is a straight one.
            ('‘' | '’', None) if before.is_alphanumeric() && after.is_alphanumeric() => out.push('\''),
            ('‘' | '’' | '“' | '”' | '*' | '#' | '@' | '&' | '/' | '$', None) => out.push(' '),
            (other, None) => out.push(other),
        }
    }
    tidy_punctuation(&out)
}

/// True for the letter at `at` if the nearest letters on both sides, beyond spaces, are digits.
fn is_between_digits(letters: &[char], at: usize) -> bool {
    let is_space = |letter: &&char| letter.is_whitespace();
    let before = letters[..at].iter().rev().find(|letter| !is_space(letter));
    let after = letters[at + 1..].iter().find(|letter| !is_space(letter));
    [before, after].iter().all(|letter| letter.is_some_and(char::is_ascii_digit))
}

/// Leading digits with their separators, without a full stop that ends the sentence.
fn leading_number(letters: &[char]) -> &[char] {
    let end = letters.iter().position(|letter| !letter.is_ascii_digit() && !matches!(letter, '.' | ','));
    let number = &letters[..end.unwrap_or(letters.len())];
    let last_digit = number.iter().rposition(char::is_ascii_digit).map_or(0, |at| at + 1);
    &number[..last_digit]
}

/// Removes double spaces, spaces before punctuation, and commas beside other punctuation.
fn tidy_punctuation(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_whitespace() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
            continue;
        }
        if is_punctuation(letter) {
            out.truncate(out.trim_end().len());
            if out.is_empty() || (is_comma(letter) && out.ends_with(is_punctuation)) {
                continue;
            }
            if out.ends_with(is_comma) {
                out.pop();
            }
        }
        out.push(letter);
    }
    let trimmed = out.trim_end_matches(|letter| letter == ' ' || is_comma(letter));
    if trimmed.chars().any(char::is_alphanumeric) { trimmed.to_owned() } else { String::new() }
}

const fn is_comma(letter: char) -> bool {
    matches!(letter, ',' | '，')
}

const fn is_punctuation(letter: char) -> bool {
    matches!(letter, ',' | '，' | '.' | '!' | '?' | ';' | '。' | '！' | '？')
}

/// Splits a text into parts of at most `max_chars`, at sentence ends. Longer sentences are split at commas, then at
/// spaces, then anywhere.
pub(crate) fn split_parts(text: &str, max_chars: usize) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for sentence in sentences(text) {
        for piece in split_sentence(sentence, max_chars) {
            match parts.last_mut() {
                Some(part) if part.chars().count() + piece.chars().count() <= max_chars => {
                    part.push_str(&piece);
                }
                _ => parts.push(piece),
            }
        }
    }
    parts.iter_mut().for_each(|part| *part = part.trim().to_owned());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Sentences with the white space that follows them.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = sentence_end(rest)?;
        let (sentence, after) = rest.split_at(end);
        rest = after;
        Some(sentence)
    })
}

/// Bytes of the sentences that are complete, although more text may follow: a full stop at the end may belong to a number or to
/// an abbreviation.
pub(crate) fn complete_sentences(text: &str) -> usize {
    let mut complete = 0;
    for sentence in sentences(text) {
        let words = sentence.trim_end();
        let space = &sentence[words.len()..];
        let is_last = complete + sentence.len() == text.len();
        let has_end = words.ends_with(['。', '！', '？'])
            || space.contains('\n')
            || (words.ends_with(['.', '!', '?']) && !space.is_empty() && !may_be_abbreviation(words));
        if is_last && !has_end {
            break;
        }
        complete += sentence.len();
    }
    complete
}

/// True for a text whose last word looks like `Dr.`, `Prof.`, `e.g.` or `U.S.`.
fn may_be_abbreviation(words: &str) -> bool {
    let last = words.rsplit(char::is_whitespace).next().and_then(|word| word.strip_suffix('.'));
    is_inside_sentence(words, "")
        || last.is_some_and(|word| {
            word.chars().count() <= ABBREVIATION_MAX_CHARS
                && (word.contains('.') || word.starts_with(char::is_uppercase))
        })
}

fn sentence_end(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map(|(_, next)| *next);
        let ends = match letter {
            '。' | '！' | '？' | '\n' => true,
            // A full stop inside a number or a name does not end a sentence, nor does one behind an abbreviation.
            '!' | '?' => next.is_none_or(char::is_whitespace),
            '.' => next.is_none_or(char::is_whitespace) && !is_inside_sentence(&text[..=at], &text[at + 1..]),
            _ => false,
        };
        if ends {
            let mut end = at + letter.len_utf8();
            end += text[end..].len() - text[end..].trim_start().len();
            return Some(end);
        }
    }
    (!text.is_empty()).then_some(text.len())
}

/// Splits a sentence that is longer than `max_chars`.
fn split_sentence(sentence: &str, max_chars: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = sentence;
    while rest.chars().count() > max_chars {
        let limit = rest.char_indices().nth(max_chars).map_or(rest.len(), |(at, _)| at);
        let head = &rest[..limit];
        let ends_after = |mark: char| {
            let mut ends = head.rmatch_indices(mark).map(|(at, mark)| (at, at + mark.len()));
            // A part does not end in an abbreviation.
            ends.find(|(at, _)| mark != ' ' || !is_inside_sentence(&head[..*at], &rest[*at..]))
                .map(|(_, end)| end)
        };
        let at = [',', '，', '、', ' '].into_iter().find_map(ends_after).unwrap_or(limit);
        pieces.push(rest[..at].to_owned());
        rest = &rest[at..];
    }
    pieces.push(rest.to_owned());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;
    use proptest::prelude::*;

    const FORBIDDEN: &str = ":：；#“”‘’@*【】「」()（）[]&/$";

    fn english(text: &str) -> String {
        let profile = Library::embedded().unwrap().profile("speech").unwrap();
        normalize_text(text, profile.speak.symbols("en-GB"))
    }

    #[test]
    fn abbreviation_at_the_end_completes_no_sentence() {
        for (text, complete) in [
            ("Hello there. ", "Hello there. "),
            ("I see it. ", "I see it. "),
            ("Dr. ", ""),
            ("1. ", ""),
            ("Yes.\n2. ", "Yes.\n"),
            ("1. First.\n", "1. First.\n"),
            ("It is 5.\n", "It is 5.\n"),
            ("It rains. I met Prof. ", "It rains. "),
            ("Use a name, e.g. ", ""),
            ("Dr. Bell is in. He", "Dr. Bell is in. "),
            ("Yes.\n", "Yes.\n"),
            ("No! ", "No! "),
        ] {
            assert_eq!(&text[..complete_sentences(text)], complete, "{text:?}");
        }
    }

    #[test]
    fn symbols_are_spelled_out_as_spoken() {
        assert_eq!(english("Q&A costs $5.50, isn’t it?"), "Q and A costs 5.50 dollars, isn't it?");
        assert_eq!(english("At 10:30: “Go” (now)!"), "At 10 30, Go, now!");
        assert_eq!(english("mail me@x.org **today**"), "mail me at x.org today");
        assert_eq!(english("2 * 3 * 4, 2*3, **5** * x"), "2 times 3 times 4, 2 times 3, 5 x");
        assert_eq!(
            english("C# and F#, #5 of #topic, the # of users"),
            "C sharp and F sharp, number 5 of topic, the number of users"
        );
        assert_eq!(
            english(
                "# Title\n\nSome **bold** `code`, a [link](http://e.com/x?y=1).\n\n- first\n- second\n\n> quoted"
            ),
            "Title. Some bold code, a link. first. second. quoted"
        );
        assert_eq!(english("See https://e.com/docs."), "See e.com slash docs.");
        assert_eq!(english("It costs $5."), "It costs 5 dollars.");
        assert_eq!(english("你好：（世界）"), "你好，世界");
        for nothing in ["", "   ", "***", "()", "…"] {
            assert_eq!(english(nothing), "", "{nothing:?}");
        }
    }

    #[test]
    fn long_texts_are_split_at_sentence_ends() {
        let text = "One is short. Two costs 3.5 euro! 三个句子。And the last one";
        assert_eq!(
            split_parts(text, 20),
            ["One is short.", "Two costs 3.5 euro!", "三个句子。", "And the last one"]
        );
        assert_eq!(split_parts(text, 1000), [text]);
        assert_eq!(split_parts("a, b, c d e f", 6), ["a, b,", "c d", "e f"]);
        assert!(split_parts("  ", 20).is_empty());
    }

    #[test]
    fn parts_do_not_end_in_abbreviations() {
        let text = "I asked Dr. Smith about it, i.e. about No. 5 of J. R. R. Tolkien. He met Mrs. Bell and Prof. Hill at 5 p.m. on Monday.";
        for max in 16..text.len() {
            for part in split_parts(text, max) {
                let word = part.rsplit(' ').next().unwrap();
                let is_end = ["Tolkien.", "Monday."].contains(&word) || !word.ends_with('.');
                assert!(is_end, "{part:?} at most {max}");
            }
        }
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(256))]

        #[test]
        fn normalized_text_has_no_forbidden_symbol(text in any::<String>()) {
            prop_assert!(!english(&text).contains(|letter| FORBIDDEN.contains(letter)));
        }

        #[test]
        fn split_parts_keep_every_letter_and_respect_max_chars(text in "[a-z ,.!?]{0,400}", max in 16usize..60) {
            let parts = split_parts(&text, max);
            let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
            prop_assert!(parts.iter().all(|part| part.chars().count() <= max));
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
        }
    }
}
