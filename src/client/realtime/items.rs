//! Items of the conversation, as the client knows them. The session has the words and pictures; here are ids and order.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::vocabulary::{EntryId, ToolCall, heard_words};

/// Most items. Beyond it, the oldest are forgotten; the session's history is shorter.
const ITEMS_MAX: usize = 1000;
/// All items together, bytes. Beyond it, the oldest are forgotten.
const STORE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// An item.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) number: EntryId,
    contents: Contents,
    /// Length of an answer's audio, ms.
    pub(super) audio_ms: u64,
    /// The item is a spoken answer.
    pub(super) is_spoken: bool,
    /// The client waits for the transcript of this utterance.
    pub(super) awaits_transcript: bool,
    /// The id that the result of this call must have.
    pub(super) call_id: Option<String>,
}

#[derive(Debug, Clone)]
enum Contents {
    /// An utterance or an answer.
    Message(MessageContents),
    /// An item of the client, as JSON.
    Added(Box<str>),
}

/// Contents of an utterance or an answer.
#[derive(Debug, Clone)]
pub(super) struct MessageContents {
    pub(super) status: &'static str,
    pub(super) role: &'static str,
    /// Type of its part, the field of its words, and the words; `None` before the first word.
    pub(super) part: Option<(&'static str, &'static str, Option<String>)>,
}

impl MessageContents {
    pub(super) fn json(&self, id: &str) -> Value {
        let content = match &self.part {
            Some((kind, field, words)) => json!([{ "type": kind, (*field): words }]),
            None => json!([]),
        };
        json!({
            "id": id, "object": "realtime.item", "type": "message", "status": self.status, "role": self.role,
            "content": content,
        })
    }
}

/// The item of a call.
pub(super) fn call_json(id: &str, call: &ToolCall, status: &str, arguments: &str) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "function_call", "status": status, "call_id": call.call_id,
        "name": call.name, "arguments": arguments,
    })
}

/// Items, oldest first.
#[derive(Debug)]
pub(super) struct ItemStore {
    list: Vec<Item>,
    next_added: EntryId,
    /// Memory of all items.
    bytes: usize,
}

impl Default for ItemStore {
    fn default() -> Self {
        Self { list: Vec::new(), next_added: EntryId::FIRST_ADDED, bytes: 0 }
    }
}

impl Item {
    /// An utterance. Its transcript is null until it is known: one client fails without the key.
    pub(super) fn utterance(id: String, number: EntryId, awaits_transcript: bool) -> Self {
        let part = Some(("input_audio", "transcript", None));
        let contents = MessageContents { status: "completed", role: "user", part };
        Self { awaits_transcript, ..Self::message(id, number, contents) }
    }

    pub(super) const fn message(id: String, number: EntryId, contents: MessageContents) -> Self {
        let contents = Contents::Message(contents);
        Self { id, number, contents, audio_ms: 0, is_spoken: false, awaits_transcript: false, call_id: None }
    }

    /// An item of the client, as JSON.
    pub(super) fn added(id: String, number: EntryId, json: String) -> Self {
        let contents = Contents::Added(json.into());
        Self { id, number, contents, audio_ms: 0, is_spoken: false, awaits_transcript: false, call_id: None }
    }

    /// A call of a tool by the model.
    pub(super) fn call(id: String, number: EntryId, call: &ToolCall) -> Self {
        let json = call_json(&id, call, "completed", &call.arguments).to_string();
        Self { call_id: Some(call.call_id.clone()), ..Self::added(id, number, json) }
    }

    /// The item as JSON.
    pub(super) fn json(&self) -> Cow<'_, str> {
        match &self.contents {
            Contents::Message(contents) => contents.json(&self.id).to_string().into(),
            Contents::Added(json) => Cow::Borrowed(json),
        }
    }

    /// Memory of the item.
    fn bytes(&self) -> usize {
        let contents = match &self.contents {
            Contents::Message(contents) => {
                contents.part.iter().filter_map(|part| part.2.as_ref()).map(String::len).sum()
            }
            Contents::Added(json) => json.len(),
        };
        size_of::<Self>() + self.id.len() + self.call_id.as_ref().map_or(0, String::len) + contents
    }

    /// Words of an utterance or an answer.
    fn words_mut(&mut self) -> Option<&mut Option<String>> {
        match &mut self.contents {
            Contents::Message(contents) => contents.part.as_mut().map(|(_, _, words)| words),
            Contents::Added(_) => None,
        }
    }

    /// Cuts the words of an answer to what was heard of its audio.
    pub(super) fn truncate(&mut self, heard_ms: u64) {
        let total_ms = self.audio_ms;
        if let Some(Some(words)) = self.words_mut() {
            *words = heard_words(words, heard_ms, total_ms).to_owned();
        }
        self.audio_ms = total_ms.min(heard_ms);
    }
}

impl ItemStore {
    /// Memory of all items.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets every item.
    pub(super) fn clear(&mut self) {
        self.list = Vec::new();
        self.bytes = 0;
    }

    /// Number for an item that the client adds.
    pub(super) const fn allocate(&mut self) -> EntryId {
        let number = self.next_added;
        self.next_added.0 = number.0.wrapping_add(1);
        number
    }

    pub(super) fn last_id(&self) -> Option<String> {
        self.list.last().map(|item| item.id.clone())
    }

    pub(super) fn add(&mut self, item: Item) {
        self.insert(self.list.len(), item);
    }

    /// Adds an item in front of the one at this index.
    pub(super) fn insert(&mut self, at: usize, item: Item) {
        self.list.insert(at, item);
        let mut bytes = 0;
        let newest = self.list.iter().rev();
        let kept = newest.take_while(|item| {
            bytes += item.bytes();
            bytes <= STORE_MAX_BYTES
        });
        let excess = self.list.len() - kept.count().min(ITEMS_MAX);
        self.list.drain(..excess);
        self.count_bytes();
    }

    /// Counts the memory anew.
    fn count_bytes(&mut self) {
        self.bytes = self.list.iter().map(Item::bytes).sum();
    }

    pub(super) fn replace(&mut self, item: Item) {
        if let Some(known) = self.list.iter_mut().find(|known| known.number == item.number) {
            *known = item;
        }
        self.count_bytes();
    }

    /// Index at which the item of an utterance or an answer with this number belongs: before those that began later. Items that
    /// the client added stay where they are.
    pub(super) fn position_for(&self, number: EntryId) -> usize {
        let began_later = |item: &Item| item.number > number && item.number < EntryId::FIRST_ADDED;
        let later = self.list.iter().rev().take_while(|item| began_later(item)).count();
        self.list.len() - later
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Index of the item with this id.
    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.list.iter().position(|item| item.id == id)
    }

    /// True if there is a call with this id.
    pub(super) fn has_call(&self, call_id: &str) -> bool {
        self.list.iter().any(|item| item.call_id.as_deref() == Some(call_id))
    }

    pub(super) fn at(&self, at: usize) -> Option<&Item> {
        self.list.get(at)
    }

    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut Item> {
        self.list.get_mut(at)
    }

    pub(super) fn remove(&mut self, at: usize) -> Item {
        let item = self.list.remove(at);
        self.count_bytes();
        item
    }

    /// The item with this number, and the id of the one before it.
    pub(super) fn find(&self, number: EntryId) -> Option<(Option<&str>, &Item)> {
        let at = self.list.iter().rposition(|item| item.number == number)?;
        let previous = at.checked_sub(1).and_then(|before| self.list.get(before));
        Some((previous.map(|item| item.id.as_str()), &self.list[at]))
    }

    pub(super) fn find_mut(&mut self, number: EntryId) -> Option<&mut Item> {
        self.list.iter_mut().rfind(|item| item.number == number)
    }

    /// True if the client waits for the transcript of this utterance.
    pub(super) fn awaits_transcript(&self, number: EntryId) -> bool {
        self.find(number).is_some_and(|(_, item)| item.awaits_transcript)
    }

    /// Sets the transcript of an utterance; `None` if there will be none.
    pub(super) fn complete_transcript(&mut self, number: EntryId, text: Option<&str>) {
        let Some(item) = self.list.iter_mut().rfind(|item| item.number == number) else { return };
        item.awaits_transcript = false;
        if let (Some(words), Some(text)) = (item.words_mut(), text) {
            *words = Some(text.to_owned());
        }
        self.count_bytes();
    }
}
