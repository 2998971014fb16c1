//! Recognition: one lane of the transcriber, and what it was asked.

use std::sync::Arc;

use super::utterance::length_ms;
use crate::{
    session::{growing_text::GrowingText, lanes::LaneId},
    vocabulary::{LaneRequest, TranscribePrompt},
};

/// A lane that transcribes one utterance, or waits for one.
#[derive(Debug)]
pub(crate) struct Recognition {
    pub(crate) id: LaneId,
    /// The interim decode that it was asked for. A completed utterance knows the lane that it was sent on.
    pub(crate) interim: Option<InterimDecode>,
}

/// A pending decode of an unfinished utterance. Its result is sent as a partial transcript.
#[derive(Debug)]
pub(crate) struct InterimDecode {
    /// Text received so far.
    pub(crate) text: GrowingText,
    /// Length of the audio sent, ms.
    pub(crate) audio_ms: u64,
    /// Start of that audio, ms.
    pub(crate) audio_start_ms: u64,
}

impl Recognition {
    /// A lane that waits for an utterance.
    pub(super) const fn new(id: LaneId) -> Self {
        Self { id, interim: None }
    }

    /// Begins an interim decode on a ready lane. Returns its request, with the audio of an unfinished utterance, which ends at
    /// `end_ms`.
    pub(super) fn begin_interim(
        &mut self,
        prompt: TranscribePrompt,
        audio: Arc<Vec<i16>>,
        end_ms: u64,
    ) -> LaneRequest {
        let audio_ms = length_ms(&audio);
        let audio_start_ms = end_ms.saturating_sub(audio_ms);
        self.interim = Some(InterimDecode { text: GrowingText::default(), audio_ms, audio_start_ms });
        LaneRequest::Transcribe { prompt, audio }
    }
}
