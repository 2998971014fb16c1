//! One turn of the model: its text, its response ids, and how much of it was heard.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::session::{
    millis,
    upstream::{LaneContext, output_filter::OutputFilter},
};
use crate::{
    audio::MODEL_RATE_HZ,
    event::{ClientCommand, Speaker},
};

/// Remembered response ids of one turn. Late output is at most one unit late.
const RESPONSE_IDS_MAX: usize = 4;
/// Bound on the text of one turn; the model would need an hour to speak it.
const TEXT_MAX_BYTES: usize = 64 * 1024;

/// Session settings that concern a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TranscriptOptions {
    /// Report transcripts of the model.
    pub(super) transcripts: bool,
    /// Report partial transcripts.
    pub(super) partials: bool,
    /// A requested text is being spoken. The model must be silent.
    pub(super) is_tts_active: bool,
}

/// Turn in progress.
#[derive(Debug)]
pub(in crate::session) struct AssistantTurn {
    pub(in crate::session) request_id: String,
    pub(in crate::session) segment_id: u32,
    pub(in crate::session) text: String,
    /// Length of the text at the last partial transcript.
    pub(in crate::session) reported_bytes: usize,
    /// Samples of its audio so far.
    pub(in crate::session) audio_samples: u64,
    /// The player has started this turn.
    pub(in crate::session) playout_started: bool,
    pub(super) response_ids: VecDeque<Box<str>>,
}

impl AssistantTurn {
    /// Starts a turn, and tells the client.
    pub(in crate::session) fn start(by_client: bool, context: &mut LaneContext) -> Self {
        let segment_id = context.segment_ids.next_id();
        context.out.push_client(ClientCommand::AnswerStarted { segment_id, by_client });
        Self {
            request_id: format!("turn_{:08x}", context.rng.u32(..)),
            segment_id,
            text: String::new(),
            reported_bytes: 0,
            audio_samples: 0,
            playout_started: false,
            response_ids: VecDeque::new(),
        }
    }

    /// Adds a response id. The C++ back-end uses a new one for each unit.
    pub(super) fn add_response_id(&mut self, id: Option<&str>) {
        let Some(id) = id.filter(|id| self.response_ids.back().is_none_or(|last| **last != **id)) else {
            return;
        };
        if self.response_ids.len() == RESPONSE_IDS_MAX {
            self.response_ids.pop_front();
        }
        self.response_ids.push_back(id.into());
    }

    /// Adds filtered text.
    pub(in crate::session) fn push_text(&mut self, filter: &mut OutputFilter, delta: &str) {
        if self.text.len() < TEXT_MAX_BYTES {
            filter.push(delta, &mut self.text);
        }
    }

    pub(in crate::session) fn audio_ms(&self) -> u64 {
        self.audio_samples * 1000 / u64::from(MODEL_RATE_HZ)
    }

    /// Part of the text that was heard, estimated from the length of the unheard audio; empty if none was heard. Neither
    /// the client nor the next session's prompt may be told of unheard words.
    pub(in crate::session) fn heard_text(&self, unheard: Duration) -> &str {
        let total = Duration::from_millis(self.audio_ms());
        if unheard >= total {
            return "";
        }
        let share = 1.0 - unheard.as_secs_f64() / total.as_secs_f64();
        let chars = self.text.chars().count() as f64 * share.clamp(0.0, 1.0);
        let end = self.text.char_indices().nth(chars as usize).map_or(self.text.len(), |(at, _)| at);
        // Text leads audio, so the word at the cut counts as heard.
        let end = self.text[end..].find(char::is_whitespace).map_or(self.text.len(), |at| end + at);
        self.text[..end].trim()
    }

    /// Reports the text so far.
    pub(in crate::session) fn report_partial(&self, context: &mut LaneContext) {
        context.out.push_client(ClientCommand::TranscriptPartial {
            speaker: Speaker::Assistant,
            text: self.text.trim().to_owned(),
            segment_id: self.segment_id,
            audio_ms: self.audio_ms(),
            start_ms: 0,
        });
    }

    /// Plays audio of the model.
    pub(in crate::session) fn push_audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        context: &mut LaneContext,
    ) {
        self.audio_samples += samples.len() as u64;
        if !std::mem::replace(&mut self.playout_started, true) {
            let (id, text) = (self.request_id.clone(), self.text.trim().to_owned());
            context.player.begin_turn(now, self.segment_id, id, text);
        }
        context.player.push_audio(now, samples, &mut context.out);
    }

    /// Reports the heard text to the client, and adds it to the history.
    pub(super) fn report(
        &self,
        heard: &str,
        unheard: Duration,
        options: TranscriptOptions,
        context: &mut LaneContext,
    ) {
        context.history.push(Speaker::Assistant, self.segment_id, heard);
        if options.transcripts {
            self.report_final(heard, unheard, options.partials, context);
        }
    }

    /// Reports the heard text to the client. A turn with partial transcripts gets a final one even if it is empty.
    pub(in crate::session) fn report_final(
        &self,
        heard: &str,
        unheard: Duration,
        partials: bool,
        context: &mut LaneContext,
    ) {
        let has_partials = partials && !self.text.trim().is_empty();
        if has_partials || !heard.is_empty() {
            let duration_ms = self.audio_ms().saturating_sub(millis(unheard));
            context.out.push_client(ClientCommand::TranscriptFinal {
                speaker: Speaker::Assistant,
                text: heard.to_owned(),
                segment_id: self.segment_id,
                duration_ms,
                start_ms: 0,
                speech_ms: (0, duration_ms),
                utterance_ended: true,
                finalized: false,
                language: None,
                words: Vec::new(),
            });
        }
    }

    /// Reports the end of a turn that was never played. The player reports the end of the others.
    pub(in crate::session) fn report_end(&self, cancelled: bool, context: &mut LaneContext) {
        if !self.playout_started {
            let (segment_id, audio_ms) = (self.segment_id, self.audio_ms());
            context.out.push_client(ClientCommand::AnswerEnded { segment_id, cancelled, audio_ms });
        }
    }
}
