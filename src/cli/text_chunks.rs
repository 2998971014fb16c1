//! Splits a long text into chunks that a server accepts, where a speaker would pause.

/// Maximum characters of a `tts.speak` (Macaw field notes §1.4).
pub(super) const CHUNK_MAX_CHARS: usize = 4096;

/// Characters that may follow the full stop of a sentence.
const SENTENCE_CLOSERS: [char; 8] = ['"', '\'', ')', ']', '”', '’', '»', '」'];

/// Splits `text` into chunks of at most `max_chars` characters: after a sentence, else between words, else anywhere.
/// Chunks are trimmed and never empty.
pub(super) fn split_text(text: &str, max_chars: usize) -> Vec<&str> {
    let mut chunks = Vec::new();
    let mut rest = text.trim();
    while let Some((limit, _)) = rest.char_indices().nth(max_chars.max(1)) {
        let end = sentence_end(rest, limit).or_else(|| word_end(&rest[..limit])).unwrap_or(limit);
        let (chunk, after) = rest.split_at(end);
        chunks.push(chunk.trim_end());
        rest = after.trim_start();
    }
    if !rest.is_empty() {
        chunks.push(rest);
    }
    chunks
}

/// End of the last sentence within `limit` bytes.
fn sentence_end(text: &str, limit: usize) -> Option<usize> {
    let end = |(at, c): (usize, char)| {
        let after = text[at + c.len_utf8()..].trim_start_matches(SENTENCE_CLOSERS);
        let is_pause = match c {
            '\n' | '。' | '！' | '？' | '…' => true,
            // A full stop inside a number or a name does not end a sentence.
            '.' | '!' | '?' | ';' => after.starts_with(char::is_whitespace),
            _ => false,
        };
        let end = text.len() - after.len();
        (is_pause && end <= limit).then_some(end)
    };
    text[..limit].char_indices().rev().find_map(end)
}

/// End of the last whole word.
fn word_end(text: &str) -> Option<usize> {
    text.rfind(char::is_whitespace).filter(|at| *at > 0)
}

#[cfg(test)]
mod tests {
    use super::split_text;
    use proptest::prelude::*;

    #[test]
    fn text_splits_after_sentences_then_words_then_anywhere() {
        assert_eq!(split_text("One. Two 2.5 three. Four", 14), ["One.", "Two 2.5 three.", "Four"]);
        assert_eq!(split_text("one two three", 8), ["one two", "three"]);
        assert_eq!(split_text("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(split_text("你好。再见。", 4), ["你好。", "再见。"]);
        assert_eq!(split_text("(He said \"No.\") Why?", 17), ["(He said \"No.\")", "Why?"]);
        assert_eq!(split_text("  short  ", 99), ["short"]);
        assert!(split_text(" \n ", 99).is_empty());
    }

    proptest! {
        #[test]
        fn splitting_loses_only_whitespace(text in "[ab.。\n é]{0,200}", max_chars in 1usize..20) {
            let chunks = split_text(&text, max_chars);
            let without_spaces = |s: &str| s.split_whitespace().collect::<String>();
            prop_assert_eq!(chunks.iter().map(|p| without_spaces(p)).collect::<String>(), without_spaces(&text));
            prop_assert!(chunks.iter().all(|p| !p.trim().is_empty() && p.chars().count() <= max_chars));
        }
    }
}
