//! Timeout of the user's silence after an answer, after which the model speaks again (OpenAI's `idle_timeout_ms`).
//!
//! The silence begins when an answer has been played, and ends with speech, a text to speak or another answer.

use std::time::Instant;

use super::{owners::Owners, timers::Timer};
use crate::vocabulary::{AnswerRequest, ClientEvent};

/// The user's silence, while there is one.
#[derive(Debug, Default)]
pub(super) struct UserSilence(Option<SilenceStart>);

/// Begin of a silence.
#[derive(Debug, Clone, Copy)]
struct SilenceStart {
    at: Instant,
    /// Position in the client's audio, ms.
    position_ms: u64,
}

impl UserSilence {
    /// Arms [`Timer::UserSilence`] while the user of an open session is silent after an answer.
    pub(super) fn track(&mut self, now: Instant, is_open: bool, owners: &mut Owners) {
        let detection = owners.tools.settings.turn_detection;
        let timeout = detection.idle_timeout.filter(|_| detection.answers_utterances());
        let is_silent = is_open
            && !owners.tools.floor.is_busy()
            && !owners.is_user_speaking()
            && owners
                .assistant
                .as_ref()
                .is_some_and(|assistant| assistant.has_answered && !assistant.is_busy());
        let start = || SilenceStart { at: now, position_ms: owners.intake.speech_input.listened_ms() };
        match timeout.filter(|_| is_silent) {
            Some(_) => _ = self.0.get_or_insert_with(start),
            None => self.0 = None,
        }
        let due = self.0.zip(timeout).map(|(start, timeout)| start.at + timeout);
        owners.tools.timers.set_or_clear(Timer::UserSilence, due);
    }

    /// Lets the model answer the silence. Missing audio is no silence: the client's microphone may be off.
    pub(super) fn answer(&mut self, now: Instant, Owners { intake, assistant, tools, .. }: &mut Owners) {
        let Some(SilenceStart { position_ms: start_ms, .. }) = self.0.take() else { return };
        let end_ms = intake.speech_input.listened_ms();
        let Some(assistant) = assistant.as_mut().filter(|_| end_ms > start_ms) else { return };
        tools.floor.out.push_client(ClientEvent::AudioCommitted {
            segment_id: tools.segment_ids.next_id(),
            audio_ms: end_ms - start_ms,
            is_transcribed: false,
            silence_ms: Some((start_ms, end_ms)),
        });
        assistant.request(now, AnswerRequest::default(), tools);
    }
}
