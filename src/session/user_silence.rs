//! Timeout of the user's silence after an answer, after which the model speaks again (OpenAI's `idle_timeout_ms`).
//!
//! The silence begins when an answer has been played, and ends with speech, a text to speak or another answer.

use std::time::Instant;

use super::{Session, SessionPhase, timers::Timer};
use crate::vocabulary::{AnswerRequest, ClientEvent};

impl Session {
    /// Arms [`Timer::UserSilence`] while the user is silent after an answer.
    pub(super) fn track_user_silence(&mut self, now: Instant) {
        let detection = self.tools.settings.turn_detection;
        let timeout = detection.idle_timeout.filter(|_| detection.answers_utterances());
        let is_silent = self.phase == SessionPhase::Open
            && !self.tools.floor.is_busy()
            && self.intake.speech_input.current_recording().is_none()
            && self
                .assistant
                .as_ref()
                .is_some_and(|assistant| assistant.has_answered && !assistant.is_busy());
        let silence = &mut self.activity.user_silence;
        match timeout.filter(|_| is_silent) {
            Some(_) => drop(silence.get_or_insert((now, self.intake.speech_input.listened_ms()))),
            None => *silence = None,
        }
        let due = silence.zip(timeout).map(|((since, _), timeout)| since + timeout);
        self.tools.timers.set_or_clear(Timer::UserSilence, due);
    }

    /// Lets the model answer the silence. Missing audio is no silence: the client's microphone may be off.
    pub(super) fn answer_user_silence(&mut self, now: Instant) {
        let Some((_, start_ms)) = self.activity.user_silence.take() else { return };
        let end_ms = self.intake.speech_input.listened_ms();
        let Some(assistant) = self.assistant.as_mut().filter(|_| end_ms > start_ms) else { return };
        self.tools.out.push_client(ClientEvent::AudioCommitted {
            segment_id: self.tools.segment_ids.next_id(),
            audio_ms: end_ms - start_ms,
            is_transcribed: false,
            silence_ms: Some((start_ms, end_ms)),
        });
        assistant.request(now, AnswerRequest::default(), &mut self.tools);
    }
}
