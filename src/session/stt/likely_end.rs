//! The likely end of a turn: its words are asked for in the pause, and reported before the end is certain.
//!
//! If the user says no more, they are the turn's final words, and nothing is asked again. If the user goes on, they are one
//! interim decode more.

use std::{sync::Arc, time::Instant};

use super::{
    pause_transcript::{PauseTranscript, PauseTranscriptState, PauseWords},
    recognition::Recognition,
    transcriber::Transcriber,
    utterance::{Utterance, UtteranceState, length_ms},
};
use crate::{
    session::{
        lanes::{LaneId, Lanes},
        outbox::Actions,
    },
    vocabulary::{ClientEvent, ClientSettings},
};

/// Confidence that is reported where no model has judged the pause.
const UNJUDGED_CONFIDENCE: f32 = 0.5;

impl Transcriber {
    /// The turn is likely over: wants its words. `audio` (16 kHz) is all of it so far and ends at `end_ms`.
    pub(crate) fn want_pause_transcript(
        &mut self,
        audio: &[i16],
        end_ms: u64,
        probability: Option<f32>,
        settings: &ClientSettings,
    ) {
        let audio = Arc::new(audio.to_vec());
        let state = PauseTranscriptState::Wanted(self.prompt(settings));
        self.pause = self.wants_transcript.then_some(PauseTranscript { probability, audio, end_ms, state });
    }

    /// The user goes on.
    pub(crate) fn resume_turn(&mut self, out: &mut Actions) {
        if let Some(PauseTranscript { audio, end_ms, state, .. }) = self.pause.take()
            && let PauseTranscriptState::Reported(text) = state
            && let Some(utterance) = self.queue.utterances.back()
        {
            let (segment_id, audio_ms) = (utterance.segment_id, length_ms(&audio));
            let start_ms = end_ms.saturating_sub(audio_ms);
            out.push_client(ClientEvent::TurnResumed { text, segment_id, start_ms, audio_ms });
        }
    }

    /// Asks for the words once a lane is ready that no complete utterance needs.
    pub(super) fn send_pause_request(&mut self, now: Instant, lanes: &mut Lanes) {
        let is_ready = |it: &&mut Recognition| lanes.is_ready(it.id);
        if let Some(pause) = &mut self.pause
            && let PauseTranscriptState::Wanted(prompt) = &pause.state
            && let Some(recognition) = self.recognitions.iter_mut().find(is_ready)
        {
            let prompt = prompt.clone();
            recognition.request_interim(now, prompt, (Arc::clone(&pause.audio), pause.end_ms), lanes);
            pause.state = PauseTranscriptState::Asked(recognition.id);
        }
    }

    /// Takes the words that were asked for on this lane. Returns false if none were.
    pub(super) fn complete_pause(&mut self, lane: LaneId, text: &str) -> bool {
        let Some(pause) = self.pause.as_mut().filter(|pause| pause.is_asked_on(lane)) else { return false };
        pause.state = PauseTranscriptState::Known(text.to_owned());
        if text.is_empty() {
            self.pause = None;
        }
        true
    }

    /// The words that were asked for on this lane do not come.
    pub(super) fn fail_pause(&mut self, lane: LaneId) {
        self.pause.take_if(|pause| pause.is_asked_on(lane));
    }

    /// Reports the likely end of the turn, once the client has everything before it.
    pub(super) fn report_likely_end(&mut self, out: &mut Actions) {
        let front = self.queue.utterances.front();
        let is_current = |it: &&Utterance| matches!(it.state, UtteranceState::Recording) && it.start_reported;
        if let (Some(pause), Some(utterance)) = (&mut self.pause, front.filter(is_current))
            && let PauseTranscriptState::Known(text) = &mut pause.state
        {
            let (text, audio_ms) = (std::mem::take(text), length_ms(&pause.audio));
            out.push_client(ClientEvent::TurnEndLikely {
                text: text.clone(),
                segment_id: utterance.segment_id,
                confidence: pause.probability.unwrap_or(UNJUDGED_CONFIDENCE),
                start_ms: pause.end_ms.saturating_sub(audio_ms),
                audio_ms,
            });
            pause.state = PauseTranscriptState::Reported(text);
        }
    }

    /// Takes the words of the segment that is complete now, because the user has said no more.
    pub(super) fn take_pause_words(&mut self) -> PauseWords {
        match self.pause.take().map(|pause| pause.state) {
            Some(PauseTranscriptState::Known(text) | PauseTranscriptState::Reported(text)) => {
                PauseWords::Known(text)
            }
            Some(PauseTranscriptState::Asked(lane)) => {
                let recognition = self.recognition_mut(lane);
                let interim = recognition.and_then(|recognition| recognition.interim.take());
                interim.map_or(PauseWords::None, |interim| PauseWords::Asked(lane, interim.text))
            }
            Some(PauseTranscriptState::Wanted(_)) | None => PauseWords::None,
        }
    }
}
