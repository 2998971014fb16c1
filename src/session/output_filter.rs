//! Removes thoughts and control tokens from the model's text.
//!
//! `<think>…</think>` and tokens such as `<|turn_eos|>` or `<unit>` leak into the text. Deltas cut them anywhere, and
//! spaces may be inserted (mappings/notes/minicpm-o-duplex.md#text). Text that may still become a token is held back
//! until it is certain, so the cuts do not change the output. Other markup stays, and so do spaces around removed
//! tokens.

/// Longest text that is held back, bytes. The model's longest token, with spaces inserted, takes half of that. Without
/// the limit, text would wait for the next `|` of a table.
const HELD_MAX_BYTES: usize = 64;

/// Tag name of a thought.
const THINK: &str = "think";

/// Tag names in the model's vocabulary (tokenizers of MiniCPM-o and its base models), opening and closing.
const TAGS: [&str; 10] = [THINK, "unit", "image", "image_id", "slice", "ref", "box", "quad", "s", "unk"];

/// Filter for the text of one turn at a time.
#[derive(Debug, Default)]
pub(crate) struct OutputFilter {
    /// Text that begins with `<` and may still become a token. Usually empty.
    held: String,
    /// Between `<think>` and `</think>`.
    thinking: bool,
}

/// Kind of a text that begins with `<`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunKind {
    /// Ordinary text.
    Text,
    /// Not decided yet.
    Undecided,
    /// A control token.
    ControlToken,
    /// Start of a thought.
    ThinkStart,
    /// End of a thought.
    ThinkEnd,
}

impl OutputFilter {
    /// Takes text of the model. Appends the text that can be shown to `out`.
    pub(crate) fn push(&mut self, delta: &str, out: &mut String) {
        let mut rest = delta;
        while let Some(letter) = rest.chars().next() {
            if self.held.is_empty() && letter != '<' {
                let plain = rest.find('<').unwrap_or(rest.len());
                self.emit(&rest[..plain], out);
                rest = &rest[plain..];
            } else {
                self.push_char(letter, out);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }

    /// Ends a turn: appends the held text and resets the filter. An unterminated thought stays hidden.
    pub(crate) fn finish(&mut self, out: &mut String) {
        self.flush_held(out);
        self.clear();
    }

    /// Discards the held text, because the turn was cancelled.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes one character of a possible token.
    fn push_char(&mut self, letter: char, out: &mut String) {
        if letter == '<' {
            // Tokens do not nest.
            self.flush_held(out);
        }
        self.held.push(letter);
        match classify_run(&self.held) {
            RunKind::Undecided if self.held.len() < HELD_MAX_BYTES => return,
            RunKind::Undecided | RunKind::Text => return self.flush_held(out),
            RunKind::ThinkStart => self.thinking = true,
            RunKind::ThinkEnd => self.thinking = false,
            RunKind::ControlToken => {}
        }
        self.held.clear();
    }

    fn flush_held(&mut self, out: &mut String) {
        self.emit(&self.held, out);
        self.held.clear();
    }

    fn emit(&self, text: &str, out: &mut String) {
        if !self.thinking {
            out.push_str(text);
        }
    }
}

/// Classifies a possible token by its text so far: `<|…|>` is a control token with any name, `<…>` only with one of
/// [`TAGS`].
fn classify_run(held: &str) -> RunKind {
    let inside = trim_leading_spaces(held.strip_prefix('<').unwrap_or(held));
    if inside.is_empty() {
        return RunKind::Undecided;
    }
    match (inside.strip_prefix('|'), inside.strip_prefix('/')) {
        (Some(token), _) => classify_control_token(token),
        (None, Some(tag)) => classify_closing_tag(trim_leading_spaces(tag)),
        (None, None) => classify_opening_tag(inside),
    }
}

/// Classifies the text after `<|`.
fn classify_control_token(token: &str) -> RunKind {
    let Some((name, end)) = token.split_once('|') else {
        return if token.chars().all(is_token_char) { RunKind::Undecided } else { RunKind::Text };
    };
    match trim_leading_spaces(end) {
        // "<||" and "<|>" are operators of programming languages.
        _ if trim_leading_spaces(name).is_empty() => RunKind::Text,
        "" => RunKind::Undecided,
        ">" => RunKind::ControlToken,
        _ => RunKind::Text,
    }
}

/// Classifies the text after `</`. The end of a thought that never began is removed too.
fn classify_closing_tag(tag: &str) -> RunKind {
    let (name, end) = split_tag_name(tag);
    match trim_leading_spaces(end) {
        _ if !can_be_tag(name, end) => RunKind::Text,
        "" => RunKind::Undecided,
        ">" if name.eq_ignore_ascii_case(THINK) => RunKind::ThinkEnd,
        ">" => RunKind::ControlToken,
        _ => RunKind::Text,
    }
}

/// Classifies the text after `<`.
fn classify_opening_tag(tag: &str) -> RunKind {
    let (name, end) = split_tag_name(tag);
    let is_think = name.eq_ignore_ascii_case(THINK);
    match trim_leading_spaces(end) {
        _ if !can_be_tag(name, end) => RunKind::Text,
        "" | "/" => RunKind::Undecided,
        ">" if is_think => RunKind::ThinkStart,
        ">" | "/>" => RunKind::ControlToken,
        attributes if is_think && end.starts_with(' ') => classify_think_attributes(attributes),
        _ => RunKind::Text,
    }
}

/// Classifies the text after `<think `. Attributes have the form `name=…>`, unlike "I < think of it".
fn classify_think_attributes(attributes: &str) -> RunKind {
    match attributes.split_once('=') {
        _ if attributes.contains('\n') => RunKind::Text,
        Some((_, value)) if value.ends_with('>') => RunKind::ThinkStart,
        Some(_) => RunKind::Undecided,
        None if attributes.chars().all(|letter| is_token_char(letter) && letter != ' ') => RunKind::Undecided,
        None => RunKind::Text,
    }
}

/// Without leading spaces.
fn trim_leading_spaces(text: &str) -> &str {
    text.trim_start_matches(' ')
}

/// Splits a tag into its name and the rest.
fn split_tag_name(tag: &str) -> (&str, &str) {
    tag.split_at(
        tag.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(tag.len()),
    )
}

/// True if `name` is a tag name, or a prefix of one while nothing follows it.
fn can_be_tag(name: &str, end: &str) -> bool {
    TAGS.iter().any(|tag| {
        let compared = if end.is_empty() { tag.get(..name.len()) } else { Some(*tag) };
        compared.is_some_and(|tag| tag.eq_ignore_ascii_case(name))
    })
}

/// Characters in names of control tokens, including inserted spaces.
const fn is_token_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | ':' | '/' | ' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filtered<'a>(deltas: impl IntoIterator<Item = &'a str>) -> String {
        let (mut filter, mut out) = (OutputFilter::default(), String::new());
        for delta in deltas {
            filter.push(delta, &mut out);
            assert!(filter.held.len() <= HELD_MAX_BYTES);
        }
        filter.finish(&mut out);
        assert!(filter.held.is_empty() && !filter.thinking);
        out
    }

    fn chars_of(text: &str) -> impl Iterator<Item = &str> {
        text.split("").filter(|letter| !letter.is_empty())
    }

    #[test]
    fn control_tokens_are_removed() {
        for token in [
            "<|im_end|>",
            "<|listen|>",
            "<|speak|>",
            "<|turn_eos|>",
            "<|tts_eos|>",
            "<| tts_bos |>",
            "<unit>",
            "<|audio_start|>",
            "< | turn_eos | >",
            "< | turn _ eos |  >",
            "</unit>",
            "<image>",
            "</ image >",
            "<image_id>",
            "<s>",
            "</s>",
            "< / S >",
            "<UNK>",
            "</box>",
            "<think/>",
            "<|IM_START|>",
        ] {
            assert_eq!(filtered([format!("你好{token}, you.").as_str()]), "你好, you.", "{token}");
            assert_eq!(filtered(chars_of(&format!("{token}a{token}{token}"))), "a", "{token}");
        }
    }

    #[test]
    fn thoughts_are_removed() {
        for text in [
            "<think>What to say?</think>Hello",
            "< think >3 < 4, </ thin>, <|speak|><think> again</ think >Hello",
            "<THINK mode=\"long\" lang='en'>嗯</ Think>Hello",
            "</think>Hello",
            "Hel<think>a</think>lo<think>b",
            "Hello<think>not over </thin",
        ] {
            assert_eq!(filtered([text]), "Hello", "{text}");
            assert_eq!(filtered(chars_of(text)), "Hello", "{text}");
        }
    }

    #[test]
    fn ordinary_text_passes_unchanged() {
        for text in [
            "3 < 4",
            "a<b",
            "a<b>c</b>",
            "<",
            "<<",
            "x <- y",
            "<3",
            "a <| b",
            "p <|> q",
            "<||>",
            "<| |>",
            "< s of it",
            "<thinking>",
            "<think about>",
            "< think of it>",
            "<i>so</i>",
            "<stop>",
            "</ >",
            "<|a\n|>",
            "<|你|>",
            "<|a|b>",
            "| a <| b | c |",
            "<unit x=1>",
            "<think a\n=1>",
            "<imagé>",
        ] {
            assert_eq!(filtered([text]), text);
            assert_eq!(filtered(chars_of(text)), text);
        }
    }

    #[test]
    fn text_that_cannot_become_a_token_is_not_held_back() {
        let (mut filter, mut out) = (OutputFilter::default(), String::new());
        for (delta, so_far) in [
            ("3 <", "3 "),
            (" 4", "3 < 4"),
            (" a<", "3 < 4 a"),
            ("c", "3 < 4 a<c"),
            ("<|turn_", "3 < 4 a<c"),
            ("eos|", "3 < 4 a<c"),
            (">!", "3 < 4 a<c!"),
            ("<t", "3 < 4 a<c!"),
            ("<", "3 < 4 a<c!<t"),
        ] {
            filter.push(delta, &mut out);
            assert_eq!(out, so_far);
        }
    }

    #[test]
    fn unterminated_token_becomes_text() {
        let (mut filter, mut out) = (OutputFilter::default(), String::new());
        for endless in ["<|a", "<", "<think x="] {
            filter.push(endless, &mut out);
            assert_eq!(out, "");
            filter.push(&" ".repeat(HELD_MAX_BYTES), &mut out);
            assert_eq!(out.trim_end(), endless);
            out.clear();
        }
        filter.push("<|turn", &mut out);
        filter.clear();
        filter.push("_eos|>", &mut out);
        assert_eq!(out, "_eos|>");
    }

    /// Text with tokens to remove.
    fn text_with_tokens() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<think>"),
            Just("</think>"),
            Just("<think a=b>"),
            Just("<|turn_eos|>"),
            Just("< | tts_bos | >"),
            Just("<unit>"),
            Just("<|"),
            Just("|>"),
            Just("<"),
            Just(">"),
            Just("</"),
            Just("think"),
            Just(" "),
            Just("  "),
            Just("s"),
            Just("="),
            Just("|"),
            Just("é"),
            Just("你好"),
            Just("a"),
            Just("\n"),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    /// Splits the text at these character positions.
    fn split_at_cuts<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
        let mut ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        ends.push(text.len());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&ends)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn chunking_does_not_change_the_output(
            text in prop_oneof![text_with_tokens(), any::<String>()],
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let whole = filtered([text.as_str()]);
            prop_assert_eq!(&filtered(split_at_cuts(&text, &cuts)), &whole);
            prop_assert_eq!(&filtered(chars_of(&text)), &whole);
        }

        #[test]
        fn text_without_tokens_passes_at_once(text in "[^<]*") {
            let (mut filter, mut out) = (OutputFilter::default(), String::new());
            filter.push(&text, &mut out);
            prop_assert_eq!(&out, &text);
        }

        #[test]
        fn only_tokens_and_thoughts_are_removed(text in text_with_tokens()) {
            let filtered = filtered([text.as_str()]);
            let mut left = text.chars();
            prop_assert!(filtered.chars().all(|letter| left.any(|other| other == letter)), "the output is no part of the text");
            let has_no_tag = text.split_inclusive('<').all(|part| !part.contains('>'));
            prop_assert!(!has_no_tag || filtered == text, "nothing is removed without a >");
        }
    }
}
