//! Speech input: turns microphone audio into utterances by voice activity, with pre-roll.
//!
//! Works on sample counts and knows no clock, lane or client. [`pipeline`] processes the audio hop by hop.

mod barge_in_watch;
mod pipeline;
mod recording;

use std::{sync::Arc, time::Duration};

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        encoding::Encoding,
        input_converter::{FormatError, InputConverter},
        vad::Sensitivity,
    },
    mapping::profile::{BargeInRules, ListenRules},
};
use barge_in_watch::BargeInWatch;
use pipeline::{Pipeline, manual_max_samples, vad_config};
use recording::Recording;

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
    /// True if the utterance ends here; false after a commit.
    pub(crate) ends_utterance: bool,
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
    /// The client commits its audio. Voice activity finds no utterances.
    pub(crate) is_manual: bool,
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

/// Speech input of one session. Allocates its pipeline with the first audio.
#[derive(Debug)]
pub(crate) struct SpeechInput {
    rules: ListenRules,
    /// Settings in force.
    pub(crate) settings: InputSettings,
    input_use: InputUse,
    pipeline: Option<Box<Pipeline>>,
    muted: bool,
}

impl SpeechInput {
    pub(crate) const fn new(rules: ListenRules, settings: InputSettings, input_use: InputUse) -> Self {
        Self { rules, settings, input_use, pipeline: None, muted: false }
    }

    /// Starts to watch for a barge-in by these rules, or stops with `None`. A voice that has lasted for
    /// `suppress_max_ms` without a pause does not count: it has to pause first (field notes §7.19).
    pub(crate) fn watch_barge_in(&mut self, rules: Option<&BargeInRules>) {
        let Some(pipeline) = &mut self.pipeline else { return };
        match rules {
            None => pipeline.barge_in_watch = None,
            Some(rules) if pipeline.barge_in_watch.is_none() => {
                let hop_samples = pipeline.voice_activity.hop_samples();
                let has_lasted_too_long = pipeline.speech_samples / SAMPLES_PER_MS >= rules.suppress_max_ms;
                pipeline.barge_in_watch = Some(BargeInWatch::new(rules, hop_samples, has_lasted_too_long));
            }
            Some(_) => {}
        }
    }

    /// Takes the audio to pass to the conversation, if there is any. The caller puts its memory back ([`crate::audio::scratch`]).
    pub(crate) fn take_stream(&mut self) -> Option<Vec<i16>> {
        let stream = &mut self.pipeline.as_mut()?.pending_stream;
        (!stream.is_empty()).then(|| std::mem::take(stream))
    }

    /// Length of the user's current speech.
    pub(crate) fn speech_length(&self) -> Duration {
        let samples = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.speech_samples);
        Duration::from_micros(samples * 1000 / SAMPLES_PER_MS)
    }

    /// True during an utterance.
    pub(crate) fn is_in_speech(&self) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.voice_activity.is_in_speech())
    }

    /// Shortest further audio that can start or end an utterance or a barge-in.
    pub(crate) fn time_to_decision(&self) -> Duration {
        let samples = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.samples_to_decision());
        Duration::from_micros(samples * 1000 / SAMPLES_PER_MS)
    }

    /// Applies new settings to the audio from now on.
    ///
    /// # Errors
    /// [`FormatError`] for an unsupported rate or channel count; the old settings stay.
    pub(crate) fn apply_settings(
        &mut self,
        settings: InputSettings,
        out: &mut Vec<SpeechEvent>,
    ) -> Result<(), FormatError> {
        let format_changed = settings.format() != self.settings.format();
        let converter = self.input_use.converter(&settings)?;
        let config = vad_config(&self.rules, &settings);
        self.settings = settings;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.voice_activity.set_config(config);
            let manual_max_samples = manual_max_samples(&self.settings);
            if manual_max_samples.is_some() != pipeline.manual_max_samples.is_some() {
                match pipeline.manual_max_samples {
                    None => {
                        pipeline.finish_segment_with_rest(true, out);
                        pipeline.discard_pre_roll();
                    }
                    Some(_) => pipeline.discard_recording(),
                }
                pipeline.voice_activity.reset();
            }
            pipeline.manual_max_samples = manual_max_samples;
            if format_changed {
                pipeline.replace_converter(converter, &self.rules, &self.settings, out);
            }
        }
        Ok(())
    }

    /// Number of sample groups that a frame completes.
    pub(crate) fn count_groups(&self, bytes: usize) -> u64 {
        let groups = match &self.pipeline {
            Some(pipeline) => pipeline.converter.completed_groups(bytes),
            None => {
                bytes
                    / (self.settings.encoding.bytes_per_sample() * usize::from(self.settings.channels.max(1)))
            }
        };
        groups as u64
    }

    /// Drops a frame, and keeps the byte alignment of the following frames.
    pub(crate) fn discard_frame(&mut self, bytes: &[u8]) {
        if let Some(pipeline) = self.pipeline_mut() {
            pipeline.converter.discard(bytes);
        }
    }

    /// Processes a frame. Returns true if the detector found speech.
    pub(crate) fn push_frame(&mut self, bytes: &[u8], out: &mut Vec<SpeechEvent>) -> bool {
        self.muted = false;
        let Some(pipeline) = self.pipeline_mut() else { return false };
        pipeline.push_frame(bytes, out);
        std::mem::take(&mut pipeline.speech_flag)
    }

    /// Mutes a frame. Audio that arrived before the muting is processed to its end first.
    pub(crate) fn mute_frame(&mut self, bytes: &[u8], out: &mut Vec<SpeechEvent>) {
        let just_muted = !std::mem::replace(&mut self.muted, true);
        let Some(pipeline) = self.pipeline_mut() else { return };
        if just_muted {
            pipeline.flush_resampler(out);
        }
        pipeline.converter.skip_muted(bytes);
        // The speech before it is not current.
        pipeline.speech_flag = false;
    }

    /// Completes what was recorded, for a client that commits its audio, unless it is too short.
    pub(crate) fn commit_manual(&mut self, out: &mut Vec<SpeechEvent>) {
        let Some(pipeline) = &mut self.pipeline else { return };
        let lead_in = pipeline.converter.stretch_lead_in();
        pipeline.flush_resampler(out);
        let rest = std::mem::take(&mut pipeline.resampled);
        pipeline.count_listened(rest.len() as u64);
        let recording = pipeline.recording.get_or_insert_default();
        recording.audio.extend_from_slice(&rest);
        let is_long_enough = recording.audio.len() as u64 >= COMMIT_MIN_MS * SAMPLES_PER_MS + lead_in;
        if is_long_enough {
            pipeline.finish_manual(out);
        }
    }

    /// Discards the audio of the current utterance.
    pub(crate) fn clear(&mut self) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.discard_recording();
        }
    }

    /// Completes the current segment, if any; the utterance continues.
    pub(crate) fn commit_segment(&mut self, out: &mut Vec<SpeechEvent>) {
        if let Some(pipeline) = self.recording_pipeline() {
            pipeline.finish_segment_with_rest(false, out);
            // The last hops may have ended the utterance.
            if pipeline.voice_activity.is_in_speech() {
                pipeline.recording = Some(Recording::default());
            }
        }
    }

    /// Ends the current utterance, if any: its audio is complete.
    pub(crate) fn end_utterance(&mut self, out: &mut Vec<SpeechEvent>) {
        if let Some(pipeline) = self.recording_pipeline() {
            pipeline.finish_segment_with_rest(true, out);
            pipeline.voice_activity.reset();
        }
    }

    /// The pipeline during an utterance that voice activity found.
    fn recording_pipeline(&mut self) -> Option<&mut Pipeline> {
        let pipeline = self.pipeline.as_deref_mut();
        pipeline.filter(|pipeline| pipeline.recording.is_some() && pipeline.manual_max_samples.is_none())
    }

    /// Length of audio listened to so far, ms.
    pub(crate) fn listened_ms(&self) -> u64 {
        self.pipeline.as_ref().map_or(0, |pipeline| pipeline.listened_ms())
    }

    /// Audio of the current segment so far; `None` outside of utterances, and for a client that commits its audio.
    pub(crate) fn current_recording(&self) -> Option<&[i16]> {
        self.pipeline
            .as_ref()
            .filter(|pipeline| pipeline.manual_max_samples.is_none())?
            .recording
            .as_ref()
            .map(|recording| recording.audio.as_slice())
    }

    /// Drops the current recording, because the session ends.
    pub(crate) fn stop(&mut self) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.silent_samples +=
                pipeline.recording.take().map_or(0, |recording| recording.audio.len() as u64);
        }
    }

    /// Counts of all samples by destination.
    pub(crate) fn sample_counts(&self) -> SampleCounts {
        self.pipeline.as_ref().map_or_else(SampleCounts::default, |pipeline| SampleCounts {
            received: pipeline.earlier_received_groups + pipeline.converter.input_samples(),
            muted: pipeline.earlier_muted_groups + pipeline.converter.skipped_samples(),
            recorded: pipeline.recorded_samples,
            silent: pipeline.silent_samples,
            pending: (pipeline.resampled.len() + pipeline.pre_roll.len()) as u64
                + pipeline.converter.held_samples()
                + pipeline.recording.as_ref().map_or(0, |recording| recording.audio.len() as u64),
            streamed: pipeline.streamed_samples,
            lead_in: pipeline.lead_in_samples(),
        })
    }

    fn pipeline_mut(&mut self) -> Option<&mut Pipeline> {
        if self.pipeline.is_none() {
            // `apply_settings` has checked the format, so this cannot fail.
            let converter = self.input_use.converter(&self.settings).ok()?;
            self.pipeline =
                Some(Box::new(Pipeline::new(converter, &self.rules, &self.settings, self.input_use)));
        }
        self.pipeline.as_deref_mut()
    }
}

#[cfg(test)]
mod tests;
