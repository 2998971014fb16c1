//! A long text in pieces that a server takes, cut where a speaker would pause.

/// The most characters of a `tts.speak` (Macaw field notes §1.4).
pub(super) const PIECE_MAX_CHARS: usize = 4096;

/// What closes a sentence after its full stop.
const CLOSERS: [char; 8] = ['"', '\'', ')', ']', '”', '’', '»', '」'];

/// Cuts `text` into pieces of at most `most` characters: after a sentence, else between words, else anywhere.
/// Pieces are trimmed and never empty.
pub(super) fn pieces(text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text.trim();
    while let Some((limit, _)) = rest.char_indices().nth(most.max(1)) {
        let end = sentence_end(rest, limit).or_else(|| word_end(&rest[..limit])).unwrap_or(limit);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece.trim_end());
        rest = after.trim_start();
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// Where the last sentence ends that lies within `limit` bytes.
fn sentence_end(text: &str, limit: usize) -> Option<usize> {
    let end = |(at, c): (usize, char)| {
        let after = text[at + c.len_utf8()..].trim_start_matches(CLOSERS);
        let pause = match c {
            '\n' | '。' | '！' | '？' | '…' => true,
            // A full stop inside a number or a name ends nothing.
            '.' | '!' | '?' | ';' => after.starts_with(char::is_whitespace),
            _ => false,
        };
        let end = text.len() - after.len();
        (pause && end <= limit).then_some(end)
    };
    text[..limit].char_indices().rev().find_map(end)
}

/// Where the last whole word ends.
fn word_end(text: &str) -> Option<usize> {
    text.rfind(char::is_whitespace).filter(|at| *at > 0)
}

#[cfg(test)]
mod tests {
    use super::pieces;
    use proptest::prelude::*;

    #[test]
    fn cuts_after_sentences_then_words_then_anywhere() {
        assert_eq!(pieces("One. Two 2.5 three. Four", 14), ["One.", "Two 2.5 three.", "Four"]);
        assert_eq!(pieces("one two three", 8), ["one two", "three"]);
        assert_eq!(pieces("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(pieces("你好。再见。", 4), ["你好。", "再见。"]);
        assert_eq!(pieces("(He said \"No.\") Why?", 17), ["(He said \"No.\")", "Why?"]);
        assert_eq!(pieces("  short  ", 99), ["short"]);
        assert!(pieces(" \n ", 99).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_but_blanks_is_lost(text in "[ab.。\n é]{0,200}", most in 1usize..20) {
            let cut = pieces(&text, most);
            let solid = |s: &str| s.split_whitespace().collect::<String>();
            prop_assert_eq!(cut.iter().map(|p| solid(p)).collect::<String>(), solid(&text));
            prop_assert!(cut.iter().all(|p| !p.trim().is_empty() && p.chars().count() <= most));
        }
    }
}
