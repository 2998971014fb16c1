//! Words of a turn of the model, reported to the client when the turn has been played or cut.

use crate::vocabulary::{ClientEvent, Speaker, TokenUsage, ToolCall, heard_words};

/// Final transcript of one turn.
#[derive(Debug)]
pub(crate) struct TurnTranscript {
    pub(crate) segment_id: u32,
    /// All words of the turn.
    pub(crate) text: String,
    /// Length of its audio when it was complete, ms.
    pub(crate) audio_ms: u64,
    /// The client receives transcripts of the model.
    pub(crate) is_reported: bool,
    /// The client got partial transcripts. A final one follows them even if it is empty.
    pub(crate) has_partials: bool,
    /// Calls of tools, each with its entry's number. The client gets them if the turn is heard to its end.
    pub(crate) calls: Vec<(u32, ToolCall)>,
    /// Tokens of the turn.
    pub(crate) usage: TokenUsage,
    /// The model stopped at the bound on the answer's length.
    pub(crate) hit_limit: bool,
}

impl TurnTranscript {
    /// The words in the first `heard_ms` of the audio; none if none of it was heard. `made_ms` is the length of the audio that
    /// the floor got.
    ///
    /// The longer length counts: the floor may get audio after the turn is complete, and may have dropped some before.
    pub(super) fn heard_text(&self, heard_ms: u64, made_ms: u64) -> &str {
        if heard_ms == 0 { "" } else { heard_words(&self.text, heard_ms, self.audio_ms.max(made_ms)) }
    }

    /// All words of a turn without audio, and its calls.
    pub(crate) fn all_events(&self) -> impl Iterator<Item = ClientEvent> {
        self.event(&self.text, self.audio_ms).into_iter().chain(self.call_events())
    }

    /// The calls of a turn that was heard to its end.
    pub(super) fn call_events(&self) -> impl Iterator<Item = ClientEvent> {
        self.calls.iter().map(|(entry_id, call)| {
            let (entry_id, call) = (*entry_id, call.clone());
            ClientEvent::ToolCalled { segment_id: self.segment_id, entry_id, call }
        })
    }

    /// The end of the words of a turn that was never played: it has none.
    pub(crate) fn unheard_event(&self) -> Option<ClientEvent> {
        self.event("", 0)
    }

    /// The words in the first `heard_ms` of the audio.
    pub(super) fn heard_event(&self, heard_ms: u64, made_ms: u64) -> Option<ClientEvent> {
        self.event(self.heard_text(heard_ms, made_ms), heard_ms)
    }

    /// The final transcript with these words; `None` if the client gets none.
    fn event(&self, text: &str, duration_ms: u64) -> Option<ClientEvent> {
        if !self.is_reported || (text.is_empty() && !self.has_partials) {
            return None;
        }
        Some(ClientEvent::TranscriptFinal {
            speaker: Speaker::Assistant,
            text: text.to_owned(),
            segment_id: self.segment_id,
            duration_ms,
            start_ms: 0,
            speech_ms: (0, duration_ms),
            utterance_ended: true,
            finalized: false,
            language: None,
            words: Vec::new(),
        })
    }
}
