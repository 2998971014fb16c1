//! One speech on the floor: what was made of it, and what was sent.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{FloorOptions, UNPLAYED_MAX, transcript::TurnTranscript};
use crate::{
    audio::{MODEL_RATE_HZ, echo::Playback, output_converter::OutputConverter, playout_queue::PlayoutQueue},
    error::{Error, ErrorKind},
    session::millis,
    spelling::profile::PlayoutPace,
    vocabulary::{ClientAudio, ClientEvent, SpeechId},
};

/// How much audio the model makes of a turn at a time. The next audio comes that long after a turn's first audio, however
/// short the first is (the documented legacy server begins with half of it).
const UNIT_SAMPLES: u64 = MODEL_RATE_HZ as u64;

/// Where a speech comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpeechSource {
    /// A text that the client asked voxbridge to speak.
    Text,
    /// A turn of the model, or an answer of it.
    Model,
}

/// One speech.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) source: SpeechSource,
    pub(super) id: SpeechId,
    /// To the client's format as of its beginning.
    pub(super) converter: OutputConverter,
    /// Number of the file that it belongs to.
    pub(super) file: u32,
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
    /// Some audio was dropped, so no further audio is taken.
    pub(super) is_broken_off: bool,
    /// The rest of it will never be made.
    pub(super) truncated: bool,
    pub(super) sent_samples: u64,
    pub(super) sent_bytes: u64,
    /// When its first audio was sent.
    pub(super) first_sent_at: Option<Instant>,
    /// [`ClientEvent::AudioComplete`] was sent.
    complete_reported: bool,
    /// The client says that it has played all of it.
    pub(super) confirmed: bool,
}

impl Speech {
    pub(super) fn new(
        now: Instant,
        source: SpeechSource,
        id: SpeechId,
        converter: OutputConverter,
        request_id: String,
        text: String,
    ) -> Self {
        Self {
            source,
            id,
            converter,
            file: 0,
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
            is_broken_off: false,
            truncated: false,
            sent_samples: 0,
            sent_bytes: 0,
            first_sent_at: None,
            complete_reported: false,
            confirmed: false,
        }
    }

    /// How much audio is missing until the model makes more. A requested text is made as fast as possible: zero.
    pub(super) fn shortfall(&self) -> Duration {
        let missing = match self.source {
            SpeechSource::Model if !self.complete => {
                UNIT_SAMPLES.saturating_sub(self.model_samples.saturating_sub(self.waiting_samples()))
            }
            SpeechSource::Model | SpeechSource::Text => 0,
        };
        Duration::from_nanos(missing * 1_000_000_000 / UNIT_SAMPLES)
    }

    /// Samples of the model in the last packet, which waits until it is full.
    fn waiting_samples(&self) -> u64 {
        let waiting = self.converter.packet_samples().map_or(0, |packet| self.unsent_samples() % packet);
        waiting as u64 * UNIT_SAMPLES / u64::from(self.converter.rate_hz)
    }

    /// Length of the audio that the model made for it, ms.
    pub(super) fn made_ms(&self) -> u64 {
        self.model_samples * 1000 / u64::from(MODEL_RATE_HZ)
    }

    /// Its announcement, which is sent now; `None` if it was announced.
    pub(super) fn announce(&mut self, now: Instant) -> Option<ClientEvent> {
        (!std::mem::replace(&mut self.start_reported, true)).then(|| ClientEvent::SpeakingStarted {
            request_id: self.request_id.clone(),
            at_ms: millis(now - self.requested_at),
            text: std::mem::take(&mut self.text),
            is_requested: self.source == SpeechSource::Text,
        })
    }

    /// Adds audio of the model. After the end, all of it leaves the converter at once.
    pub(super) fn push_audio(&mut self, samples: &[f32]) {
        self.model_samples += samples.len() as u64;
        self.converter.push(samples, &mut self.unsent);
        if self.complete {
            self.converter.flush(&mut self.unsent);
        }
    }

    /// Drops the rest of the speech, because it is too far ahead of playback. The speech ends as incomplete; returns the error
    /// about that, once.
    pub(super) fn break_off(&mut self) -> Option<Error> {
        if std::mem::replace(&mut self.is_broken_off, true) {
            return None;
        }
        self.truncated = true;
        let seconds = UNPLAYED_MAX.as_secs();
        let words =
            format!("the upstream is more than {seconds} s ahead of what is heard; the rest is dropped");
        Some(match self.source {
            SpeechSource::Text => {
                Error::new(ErrorKind::SpeakFailed, words).for_request(self.request_id.clone())
            }
            SpeechSource::Model => Error::new(ErrorKind::AnswerFailed, words),
        })
    }

    /// No more of it is made.
    pub(super) fn finish(&mut self) {
        self.converter.flush(&mut self.unsent);
        self.complete = true;
    }

    /// Discards its audio, which is made again.
    pub(super) fn restart(&mut self) {
        self.converter.clear();
        self.unsent.clear();
        self.model_samples = 0;
    }

    /// Samples in the client's format that were not sent.
    pub(super) const fn unsent_samples(&self) -> usize {
        self.unsent.len / self.converter.bytes_per_sample
    }

    /// Length of this many samples in the client's format, rounded up, so that consecutive frames never seem to have a gap.
    pub(super) fn length_of(&self, samples: u64) -> Duration {
        Duration::from_nanos((samples * 1_000_000_000).div_ceil(self.converter.rate_hz.into()))
    }

    /// True if the unsent audio is only a part of a packet, and packets of the speech were sent before.
    pub(super) fn has_part_of_packet(&self) -> bool {
        self.converter.packet_samples().is_some() && self.sent_samples > 0 && !self.unsent.is_empty()
    }

    /// Samples of the next frame, and its length; `None` if there is none. A packet that `is_due` need not be full.
    pub(super) fn next_frame(&self, options: &FloorOptions, is_due: bool) -> Option<(usize, Duration)> {
        if let Some(samples) = self.converter.packet_samples() {
            let is_ready = self.unsent_samples() >= samples
                || self.complete && !self.unsent.is_empty()
                || is_due && self.has_part_of_packet();
            return is_ready.then(|| (samples, self.length_of(samples as u64)));
        }
        let FloorOptions { frame_max_bytes, has_fixed_frames, playout, .. } = options;
        let frame_samples = (u64::from(self.converter.rate_hz) * u64::from(playout.frame_ms) / 1000).max(1);
        // Frames hold whole samples.
        let max_samples = (frame_max_bytes / self.converter.bytes_per_sample).max(1);
        let frame_samples = match playout.pace {
            PlayoutPace::Burst if !has_fixed_frames => max_samples,
            PlayoutPace::Burst | PlayoutPace::RealTime => max_samples.min(frame_samples as usize),
        };
        let samples = match self.unsent_samples() {
            0 => return None,
            // A frame of fixed length waits until it is full, or until no more audio comes.
            unsent if *has_fixed_frames && unsent < frame_samples && !self.complete => return None,
            _ if *has_fixed_frames => frame_samples,
            unsent => unsent.min(frame_samples),
        };
        Some((samples, self.length_of(samples as u64)))
    }

    /// Takes out the samples of the next frame.
    pub(super) fn take_frame(&mut self, samples: usize, is_fixed: bool) -> Bytes {
        let frame = self.unsent.take(samples * self.converter.bytes_per_sample);
        if is_fixed { self.converter.fill_up(frame, samples) } else { frame }
    }

    /// A frame that is sent now, as the client plays it.
    pub(super) fn played(&self, now: Instant, frame: &Bytes) -> Playback {
        Playback::Sent {
            at: now,
            encoding: self.converter.sample_encoding(),
            rate_hz: self.converter.rate_hz,
            samples: frame.clone(),
        }
    }

    /// Counts a frame of this many samples, which is sent now, after its announcement.
    pub(super) fn count_frame(&mut self, now: Instant, samples: usize) {
        self.first_sent_at.get_or_insert(now);
        self.sent_samples += samples as u64;
    }

    /// Takes the rest of a stream, once all samples were sent.
    pub(super) fn take_rest(&mut self) -> Option<ClientEvent> {
        let rest = self.converter.finish_stream();
        self.audio_event(rest)
    }

    /// The event for encoded audio, if there is any: an encoder may need more samples for its next bytes.
    pub(super) fn audio_event(&mut self, bytes: Bytes) -> Option<ClientEvent> {
        self.sent_bytes += bytes.len() as u64;
        (!bytes.is_empty()).then_some(ClientEvent::Audio(ClientAudio { bytes, turn: self.id }))
    }

    /// The event that all audio was sent, once.
    pub(super) fn completion(&mut self) -> Option<ClientEvent> {
        let is_known = std::mem::replace(&mut self.complete_reported, true);
        (!is_known).then_some(ClientEvent::AudioComplete { turn: self.id })
    }

    /// True if all audio was sent and the client knows it.
    pub(super) const fn is_sent(&self) -> bool {
        self.complete_reported
    }
}
