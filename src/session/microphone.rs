//! Microphone: what a session takes of the client's audio. Too fast audio is dropped, the rest goes to the speech input.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    input::{
        rate_limiter::{RateDecision, RateLimiter},
        speech_input::{SpeechEvent, SpeechInput},
    },
    measurement::AudioTotals,
    outbox::{Actions, recorded::UserAudio},
};
use crate::{
    error::{Error, ErrorKind},
    vocabulary::{ClientEvent, PauseId},
};

/// The client's audio, from its arrival to the events found in it.
#[derive(Debug)]
pub(super) struct AudioIntake {
    pub(super) rate_limiter: RateLimiter,
    /// Sample groups dropped as too far ahead of the clock.
    pub(super) dropped_groups: u64,
    pub(super) audio_totals: AudioTotals,
    pub(super) speech_input: SpeechInput,
    /// Events of the current input.
    pub(super) speech_events: Vec<SpeechEvent>,
    /// End of the last utterance, ms, until silence after it is reported.
    pub(super) last_utterance_end_ms: Option<u64>,
}

/// A frame of the client's audio, as it was taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TakenFrame {
    pub(super) length: Duration,
    /// It arrived too fast.
    pub(super) is_dropped: bool,
    /// The user speaks in it.
    pub(super) has_speech: bool,
    /// It starts or ends an utterance, or interrupts.
    pub(super) is_decisive: bool,
}

impl AudioIntake {
    /// Takes a frame. Events found in it are in [`AudioIntake::speech_events`].
    pub(super) fn take_frame(
        &mut self,
        now: Instant,
        bytes: &[u8],
        is_muted: bool,
        out: &mut Actions,
    ) -> TakenFrame {
        let converter = &self.speech_input.converter;
        let groups = match converter.groups_of(bytes) {
            Ok(groups) => groups as u64,
            Err(error) => {
                out.push_error(Error::new(ErrorKind::Invalid, error.to_string()));
                return TakenFrame::default();
            }
        };
        let length = Duration::from_secs_f64(groups as f64 / f64::from(converter.rate_hz.max(1)));
        self.audio_totals.received += length;
        let mut frame = TakenFrame { length, ..TakenFrame::default() };
        if groups > 0 {
            match self.rate_limiter.check_frame(now, length) {
                RateDecision::Accept => {}
                RateDecision::AcceptAndWarn(delay_ms) => {
                    out.push_client(ClientEvent::RateLimited { delay_ms });
                }
                RateDecision::Drop => {
                    self.speech_input.converter.discard(bytes);
                    self.dropped_groups += groups;
                    self.audio_totals.dropped_too_fast += length;
                    frame.is_dropped = true;
                    self.skip_echo(length);
                    return frame;
                }
            }
        }
        if is_muted {
            self.audio_totals.muted += length;
            self.speech_input.mute_frame(bytes, &mut self.speech_events);
            self.skip_echo(length);
        } else {
            frame.has_speech = self.speech_input.push_frame(bytes, &mut self.speech_events);
        }
        frame.is_decisive = !self.speech_events.is_empty();
        frame
    }

    /// A frame for the recording.
    pub(super) fn user_audio(&self, bytes: &[u8]) -> UserAudio {
        let converter = &self.speech_input.converter;
        UserAudio {
            encoding: converter.encoding(),
            rate_hz: converter.rate_hz,
            channels: converter.channels(),
            bytes: Bytes::copy_from_slice(bytes),
        }
    }

    /// Takes a model's verdict on a pause: the probability that the user has finished, or `None` if there is none.
    pub(super) fn judge_pause(&mut self, pause: PauseId, probability: Option<f32>) {
        self.speech_input.judge_pause(pause, probability, &mut self.speech_events);
    }

    /// Tracks the end of the last utterance, for the report of silence.
    pub(super) fn track_utterance_end(&mut self, event: &SpeechEvent) {
        match event {
            SpeechEvent::Started { .. } => self.last_utterance_end_ms = None,
            SpeechEvent::Segment(segment) if segment.ends_utterance && segment.has_speech => {
                let settings = &self.speech_input.settings;
                // A pause that is judged has no fixed length.
                let end_ms = match settings.pauses.judged {
                    Some(_) => segment.speech_ms.1,
                    None => segment.end_ms.saturating_sub(settings.end_silence_ms.into()),
                };
                self.last_utterance_end_ms = Some(end_ms);
            }
            _ => {}
        }
    }

    /// Skips a frame in the echo canceller.
    fn skip_echo(&mut self, length: Duration) {
        if let Some(echo) = &mut self.speech_input.echo {
            echo.skip(length);
        }
    }
}
