//! One turn of the model: what it has said so far, under which ids, and what of it was heard.

use std::{collections::VecDeque, time::Duration};

use super::turns::TranscriptOptions;
use crate::session::{context::LaneContext, upstream::output_filter::OutputFilter};
use crate::{
    audio::MODEL_RATE_HZ,
    event::{ClientCommand, Speaker},
};

/// Ids of one turn that are remembered: what comes late is a unit late at most.
const RESPONSE_IDS_MAX: usize = 4;
/// Most text of one turn that is kept; the model would need an hour for it.
const TEXT_MAX_BYTES: usize = 64 * 1024;

/// A turn going on.
#[derive(Debug)]
pub(super) struct AssistantTurn {
    pub(super) request_id: String,
    pub(super) segment_id: u32,
    pub(super) text: String,
    /// Samples of its audio.
    pub(super) audio_samples: u64,
    /// The mouth has begun it.
    pub(super) playout_started: bool,
    pub(super) response_ids: VecDeque<Box<str>>,
}

impl AssistantTurn {
    /// A turn that begins.
    pub(super) fn start(context: &mut LaneContext) -> Self {
        Self {
            request_id: format!("turn_{:08x}", context.rng.u32(..)),
            segment_id: context.segment_ids.next_id(),
            text: String::new(),
            audio_samples: 0,
            playout_started: false,
            response_ids: VecDeque::new(),
        }
    }

    /// It is known by this id too: C++ has one a unit.
    pub(super) fn add_response_id(&mut self, id: Option<&str>) {
        let Some(id) = id.filter(|id| self.response_ids.back().is_none_or(|last| **last != **id)) else {
            return;
        };
        if self.response_ids.len() == RESPONSE_IDS_MAX {
            self.response_ids.pop_front();
        }
        self.response_ids.push_back(id.into());
    }

    /// Takes what the words became.
    pub(super) fn push_text(&mut self, filter: &mut OutputFilter, delta: &str) {
        if self.text.len() < TEXT_MAX_BYTES {
            filter.push(delta, &mut self.text);
        }
    }

    pub(super) fn audio_ms(&self) -> u64 {
        self.audio_samples * 1000 / u64::from(MODEL_RATE_HZ)
    }

    /// What of its text was heard, about, when that much of its audio was not: the model's next session is not told that
    /// it said what nobody heard.
    pub(super) fn heard_text(&self, unheard: Duration) -> &str {
        let total = Duration::from_millis(self.audio_ms());
        let share = 1.0 - unheard.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
        let chars = self.text.chars().count() as f64 * share.clamp(0.0, 1.0);
        let end = self.text.char_indices().nth(chars as usize).map_or(self.text.len(), |(at, _)| at);
        // Text leads audio; the word at hand was heard.
        let end = self.text[end..].find(char::is_whitespace).map_or(self.text.len(), |at| end + at);
        self.text[..end].trim()
    }

    /// What was said, for the client; and what of it was heard, for the next upstream session.
    pub(super) fn report(&self, heard: &str, options: TranscriptOptions, context: &mut LaneContext) {
        context.history.push(Speaker::Assistant, heard);
        let text = self.text.trim();
        if options.transcripts && !text.is_empty() {
            context.out.push_client(ClientCommand::TranscriptFinal {
                speaker: Speaker::Assistant,
                text: text.to_owned(),
                segment_id: self.segment_id,
                duration_ms: self.audio_ms(),
                start_ms: 0,
                utterance_ended: true,
                finalized: false,
                language: None,
            });
        }
    }
}
