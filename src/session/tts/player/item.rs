//! One text of the player: what was made of it, and what was sent.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::transcript::TurnTranscript;
use crate::{
    audio::{MODEL_RATE_HZ, playout_queue::PlayoutQueue},
    event::{ClientAudio, ClientCommand, TurnTag},
    session::{millis, outbox::Actions},
};

/// How much audio the model makes of a turn at a time. The next audio comes that long after a turn's first audio, however
/// short the first is (the documented legacy server begins with half of it).
const UNIT_SAMPLES: u64 = MODEL_RATE_HZ as u64;

/// Where a text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaybackSource {
    /// The client asked for it.
    Request,
    /// The model speaks by itself.
    Turn,
}

/// One text.
#[derive(Debug)]
pub(super) struct PlaybackItem {
    pub(super) source: PlaybackSource,
    pub(super) turn: TurnTag,
    pub(super) request_id: String,
    /// The model's turn, if it is one.
    pub(super) segment_id: Option<u32>,
    text: String,
    /// Words of a complete turn of the model, reported when it ends.
    pub(super) transcript: Option<TurnTranscript>,
    pub(super) requested_at: Instant,
    /// Audio in the client's format that was made and not sent.
    pub(super) unsent: PlayoutQueue,
    /// Samples of the model it was made from.
    pub(super) model_samples: u64,
    /// Its first audio has come to the front.
    pub(super) started: bool,
    pub(super) start_reported: bool,
    /// No more of it is made.
    pub(super) complete: bool,
    /// Some of it was dropped.
    pub(super) overflowed: bool,
    /// The rest of it will never be made.
    pub(super) truncated: bool,
    pub(super) sent_samples: u64,
    /// When its first audio was sent.
    pub(super) first_sent_at: Option<Instant>,
    /// [`ClientCommand::AudioComplete`] was sent.
    complete_reported: bool,
    /// The client says that it has played all of it.
    pub(super) confirmed: bool,
}

impl PlaybackItem {
    pub(super) fn new(
        now: Instant,
        source: PlaybackSource,
        turn: TurnTag,
        request_id: String,
        text: String,
    ) -> Self {
        Self {
            source,
            turn,
            request_id,
            segment_id: None,
            text,
            transcript: None,
            requested_at: now,
            unsent: PlayoutQueue::default(),
            model_samples: 0,
            started: false,
            start_reported: false,
            complete: false,
            overflowed: false,
            truncated: false,
            sent_samples: 0,
            first_sent_at: None,
            complete_reported: false,
            confirmed: false,
        }
    }

    /// How much audio is missing until the model makes more. A requested text is made as fast as possible: zero.
    pub(super) fn shortfall(&self) -> Duration {
        let missing = match self.source {
            PlaybackSource::Turn if !self.complete => UNIT_SAMPLES.saturating_sub(self.model_samples),
            PlaybackSource::Turn | PlaybackSource::Request => 0,
        };
        Duration::from_nanos(missing * 1_000_000_000 / UNIT_SAMPLES)
    }

    /// Length of the audio that the model made for it, ms.
    pub(super) fn made_ms(&self) -> u64 {
        self.model_samples * 1000 / u64::from(MODEL_RATE_HZ)
    }

    /// Announces the text, once.
    pub(super) fn announce(&mut self, now: Instant, out: &mut Actions) {
        if !std::mem::replace(&mut self.start_reported, true) {
            out.push_client(ClientCommand::SpeakingStarted {
                request_id: self.request_id.clone(),
                at_ms: millis(now - self.requested_at),
                text: std::mem::take(&mut self.text),
            });
        }
    }

    /// Sends a frame of this many samples, after the text's announcement.
    pub(super) fn send_frame(&mut self, now: Instant, bytes: Bytes, samples: usize, out: &mut Actions) {
        self.announce(now, out);
        self.first_sent_at.get_or_insert(now);
        self.sent_samples += samples as u64;
        out.push_client(ClientCommand::Audio(ClientAudio { bytes, turn: self.turn }));
    }

    /// Reports once that all audio was sent.
    pub(super) fn report_complete(&mut self, out: &mut Actions) {
        if !std::mem::replace(&mut self.complete_reported, true) {
            out.push_client(ClientCommand::AudioComplete { turn: self.turn });
        }
    }

    /// True if all audio was sent and the client knows it.
    pub(super) const fn is_sent(&self) -> bool {
        self.complete_reported
    }
}
