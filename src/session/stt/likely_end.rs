//! The likely end of a turn: its words are asked for in the pause, and reported before the end is certain.
//!
//! If the user says no more, they are the turn's final words, and nothing is asked again. If the user goes on, they are one
//! interim decode more.

use std::sync::Arc;

use super::{
    pause_transcript::{PauseTranscript, PauseTranscriptState, PauseWords},
    transcriber::Transcriber,
    utterance::{Utterance, UtteranceState, length_ms},
};
use crate::{
    session::{
        input::speech_input::UtteranceSoFar,
        lanes::{LaneId, Lanes},
    },
    vocabulary::{ClientEvent, ClientSettings, LaneRequest},
};

/// Confidence that is reported where no model has judged the pause.
const UNJUDGED_CONFIDENCE: f32 = 0.5;

impl Transcriber {
    /// The turn is likely over: wants the words of all of it so far.
    pub(crate) fn want_pause_transcript(
        &mut self,
        utterance: UtteranceSoFar<'_>,
        probability: Option<f32>,
        settings: &ClientSettings,
    ) {
        let (audio, end_ms) = (Arc::new(utterance.audio.to_vec()), utterance.end_ms);
        let state = PauseTranscriptState::Wanted(self.prompt(settings));
        self.pause = self.wants_transcript.then_some(PauseTranscript { probability, audio, end_ms, state });
    }

    /// The user goes on. Returns the event for a client that has the likely end of the turn.
    pub(crate) fn resume_turn(&mut self) -> Option<ClientEvent> {
        let PauseTranscript { audio, end_ms, state, .. } = self.pause.take()?;
        let PauseTranscriptState::Reported(text) = state else { return None };
        let (segment_id, audio_ms) = (self.queue.utterances.back()?.segment_id, length_ms(&audio));
        let start_ms = end_ms.saturating_sub(audio_ms);
        Some(ClientEvent::TurnResumed { text, segment_id, start_ms, audio_ms })
    }

    /// The request for the words, and the ready lane that it goes on: one that no complete utterance needs.
    pub(super) fn take_pause_request(&mut self, lanes: &Lanes) -> Option<(LaneId, LaneRequest)> {
        let pause = self.pause.as_mut()?;
        let PauseTranscriptState::Wanted(prompt) = &pause.state else { return None };
        let recognition = self.recognitions.iter_mut().find(|lane| lanes.is_ready(lane.id))?;
        let request = recognition.begin_interim(prompt.clone(), Arc::clone(&pause.audio), pause.end_ms);
        pause.state = PauseTranscriptState::Asked(recognition.id);
        Some((recognition.id, request))
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

    /// Takes the event of the turn's likely end, once the client has everything before it.
    pub(super) fn likely_end(&mut self) -> Option<ClientEvent> {
        let pause = self.pause.as_mut()?;
        let PauseTranscriptState::Known(text) = &mut pause.state else { return None };
        let is_current =
            |front: &&Utterance| matches!(front.state, UtteranceState::Recording) && front.start_reported;
        let utterance = self.queue.utterances.front().filter(is_current)?;
        let (text, audio_ms) = (std::mem::take(text), length_ms(&pause.audio));
        pause.state = PauseTranscriptState::Reported(text.clone());
        Some(ClientEvent::TurnEndLikely {
            text,
            segment_id: utterance.segment_id,
            confidence: pause.probability.unwrap_or(UNJUDGED_CONFIDENCE),
            start_ms: pause.end_ms.saturating_sub(audio_ms),
            audio_ms,
        })
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
