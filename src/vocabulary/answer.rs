//! A conversation that takes turns: its entries, and requests for answers.

use std::sync::Arc;

use bytes::Bytes;

use super::{ToolCall, ToolOffer, ToolResult, VoiceSample};
use crate::named_enum::named_enum;

/// Number of an entry of a conversation. An utterance and an answer have the number of their segment; entries that the
/// client adds count from [`EntryId::FIRST_ADDED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

impl EntryId {
    /// Number of the first entry that a client adds. Segments never reach it.
    pub const FIRST_ADDED: Self = Self(1 << 31);
}

named_enum! {
    /// Speaker of an entry.
    pub enum Role {
        /// Instructions.
        System = "system",
        /// The user.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

/// A part of an entry.
#[derive(Clone, PartialEq, Eq)]
pub enum EntryPart {
    /// Words.
    Text(String),
    /// A picture: a JPEG or PNG file.
    Picture(Bytes),
    /// Speech, int16 mono 16 kHz.
    Audio(Arc<Vec<i16>>),
    /// A call of a tool, by the model.
    Call(ToolCall),
    /// The result of a call, from the client.
    Result(ToolResult),
}

impl std::fmt::Debug for EntryPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({text:?})"),
            Self::Picture(bytes) => write!(f, "Picture({} bytes)", bytes.len()),
            Self::Audio(samples) => write!(f, "Audio({} samples)", samples.len()),
            Self::Call(call) => write!(f, "{call:?}"),
            Self::Result(result) => write!(f, "{result:?}"),
        }
    }
}

impl EntryPart {
    /// Memory of the part, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let contents = match self {
            Self::Text(text) => text.len(),
            Self::Picture(file) => file.len(),
            Self::Audio(samples) => size_of_val(samples.as_slice()),
            Self::Call(call) => call.bytes(),
            Self::Result(result) => result.call_id.len() + result.output.len(),
        };
        size_of::<Self>() + contents
    }
}

/// An entry of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub id: EntryId,
    /// Speaker.
    pub role: Role,
    /// Contents.
    pub parts: Vec<EntryPart>,
}

impl Entry {
    /// True for a call of a tool, or its result.
    #[must_use]
    pub fn concerns_tools(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, EntryPart::Call(_) | EntryPart::Result(_)))
    }

    /// Memory of the entry, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.parts.iter().map(EntryPart::bytes).sum::<usize>()
    }
}

/// Where an entry is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPlace {
    /// Behind all others.
    End,
    /// Before all others.
    Front,
    /// Behind this one; at the end if there is none of this number.
    After(EntryId),
}

/// Request for an answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerRequest {
    /// Instructions in place of the session's.
    pub instructions: Option<String>,
    /// Whether the answer is spoken, in place of the session's setting.
    pub speaks: Option<bool>,
    /// Bound on the answer's length, in the model's tokens.
    pub max_tokens: Option<u32>,
    /// Sampling temperature in place of the session's.
    pub temperature: Option<f64>,
    /// Entries in place of the conversation so far.
    pub entries: Option<Vec<Entry>>,
    /// Tools in place of the session's.
    pub tools: Option<ToolOffer>,
    /// The answer becomes part of the conversation.
    pub is_remembered: bool,
    /// The client asked for it; otherwise the end of an utterance did.
    pub by_client: bool,
    /// Memory of its instructions, entries and tools, bytes ([`AnswerRequest::count_bytes`]).
    pub bytes: usize,
}

impl AnswerRequest {
    /// Counts the memory of the instructions, entries and tools, bytes.
    #[must_use]
    pub fn count_bytes(&self) -> usize {
        let entries = self.entries.iter().flatten().map(Entry::bytes).sum::<usize>();
        let tools = self.tools.as_ref().map_or(0, ToolOffer::bytes);
        entries + tools + self.instructions.as_ref().map_or(0, String::len)
    }
}

impl Default for AnswerRequest {
    fn default() -> Self {
        Self {
            instructions: None,
            speaks: None,
            max_tokens: None,
            temperature: None,
            entries: None,
            tools: None,
            is_remembered: true,
            by_client: false,
            bytes: 0,
        }
    }
}

/// How the session reacts to the user's speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnDetection {
    /// Voice activity finds the utterances. Otherwise the client commits its audio.
    pub is_automatic: bool,
    /// The model answers the end of an utterance.
    pub answers: bool,
    /// The user's speech interrupts an answer.
    pub interrupts: bool,
    /// The client itself asks for the answers to utterances.
    pub client_asks: bool,
    /// Silence of the user after an answer that the model answers, too; `None` if it does not.
    pub idle_timeout: Option<std::time::Duration>,
    /// Rule that ends an utterance.
    pub turn_end: super::TurnEnd,
}

impl TurnDetection {
    /// True if voice activity ends utterances, and the model answers them.
    pub(crate) const fn answers_utterances(&self) -> bool {
        self.is_automatic && self.answers
    }
}

impl Default for TurnDetection {
    fn default() -> Self {
        Self {
            is_automatic: true,
            answers: true,
            interrupts: true,
            client_asks: false,
            idle_timeout: None,
            turn_end: super::TurnEnd::OfProfile,
        }
    }
}

/// One message to a model in chat mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Speaker.
    pub role: Role,
    /// Contents. There is at most one part of audio, because the C++ back-end reads only the first. For a dialect whose model is
    /// prompted for calls, calls and results are written as text before.
    pub parts: Vec<EntryPart>,
}

/// A chat turn: everything the model needs to know for one answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatTurn {
    /// System prompt before the voice sample. Without a voice sample it is not sent.
    pub before_voice: String,
    /// System prompt after the voice sample.
    pub instructions: String,
    /// The conversation, oldest message first.
    pub messages: Vec<ChatMessage>,
    /// The answer is spoken.
    pub speaks: bool,
    /// Voice sample of a spoken answer; `None` for the server's voice.
    pub voice: Option<VoiceSample>,
    /// Name of the voice that the client asked for, for a server with voices of its own.
    pub voice_name: Option<String>,
    /// Bound on the answer's length, in the model's tokens.
    pub max_tokens: u32,
    /// Sampling temperature; `None` for the server's own.
    pub temperature: Option<f64>,
    /// Tools for a dialect that offers them in messages; none for one whose model was prompted for calls.
    pub tools: ToolOffer,
}

/// The words of an answer that was heard for `heard_ms` of its `total_ms`, in whole words. Speech is about even. In scripts
/// without spaces between words, each letter counts as a word.
#[must_use]
pub fn heard_words(text: &str, heard_ms: u64, total_ms: u64) -> &str {
    if heard_ms >= total_ms {
        return text;
    }
    let chars = text.chars().count() as u64 * heard_ms / total_ms;
    let end = text.char_indices().nth(chars as usize).map_or(text.len(), |(at, _)| at);
    let begins_word = |letter: char| letter.is_whitespace() || needs_no_spaces(letter);
    if text[end..].starts_with(begins_word) || text[..end].ends_with(needs_no_spaces) {
        return text[..end].trim_end();
    }
    let last_whole = text[..end].char_indices().rfind(|(_, letter)| begins_word(*letter));
    let end = last_whole.map_or(0, |(at, letter)| at + letter.len_utf8());
    text[..end].trim_end()
}

/// True for letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese, Japanese.
pub(crate) const fn needs_no_spaces(letter: char) -> bool {
    matches!(letter as u32,
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x312f | 0x3190..=0x9fff
        | 0xf900..=0xfaff | 0xff00..=0xffef | 0x2_0000..=0x3_ffff)
}

#[cfg(test)]
mod tests {
    use super::heard_words;

    #[test]
    fn heard_words_are_whole_words_of_any_script() {
        assert_eq!(heard_words("one two three", 500, 1000), "one");
        assert_eq!(heard_words("one two three", 600, 1000), "one two");
        assert_eq!(heard_words("one two", 1000, 1000), "one two");
        assert_eq!(heard_words("今天天气很好。", 500, 1000), "今天天");
        assert_eq!(heard_words("我用 MiniCPM 说话", 500, 1000), "我用");
        assert_eq!(heard_words("สวัสดีครับ", 500, 1000).chars().count(), 5);
        assert_eq!(heard_words("word", 500, 1000), "");
    }
}
