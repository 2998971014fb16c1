//! Speech input: turns microphone audio into utterances by voice activity, with pre-roll.
//!
//! Works on sample counts and knows no clock, lane or client. [`pipeline`] processes the audio hop by hop.

mod barge_in_watch;
pub(crate) mod pause;
mod pipeline;
mod recording;

use std::{sync::Arc, time::Duration};

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        echo::EchoCanceller,
        encoding::Encoding,
        format::FormatError,
        input_converter::InputConverter,
        vad::{HOP_SAMPLES, Sensitivity, VoiceActivity, coarse_gate::CoarseGate},
    },
    spelling::profile::{BargeInRules, ListenRules},
    vocabulary::{EndCause, PauseId},
};
use barge_in_watch::BargeInWatch;
use pause::{PauseUse, PauseWatch, TurnDecision, TurnVerdict};
use pipeline::{held_max_groups, vad_config};
use recording::{PreRoll, Recording};

/// Samples at 16 kHz in a millisecond.
const SAMPLES_PER_MS: u64 = SPEECH_RATE_HZ as u64 / 1000;
/// Shortest audio that a client may commit (OpenAI Realtime: `input_audio_buffer_commit_empty`).
pub(crate) const COMMIT_MIN_MS: u64 = 100;

/// Event found in the microphone audio.
#[derive(Debug, PartialEq)]
pub(crate) enum SpeechEvent {
    /// An utterance started.
    Started {
        /// Position of the decision in the audio listened to, ms.
        at_ms: u64,
        /// Position of the first sound, ms.
        from_ms: u64,
    },
    /// A segment of an utterance is complete.
    Segment(SpeechSegment),
    /// The user pauses in an utterance.
    Paused {
        /// The pause.
        pause: PauseId,
        /// The newest audio of the utterance, which ends in the pause: all of it if the answer may be asked for early.
        audio: Arc<Vec<i16>>,
        /// The end-of-turn model is to judge it.
        is_judged: bool,
    },
    /// The user goes on after a pause.
    Resumed,
    /// The turn is likely over, with this probability; `None` if no model has judged it.
    EndLikely(Option<f32>),
    /// A pause was judged, or not.
    Decided(TurnDecision),
    /// The user may have begun to speak while [`SpeechInput::watch_barge_in`] was on.
    InterruptionSuspected,
    /// The suspected sound was no speech.
    SuspicionDismissed,
    /// The user spoke while the watch was on. An utterance has started before.
    Interrupted,
}

/// A stretch of speech to be transcribed.
#[derive(Debug, PartialEq)]
pub(crate) struct SpeechSegment {
    /// int16 mono 16 kHz.
    pub(crate) audio: Arc<Vec<i16>>,
    /// True if the detector found speech in the audio.
    pub(crate) has_speech: bool,
    /// Start and end of that speech in the audio listened to, ms; of the audio if there is none.
    pub(crate) speech_ms: (u64, u64),
    /// How the pause at its end was judged.
    pub(crate) verdict: TurnVerdict,
    /// True if the utterance ends here; false after a commit.
    pub(crate) ends_utterance: bool,
    /// It was too long, and the speech goes on without a pause.
    pub(crate) is_cut_in_speech: bool,
    /// End position in the audio listened to, ms.
    pub(crate) end_ms: u64,
}

/// Audio of the current segment, which goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UtteranceSoFar<'a> {
    /// int16 mono 16 kHz.
    pub(crate) audio: &'a [i16],
    /// End position in the audio listened to, ms.
    pub(crate) end_ms: u64,
}

/// Settings of the speech input: the profile's values until the client changes them.
#[derive(Debug, Clone)]
pub(crate) struct InputSettings {
    pub(crate) encoding: Encoding,
    pub(crate) rate_hz: u32,
    pub(crate) channels: u16,
    pub(crate) sensitivity: Sensitivity,
    pub(crate) end_silence_ms: u32,
    pub(crate) segment_max_ms: u32,
    /// An utterance of this length ends at the next pause of `cut_pause_ms`; [`u32::MAX`] for never.
    pub(crate) cut_after_ms: u32,
    pub(crate) cut_pause_ms: u32,
    /// An utterance of this length without such a pause is cut at its quietest place since then; [`u32::MAX`] for never.
    pub(crate) cut_max_ms: u32,
    /// The client commits its audio. Voice activity finds no utterances.
    pub(crate) is_manual: bool,
    /// How pauses in an utterance are used.
    pub(crate) pauses: PauseUse,
}

impl InputSettings {
    /// Encoding, sample rate and channel count of the client's audio.
    const fn format(&self) -> (Encoding, u32, u16) {
        (self.encoding, self.rate_hz, self.channels)
    }
}

/// Counts of all samples by destination. `received` and `muted` count at the client's rate, the others at 16 kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCounts {
    /// Sample groups accepted, at the client's rate.
    pub received: u64,
    /// Sample groups muted, at the client's rate.
    pub muted: u64,
    /// Samples in utterances.
    pub recorded: u64,
    /// Samples outside of utterances.
    pub silent: u64,
    /// Samples not classified yet.
    pub pending: u64,
    /// Samples passed to a conversation.
    pub streamed: u64,
    /// Samples among these that the resampler's delay has put before stretches of audio.
    pub lead_in: u64,
}

/// Destinations of the microphone audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputUse {
    /// Utterances are recorded for transcription.
    pub(crate) records_utterances: bool,
    /// All audio is passed to a conversation.
    pub(crate) streams_audio: bool,
}

impl InputUse {
    /// A converter for audio with these settings.
    fn converter(self, settings: &InputSettings) -> Result<InputConverter, FormatError> {
        let (encoding, rate_hz, channels) = settings.format();
        match self.streams_audio {
            true => InputConverter::live(encoding, rate_hz, channels),
            false => InputConverter::with_encoding(encoding, rate_hz, channels),
        }
    }
}

/// Speech input of one session. Allocates its buffers with the first audio.
#[derive(Debug)]
pub(crate) struct SpeechInput {
    rules: ListenRules,
    /// Settings in force.
    pub(crate) settings: InputSettings,
    input_use: InputUse,
    muted: bool,
    pub(crate) converter: InputConverter,
    pub(crate) voice_activity: VoiceActivity,
    /// Finds audio that the voice detector's gate would reject.
    coarse_gate: CoarseGate,
    /// Longest audio to hold, sample groups at the client's rate.
    held_max_groups: usize,
    /// Resampled audio, less than one hop.
    resampled: Vec<i16>,
    /// Newest audio outside of utterances.
    pre_roll: PreRoll,
    recording: Option<Recording>,
    /// Longest recording of a client that commits its audio; `None` if voice activity finds the utterances.
    manual_max_samples: Option<usize>,
    /// Removes from the audio what the client plays.
    pub(crate) echo: Option<Box<EchoCanceller>>,
    /// Audio for the conversation.
    pub(crate) stream: StreamedAudio,
    streamed_samples: u64,
    /// Detector of barge-ins, while the session watches for one.
    barge_in_watch: Option<BargeInWatch>,
    pause_watch: PauseWatch,
    /// The detector found speech since the flag was last taken.
    speech_flag: bool,
    /// Samples since the user was last silent.
    speech_samples: u64,
    /// Samples listened to, without muted samples (mappings/notes/macaw.md#times) and lead-ins.
    listened_samples: u64,
    /// Samples that the converter's filter has put before the stretches of audio so far.
    lead_in_samples: u64,
    /// Those that are not processed yet.
    unprocessed_lead_in: u64,
    recorded_samples: u64,
    silent_samples: u64,
    earlier_received_groups: u64,
    earlier_muted_groups: u64,
}

/// Resampled audio on its way to the conversation, in shared memory ([`crate::audio::scratch`]).
#[derive(Debug, Default)]
pub(crate) struct StreamedAudio {
    pub(crate) audio: Vec<i16>,
    /// The first sample for the conversation. Those before it have passed already.
    pub(crate) start: usize,
}

impl SpeechInput {
    /// Speech input for audio in the format of a checked mapping.
    pub(crate) fn new(rules: ListenRules, settings: InputSettings, input_use: InputUse) -> Self {
        let converter = input_use.converter(&settings);
        Self {
            muted: false,
            converter: converter.expect("the check of the client's mapping has tried this format"),
            voice_activity: VoiceActivity::new(vad_config(&rules, &settings)),
            coarse_gate: CoarseGate::new(settings.rate_hz),
            held_max_groups: held_max_groups(&rules, &settings),
            resampled: Vec::new(),
            pre_roll: PreRoll::new(u64::from(rules.pre_roll_ms) * SAMPLES_PER_MS),
            recording: None,
            manual_max_samples: manual_max_samples(&settings),
            rules,
            settings,
            input_use,
            echo: None,
            stream: StreamedAudio::default(),
            streamed_samples: 0,
            barge_in_watch: None,
            pause_watch: PauseWatch::default(),
            speech_flag: false,
            speech_samples: 0,
            listened_samples: 0,
            lead_in_samples: 0,
            unprocessed_lead_in: 0,
            recorded_samples: 0,
            silent_samples: 0,
            earlier_received_groups: 0,
            earlier_muted_groups: 0,
        }
    }

    /// Starts to watch for a barge-in by these rules, or stops with `None`. A voice that has lasted for
    /// `suppress_max_ms` without a pause does not count: it has to pause first
    /// (mappings/notes/minicpm-o-duplex.md#barge-in).
    pub(crate) fn watch_barge_in(&mut self, rules: Option<&BargeInRules>) {
        match rules {
            None => self.barge_in_watch = None,
            Some(rules) if self.barge_in_watch.is_none() => {
                let has_lasted_too_long = self.speech_samples / SAMPLES_PER_MS >= rules.suppress_max_ms;
                self.barge_in_watch = Some(BargeInWatch::new(rules, HOP_SAMPLES, has_lasted_too_long));
            }
            Some(_) => {}
        }
    }

    /// Length of the user's current speech.
    pub(crate) fn speech_length(&self) -> Duration {
        Duration::from_micros(self.speech_samples * 1000 / SAMPLES_PER_MS)
    }

    /// Shortest further audio that can start or end an utterance or a barge-in.
    pub(crate) fn time_to_decision(&self) -> Duration {
        let hops_to_edge = self.voice_activity.segmenter.min_hops_to_edge();
        let hops =
            self.barge_in_watch.map_or(hops_to_edge, |watch| watch.min_hops_to_edge().min(hops_to_edge));
        let hops = self.min_hops_to_pause().map_or(hops, |hops_to_pause| hops_to_pause.min(hops));
        let waiting = self.resampled.len() + self.echo_pending();
        let samples = (u64::from(hops) * HOP_SAMPLES as u64).saturating_sub(waiting as u64);
        Duration::from_micros(samples * 1000 / SAMPLES_PER_MS)
    }

    /// Applies new settings to the audio from now on.
    ///
    /// # Errors
    /// [`FormatError`] for an unsupported rate or channel count; the old format stays, and the other settings apply.
    pub(crate) fn apply_settings(
        &mut self,
        mut settings: InputSettings,
        out: &mut Vec<SpeechEvent>,
    ) -> Result<(), FormatError> {
        let converter = self.input_use.converter(&settings);
        if converter.is_err() {
            (settings.encoding, settings.rate_hz, settings.channels) = self.settings.format();
        }
        let format_changed = settings.format() != self.settings.format();
        self.voice_activity.set_config(vad_config(&self.rules, &settings));
        let ends_pauses = |settings: &InputSettings| (settings.pauses, settings.end_silence_ms);
        if ends_pauses(&settings) != ends_pauses(&self.settings) {
            self.apply_settings_to_pause(out);
        }
        self.settings = settings;
        let manual_max_samples = manual_max_samples(&self.settings);
        if manual_max_samples.is_some() != self.manual_max_samples.is_some() {
            match self.manual_max_samples {
                None => {
                    self.finish_segment_with_rest(true, out);
                    self.discard_pre_roll();
                }
                Some(_) => self.discard_recording(out),
            }
            self.voice_activity.reset();
            self.pause_watch.forget(out);
        }
        self.manual_max_samples = manual_max_samples;
        let converter = converter?;
        if format_changed {
            self.replace_converter(converter, out);
        }
        Ok(())
    }

    /// Records utterances from now on, or no longer.
    pub(crate) fn record_utterances(&mut self, on: bool) {
        if std::mem::replace(&mut self.input_use.records_utterances, on) && !on {
            self.discard_pre_roll();
        }
    }

    /// Turns the cancellation of echo on or off.
    pub(crate) fn cancel_echo(&mut self, on: bool, out: &mut Vec<SpeechEvent>) {
        self.flush_resampler(out);
        self.echo = on.then(Box::default);
    }

    /// Samples that wait in the echo canceller.
    fn echo_pending(&self) -> usize {
        self.echo.as_ref().map_or(0, |echo| echo.pending_samples())
    }

    /// Mutes a frame. Audio that arrived before the muting is processed to its end first.
    pub(crate) fn mute_frame(&mut self, bytes: &[u8], out: &mut Vec<SpeechEvent>) {
        if !std::mem::replace(&mut self.muted, true) {
            self.flush_resampler(out);
        }
        self.converter.skip_muted(bytes);
        // The speech before it is not current.
        self.speech_flag = false;
    }

    /// Completes what was recorded, for a client that commits its audio, unless it is too short.
    pub(crate) fn commit_manual(&mut self, out: &mut Vec<SpeechEvent>) {
        let lead_in = self.converter.stretch_lead_in();
        self.flush_resampler(out);
        let rest = std::mem::take(&mut self.resampled);
        self.count_listened(rest.len() as u64);
        let recording = self.recording.get_or_insert_default();
        recording.audio.extend_from_slice(&rest);
        if recording.audio.len() as u64 >= COMMIT_MIN_MS * SAMPLES_PER_MS + lead_in {
            self.finish_manual(out);
        }
    }

    /// Discards the audio of the current utterance.
    pub(crate) fn clear(&mut self, out: &mut Vec<SpeechEvent>) {
        self.discard_recording(out);
    }

    /// Completes the current segment, if any; the utterance continues.
    pub(crate) fn commit_segment(&mut self, out: &mut Vec<SpeechEvent>) {
        if self.current_recording().is_some() {
            self.finish_segment_with_rest(false, out);
            // The last hops may have ended the utterance.
            if self.voice_activity.is_in_speech() {
                self.recording = Some(Recording::default());
            }
        }
    }

    /// Ends the current utterance, if any: its audio is complete.
    pub(crate) fn end_utterance(&mut self, cause: EndCause, out: &mut Vec<SpeechEvent>) {
        if self.current_recording().is_some() {
            self.finish_segment_with_rest(true, out);
            if let Some(SpeechEvent::Segment(segment)) = out.last_mut() {
                segment.verdict.cause = cause;
            }
            self.voice_activity.reset();
            self.pause_watch.forget(out);
        }
    }

    /// Length of audio listened to so far, ms.
    pub(crate) fn listened_ms(&self) -> u64 {
        (self.listened_samples + self.converter.held_samples()) / SAMPLES_PER_MS
    }

    /// Audio of the current segment so far; `None` outside of utterances, and for a client that commits its audio.
    pub(crate) fn current_recording(&self) -> Option<&[i16]> {
        let recording = self.recording.as_ref().filter(|_| self.manual_max_samples.is_none());
        recording.map(|recording| recording.audio.as_slice())
    }

    /// The utterance in progress, like [`SpeechInput::current_recording`].
    pub(crate) fn utterance_so_far(&self) -> Option<UtteranceSoFar<'_>> {
        let audio = self.current_recording()?;
        Some(UtteranceSoFar { audio, end_ms: self.listened_ms() })
    }

    /// Drops the current recording, because the session ends.
    pub(crate) fn stop(&mut self) {
        self.silent_samples += self.recording.take().map_or(0, |recording| recording.audio.len() as u64);
    }

    /// Counts of all samples by destination.
    pub(crate) fn sample_counts(&self) -> SampleCounts {
        SampleCounts {
            received: self.earlier_received_groups + self.converter.input_samples(),
            muted: self.earlier_muted_groups + self.converter.skipped_samples(),
            recorded: self.recorded_samples,
            silent: self.silent_samples,
            pending: (self.resampled.len() + self.pre_roll.len() + self.echo_pending()) as u64
                + self.converter.held_samples()
                + self.recording.as_ref().map_or(0, |recording| recording.audio.len() as u64),
            streamed: self.streamed_samples,
            lead_in: self.lead_in_samples,
        }
    }
}

/// Longest recording of a client that commits its audio.
fn manual_max_samples(settings: &InputSettings) -> Option<usize> {
    settings.is_manual.then(|| settings.segment_max_ms as usize * SAMPLES_PER_MS as usize)
}

#[cfg(test)]
mod tests;
