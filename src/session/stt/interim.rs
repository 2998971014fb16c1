//! Interim decodes: an unfinished utterance is transcribed now and then, and the result is sent as a partial transcript.

use std::{sync::Arc, time::Instant};

use super::utterance::length_ms;
use crate::{
    event::LaneCommand,
    session::{
        growing_text::GrowingText,
        upstream::{LaneContext, connection::UpstreamConnection},
    },
};

/// A pending decode of an unfinished utterance.
#[derive(Debug)]
pub(crate) struct InterimDecode {
    /// Text received so far.
    pub(crate) text: GrowingText,
    /// Length of the audio sent, ms.
    pub(crate) audio_ms: u64,
    /// Start of that audio, ms.
    pub(crate) audio_start_ms: u64,
}

impl InterimDecode {
    /// Sends the audio of an unfinished utterance, which ends at `end_ms`, on a ready lane.
    pub(crate) fn request(
        now: Instant,
        connection: &mut UpstreamConnection,
        prompt: String,
        audio: &[i16],
        end_ms: u64,
        context: &mut LaneContext,
    ) -> Self {
        let audio_ms = length_ms(audio);
        let audio = Arc::new(audio.to_vec());
        connection.send_request(now, LaneCommand::Transcribe { prompt, audio }, context);
        Self { text: GrowingText::default(), audio_ms, audio_start_ms: end_ms.saturating_sub(audio_ms) }
    }
}
