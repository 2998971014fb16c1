//! The floor: decides who is heard, and plays each speech to the client, one after the other.
//!
//! A speech is a text that the client asked voxbridge to speak, or a turn of the model. Its maker begins it, names it by
//! its id to add audio and to finish it, and the floor decides when its audio leaves. Each speech is announced once, sent
//! at the profile's pace and ended once. It ends when the client has heard its last sample: until then it can be
//! cancelled, and the microphone may be muted. The floor handles samples; the codec writes them on the wire.
//!
//! This file has the floor and what its speakers do; [`playout`] sends the audio, [`speech`] is one speech, [`transcript`] its
//! words. A change of the order belongs into the table below and into [`Floor::may_speak`].
//!
//! # Order
//!
//! | wants to be heard | while a text is spoken | while the model is heard |
//! |---|---|---|
//! | a text | at once: the earlier text is cut | at once: the model is cut |
//! | a queued text | waits until the text has ended | at once: the model is cut |
//! | an answer of the assistant | waits until the text has ended | waits until the answer has ended |
//! | a turn of the conversation | refused: the model is forced to listen | follows the earlier turn |
//! | the user, who interrupts | the text is cut | the model is cut |
//!
//! [`Floor::may_speak`] decides about all but the first and the last. Therefore a text and the model are never on the floor
//! together. A speech that is cut ends as cancelled if the client knows of it.

mod playback_log;
mod playout;
mod speech;
mod transcript;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use self::{playback_log::PlaybackLog, speech::Speech};
pub(crate) use self::{speech::SpeechSource, transcript::TurnTranscript};
use crate::session::{
    millis,
    outbox::{Action, Actions, recorded::RecordedItem},
};
use crate::{
    audio::{
        MODEL_RATE_HZ,
        echo::Playback,
        format::FormatError,
        opus::PacketOptions,
        output_converter::{OutputConverter, OutputFormat},
        playout::PlayoutPacer,
    },
    spelling::profile::{PlayoutPace, PlayoutRules},
    vocabulary::{ClientEvent, SpeechId},
};

/// Unheard audio above which no further part of a text is requested, if the audio leaves at the pace of playback.
const REQUEST_AHEAD_MAX: Duration = Duration::from_secs(30);
/// Unheard audio above which upstreams should wait. Answers of ten minutes are kept whole, however fast a model is: a
/// server that waits for its client may end the session (vLLM-Omni does after 31 s of audio).
const UPSTREAMS_WAIT_ABOVE: Duration = Duration::from_secs(600);
/// Bound of unheard audio, for upstreams that do not wait. The rest of a speech is dropped.
const UNPLAYED_MAX: Duration = Duration::from_secs(900);
/// Most audio that leaves at once without a pace, bytes. The rest waits until the driver has sent these bytes, or reports that
/// the client is behind.
const BURST_MAX_BYTES: usize = 256 * 1024;
/// Weight of a byte of a file format in this bound, before it is encoded. MP3 takes up to 10 ms for a second of audio, and one
/// session must not delay others for longer than a few.
const FILE_WEIGHT: usize = 8;

/// How a session's audio is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FloorOptions {
    /// Most audio in one message, bytes.
    pub(crate) frame_max_bytes: usize,
    /// All messages of a text have the same length, and the last is filled up with silence.
    pub(crate) has_fixed_frames: bool,
    /// Tells the client when all audio of a text was sent.
    pub(crate) reports_complete: bool,
    /// The client confirms when it has played a text.
    pub(crate) confirms_playback: bool,
    /// Pace, lead and frame length.
    pub(crate) playout: PlayoutRules,
    /// The model's audio comes as it is made, and not a second at a time.
    pub(crate) has_streamed_turns: bool,
    /// Encoding of Opus, and the length of its packets.
    pub(crate) packets: PacketOptions,
    /// Time from the estimated end of a speech to its reported end.
    pub(crate) tail: Duration,
}

/// Speech that asks to be heard. A text that the client wants spoken at once needs no claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A text that the client queued.
    QueuedText,
    /// An answer of the assistant.
    Answer,
    /// A turn of a conversation's model.
    Turn,
}

/// Decision on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// It may speak.
    Now,
    /// It waits until this speech has ended.
    After(SpeechId),
    /// It is dropped.
    Refused,
}

/// Playback of one session.
#[derive(Debug)]
pub(crate) struct Floor {
    /// Encoding and rate of the next speech; no audio goes through it.
    format: OutputConverter,
    /// Number of the file that the next speech belongs to, for a client that plays a file format.
    file: u32,
    /// The file that the client has the beginning of.
    begun_file: Option<u32>,
    next_id: u32,
    options: FloorOptions,
    pace: PlayoutPacer,
    /// No audio is sent before this instant: the user may be about to speak.
    suspected_until: Option<Instant>,
    /// No audio is sent before this instant: the client takes none, unless it says so.
    held_until: Option<Instant>,
    /// No audio is sent for now, because the client has not read the audio sent before.
    is_client_behind: bool,
    /// Instant at which audio was last sent.
    last_sent_at: Option<Instant>,
    /// Oldest first: the first one plays. Each receives audio until it is finished.
    speeches: VecDeque<Speech>,
    /// End of the user's last speech, until an answer begins.
    user_spoke_at: Option<Instant>,
    /// Samples of the speech that plays that were sent, and wait to be written to the client.
    unwritten: Option<(SpeechId, u64)>,
    /// Total audio sent.
    sent_audio: Duration,
    /// Audio sent, for a canceller of its echo.
    playback_log: Option<PlaybackLog>,
    /// What the client gets next, of the floor and of all other parts, oldest first.
    pub(crate) out: Actions,
}

impl Floor {
    /// A floor at the model's own rate, whose audio goes into this outbox.
    pub(crate) fn new(options: FloorOptions, out: Actions) -> Self {
        let playout = options.playout;
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let lead = (playout.pace == PlayoutPace::RealTime).then(|| ms(playout.lead_ms));
        Self {
            format: OutputConverter::default(),
            file: 0,
            begun_file: None,
            next_id: 0,
            options,
            pace: PlayoutPacer::new(lead, ms(playout.hold_max_ms)),
            suspected_until: None,
            held_until: None,
            is_client_behind: false,
            last_sent_at: None,
            speeches: VecDeque::new(),
            user_spoke_at: None,
            unwritten: None,
            sent_audio: Duration::ZERO,
            playback_log: None,
            out,
        }
    }

    /// The model's audio comes as it is made from now on: a turn's first audio need not be held until there is a second of it.
    pub(crate) const fn note_streamed_turns(&mut self) {
        self.options.has_streamed_turns = true;
    }

    /// Records what the client plays from now on, or stops to.
    pub(crate) fn log_playback(&mut self, on: bool) {
        self.playback_log = on.then(PlaybackLog::default);
    }

    /// Takes what was sent since the last call.
    pub(crate) fn take_playback(&mut self) -> Vec<Playback> {
        self.playback_log.as_mut().map_or_else(Vec::new, PlaybackLog::take)
    }

    /// Sets the format from the next speech on. A file begins anew with it.
    ///
    /// # Errors
    /// [`FormatError`] for a rate out of range; the old one stays.
    pub(crate) fn set_format(&mut self, format: OutputFormat) -> Result<(), FormatError> {
        self.format = OutputConverter::with_options(format, self.options.packets)?;
        self.file += 1;
        Ok(())
    }

    /// Begins a speech. Its words are announced with its first audio.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        source: SpeechSource,
        request_id: String,
        text: String,
    ) -> SpeechId {
        let id = SpeechId(self.next_id);
        self.next_id += 1;
        let converter = self.format.renewed();
        let mut speech = Speech::new(now, source, id, converter, request_id, text);
        speech.file = self.file;
        self.speeches.push_back(speech);
        id
    }

    /// Begins a turn of the model. Its end is reported to the client as the end of this answer.
    pub(crate) fn begin_turn(
        &mut self,
        now: Instant,
        segment_id: u32,
        request_id: String,
        text: String,
    ) -> SpeechId {
        let id = self.begin(now, SpeechSource::Model, request_id, text);
        if let Some(speech) = self.speech_mut(id) {
            speech.segment_id = Some(segment_id);
        }
        id
    }

    /// The speech with this id; `None` if it has ended.
    fn speech_mut(&mut self, id: SpeechId) -> Option<&mut Speech> {
        self.speeches.iter_mut().find(|speech| speech.id == id)
    }

    /// Notes that the user spoke.
    pub(crate) const fn note_user_speech(&mut self, now: Instant) {
        self.user_spoke_at = Some(now);
    }

    /// Total audio sent so far.
    pub(crate) const fn sent_length(&self) -> Duration {
        self.sent_audio
    }

    /// True while a speech plays.
    pub(crate) fn is_audible(&self) -> bool {
        self.speeches.front().is_some_and(|speech| speech.start_reported)
    }

    /// True if the client knows of a speech.
    pub(crate) fn is_announced(&self, id: SpeechId) -> bool {
        self.speeches.iter().any(|speech| speech.id == id && speech.start_reported)
    }

    /// True while a speech plays or receives audio.
    pub(crate) fn is_busy(&self) -> bool {
        !self.speeches.is_empty()
    }

    /// True while a text or the model is on the floor.
    pub(crate) fn is_busy_with(&self, source: SpeechSource) -> bool {
        self.speeches.iter().any(|speech| speech.source == source)
    }

    /// True while the text with this id is on the floor.
    pub(crate) fn is_speaking(&self, request_id: &str) -> bool {
        self.of_source(SpeechSource::Text).is_some_and(|text| text.request_id == request_id)
    }

    fn of_source(&self, source: SpeechSource) -> Option<&Speech> {
        self.speeches.iter().find(|speech| speech.source == source)
    }

    /// True while an upstream makes audio of a text, or is about to.
    pub(crate) fn is_making_text(&self) -> bool {
        self.of_source(SpeechSource::Text).is_some_and(|text| !text.complete)
    }

    /// Decides on a claim beside the speeches on the floor: see the table of this module. A caller that may speak now cancels
    /// the speeches that the table says are cut.
    pub(crate) fn may_speak(&self, claim: Claim) -> Permission {
        match (claim, self.of_source(SpeechSource::Text)) {
            (_, None) => Permission::Now,
            (Claim::QueuedText | Claim::Answer, Some(text)) => Permission::After(text.id),
            (Claim::Turn, Some(_)) => Permission::Refused,
        }
    }

    /// Adds float32 audio of the model to a speech, also after it was finished. Ignored if the speech has ended. Above
    /// [`UNPLAYED_MAX`], this and all later audio of the speech is dropped. Returns how many samples were dropped.
    pub(crate) fn push_audio(&mut self, now: Instant, id: SpeechId, samples: &[f32]) -> usize {
        let room = UNPLAYED_MAX.saturating_sub(self.unplayed_length(now));
        let room = room.as_millis() as usize * (MODEL_RATE_HZ / 1000) as usize;
        let Some(speech) = self.speech_mut(id) else { return 0 };
        let kept = if speech.is_broken_off { 0 } else { samples.len().min(room) };
        speech.push_audio(&samples[..kept]);
        if kept < samples.len()
            && let Some(error) = speech.break_off()
        {
            self.out.push_error(error);
        }
        self.advance(now);
        samples.len() - kept
    }

    /// True above [`REQUEST_AHEAD_MAX`] of unheard audio that leaves at the pace of playback.
    pub(crate) fn is_far_ahead(&self, now: Instant) -> bool {
        self.options.playout.pace == PlayoutPace::RealTime && self.unplayed_length(now) > REQUEST_AHEAD_MAX
    }

    /// True above [`UPSTREAMS_WAIT_ABOVE`] of unheard audio.
    pub(crate) fn must_upstreams_wait(&self, now: Instant) -> bool {
        self.is_busy() && self.unplayed_length(now) > UPSTREAMS_WAIT_ABOVE
    }

    /// Audio that was not sent, bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.speeches.iter().map(|speech| speech.unsent.len).sum()
    }

    /// Audio that the client has not heard yet.
    pub(crate) fn unplayed_length(&self, now: Instant) -> Duration {
        let unsent: Duration =
            self.speeches.iter().map(|speech| speech.length_of(speech.unsent_samples() as u64)).sum();
        unsent + self.pace.unplayed(now)
    }

    /// Finishes a speech. It ends when its audio was heard.
    pub(crate) fn finish(&mut self, now: Instant, id: SpeechId) {
        if let Some(speech) = self.speech_mut(id) {
            speech.finish();
        }
        self.advance(now);
    }

    /// Sets the words of a turn of the model that is complete. The client gets them when the turn ends.
    pub(crate) fn set_transcript(&mut self, id: SpeechId, transcript: TurnTranscript) {
        if let Some(speech) = self.speech_mut(id) {
            speech.transcript = Some(transcript);
        }
    }

    /// The complete turns that have not ended: the segment of each, its words heard so far, and their length, ms.
    pub(crate) fn heard_turns(&self, now: Instant) -> Vec<(u32, String, u64)> {
        let heard = |speech: &Speech| {
            let (transcript, heard_ms) = (speech.transcript.as_ref()?, self.heard_ms(now, speech));
            Some((
                transcript.segment_id,
                transcript.heard_text(heard_ms, speech.made_ms()).to_owned(),
                heard_ms,
            ))
        };
        self.speeches.iter().filter_map(heard).collect()
    }

    /// Marks a speech as incomplete: the rest of it was lost. It ends as cancelled, after the audio so far.
    pub(crate) fn truncate(&mut self, id: SpeechId) {
        if let Some(speech) = self.speech_mut(id) {
            speech.truncated = true;
        }
    }

    /// Ends a speech although no upstream speaks it.
    pub(crate) fn fail(&mut self, now: Instant, id: SpeechId) {
        self.truncate(id);
        self.finish_unspoken(now, id);
    }

    /// Ends a speech that may have no audio. Reports its start, unless that was reported, and its end.
    pub(crate) fn finish_unspoken(&mut self, now: Instant, id: SpeechId) {
        let announced = self.speech_mut(id).and_then(|speech| speech.announce(now));
        self.out.push_if_any(announced);
        self.finish(now, id);
    }

    /// Discards the audio of an unheard speech, which is synthesised again.
    pub(crate) fn restart(&mut self, id: SpeechId) {
        if let Some(speech) = self.speech_mut(id) {
            speech.restart();
        }
    }

    /// Silences every speech of this source. An announced one ends as cancelled; the client never learns of the others
    /// (tests/golden/macaw/c10e_tts_cancel_before_first_chunk.json).
    pub(crate) fn cancel(&mut self, now: Instant, source: SpeechSource) {
        let mut index = 0;
        while let Some(speech) = self.speeches.get(index) {
            if speech.source != source {
                index += 1;
                continue;
            }
            if let Some(speech) = self.speeches.remove(index) {
                let is_cut = !self.is_played(now, &speech);
                self.report_end(now, speech, is_cut);
            }
            // Only the first one is paced.
            if index == 0 {
                self.suspected_until = None;
                self.pace.stop();
                if let Some(log) = &mut self.playback_log {
                    log.note_cut(now);
                }
                self.out.record_audio(|| RecordedItem::Playback(Playback::Cut(now)));
            }
        }
    }

    /// True if the client has heard a whole speech, and confirmed that if it does.
    fn is_played(&self, now: Instant, speech: &Speech) -> bool {
        speech.complete
            && speech.start_reported
            && speech.unsent.is_empty()
            && (speech.confirmed || !self.options.confirms_playback)
            && self.heard_samples(now, speech) >= speech.sent_samples
    }

    /// Length of a speech's audio that the client has heard, ms.
    fn heard_ms(&self, now: Instant, speech: &Speech) -> u64 {
        self.heard_samples(now, speech) * 1000 / u64::from(speech.converter.rate_hz)
    }

    /// Samples of a speech that the client has heard: no more than were written to its connection.
    fn heard_samples(&self, now: Instant, speech: &Speech) -> u64 {
        let samples =
            |time: Duration| (time.as_secs_f64() * f64::from(speech.converter.rate_hz)).round() as u64;
        let unwritten = self.unwritten.filter(|(id, _)| *id == speech.id).map_or(0, |(_, samples)| samples);
        speech.sent_samples.saturating_sub(samples(self.pace.unplayed(now)).max(unwritten))
    }

    /// Notes that `waiting` of the `total` bytes of a speech's messages wait to be written to the client.
    pub(crate) fn note_unwritten(&mut self, id: SpeechId, waiting: u64, total: u64) {
        let sent = self.speech_mut(id).map_or(0, |speech| speech.sent_samples);
        let part = waiting.min(total) as f64 / total.max(1) as f64;
        self.unwritten = Some((id, (sent as f64 * part).round() as u64));
    }

    fn report_end(&mut self, now: Instant, speech: Speech, cancelled: bool) {
        let (segment_id, is_incomplete) = (speech.segment_id, cancelled || speech.truncated);
        let audio_ms = speech.made_ms();
        let transcript = speech.transcript.as_ref();
        let (usage, hit_limit) = transcript.map_or_else(Default::default, |it| (it.usage, it.hit_limit));
        // An answer that lost its rest was not interrupted.
        let hit_limit = !cancelled && (hit_limit || speech.truncated);
        match &speech.transcript {
            // A turn without audio.
            Some(transcript) if audio_ms == 0 && transcript.audio_ms == 0 && !is_incomplete => {
                transcript.all_events().for_each(|event| self.out.push_client(event));
            }
            Some(transcript) => {
                let heard_ms = if cancelled { self.heard_ms(now, &speech) } else { audio_ms };
                self.out.push_if_any(transcript.heard_event(heard_ms, audio_ms));
                if !is_incomplete {
                    transcript.call_events().for_each(|event| self.out.push_client(event));
                }
            }
            None => {}
        }
        if speech.start_reported {
            self.report_speaking_end(now, speech, cancelled);
        }
        if let Some(segment_id) = segment_id {
            self.out.push_client(ClientEvent::AnswerEnded {
                segment_id,
                cancelled: is_incomplete,
                audio_ms,
                usage,
                hit_limit,
            });
        }
    }

    fn report_speaking_end(&mut self, now: Instant, speech: Speech, cancelled: bool) {
        let mut audio_ms = speech.sent_samples * 1000 / u64::from(speech.converter.rate_hz);
        if cancelled {
            self.out.push(Action::DropTurn(speech.id, speech.sent_bytes));
            audio_ms = self.heard_ms(now, &speech);
        }
        self.out.push_client(ClientEvent::SpeakingEnded {
            request_id: speech.request_id,
            at_ms: millis(now - speech.requested_at),
            cancelled: cancelled || speech.truncated,
            audio_ms,
        });
    }
}

#[cfg(test)]
mod tests;
