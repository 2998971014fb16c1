//! `transcription`: whether the client wants transcripts of the user, and words that are likely to occur in them.

use serde_json::{Map, Value};

use super::fields::{NAME_MAX_BYTES, TEXT_MAX_BYTES, read_array, read_text};
use crate::{
    client::json_text::{Fields, read_str},
    error::Error,
};

/// Most items of `keywords` that are used, and most characters of each.
const KEYWORDS_MAX: usize = 256;
/// Most items of `keywords` that a client may give.
const KEYWORDS_GIVEN_MAX: usize = 4096;

/// `transcription`.
#[derive(Debug, Clone)]
pub(super) struct Transcription {
    /// `model`, `language` and `prompt`: clients fail at any other key.
    pub(super) echoed: Map<String, Value>,
    pub(super) hot_words: Vec<String>,
}

impl Transcription {
    /// Reads the fields at this path.
    pub(super) fn read(fields: &Fields<'_>, path: &str) -> Result<Self, Error> {
        let mut echoed = Map::new();
        for (key, max_bytes) in
            [("model", NAME_MAX_BYTES), ("language", NAME_MAX_BYTES), ("prompt", TEXT_MAX_BYTES)]
        {
            if let Some(value) = fields.given(key) {
                echoed.insert(key.to_owned(), read_text(value, &format!("{path}.{key}"), max_bytes)?.into());
            }
        }
        let prompt = echoed.get("prompt").and_then(Value::as_str).filter(|prompt| !prompt.is_empty());
        let keywords = fields
            .given("keywords")
            .map(|list| read_array(list, &format!("{path}.keywords"), KEYWORDS_GIVEN_MAX));
        let keywords = keywords.transpose()?.unwrap_or_default();
        // `prompt` is a list of words too with OpenAI's whisper.
        let words = prompt.map(Into::into).into_iter().chain(keywords.into_iter().filter_map(read_str));
        let words = words.take(KEYWORDS_MAX).map(|word| word.chars().take(KEYWORDS_MAX).collect());
        Ok(Self { hot_words: words.collect(), echoed })
    }
}
