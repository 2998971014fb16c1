//! Recognition: one lane of the transcriber, and what it was asked.

use std::{sync::Arc, time::Instant};

use super::utterance::length_ms;
use crate::{
    session::{
        growing_text::GrowingText,
        lanes::{LaneId, Lanes, Owner},
    },
    vocabulary::{LaneRequest, Mode, TranscribePrompt},
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
    /// Dials, with room for `spare` more.
    pub(crate) fn open(now: Instant, spare: usize, lanes: &mut Lanes) -> Self {
        let (owner, init) = ((Owner::Transcriber, spare), Some(LaneRequest::Init(None)));
        Self { id: lanes.open_beside(now, owner, Mode::Chat, init), interim: None }
    }

    /// Sends the audio of an unfinished utterance, which ends at `end_ms`, on a ready lane.
    pub(crate) fn request_interim(
        &mut self,
        now: Instant,
        prompt: TranscribePrompt,
        (audio, end_ms): (Arc<Vec<i16>>, u64),
        lanes: &mut Lanes,
    ) {
        let audio_ms = length_ms(&audio);
        lanes.request(now, self.id, LaneRequest::Transcribe { prompt, audio });
        let audio_start_ms = end_ms.saturating_sub(audio_ms);
        self.interim = Some(InterimDecode { text: GrowingText::default(), audio_ms, audio_start_ms });
    }
}
