//! Recognition: one upstream connection of the transcriber, and what it was asked.

use std::{sync::Arc, time::Instant};

use super::utterance::length_ms;
use crate::{
    event::{Lane, LaneCommand, Mode},
    session::{
        growing_text::GrowingText,
        measurement::LanePurpose,
        upstream::{LaneContext, connection::UpstreamConnection},
    },
};

/// Purpose and upstream mode of the transcriber's lanes.
const LANE_PURPOSE_AND_MODE: (LanePurpose, Mode) = (LanePurpose::Transcribe, Mode::Chat);

/// A connection that transcribes one utterance, or waits for one.
#[derive(Debug)]
pub(crate) struct Recognition {
    pub(crate) connection: UpstreamConnection,
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
    /// Dials.
    pub(crate) fn open(now: Instant, context: &mut LaneContext) -> Self {
        let connection =
            UpstreamConnection::open(now, LANE_PURPOSE_AND_MODE, LaneCommand::Init(None), context);
        Self { connection, interim: None }
    }

    pub(crate) const fn lane(&self) -> Lane {
        self.connection.lane()
    }

    /// True if no answer is outstanding.
    pub(crate) const fn is_unused(&self) -> bool {
        !self.connection.is_awaiting_reply()
    }

    /// Sends the audio of an unfinished utterance, which ends at `end_ms`, on a ready lane.
    pub(crate) fn request_interim(
        &mut self,
        now: Instant,
        prompt: String,
        audio: &[i16],
        end_ms: u64,
        context: &mut LaneContext,
    ) {
        let audio_ms = length_ms(audio);
        let audio = Arc::new(audio.to_vec());
        self.connection.send_request(now, LaneCommand::Transcribe { prompt, audio }, context);
        let audio_start_ms = end_ms.saturating_sub(audio_ms);
        self.interim = Some(InterimDecode { text: GrowingText::default(), audio_ms, audio_start_ms });
    }
}
