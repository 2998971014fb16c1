//! What clients ask for beside audio and settings: texts one after the other, finals now, to know when nobody speaks.

use std::time::Instant;

use super::{
    Session, SessionPhase,
    input::speech_input::SpeechEvent,
    outbox::lockstep::AwaitedReply,
    settings::transcribe_options,
    tts::queue::{TtsQueue, TtsQueueItem},
    upstream::connection::millis,
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
        self.idle_since = now;
        if let Err(problem) = act(&mut self.tts_queue) {
            self.report_error(Error::new(ErrorKind::SpeakFailed, problem));
        }
    }

    /// Speaks what waits, one text after the other.
    pub(super) fn speak_next_queued(&mut self, now: Instant) {
        while self.phase != SessionPhase::Ended && !self.is_floor_taken() {
            match self.tts_queue.pop() {
                None => return,
                Some(TtsQueueItem::Text(text)) => {
                    self.start_speech(now, SpeakRequest { text, ..SpeakRequest::default() });
                }
                Some(TtsQueueItem::Flushed(sequence)) => {
                    self.context.out.push_client(ClientCommand::Flushed { sequence })
                }
            }
        }
    }

    /// What came so far is final, whatever the user does.
    pub(super) fn finalize_transcripts(&mut self, now: Instant) {
        self.speech_input.end_utterance(&mut self.speech_events);
        self.process_speech_events(now);
        let options = transcribe_options(&self.setup.profile, &self.settings);
        self.transcriber.finalize(now, &options, &mut self.context);
        self.context.out.await_reply(AwaitedReply::Final);
    }

    /// Where silence began that the client may have to be told of.
    pub(super) fn track_utterance_end(&mut self, event: &SpeechEvent) {
        match event {
            SpeechEvent::Started { .. } => self.last_utterance_end_ms = None,
            SpeechEvent::Segment(segment) if segment.ends_utterance && segment.has_speech => {
                self.last_utterance_end_ms =
                    Some(segment.end_ms.saturating_sub(self.speech_input.settings().end_silence_ms.into()));
            }
            SpeechEvent::Segment(_) | SpeechEvent::Interrupted => {}
        }
    }

    /// Tells the client that nothing was said for as long as it asked, after the words before it.
    pub(super) fn report_utterance_gap(&mut self) {
        let gap = self.settings.utterance_gap.map(millis);
        if let (Some(gap), Some(last_ms)) = (gap, self.last_utterance_end_ms)
            && self.speech_input.listened_ms() >= last_ms + gap
            && self.transcriber.is_settled()
        {
            self.last_utterance_end_ms = None;
            self.context.out.push_client(ClientCommand::UtteranceGap { last_ms });
        }
    }
}
