//! Client requests beside audio and settings: queued texts, finals on request, and reports of silence.

use std::time::Instant;

use super::{
    Session, SessionPhase,
    input::speech_input::SpeechEvent,
    millis,
    outbox::lockstep::AwaitedReply,
    tts::queue::{TtsQueue, TtsQueueItem},
};
use crate::{
    error::{Error, ErrorKind},
    event::{ClientCommand, SpeakRequest},
};

impl Session {
    pub(super) fn update_tts_queue(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut TtsQueue) -> Result<(), String>,
    ) {
        self.activity.idle_since = now;
        if let Err(problem) = act(&mut self.tts_queue) {
            self.report_error(Error::new(ErrorKind::SpeakFailed, problem));
        }
    }

    /// Speaks the next queued text, once the current one has ended.
    pub(super) fn speak_next_queued(&mut self, now: Instant) {
        while self.phase != SessionPhase::Ended && !self.is_floor_taken() {
            match self.tts_queue.pop() {
                None => return,
                Some(TtsQueueItem::Text(text)) => {
                    self.start_speech(now, SpeakRequest { text, ..SpeakRequest::default() });
                }
                Some(TtsQueueItem::Flushed(sequence)) => {
                    self.context.out.push_client(ClientCommand::Flushed { sequence });
                }
            }
        }
    }

    /// Ends the current utterance and makes all transcripts so far final.
    pub(super) fn finalize_transcripts(&mut self, now: Instant) {
        self.intake.speech_input.end_utterance(&mut self.intake.speech_events);
        self.process_speech_events(now);
        self.transcriber.finalize(now, &mut self.context);
        self.context.out.await_reply(AwaitedReply::Final);
    }

    /// Tracks the end of the last utterance, for the report of silence.
    pub(super) fn track_utterance_end(&mut self, event: &SpeechEvent) {
        match event {
            SpeechEvent::Started { .. } => self.intake.last_utterance_end_ms = None,
            SpeechEvent::Segment(segment) if segment.ends_utterance && segment.has_speech => {
                self.intake.last_utterance_end_ms = Some(
                    segment.end_ms.saturating_sub(self.intake.speech_input.settings.end_silence_ms.into()),
                );
            }
            _ => {}
        }
    }

    /// Reports silence of the length that the client asked for, after the transcripts before it.
    pub(super) fn report_utterance_gap(&mut self) {
        let gap = self.settings.utterance_gap.map(millis);
        if let (Some(gap), Some(last_ms)) = (gap, self.intake.last_utterance_end_ms)
            && self.intake.speech_input.listened_ms() >= last_ms + gap
            && self.transcriber.queue.is_settled()
        {
            self.intake.last_utterance_end_ms = None;
            self.context.out.push_client(ClientCommand::UtteranceGap { last_ms });
        }
    }
}
