//! Pause transcript: the words of a turn that is likely over, asked for in the pause, before the end is certain.

use std::sync::Arc;

use crate::{
    session::{growing_text::GrowingText, lanes::LaneId},
    vocabulary::TranscribePrompt,
};

/// Words of the current turn up to the pause.
#[derive(Debug)]
pub(super) struct PauseTranscript {
    /// Probability that the user has finished; `None` if no model has judged it.
    pub(super) probability: Option<f32>,
    pub(super) audio: Arc<Vec<i16>>,
    /// Position of the audio's end, ms.
    pub(super) end_ms: u64,
    pub(super) state: PauseTranscriptState,
}

#[derive(Debug)]
pub(super) enum PauseTranscriptState {
    /// No lane is free yet. Settings of the moment of the pause: the client may change them before the request is sent.
    Wanted(TranscribePrompt),
    /// Asked for on this lane.
    Asked(LaneId),
    /// Known, while earlier utterances are not reported.
    Known(String),
    /// The client has them.
    Reported(String),
}

/// Words of a complete segment that were asked for in the pause at its end.
pub(super) enum PauseWords {
    /// None were.
    None,
    /// Asked for on this lane; the text so far.
    Asked(LaneId, GrowingText),
    /// All of them.
    Known(String),
}

impl PauseTranscript {
    pub(super) fn is_asked_on(&self, lane: LaneId) -> bool {
        matches!(self.state, PauseTranscriptState::Asked(its_lane) if its_lane == lane)
    }
}
