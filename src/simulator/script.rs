//! Simulated texts (transcripts, answers) and their division into deltas.

/// Official read-aloud prompt (mappings/notes/minicpm-o.md#reading-aloud); the text after it is spoken verbatim.
pub const READ_ALOUD_PROMPT: &str = "请朗读以下内容。";

/// Prefix of every answer generated while another generation still ran on the same model.
///
/// On a real server, two concurrent generations on one model corrupt each other
/// (mappings/notes/minicpm-o.md#stopping-a-chat). The prefix shows that the client did not wait. It has no banned
/// characters.
pub const CORRUPTED_PREFIX: &str = "CORRUPTED BY AN UNFINISHED GENERATION ";

/// Characters that the PyTorch back-end cannot generate in streamed speech (mappings/notes/minicpm-o.md#chat).
const BANNED_CHARS: &str = ":：；#“”‘’@*【】「」()（）[]&/$";

/// The model's own limit of an answer (the C++ back-end's `n_predict`).
const MAX_ANSWER_TOKENS: usize = 2048;

/// Latin characters per token, approximately; a CJK character is one token.
const CHARS_PER_TOKEN: usize = 4;

/// Characters per delta of a text answer, about ten tokens (mappings/notes/minicpm-o.md#chat).
const TEXT_DELTA_CHARS: usize = 20;

/// Transcript for a number of samples at 16 kHz.
pub(super) fn simulated_transcript(samples: usize) -> String {
    format!("simulated transcript: {:.2} s of speech", samples as f64 / 16_000.0)
}

/// Answer to a user's text: the text after the read-aloud prompt, otherwise a short reply.
pub(super) fn simulated_answer(user_text: &str, speaks: bool) -> String {
    if speaks && let Some((_, read)) = user_text.split_once(READ_ALOUD_PROMPT) {
        return read.trim().to_owned();
    }
    let start: String = user_text.trim().chars().take(40).collect();
    if start.is_empty() { "simulated answer".to_owned() } else { format!("simulated answer to: {start}") }
}

/// Removes the characters that are banned from streamed speech.
pub(super) fn remove_banned(text: &str) -> String {
    text.chars().filter(|character| !BANNED_CHARS.contains(*character)).collect()
}

/// Estimates the number of tokens of a text.
pub(super) fn estimate_tokens(text: &str) -> usize {
    let wide = text.chars().filter(|character| is_wide(*character)).count();
    let narrow = text.chars().count() - wide;
    wide + narrow.div_ceil(CHARS_PER_TOKEN)
}

/// Cuts the text to `max_new_tokens` (mappings/notes/minicpm-o.md#reading-aloud).
pub(super) fn truncate_to_tokens(text: &str, max_new_tokens: usize) -> &str {
    let max_quarters = max_new_tokens.clamp(1, MAX_ANSWER_TOKENS) * CHARS_PER_TOKEN;
    let mut used_quarters = 0;
    for (at, character) in text.char_indices() {
        used_quarters += if is_wide(character) { CHARS_PER_TOKEN } else { 1 };
        if used_quarters > max_quarters {
            return &text[..at];
        }
    }
    text
}

/// Splits a text answer into deltas, before a space if one is near, else after [`TEXT_DELTA_CHARS`].
pub(super) fn split_text_deltas(text: &str) -> Vec<String> {
    let mut deltas = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(TEXT_DELTA_CHARS) {
        let cut = rest[..end].rfind(' ').filter(|at| *at > 0).unwrap_or(end);
        deltas.push(rest[..cut].to_owned());
        rest = &rest[cut..];
    }
    if !rest.is_empty() {
        deltas.push(rest.to_owned());
    }
    deltas
}

/// Splits a text into exactly `parts` texts of `chars` characters; the last takes the rest, and trailing ones may be
/// empty.
pub(super) fn split_speech_deltas(text: &str, chars: usize, parts: usize) -> Vec<String> {
    let mut deltas = Vec::with_capacity(parts);
    let mut rest = text;
    for _ in 1..parts {
        let end = rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
        deltas.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    deltas.push(rest.to_owned());
    deltas
}

fn is_wide(character: char) -> bool {
    ('\u{2E80}'..='\u{9FFF}').contains(&character) || ('\u{AC00}'..='\u{FFEF}').contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_join_to_text() {
        let text =
            "the quick brown fox jumps over the lazy dog 敏捷的棕色狐狸跳过了懒狗敏捷的棕色狐狸跳过了懒狗";
        assert_eq!(split_text_deltas(text).concat(), text);
        assert_eq!(split_text_deltas(text)[0], "the quick brown fox");
        assert_eq!(split_speech_deltas(text, 16, 3).concat(), text);
        assert_eq!(split_speech_deltas("ab", 16, 3), ["ab", "", ""]);
    }

    #[test]
    fn text_is_read_aloud_only_after_prompt() {
        assert_eq!(simulated_answer("请朗读以下内容。 Hello there. ", true), "Hello there.");
        assert_eq!(simulated_answer("Hello there.", true), "simulated answer to: Hello there.");
        assert_eq!(simulated_answer("", false), "simulated answer");
    }

    #[test]
    fn banned_characters_are_removed_and_long_text_is_cut() {
        assert_eq!(remove_banned("At 10:30 (UTC) & more"), "At 1030 UTC  more");
        assert_eq!(remove_banned(CORRUPTED_PREFIX), CORRUPTED_PREFIX);
        assert_eq!(truncate_to_tokens("abcdefghij", 2), "abcdefgh");
        assert_eq!(truncate_to_tokens("你好吗", 2), "你好");
        assert_eq!(estimate_tokens("你好 abc"), 3);
    }
}
