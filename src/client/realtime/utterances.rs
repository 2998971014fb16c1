//! Sends utterances as items, and their transcripts.

use serde_json::json;

use super::{Realtime, events::EventLabels, items::Item};
use crate::{
    spelling::client::RealtimeEvent,
    vocabulary::{EntryId, Message},
};

/// Words so far of the utterance that is being transcribed.
#[derive(Debug, Default)]
pub(super) struct PartialTranscript {
    segment_id: u32,
    text: String,
}

impl<L: EventLabels> Realtime<L> {
    /// Makes an item of an utterance, before the items of answers that began after it. It is done with its transcript, if one
    /// follows.
    pub(super) fn add_utterance(
        &mut self,
        segment_id: u32,
        is_transcribed: bool,
        send: &mut dyn FnMut(Message),
    ) {
        let number = EntryId(segment_id);
        let awaits_transcript = is_transcribed && self.session.transcribes();
        let item = Item::utterance(self.events.item_id(number), number, awaits_transcript);
        // In full duplex, the model may begin to answer before the utterance has ended.
        let at = if self.takes_turns { self.items.len() } else { self.items.position_for(number) };
        let previous = at.checked_sub(1).and_then(|before| self.items.at(before)).map(|item| item.id.clone());
        let fields = json!({ "item_id": item.id, "previous_item_id": previous });
        self.send(RealtimeEvent::BufferCommitted, fields, send);
        let fields = json!({ "previous_item_id": previous });
        self.send_with(RealtimeEvent::ItemAdded, fields, "item", &item.json(), send);
        self.items.insert(at, item);
        if !awaits_transcript {
            self.send_item_done(number, send);
        }
    }

    pub(super) fn send_item_done(&mut self, number: EntryId, send: &mut dyn FnMut(Message)) {
        let Some((previous, item)) = self.items.find(number) else { return };
        let fields = json!({ "previous_item_id": previous });
        let message = self.events.message_with(RealtimeEvent::ItemDone, fields, "item", &item.json());
        message.into_iter().for_each(send);
    }

    /// Sends the new words of an utterance. Words that replace earlier ones wait for the complete transcript.
    pub(super) fn send_user_words(&mut self, segment_id: u32, text: &str, send: &mut dyn FnMut(Message)) {
        if self.partial.segment_id != segment_id {
            self.partial = PartialTranscript { segment_id, text: String::new() };
        }
        let number = EntryId(segment_id);
        let new_words = text.strip_prefix(self.partial.text.as_str()).unwrap_or_default();
        if new_words.is_empty() || !self.items.awaits_transcript(number) {
            return;
        }
        let item_id = self.events.item_id(number);
        let fields = json!({ "item_id": item_id, "content_index": 0, "delta": new_words });
        self.partial.text.push_str(new_words);
        self.send(RealtimeEvent::TranscriptionDelta, fields, send);
    }

    pub(super) fn complete_transcription(
        &mut self,
        segment_id: u32,
        text: &str,
        duration_ms: u64,
        send: &mut dyn FnMut(Message),
    ) {
        let number = EntryId(segment_id);
        if !self.items.awaits_transcript(number) {
            return;
        }
        self.send_user_words(segment_id, text, send);
        self.items.complete_transcript(number, Some(text));
        let fields = json!({
            "item_id": self.events.item_id(number), "content_index": 0, "transcript": text,
            "usage": { "type": "duration", "seconds": duration_ms as f64 / 1000.0 },
        });
        self.send(RealtimeEvent::TranscriptionCompleted, fields, send);
        self.send_item_done(number, send);
    }
}
