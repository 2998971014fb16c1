//! Entries of a conversation that takes turns, and the chat messages made of them. Bounded in text, audio and pictures.

use crate::event::{
    ChatMessage, Entry, EntryId, EntryPart, EntryPlace, Role, ToolCall, ToolResult, heard_words,
};

/// Most entries. Beyond it, the oldest are dropped; their text would rarely fit into the model's context.
const ENTRIES_MAX: usize = 1000;
/// Memory of all pictures, bytes. Beyond it, the oldest are dropped.
const PICTURES_MAX_BYTES: usize = 16 * 1024 * 1024;
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

    /// Adds an entry.
    pub(crate) fn add(&mut self, entry: Entry, place: EntryPlace) {
        let at = match place {
            EntryPlace::End => self.list.len(),
            EntryPlace::Front => 0,
            EntryPlace::After(id) => self.position(id).map_or(self.list.len(), |at| at + 1),
        };
        self.list.insert(at, StoredEntry { entry, audio_ms: 0 });
        self.drop_excess();
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

    /// The chat messages. Without a system message before them, they begin with the user's (field notes minicpm-o.md §2).
    pub(crate) fn messages(&self, has_system: bool) -> Vec<ChatMessage> {
        to_messages(self.list.iter().map(|stored| &stored.entry), has_system)
    }

    fn position(&self, id: EntryId) -> Option<usize> {
        self.list.iter().position(|stored| stored.entry.id == id)
    }

    /// Drops what exceeds the limits, the oldest first. The newest entry stays whatever its size.
    fn drop_excess(&mut self) {
        let excess = self.list.len().saturating_sub(ENTRIES_MAX);
        self.list.drain(..excess);
        let (mut chars, mut audio_ms, mut pictures, mut picture_bytes) = (0, 0, 0, 0);
        for stored in self.list.iter_mut().rev() {
            let is_newest = chars == 0 && audio_ms == 0 && pictures == 0;
            stored.entry.parts.retain(|part| {
                let (sum, size, max) = match part {
                    EntryPart::Text(text) => {
                        (&mut chars, text.chars().count() as u64, self.limits.max_chars as u64)
                    }
                    EntryPart::Call(ToolCall { arguments: text, .. })
                    | EntryPart::Result(ToolResult { output: text, .. }) => {
                        (&mut chars, text.chars().count() as u64, self.limits.max_chars as u64)
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
                *sum += size;
                *sum <= max || is_newest
            });
        }
        self.drop_empty();
    }
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
        let mut all = entries(10, 1000);
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
