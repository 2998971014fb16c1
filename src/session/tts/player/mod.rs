//! Plays texts to the client, one after the other. Each text is announced once, sent at the profile's pace and ended once.
//!
//! A text is what a client asked voxbridge to speak, or a turn of the model. Its maker begins it, adds audio and finishes
//! it; the player decides when its audio leaves. A text ends when the client has heard its last sample: until then it can
//! be cancelled, and the microphone may be muted. The player handles samples; the codec writes them on the wire.

mod item;
mod transcript;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use self::item::PlaybackItem;
pub(crate) use self::{item::PlaybackSource, transcript::TurnTranscript};
use crate::session::{
    measurement::{AudioOrigin, Measurement},
    millis,
    outbox::{Action, Actions, Observation},
};
use crate::{
    audio::{
        MODEL_RATE_HZ, encoding::Encoding, output_converter::OutputConverter, playout::PlayoutPacer,
        resample::UnsupportedRate,
    },
    error::{Error, ErrorKind},
    event::{ClientCommand, TurnTag},
    mapping::profile::{PlayoutPace, PlayoutRules},
};

/// Above this much unheard audio, no further part of a text is requested.
const REQUEST_AHEAD_MAX: Duration = Duration::from_secs(30);
/// Bound of unheard audio. A model was seen 34 s ahead of playback (field notes §7.16).
const UNPLAYED_MAX: Duration = Duration::from_secs(90);

/// Longest pause of playback for a sound that may be speech. Most speech is certain 150 ms after the first suspicion, and
/// the soft beginning of a word 400 ms later (see [`crate::audio::vad::VadConfig::preset`]).
const PAUSE_MAX: Duration = Duration::from_millis(600);

/// Longest wait for a client's word that it has played a text, beyond the estimated end.
const CONFIRMATION_MAX: Duration = Duration::from_secs(5);

/// How a session's audio is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlayerOptions {
    /// Most audio in one message, bytes.
    pub(crate) frame_max_bytes: usize,
    /// All messages of a text have the same length, and the last is filled up with silence.
    pub(crate) has_fixed_frames: bool,
    /// The client confirms when it has played a text.
    pub(crate) confirms_playback: bool,
    /// Pace, lead and frame length.
    pub(crate) playout: PlayoutRules,
}

/// Playback of one session.
#[derive(Debug)]
pub(crate) struct Player {
    converter: OutputConverter,
    next_turn: u32,
    /// A format set during a text; it applies from the next text on.
    next_converter: Option<OutputConverter>,
    options: PlayerOptions,
    pace: PlayoutPacer,
    /// No audio is sent before this instant, because the user may be about to speak.
    paused_until: Option<Instant>,
    /// The front text plays, the back text receives audio.
    items: VecDeque<PlaybackItem>,
    /// End of the user's last speech, until an answer begins.
    user_spoke_at: Option<Instant>,
    /// Total audio sent.
    sent_audio: Duration,
}

impl Player {
    /// A player at the model's own rate.
    pub(crate) fn new(options: PlayerOptions) -> Self {
        let playout = options.playout;
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let lead = (playout.pace == PlayoutPace::RealTime).then(|| ms(playout.lead_ms));
        Self {
            converter: OutputConverter::default(),
            next_turn: 0,
            next_converter: None,
            options,
            pace: PlayoutPacer::new(lead, ms(playout.hold_max_ms)),
            paused_until: None,
            items: VecDeque::new(),
            user_spoke_at: None,
            sent_audio: Duration::ZERO,
        }
    }

    /// Sets encoding and rate from the next text on.
    ///
    /// # Errors
    /// [`UnsupportedRate`] for a rate out of range; the old one stays.
    pub(crate) fn set_format(&mut self, encoding: Encoding, rate_hz: u32) -> Result<(), UnsupportedRate> {
        self.next_converter = Some(OutputConverter::new(encoding, rate_hz)?);
        Ok(())
    }

    /// Begins a text. Its words are announced with its first audio.
    pub(crate) fn begin_item(
        &mut self,
        now: Instant,
        source: PlaybackSource,
        request_id: String,
        text: String,
    ) {
        if let Some(converter) = self.next_converter.take_if(|_| self.items.is_empty()) {
            self.converter = converter;
        }
        let turn = TurnTag(self.next_turn);
        self.next_turn += 1;
        self.items.push_back(PlaybackItem::new(now, source, turn, request_id, text));
    }

    /// Begins a turn of the model. The client is informed when it has ended.
    pub(crate) fn begin_turn(&mut self, now: Instant, segment_id: u32, request_id: String, text: String) {
        self.begin_item(now, PlaybackSource::Turn, request_id, text);
        if let Some(item) = self.items.back_mut() {
            item.segment_id = Some(segment_id);
        }
    }

    /// Notes that the user spoke.
    pub(crate) const fn note_user_speech(&mut self, now: Instant) {
        self.user_spoke_at = Some(now);
    }

    /// Total audio sent so far.
    pub(crate) const fn sent_length(&self) -> Duration {
        self.sent_audio
    }

    /// True while a text plays.
    pub(crate) fn is_audible(&self) -> bool {
        self.items.front().is_some_and(|item| item.start_reported)
    }

    /// True while a text plays or receives audio.
    pub(crate) fn is_busy(&self) -> bool {
        !self.items.is_empty()
    }

    /// True if one of the texts is of this origin.
    pub(crate) fn is_busy_with(&self, source: PlaybackSource) -> bool {
        self.items.iter().any(|item| item.source == source)
    }

    /// Adds float32 audio of the model to the back text.
    pub(crate) fn push_audio(&mut self, now: Instant, samples: &[f32], out: &mut Actions) {
        let fitting = &samples[..samples.len().min(self.room(now))];
        if let Some(item) = self.items.back_mut() {
            item.model_samples += fitting.len() as u64;
            self.converter.push(fitting, &mut item.unsent);
        }
        if fitting.len() < samples.len() {
            self.report_overflow(out);
        }
        self.advance(now, out);
    }

    /// True above [`REQUEST_AHEAD_MAX`] of unheard audio.
    pub(crate) fn is_far_ahead(&self, now: Instant) -> bool {
        self.unplayed_length(now) > REQUEST_AHEAD_MAX
    }

    /// Samples of the model that fit below [`UNPLAYED_MAX`].
    fn room(&self, now: Instant) -> usize {
        let room = UNPLAYED_MAX.saturating_sub(self.unplayed_length(now));
        room.as_millis() as usize * (MODEL_RATE_HZ / 1000) as usize
    }

    /// Drops audio too far ahead of playback, and reports an error once a text.
    fn report_overflow(&mut self, out: &mut Actions) {
        if let Some(item) = self.items.back_mut().filter(|item| !item.overflowed) {
            item.overflowed = true;
            let seconds = UNPLAYED_MAX.as_secs();
            let words =
                format!("the upstream is more than {seconds} s ahead of what is heard; the rest is dropped");
            let error = Error::new(ErrorKind::SpeakFailed, words);
            out.push_error(match item.source {
                PlaybackSource::Request => error.for_request(item.request_id.clone()),
                PlaybackSource::Turn => error,
            });
        }
    }

    /// Adds audio that arrives after its text was finished. Ignored if that text has ended.
    pub(crate) fn append_audio(
        &mut self,
        now: Instant,
        request_id: &str,
        samples: &[f32],
        out: &mut Actions,
    ) {
        if self.items.back().is_some_and(|item| item.request_id == request_id) {
            self.push_audio(now, samples, out);
        }
    }

    /// Audio that the client has not heard yet.
    pub(crate) fn unplayed_length(&self, now: Instant) -> Duration {
        let unsent: usize = self.items.iter().map(|item| self.unsent_samples(item)).sum();
        self.duration_of(unsent) + self.pace.unplayed(now)
    }

    /// Finishes the back text. It ends when its audio was heard.
    pub(crate) fn finish_item(&mut self, now: Instant, out: &mut Actions) {
        if let Some(item) = self.items.back_mut() {
            self.converter.flush(&mut item.unsent);
            item.complete = true;
        }
        self.advance(now, out);
    }

    /// Sets the words of the back text, a turn of the model that is complete. The client gets them when the turn ends.
    pub(crate) fn set_transcript(&mut self, transcript: TurnTranscript) {
        if let Some(item) = self.items.back_mut() {
            item.transcript = Some(transcript);
        }
    }

    /// The complete turns that have not ended: the segment of each, its words heard so far, and their length, ms.
    pub(crate) fn heard_turns(&self, now: Instant) -> Vec<(u32, String, u64)> {
        let heard = |item: &PlaybackItem| {
            let (transcript, heard_ms) = (item.transcript.as_ref()?, self.heard_ms(now, item));
            Some((
                transcript.segment_id,
                transcript.heard_text(heard_ms, item.made_ms()).to_owned(),
                heard_ms,
            ))
        };
        self.items.iter().filter_map(heard).collect()
    }

    /// Marks the back text as incomplete: the rest of it was lost. It ends as cancelled, after the audio so far.
    pub(crate) fn truncate_item(&mut self) {
        if let Some(item) = self.items.back_mut() {
            item.truncated = true;
        }
    }

    /// Ends the back text although no upstream speaks it. Reports its start, unless that was reported, and its end.
    pub(crate) fn fail_item(&mut self, now: Instant, out: &mut Actions) {
        self.truncate_item();
        if let Some(item) = self.items.back_mut() {
            item.announce(now, out);
        }
        self.finish_item(now, out);
    }

    /// Discards the audio of an unheard text, which is synthesised again.
    pub(crate) fn restart_item(&mut self) {
        self.converter.clear();
        if let Some(item) = self.items.back_mut() {
            item.unsent.clear();
            item.model_samples = 0;
        }
    }

    /// Holds back audio, at most for [`PAUSE_MAX`]. Audio that the client already has is played.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused_until = Some(now + PAUSE_MAX).filter(|_| self.is_busy());
    }

    /// Continues where playback was paused.
    pub(crate) fn resume(&mut self, now: Instant, out: &mut Actions) {
        if self.paused_until.is_some() {
            self.paused_until = Some(now);
            self.advance(now, out);
        }
    }

    /// True during a pause. Ends a pause that is over.
    fn is_paused(&mut self, now: Instant) -> bool {
        if let Some(until) = self.paused_until.take_if(|until| *until <= now) {
            self.pace.end_pause(until);
        }
        self.paused_until.is_some()
    }

    /// Silences playback. An announced text ends as cancelled; the client never learns of the others (golden c10e).
    pub(crate) fn cancel_all(&mut self, now: Instant, out: &mut Actions) {
        self.converter.clear();
        self.paused_until = None;
        while let Some(item) = self.items.pop_front() {
            self.report_end(now, item, true, out);
        }
        self.pace.stop();
    }

    /// Sends due audio, and ends texts that were heard.
    pub(crate) fn advance(&mut self, now: Instant, out: &mut Actions) {
        while !self.items.is_empty() {
            if !self.is_paused(now) {
                self.send_due(now, out);
            }
            let Some(item) = self.items.front_mut().filter(|item| item.complete && item.unsent.is_empty())
            else {
                return;
            };
            if self.options.confirms_playback && item.start_reported {
                item.report_complete(out);
            }
            if self.played_at(now).is_some_and(|at| at > now) {
                return;
            }
            self.pace.stop();
            if let Some(item) = self.items.pop_front() {
                self.report_end(now, item, false, out);
            }
        }
        self.paused_until = None;
    }

    /// True if audio may leave now, although its time is not up.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.paused_until.is_none()
            && self.items.front().filter(|item| item.start_reported).is_some_and(|item| {
                self.next_frame_length(item).is_some_and(|length| self.pace.earliest_send(now, length) <= now)
            })
    }

    /// The instant of the next call of [`Player::advance`].
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let item = self.items.front()?;
        match self.next_frame_length(item) {
            Some(length) => {
                let at = self.pace.latest_send(now, length);
                Some(self.paused_until.map_or(at, |until| at.max(until)))
            }
            None if item.complete => self.played_at(now),
            None => None,
        }
    }

    /// When the front text, whose audio is sent, counts as played: by the client's word or, at the latest, by estimate.
    /// `None` means now.
    fn played_at(&self, now: Instant) -> Option<Instant> {
        let item = self.items.front()?;
        if !self.options.confirms_playback || !item.start_reported {
            return self.pace.playout_end();
        }
        // A client that plays from a buffer began with the first audio at the earliest.
        let estimated_end = item.first_sent_at.unwrap_or(now) + self.duration_of(item.sent_samples as usize);
        let estimated_end = self.pace.playout_end().map_or(estimated_end, |end| end.max(estimated_end));
        (!item.confirmed).then_some(estimated_end + CONFIRMATION_MAX)
    }

    /// Handles the client's word that it has played a text. Ignored if that text has ended.
    pub(crate) fn confirm_played(&mut self, now: Instant, turn: TurnTag, out: &mut Actions) {
        if let Some(item) = self.items.front_mut().filter(|item| item.turn == turn && item.is_sent()) {
            item.confirmed = true;
            self.advance(now, out);
        }
    }

    /// Sends the front text's due audio.
    fn send_due(&mut self, now: Instant, out: &mut Actions) {
        while let Some(length) = self.items.front().and_then(|item| self.next_frame_length(item)) {
            let frame_samples = self.frame_samples();
            let Some(item) = self.items.front_mut() else { return };
            if !std::mem::replace(&mut item.started, true) {
                self.pace.begin_text(now);
            }
            self.pace.set_shortfall(item.shortfall());
            if self.pace.earliest_send(now, length) > now {
                return;
            }
            let mut frame = item.unsent.take(frame_samples * self.converter.bytes_per_sample());
            if self.options.has_fixed_frames {
                frame = self.converter.fill_up(frame, frame_samples);
            }
            let samples = frame.len() / self.converter.bytes_per_sample();
            if self.pace.record_sent(now, length) {
                out.observe(Observation::Underrun);
            }
            self.sent_audio += length;
            let requested_at = if item.source == PlaybackSource::Turn {
                &mut self.user_spoke_at
            } else {
                &mut Some(item.requested_at)
            };
            if !item.start_reported
                && let Some(at) = requested_at.take()
            {
                let origin = if item.source == PlaybackSource::Turn {
                    AudioOrigin::Utterance
                } else {
                    AudioOrigin::Text
                };
                out.measure(Measurement::FirstAudio { origin, after: now - at });
            }
            item.send_frame(now, frame, samples, out);
        }
    }

    /// Length of the front text's next frame.
    fn next_frame_length(&self, item: &PlaybackItem) -> Option<Duration> {
        let frame_samples = self.frame_samples();
        let samples = match self.unsent_samples(item) {
            0 => return None,
            // A frame of fixed length waits until it is full, or until no more audio comes.
            unsent if self.options.has_fixed_frames && unsent < frame_samples && !item.complete => {
                return None;
            }
            _ if self.options.has_fixed_frames => frame_samples,
            unsent => unsent.min(frame_samples),
        };
        Some(self.duration_of(samples))
    }

    fn unsent_samples(&self, item: &PlaybackItem) -> usize {
        item.unsent.len() / self.converter.bytes_per_sample()
    }

    fn duration_of(&self, samples: usize) -> Duration {
        // Rounded up, so that consecutive frames never seem to have a gap.
        Duration::from_nanos((samples as u64 * 1_000_000_000).div_ceil(self.converter.rate_hz().into()))
    }

    fn frame_samples(&self) -> usize {
        let PlayerOptions { frame_max_bytes, has_fixed_frames, playout, .. } = self.options;
        let frame_samples = (u64::from(self.converter.rate_hz()) * u64::from(playout.frame_ms) / 1000).max(1);
        // Frames hold whole samples.
        let max_samples = (frame_max_bytes / self.converter.bytes_per_sample()).max(1);
        match playout.pace {
            PlayoutPace::Burst if !has_fixed_frames => max_samples,
            PlayoutPace::Burst | PlayoutPace::RealTime => max_samples.min(frame_samples as usize),
        }
    }

    /// Length of a text's audio that the client has heard, ms.
    fn heard_ms(&self, now: Instant, item: &PlaybackItem) -> u64 {
        let rate_hz = u64::from(self.converter.rate_hz());
        let unheard = self.pace.unplayed(now).as_secs_f64() * rate_hz as f64;
        item.sent_samples.saturating_sub(unheard.round() as u64) * 1000 / rate_hz
    }

    fn report_end(&self, now: Instant, item: PlaybackItem, cancelled: bool, out: &mut Actions) {
        let (segment_id, is_incomplete) = (item.segment_id, cancelled || item.truncated);
        let audio_ms = item.made_ms();
        if let Some(transcript) = &item.transcript {
            let heard_ms = if cancelled { self.heard_ms(now, &item) } else { audio_ms };
            transcript.report_heard(heard_ms, audio_ms, out);
        }
        if item.start_reported {
            self.report_speaking_end(now, item, cancelled, out);
        }
        if let Some(segment_id) = segment_id {
            out.push_client(ClientCommand::AnswerEnded { segment_id, cancelled: is_incomplete, audio_ms });
        }
    }

    fn report_speaking_end(&self, now: Instant, item: PlaybackItem, cancelled: bool, out: &mut Actions) {
        let mut audio_ms = item.sent_samples * 1000 / u64::from(self.converter.rate_hz());
        if cancelled {
            let audio_bytes = item.sent_samples * self.converter.bytes_per_sample() as u64;
            out.push(Action::DropTurn(item.turn, audio_bytes));
            audio_ms = self.heard_ms(now, &item);
        }
        out.push_client(ClientCommand::SpeakingEnded {
            request_id: item.request_id,
            at_ms: millis(now - item.requested_at),
            cancelled: cancelled || item.truncated,
            audio_ms,
        });
    }
}

#[cfg(test)]
mod tests;
