//! What of the model's text people may see: everything but its thoughts and its control tokens.
//!
//! `<think>…</think>` and tokens such as `<|turn_eos|>` or `<unit>` leak into the text, in fragments cut anywhere and
//! with spaces inserted (MiniCPM-o field notes §7.21). What may still become one of them is held back until it is
//! certain; how a text is cut into deltas makes no difference to what is shown. No other markup is looked at, and
//! spaces around what is removed stay.

/// Longest run that is held back, bytes. The longest token of the model, spaces inserted, has half of that; whatever
/// is longer is text, or the next `|` of a table would be waited for.
const HELD_MAX: usize = 64;

/// What opens and closes a thought.
const THINK: &str = "think";

/// The tags of the model's vocabulary (the tokenizers of MiniCPM-o and of what it grew from), opening and closing.
const TAGS: [&str; 10] = [THINK, "unit", "image", "image_id", "slice", "ref", "box", "quad", "s", "unk"];

/// One voice's text on its way to people.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// Begins with `<` and may still become something to remove; empty most of the time.
    held: String,
    /// Between `<think>` and `</think>`.
    thinking: bool,
}

/// What a run that begins with `<` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// Ordinary text.
    Text,
    /// Not certain yet.
    Open,
    /// A control token.
    Token,
    /// A thought begins.
    Think,
    /// A thought ends.
    Thought,
}

impl Words {
    /// Takes text of the model and appends to `out` what may be shown by now.
    pub(crate) fn push(&mut self, delta: &str, out: &mut String) {
        let mut rest = delta;
        while let Some(letter) = rest.chars().next() {
            if self.held.is_empty() && letter != '<' {
                let plain = rest.find('<').unwrap_or(rest.len());
                self.show(&rest[..plain], out);
                rest = &rest[plain..];
            } else {
                self.letter(letter, out);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }

    /// Ends a turn: appends what was held back, as it became nothing else, and is fresh for the next turn. A thought
    /// that was not ended stays hidden.
    pub(crate) fn finish(&mut self, out: &mut String) {
        self.release(out);
        self.clear();
    }

    /// Forgets what is held back: the turn was cancelled.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes one letter of a run, or the `<` that begins one.
    fn letter(&mut self, letter: char, out: &mut String) {
        if letter == '<' {
            // Nothing that is removed contains another one.
            self.release(out);
        }
        self.held.push(letter);
        match run(&self.held) {
            Run::Open if self.held.len() < HELD_MAX => return,
            Run::Open | Run::Text => return self.release(out),
            Run::Think => self.thinking = true,
            Run::Thought => self.thinking = false,
            Run::Token => {}
        }
        self.held.clear();
    }

    fn release(&mut self, out: &mut String) {
        self.show(&self.held, out);
        self.held.clear();
    }

    fn show(&self, text: &str, out: &mut String) {
        if !self.thinking {
            out.push_str(text);
        }
    }
}

/// What a run is, by what of it is there: `<|…|>` is a control token whatever its name, `<…>` one of [`TAGS`].
fn run(held: &str) -> Run {
    let inside = bare(held.strip_prefix('<').unwrap_or(held));
    if inside.is_empty() {
        return Run::Open;
    }
    match (inside.strip_prefix('|'), inside.strip_prefix('/')) {
        (Some(token), _) => control(token),
        (None, Some(tag)) => closing(bare(tag)),
        (None, None) => opening(inside),
    }
}

/// What comes behind `<|`.
fn control(token: &str) -> Run {
    let Some((name, end)) = token.split_once('|') else {
        return if token.chars().all(is_name) { Run::Open } else { Run::Text };
    };
    match bare(end) {
        // "<||" and "<|>" are operators of some programming language.
        _ if bare(name).is_empty() => Run::Text,
        "" => Run::Open,
        ">" => Run::Token,
        _ => Run::Text,
    }
}

/// What comes behind `</`. An end of no thought is as little meant to be seen.
fn closing(tag: &str) -> Run {
    let (name, end) = named(tag);
    match bare(end) {
        _ if !may_be_tag(name, end) => Run::Text,
        "" => Run::Open,
        ">" if name.eq_ignore_ascii_case(THINK) => Run::Thought,
        ">" => Run::Token,
        _ => Run::Text,
    }
}

/// What comes behind `<`.
fn opening(tag: &str) -> Run {
    let (name, end) = named(tag);
    let thought = name.eq_ignore_ascii_case(THINK);
    match bare(end) {
        _ if !may_be_tag(name, end) => Run::Text,
        "" | "/" => Run::Open,
        ">" if thought => Run::Think,
        ">" | "/>" => Run::Token,
        attributes if thought && end.starts_with(' ') => thought_with(attributes),
        _ => Run::Text,
    }
}

/// What comes behind `<think `: `name=…>`. That it is spelled so tells it from "I < think of it".
fn thought_with(attributes: &str) -> Run {
    match attributes.split_once('=') {
        _ if attributes.contains('\n') => Run::Text,
        Some((_, value)) if value.ends_with('>') => Run::Think,
        Some(_) => Run::Open,
        None if attributes.chars().all(|letter| is_name(letter) && letter != ' ') => Run::Open,
        None => Run::Text,
    }
}

/// Without the spaces in front.
fn bare(text: &str) -> &str {
    text.trim_start_matches(' ')
}

/// A tag's name and what is behind it.
fn named(tag: &str) -> (&str, &str) {
    tag.split_at(
        tag.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(tag.len()),
    )
}

/// Whether it is the name of a tag, or may become one while nothing is behind it.
fn may_be_tag(name: &str, end: &str) -> bool {
    TAGS.iter().any(|tag| {
        let compared = if end.is_empty() { tag.get(..name.len()) } else { Some(*tag) };
        compared.is_some_and(|tag| tag.eq_ignore_ascii_case(name))
    })
}

/// What names of control tokens are made of, with the spaces that get into them.
const fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | ':' | '/' | ' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown<'a>(deltas: impl IntoIterator<Item = &'a str>) -> String {
        let (mut words, mut out) = (Words::default(), String::new());
        for delta in deltas {
            words.push(delta, &mut out);
            assert!(words.held.len() <= HELD_MAX);
        }
        words.finish(&mut out);
        assert!(words.held.is_empty() && !words.thinking);
        out
    }

    fn letters(text: &str) -> impl Iterator<Item = &str> {
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
            assert_eq!(shown([format!("你好{token}, you.").as_str()]), "你好, you.", "{token}");
            assert_eq!(shown(letters(&format!("{token}a{token}{token}"))), "a", "{token}");
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
            assert_eq!(shown([text]), "Hello", "{text}");
            assert_eq!(shown(letters(text)), "Hello", "{text}");
        }
    }

    #[test]
    fn ordinary_text_comes_through() {
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
            assert_eq!(shown([text]), text);
            assert_eq!(shown(letters(text)), text);
        }
    }

    #[test]
    fn what_is_certain_is_not_held_back() {
        let (mut words, mut out) = (Words::default(), String::new());
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
            words.push(delta, &mut out);
            assert_eq!(out, so_far);
        }
    }

    #[test]
    fn what_never_closes_is_text_in_the_end() {
        let (mut words, mut out) = (Words::default(), String::new());
        for endless in ["<|a", "<", "<think x="] {
            words.push(endless, &mut out);
            assert_eq!(out, "");
            words.push(&" ".repeat(HELD_MAX), &mut out);
            assert_eq!(out.trim_end(), endless);
            out.clear();
        }
        words.push("<|turn", &mut out);
        words.clear();
        words.push("_eos|>", &mut out);
        assert_eq!(out, "_eos|>");
    }

    /// Text in which there is something to remove.
    fn leaky() -> impl Strategy<Value = String> {
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

    /// The text in pieces, cut at the letters that the cuts name.
    fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
        let mut ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        ends.push(text.len());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&ends)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn how_a_text_is_cut_makes_no_difference(
            text in prop_oneof![leaky(), any::<String>()],
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let whole = shown([text.as_str()]);
            prop_assert_eq!(&shown(cut(&text, &cuts)), &whole);
            prop_assert_eq!(&shown(letters(&text)), &whole);
        }

        #[test]
        fn text_without_tokens_is_shown_at_once(text in "[^<]*") {
            let (mut words, mut out) = (Words::default(), String::new());
            words.push(&text, &mut out);
            prop_assert_eq!(&out, &text);
        }

        #[test]
        fn only_what_is_to_be_removed_is_lost(text in leaky()) {
            let shown = shown([text.as_str()]);
            let mut left = text.chars();
            prop_assert!(shown.chars().all(|letter| left.any(|other| other == letter)), "not a part of the text");
            let kept = text.split_inclusive('<').all(|part| !part.contains('>'));
            prop_assert!(!kept || shown == text, "nothing is removed without a >");
        }
    }
}
