//! Entries of a conversation that takes turns, and the chat messages made of them. Bounded in text, audio and pictures.

use crate::vocabulary::{
    ChatMessage, Entry, EntryId, EntryPart, EntryPlace, Role, ToolCall, ToolResult, heard_words,
};

/// Most entries. Beyond it, the oldest are dropped; their text would rarely fit into the model's context.
const ENTRIES_MAX: usize = 1000;
/// Memory of all pictures, bytes. Beyond it, the oldest are dropped.
const PICTURES_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Results of tools that answer the newest question, and its calls, may take this many times the bound on text.
const EXCHANGE_FACTOR: u64 = 2;
/// End of a result that was cut.
const CUT_MARK: &str = "… (cut)";
/// Samples at 16 kHz in a millisecond.
const SAMPLES_PER_MS: u64 = 16;

/// Bounds of a conversation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EntryLimits {
    pub(crate) max_chars: usize,
    pub(crate) audio_max_ms: u64,
    pub(crate) max_pictures: usize,
}

/// The conversation so far, oldest entry first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    list: Vec<StoredEntry>,
    limits: EntryLimits,
    /// Memory of all entries.
    bytes: usize,
}

#[derive(Debug, Clone)]
struct StoredEntry {
    entry: Entry,
    /// Length of an answer's audio, ms.
    audio_ms: u64,
}

impl Entries {
    pub(crate) const fn new(limits: EntryLimits) -> Self {
        Self { list: Vec::new(), limits, bytes: 0 }
    }

    /// Memory of all entries, bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if there is a call of a tool, or a result of one.
    pub(crate) fn concern_tools(&self) -> bool {
        self.list.iter().any(|stored| stored.entry.concerns_tools())
    }

    /// Forgets all entries.
    pub(crate) fn clear(&mut self) {
        self.list = Vec::new();
        self.bytes = 0;
    }

    /// Adds an entry. Cuts a tool's result that takes more than half of the conversation, and returns true then.
    pub(crate) fn add(&mut self, mut entry: Entry, place: EntryPlace) -> bool {
        let mut was_cut = false;
        for part in &mut entry.parts {
            if let EntryPart::Result(result) = part {
                was_cut |= self.cut_result(&mut result.output);
            }
        }
        let at = match place {
            EntryPlace::End => self.list.len(),
            EntryPlace::Front => 0,
            EntryPlace::After(id) => self.position(id).map_or(self.list.len(), |at| at + 1),
        };
        self.list.insert(at, StoredEntry { entry, audio_ms: 0 });
        self.drop_excess();
        was_cut
    }

    /// Cuts a tool's result that takes more than half of the conversation. Returns true if it did.
    pub(super) fn cut_result(&self, output: &mut String) -> bool {
        let end = output.char_indices().nth(self.limits.max_chars / 2);
        if let Some((end, _)) = end {
            output.truncate(end);
            output.push_str(CUT_MARK);
        }
        end.is_some()
    }

    /// Replaces the parts of an entry, if it is still there.
    pub(super) fn replace(&mut self, id: EntryId, parts: Vec<EntryPart>) {
        if let Some(at) = self.position(id) {
            self.list[at].entry.parts = parts;
            self.drop_excess();
        }
    }

    /// All entries.
    pub(super) fn to_list(&self) -> Vec<Entry> {
        self.list.iter().map(|stored| stored.entry.clone()).collect()
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, id: EntryId) {
        self.list.retain(|stored| stored.entry.id != id);
        self.count_bytes();
    }

    /// Replaces the audio of an utterance by its words.
    pub(crate) fn set_transcript(&mut self, id: EntryId, text: &str) {
        let Some(at) = self.position(id).filter(|_| !text.is_empty()) else { return };
        let parts = &mut self.list[at].entry.parts;
        parts.retain(|part| !matches!(part, EntryPart::Audio(_)));
        parts.push(EntryPart::Text(text.to_owned()));
        self.drop_excess();
    }

    pub(crate) fn set_audio_length(&mut self, id: EntryId, audio_ms: u64) {
        if let Some(at) = self.position(id) {
            self.list[at].audio_ms = audio_ms;
        }
    }

    /// Cuts an answer to what was heard of its audio, in whole words.
    pub(crate) fn truncate(&mut self, id: EntryId, heard_ms: u64) {
        let Some(at) = self.position(id) else { return };
        let StoredEntry { entry, audio_ms } = &mut self.list[at];
        for part in &mut entry.parts {
            if let EntryPart::Text(text) = part {
                text.truncate(heard_words(text, heard_ms, *audio_ms).len());
            }
        }
        *audio_ms = heard_ms.min(*audio_ms);
        entry.parts.retain(|part| !matches!(part, EntryPart::Text(text) if text.is_empty()));
        self.drop_empty();
    }

    /// Drops the pictures that an answer has seen: the next answer gets newer ones.
    pub(crate) fn drop_shown_pictures(&mut self) {
        for stored in &mut self.list {
            stored.entry.parts.retain(|part| !matches!(part, EntryPart::Picture(_)));
        }
        self.drop_empty();
    }

    /// Drops entries without parts, and counts the memory of the rest.
    fn drop_empty(&mut self) {
        self.list.retain(|stored| !stored.entry.parts.is_empty());
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        self.bytes = self.list.iter().map(|stored| stored.entry.bytes()).sum();
    }

    /// The chat messages. Without a system message before them, they begin with the user's
    /// (mappings/notes/minicpm-o.md#chat).
    pub(crate) fn messages(&self, has_system: bool) -> Vec<ChatMessage> {
        to_messages(self.list.iter().map(|stored| &stored.entry), has_system)
    }

    fn position(&self, id: EntryId) -> Option<usize> {
        self.list.iter().position(|stored| stored.entry.id == id)
    }

    /// Drops what exceeds the limits, the oldest first; of the oldest text that fits in part, the end stays. The newest entry and
    /// the user's newest question stay whatever their size; calls and results behind the question have a larger bound, because
    /// its answer needs them.
    fn drop_excess(&mut self) {
        let excess = self.list.len().saturating_sub(ENTRIES_MAX);
        self.list.drain(..excess);
        let (mut chars, mut audio_ms, mut pictures, mut picture_bytes) = (0, 0, 0, 0);
        let mut exchange_max = self.limits.max_chars as u64 * EXCHANGE_FACTOR;
        for stored in self.list.iter_mut().rev() {
            let is_newest = chars == 0 && audio_ms == 0 && pictures == 0;
            let concerns_tools = stored.entry.concerns_tools();
            let has_words = |part: &EntryPart| matches!(part, EntryPart::Text(_) | EntryPart::Audio(_));
            let is_question = exchange_max > 0
                && stored.entry.role == Role::User
                && !concerns_tools
                && stored.entry.parts.iter().any(has_words);
            if is_question {
                exchange_max = 0;
            }
            stored.entry.parts.retain_mut(|part| {
                let (sum, size, max) = match &*part {
                    EntryPart::Text(text) => {
                        (&mut chars, text.chars().count() as u64, self.limits.max_chars as u64)
                    }
                    EntryPart::Call(ToolCall { arguments: text, .. })
                    | EntryPart::Result(ToolResult { output: text, .. }) => {
                        let max = exchange_max.max(self.limits.max_chars as u64);
                        (&mut chars, text.chars().count() as u64, max)
                    }
                    EntryPart::Audio(audio) => {
                        (&mut audio_ms, audio.len() as u64 / SAMPLES_PER_MS, self.limits.audio_max_ms)
                    }
                    EntryPart::Picture(file) => {
                        picture_bytes += file.len();
                        let is_excess = picture_bytes > PICTURES_MAX_BYTES;
                        (&mut pictures, 1, if is_excess { 0 } else { self.limits.max_pictures as u64 })
                    }
                };
                let left = max.saturating_sub(*sum);
                *sum += size;
                let is_kept = is_newest || is_question && !matches!(part, EntryPart::Picture(_));
                match part {
                    EntryPart::Text(text) if size > left && left > 0 && !is_kept => {
                        keep_end(text, (size - left) as usize);
                        !text.is_empty()
                    }
                    _ => size <= left || is_kept,
                }
            });
        }
        self.drop_empty();
    }
}

/// Cuts at least this many characters from the beginning of a text, at the start of a word if there is one.
fn keep_end(text: &mut String, chars: usize) {
    let mut at = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    if let Some((cut_word, _)) = text[at..].split_once(char::is_whitespace) {
        at += cut_word.len();
    }
    *text = text[at..].trim_start().to_owned();
}

/// Makes chat messages of entries. Consecutive entries of one speaker become one message, with at most one utterance.
pub(super) fn to_messages<'e>(
    entries: impl Iterator<Item = &'e Entry>,
    has_system: bool,
) -> Vec<ChatMessage> {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let has_audio = |parts: &[EntryPart]| parts.iter().any(|part| matches!(part, EntryPart::Audio(_)));
    for entry in entries {
        if messages.is_empty() && !has_system && entry.role == Role::Assistant {
            continue;
        }
        match messages
            .last_mut()
            .filter(|last| last.role == entry.role && !(has_audio(&last.parts) && has_audio(&entry.parts)))
        {
            Some(last) => last.parts.extend_from_slice(&entry.parts),
            None => messages.push(ChatMessage { role: entry.role, parts: entry.parts.clone() }),
        }
    }
    messages
}

/// Appends a user's message where there is none to answer: the model answers nothing else.
pub(super) fn end_with_user(messages: &mut Vec<ChatMessage>, text: &str) {
    if messages.last().is_none_or(|last| last.role != Role::User) {
        messages.push(ChatMessage { role: Role::User, parts: vec![EntryPart::Text(text.to_owned())] });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn entry(id: u32, role: Role, part: EntryPart) -> Entry {
        Entry { id: EntryId(id), role, parts: vec![part] }
    }

    fn text(words: &str) -> EntryPart {
        EntryPart::Text(words.to_owned())
    }

    fn entries(max_chars: usize, audio_max_ms: u64) -> Entries {
        Entries::new(EntryLimits { max_chars, audio_max_ms, max_pictures: 2 })
    }

    fn texts(entries: &Entries) -> Vec<String> {
        let words = |part: &EntryPart| match part {
            EntryPart::Text(text) => text.clone(),
            other => format!("{other:?}"),
        };
        let of_message = |message: ChatMessage| {
            let parts: Vec<String> = message.parts.iter().map(words).collect();
            format!("{}: {}", message.role.name(), parts.join(" + "))
        };
        entries.messages(true).into_iter().map(of_message).collect()
    }

    #[test]
    fn oldest_entries_are_dropped_beyond_each_limit() {
        let mut all = entries(8, 1000);
        for (id, words) in [(0, "one"), (1, "seven"), (2, "ten")] {
            all.add(entry(id, Role::User, text(words)), EntryPlace::End);
        }
        assert_eq!(texts(&all), ["user: seven + ten"]);
        for id in 3..5 {
            let audio = EntryPart::Audio(Arc::new(vec![0; 16 * 700]));
            all.add(entry(id, Role::User, audio), EntryPlace::End);
        }
        assert_eq!(texts(&all), ["user: seven + ten + Audio(11200 samples)"]);
        all.add(entry(9, Role::User, text("a text that is too long by itself")), EntryPlace::End);
        assert!(texts(&all)[0].ends_with("a text that is too long by itself"), "{:?}", texts(&all));
    }

    #[test]
    fn end_of_a_long_answer_is_kept() {
        for (answer, kept) in [
            ("the first words and the last", "and the last"),
            ("最初的话和最后的话最后的话最后", "的话和最后的话最后的话最后"),
        ] {
            let mut all = entries(17, 1000);
            all.add(entry(0, Role::User, text("tell me")), EntryPlace::End);
            all.add(entry(1, Role::Assistant, text(answer)), EntryPlace::End);
            assert!(texts(&all).concat().ends_with(answer), "the newest stays whole");
            all.add(entry(2, Role::User, text("more")), EntryPlace::End);
            assert_eq!(texts(&all), [format!("assistant: {kept}"), "user: more".to_owned()]);
        }
    }

    #[test]
    fn long_results_keep_their_question_and_each_other() {
        let call = |id: u32| {
            let arguments = "{}".to_owned();
            let call = ToolCall { call_id: id.to_string(), name: "a".to_owned(), arguments };
            entry(id, Role::Assistant, EntryPart::Call(call))
        };
        let result = |id: u32, output: &str| {
            let result = ToolResult { call_id: (id - 1).to_string(), output: output.to_owned() };
            entry(id, Role::User, EntryPart::Result(result))
        };
        let mut all = entries(40, 1000);
        all.add(entry(0, Role::User, text("an old question that is dropped")), EntryPlace::End);
        all.add(entry(1, Role::User, text("a question with two long results")), EntryPlace::End);
        for id in [2, 4] {
            all.add(call(id), EntryPlace::End);
            assert!(all.add(result(id + 1, &"é".repeat(500)), EntryPlace::End), "a long result is cut");
        }
        let found = texts(&all).join("; ");
        assert!(
            found.starts_with("user: a question with two long results; assistant: ToolCall {"),
            "{found}"
        );
        assert_eq!((found.matches("… (cut)").count(), found.matches("é").count()), (2, 40), "{found}");
        for id in (6..60).step_by(2) {
            all.add(call(id), EntryPlace::End);
            assert!(!all.add(result(id + 1, "short"), EntryPlace::End));
        }
        assert!(
            texts(&all)[0].starts_with("user: a question") && all.bytes() < 8000,
            "{} bytes",
            all.bytes()
        );
    }

    #[test]
    fn transcript_replaces_audio_and_truncation_keeps_what_was_heard() {
        let mut all = entries(1000, 60_000);
        all.add(entry(0, Role::User, EntryPart::Audio(Arc::new(vec![0; 160]))), EntryPlace::End);
        all.add(entry(1, Role::Assistant, text("one two three four")), EntryPlace::End);
        all.set_audio_length(EntryId(1), 4000);
        all.set_transcript(EntryId(0), "count");
        all.truncate(EntryId(1), 9000);
        assert_eq!(texts(&all), ["user: count", "assistant: one two three four"]);
        all.truncate(EntryId(1), 2000);
        assert_eq!(texts(&all), ["user: count", "assistant: one two"]);
        all.truncate(EntryId(1), 0);
        assert_eq!(texts(&all), ["user: count"], "an answer that nobody heard");
    }

    #[test]
    fn entries_keep_their_place_and_utterances_their_message() {
        let mut all = entries(1000, 60_000);
        let audio = || EntryPart::Audio(Arc::new(vec![0; 16]));
        all.add(entry(0, Role::User, audio()), EntryPlace::End);
        all.add(entry(1, Role::User, audio()), EntryPlace::End);
        all.add(entry(2, Role::System, text("be brief")), EntryPlace::Front);
        all.add(entry(3, Role::User, text("look")), EntryPlace::After(EntryId(0)));
        assert_eq!(
            texts(&all),
            ["system: be brief", "user: Audio(16 samples) + look", "user: Audio(16 samples)"]
        );
        all.remove(EntryId(2));
        all.add(entry(4, Role::Assistant, text("hello")), EntryPlace::Front);
        assert_eq!(all.messages(false).first().map(|first| first.role), Some(Role::User));
    }
}
