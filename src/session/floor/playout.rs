//! Playout: when the first speech's audio leaves, when it counts as played, and pauses of it.

use std::time::{Duration, Instant};

use super::{BURST_MAX_BYTES, FILE_WEIGHT, Floor, SpeechSource, speech::Speech};
use crate::{
    session::{
        measurement::{AudioOrigin, Measurement},
        outbox::{Observation, recorded::RecordedItem},
    },
    vocabulary::SpeechId,
};

/// Longest pause of playback for a sound that may be speech. Most speech is certain 150 ms after the first suspicion, and
/// the soft beginning of a word 400 ms later (see [`crate::audio::vad::VadConfig::preset`]).
const PAUSE_MAX: Duration = Duration::from_millis(600);

/// Longest time without audio for a client that takes none. A full buffer of Asterisk has room again after 2 s.
const HOLD_MAX: Duration = Duration::from_secs(60);

/// A packet that is not full is sent this long before the client runs out of audio, even if more audio may come.
const PACKET_MARGIN: Duration = Duration::from_millis(40);

/// Longest wait for a client that confirms what it has played, beyond the estimated end.
const CONFIRMATION_MAX: Duration = Duration::from_secs(5);

impl Floor {
    /// Holds back audio, at most for [`PAUSE_MAX`]. Audio that the client already has is played.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.suspected_until = Some(now + PAUSE_MAX).filter(|_| self.is_busy());
    }

    /// Continues after [`Floor::pause`].
    pub(crate) fn resume(&mut self, now: Instant) {
        if self.suspected_until.is_some() {
            self.suspected_until = Some(now);
            self.advance(now);
        }
    }

    /// Holds back audio until [`Floor::release`], because the client takes none; at most for [`HOLD_MAX`].
    pub(crate) fn hold(&mut self, now: Instant) {
        self.held_until = Some(now + HOLD_MAX);
    }

    /// Continues after [`Floor::hold`].
    pub(crate) fn release(&mut self, now: Instant) {
        if self.held_until.is_some() {
            self.held_until = Some(now);
            self.advance(now);
        }
    }

    /// Holds audio back while the client has not read the audio sent before.
    pub(crate) fn set_client_behind(&mut self, now: Instant, is_behind: bool) {
        if std::mem::replace(&mut self.is_client_behind, is_behind) && !is_behind {
            self.pace.end_pause(now);
            self.advance(now);
        }
    }

    /// No audio is sent before this instant.
    fn paused_until(&self) -> Option<Instant> {
        self.suspected_until.max(self.held_until)
    }

    /// Sends due audio, and ends speeches that were heard.
    pub(crate) fn advance(&mut self, now: Instant) {
        while !self.speeches.is_empty() {
            if let Some(until) = self.paused_until().filter(|until| *until <= now) {
                (self.suspected_until, self.held_until) = (None, None);
                self.pace.end_pause(until);
            }
            if self.paused_until().is_none() && !self.is_client_behind {
                self.send_due(now);
            }
            let Some(speech) =
                self.speeches.front_mut().filter(|speech| speech.complete && speech.unsent.is_empty())
            else {
                return;
            };
            self.out.push_if_any(speech.take_rest());
            if self.options.reports_complete && speech.start_reported {
                self.out.push_if_any(speech.completion());
            }
            if self.played_at(now).is_some_and(|at| at > now) {
                return;
            }
            self.pace.stop();
            if let Some(speech) = self.speeches.pop_front() {
                self.report_end(now, speech, false);
            }
        }
        self.suspected_until = None;
    }

    /// Instant at which audio was last sent.
    pub(crate) const fn last_sent_at(&self) -> Option<Instant> {
        self.last_sent_at
    }

    /// True if audio may leave now, although its time is not up.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.paused_until().is_none()
            && !self.is_client_behind
            && self.speeches.front().filter(|speech| speech.start_reported).is_some_and(|speech| {
                self.next_frame(now, speech)
                    .is_some_and(|(_, length)| self.pace.earliest_send(now, length) <= now)
            })
    }

    /// The instant of the next call of [`Floor::advance`].
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let speech = self.speeches.front()?;
        let at = match self.next_frame(now, speech) {
            Some(_) if self.is_client_behind => return None,
            Some((_, length)) => self.pace.latest_send(now, length),
            None if speech.complete => return self.played_at(now),
            None => self.pace.playout_end().filter(|_| speech.has_part_of_packet())? - PACKET_MARGIN,
        };
        Some(self.paused_until().map_or(at, |until| at.max(until)))
    }

    /// Samples and length of a speech's next frame. A packet that is not full waits for more audio until the client has played
    /// nearly everything: the last words of a turn are not held until the model says that it has ended.
    fn next_frame(&self, now: Instant, speech: &Speech) -> Option<(usize, Duration)> {
        let is_due = self.pace.playout_end().is_some_and(|end| end <= now + PACKET_MARGIN);
        speech.next_frame(&self.options, is_due)
    }

    /// When the first speech, whose audio is sent, counts as played: when the client confirms it, or by estimate at the latest.
    /// `None` means now.
    fn played_at(&self, now: Instant) -> Option<Instant> {
        let speech = self.speeches.front()?;
        if !self.options.confirms_playback || !speech.start_reported {
            return self.pace.playout_end().map(|end| end + self.options.tail);
        }
        // A client that plays from a buffer began with the first audio at the earliest.
        let estimated_end = speech.first_sent_at.unwrap_or(now) + speech.length_of(speech.sent_samples);
        let estimated_end = self.pace.playout_end().map_or(estimated_end, |end| end.max(estimated_end));
        (!speech.confirmed).then_some(estimated_end + CONFIRMATION_MAX)
    }

    /// Handles a client's confirmation that it has played a speech. Ignored if that speech has ended.
    pub(crate) fn confirm_played(&mut self, now: Instant, id: SpeechId) {
        if let Some(speech) = self.speeches.front_mut().filter(|speech| speech.id == id && speech.is_sent()) {
            speech.confirmed = true;
            self.advance(now);
        }
    }

    /// Sends the first speech's due audio: without a pace, [`BURST_MAX_BYTES`] at once, and less of a file format.
    fn send_due(&mut self, now: Instant) {
        let mut sent_bytes = 0;
        while sent_bytes < BURST_MAX_BYTES
            && let Some((samples, length)) =
                self.speeches.front().and_then(|speech| self.next_frame(now, speech))
            && let Some(speech) = self.speeches.front_mut()
        {
            if !std::mem::replace(&mut speech.started, true) {
                self.pace.begin_text(now);
            }
            if speech.sent_samples == 0 && !self.options.has_streamed_turns {
                self.pace.set_shortfall(speech.shortfall());
            }
            if self.pace.earliest_send(now, length) > now {
                return;
            }
            let frame = speech.take_frame(samples, self.options.has_fixed_frames);
            if self.pace.record_sent(now, length) {
                self.out.observe(Observation::Underrun);
            }
            self.sent_audio += length;
            self.last_sent_at = Some(now);
            let requested_at = if speech.source == SpeechSource::Model {
                &mut self.user_spoke_at
            } else {
                &mut Some(speech.requested_at)
            };
            if !speech.start_reported
                && let Some(at) = requested_at.take()
            {
                let origin = if speech.source == SpeechSource::Model {
                    AudioOrigin::Utterance
                } else {
                    AudioOrigin::Text
                };
                self.out.measure(Measurement::FirstAudio { origin, after: now - at });
            }
            if let Some(log) = &mut self.playback_log {
                log.note_sent(length, speech.played(now, &frame));
            }
            self.out.record_audio(|| RecordedItem::Playback(speech.played(now, &frame)));
            let is_file = speech.converter.is_file();
            sent_bytes += frame.len() * if is_file { FILE_WEIGHT } else { 1 };
            if is_file && self.begun_file.replace(speech.file) == Some(speech.file) {
                speech.converter.continue_file();
            }
            let frame = speech.converter.encode_frame(frame);
            if !speech.start_reported {
                self.out.push_if_any(speech.announce(now));
            }
            speech.count_frame(now, samples);
            if let Some(audio) = speech.audio_event(frame) {
                self.out.push_client(audio);
            }
        }
    }
}
