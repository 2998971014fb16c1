//! Pipeline of the speech input: from the client's frames to voice activity, hop by hop.

use std::sync::Arc;

use super::{
    InputSettings, SAMPLES_PER_MS, SpeechEvent, SpeechInput, SpeechSegment, StreamedAudio,
    recording::Recording,
};
use crate::{
    audio::{
        input_converter::InputConverter,
        scratch,
        vad::{Edge, HOP_SAMPLES, Sensitivity, VadConfig, coarse_gate::CoarseGate},
    },
    spelling::profile::ListenRules,
};

impl SpeechInput {
    /// Processes a frame of the client. Returns true if the detector found speech. In silence, audio as quiet as the room is held
    /// unconverted: the gate would reject it anyway, and only the newest of it can become the pre-roll of an utterance.
    pub(crate) fn push_frame(&mut self, bytes: &[u8], out: &mut Vec<SpeechEvent>) -> bool {
        self.muted = false;
        if self.may_hold()
            && self.converter.can_hold(bytes)
            && self.coarse_gate.is_quiet(bytes, self.voice_activity.gate_dbfs())
        {
            if self.converter.hold(bytes, self.held_max_groups) {
                // The pre-roll ends at the gap and cannot be continued.
                self.discard_pre_roll();
            }
        } else {
            if self.converter.is_holding() {
                self.release_held(out);
            }
            let mut audio = self.copy_rest();
            self.converter.push(bytes, &mut audio);
            if let Some(echo) = &mut self.echo {
                echo.cancel(&mut audio, self.resampled.len());
            }
            self.process_audio(audio, out);
        }
        std::mem::take(&mut self.speech_flag)
    }

    /// True if silent audio serves nothing but the next utterance's pre-roll.
    fn may_hold(&self) -> bool {
        !self.input_use.streams_audio
            && self.manual_max_samples.is_none()
            && self.recording.is_none()
            && self.barge_in_watch.is_none()
            && self.echo.is_none()
            && self.voice_activity.is_silent()
    }

    /// Converts and processes the held audio.
    fn release_held(&mut self, out: &mut Vec<SpeechEvent>) {
        let mut audio = self.copy_rest();
        let before = audio.len();
        let skipped = self.converter.release(&mut audio);
        if skipped > 0 {
            // The hops lie where they would have lain without the gap.
            let rest = (before + skipped as usize).next_multiple_of(HOP_SAMPLES) - skipped as usize;
            let rest = rest.min(audio.len());
            audio.drain(..rest);
            let silent = rest as u64 + skipped;
            self.silent_samples += silent;
            self.count_listened(silent);
            self.voice_activity.skip_silence((silent / HOP_SAMPLES as u64) as u32);
        }
        self.process_audio(audio, out);
    }

    /// Copies the resampled audio of the incomplete hop, to add more to it.
    fn copy_rest(&self) -> Vec<i16> {
        let mut audio = scratch::take();
        audio.clear();
        audio.extend_from_slice(&self.resampled);
        audio
    }

    /// Processes every complete hop and keeps the rest. The audio that was added to the rest before goes to the conversation.
    fn process_audio(&mut self, audio: Vec<i16>, out: &mut Vec<SpeechEvent>) {
        let lead_in = self.converter.take_lead_in();
        self.lead_in_samples += lead_in;
        self.unprocessed_lead_in += lead_in;
        let added = self.resampled.len();
        let hops = audio.chunks_exact(HOP_SAMPLES);
        self.resampled.clear();
        self.resampled.extend_from_slice(hops.remainder());
        for hop in hops {
            self.process_hop(hop, out);
        }
        match self.input_use.streams_audio {
            true => self.stream_audio(audio, added),
            false => scratch::put_back(audio),
        }
    }

    /// Keeps the audio from `start` on for the conversation.
    fn stream_audio(&mut self, audio: Vec<i16>, start: usize) {
        self.streamed_samples += (audio.len() - start) as u64;
        if self.stream.audio.is_empty() && audio.len() > start {
            self.stream = StreamedAudio { audio, start };
        } else {
            self.stream.audio.extend_from_slice(&audio[start..]);
            scratch::put_back(audio);
        }
    }

    fn process_hop(&mut self, hop: &[i16], out: &mut Vec<SpeechEvent>) {
        self.count_listened(hop.len() as u64);
        let result = self.voice_activity.push_hop(hop);
        self.speech_flag |= result.is_speech;
        let in_utterance = self.voice_activity.is_in_speech();
        let is_silent = !result.is_speech && !in_utterance;
        self.speech_samples = if is_silent { 0 } else { self.speech_samples + hop.len() as u64 };
        if let Some(max_samples) = self.manual_max_samples {
            return self.record_manually(hop, result.is_speech, max_samples, out);
        }
        match &mut self.recording {
            Some(recording) => {
                if result.is_speech {
                    recording.note_speech(hop.len(), self.listened_samples);
                }
                if self.input_use.records_utterances {
                    recording.audio.extend_from_slice(hop);
                } else {
                    self.silent_samples += hop.len() as u64;
                }
            }
            None if self.input_use.records_utterances => self.silent_samples += self.pre_roll.push(hop),
            None => self.silent_samples += hop.len() as u64,
        }
        match result.edge {
            None => {}
            Some(Edge::Start) => {
                let (audio, older) = self.pre_roll.take();
                self.silent_samples += older;
                let onset = self.voice_activity.onset_samples().min(audio.len() as u64);
                let from = self.listened_samples.saturating_sub(onset);
                let speech = Some((from, self.listened_samples));
                self.recording = Some(Recording { audio, has_speech: true, speech });
                out.push(SpeechEvent::Started { at_ms: self.listened_ms(), from_ms: from / SAMPLES_PER_MS });
            }
            Some(Edge::End) => self.finish_segment(true, out),
            Some(Edge::Limit) => {
                self.finish_segment(true, out);
                note_cut(result.is_speech, out);
            }
            Some(Edge::Cut { hops, in_speech }) => {
                self.cut_recording(hops as usize * hop.len(), in_speech, out);
            }
        }
        self.track_pause(out);
        // An interruption follows the start of its utterance.
        let watch = self.barge_in_watch.as_mut();
        out.extend(watch.and_then(|watch| watch.push(result.is_speech, in_utterance)));
    }

    /// Records audio that the client commits later. Silence before the first speech is dropped, except for the pre-roll.
    fn record_manually(
        &mut self,
        hop: &[i16],
        is_speech: bool,
        max_samples: usize,
        out: &mut Vec<SpeechEvent>,
    ) {
        let recording = self.recording.get_or_insert_default();
        let is_full = recording.audio.len() + hop.len() > max_samples;
        if is_full && recording.has_speech {
            self.finish_manual(out);
        }
        let recording = self.recording.get_or_insert_default();
        let starts = is_speech && !recording.has_speech;
        if starts || (is_full && !recording.has_speech) {
            let kept = if starts { self.pre_roll.max_samples } else { max_samples / 2 };
            let dropped = recording.audio.len().saturating_sub(kept);
            recording.audio.drain(..dropped);
            self.silent_samples += dropped as u64;
        }
        if is_speech {
            recording.note_speech(hop.len(), self.listened_samples);
        }
        recording.audio.extend_from_slice(hop);
    }

    /// Completes the recording of a client that commits its audio: one utterance, whatever the detector found.
    pub(super) fn finish_manual(&mut self, out: &mut Vec<SpeechEvent>) {
        if let Some(recording) = &mut self.recording {
            recording.has_speech = true;
            let length_ms = recording.audio.len() as u64 / SAMPLES_PER_MS;
            let (from_ms, _) = recording.speech_ms(self.listened_samples);
            out.push(SpeechEvent::Started { at_ms: self.listened_ms().saturating_sub(length_ms), from_ms });
            self.finish_segment(true, out);
        }
    }

    /// Applies another format of the client's audio.
    pub(super) fn replace_converter(&mut self, converter: InputConverter, out: &mut Vec<SpeechEvent>) {
        self.flush_resampler(out);
        self.earlier_received_groups += self.converter.input_samples();
        self.earlier_muted_groups += self.converter.skipped_samples();
        self.converter = converter;
        self.coarse_gate = CoarseGate::new(self.settings.rate_hz);
        self.held_max_groups = held_max_groups(&self.rules, &self.settings);
    }

    /// Discards the audio before the next utterance.
    pub(super) fn discard_pre_roll(&mut self) {
        let (newest, older) = self.pre_roll.take();
        self.silent_samples += newest.len() as u64 + older;
    }

    /// Discards the current recording.
    pub(super) fn discard_recording(&mut self, out: &mut Vec<SpeechEvent>) {
        self.silent_samples += self.recording.take().map_or(0, |recording| recording.audio.len() as u64);
        self.voice_activity.reset();
        self.pause_watch.forget(out);
    }

    /// Ends the utterance before its newest samples, which begin the next one.
    fn cut_recording(&mut self, samples: usize, in_speech: bool, out: &mut Vec<SpeechEvent>) {
        let Some(recording) = &mut self.recording else { return };
        let rest = recording.split_off(samples, self.listened_samples);
        self.finish_segment_before(samples as u64, true, out);
        note_cut(in_speech && rest.has_speech, out);
        let from = self.listened_samples.saturating_sub(samples as u64);
        self.recording = Some(rest);
        out.push(SpeechEvent::Started { at_ms: self.listened_ms(), from_ms: from / SAMPLES_PER_MS });
    }

    pub(super) fn finish_segment(&mut self, ends_utterance: bool, out: &mut Vec<SpeechEvent>) {
        self.finish_segment_before(0, ends_utterance, out);
    }

    /// Completes the segment that ends before the newest samples.
    fn finish_segment_before(&mut self, newest: u64, ends_utterance: bool, out: &mut Vec<SpeechEvent>) {
        let Some(recording) = self.recording.take() else { return };
        self.recorded_samples += recording.audio.len() as u64;
        let speech_ms = recording.speech_ms(self.listened_samples.saturating_sub(newest));
        out.push(SpeechEvent::Segment(SpeechSegment {
            audio: Arc::new(recording.audio),
            has_speech: recording.has_speech,
            speech_ms,
            verdict: self.pause_watch.take_verdict(),
            ends_utterance,
            is_cut_in_speech: false,
            end_ms: self.listened_ms().saturating_sub(newest / SAMPLES_PER_MS),
        }));
    }

    /// Completes the current segment with all audio received, to the last sample.
    pub(super) fn finish_segment_with_rest(&mut self, ends_utterance: bool, out: &mut Vec<SpeechEvent>) {
        self.flush_resampler(out);
        let Some(recording) = &mut self.recording else { return };
        // The rest is shorter than a hop, so the detector cannot classify it. It belongs to the utterance.
        if self.input_use.records_utterances {
            recording.audio.extend_from_slice(&self.resampled);
        } else {
            self.silent_samples += self.resampled.len() as u64;
        }
        self.count_listened(self.resampled.len() as u64);
        self.resampled.clear();
        self.finish_segment(ends_utterance, out);
    }

    /// Processes the audio that the resampler still holds.
    pub(super) fn flush_resampler(&mut self, out: &mut Vec<SpeechEvent>) {
        if self.converter.is_holding() {
            self.release_held(out);
        }
        let mut audio = self.copy_rest();
        self.converter.flush(&mut audio);
        if let Some(echo) = &mut self.echo {
            echo.cancel(&mut audio, self.resampled.len());
            echo.flush(&mut audio);
        }
        self.process_audio(audio, out);
    }

    /// Counts processed samples of the client. Sound comes out of the converter later by the lead-in, which is no part of it.
    pub(super) fn count_listened(&mut self, samples: u64) {
        let lead_in = self.unprocessed_lead_in.min(samples);
        self.unprocessed_lead_in -= lead_in;
        self.listened_samples += samples - lead_in;
    }
}

/// Notes on the segment that was just completed whether it was cut in speech.
fn note_cut(in_speech: bool, out: &mut [SpeechEvent]) {
    if let Some(SpeechEvent::Segment(segment)) = out.last_mut() {
        segment.is_cut_in_speech = in_speech;
    }
}

/// Shortest audio that is held, ms. From it the gate learns the room's noise anew after a gap.
const HELD_MIN_MS: u32 = 500;

/// Longest audio to hold, sample groups: an utterance needs its pre-roll before the sound that starts it.
pub(super) fn held_max_groups(rules: &ListenRules, settings: &InputSettings) -> usize {
    (u64::from(rules.pre_roll_ms.max(HELD_MIN_MS)) * u64::from(settings.rate_hz) / 1000) as usize
}

/// Upper bound of a hop's length, ms: an utterance reaches its limit at the end of a hop.
const HOP_MAX_MS: u32 = 20;

/// Settings of the voice detector. The segment limit includes pre-roll and last hop, so that no request exceeds it.
pub(super) fn vad_config(rules: &ListenRules, settings: &InputSettings) -> VadConfig {
    let preset = match settings.sensitivity {
        Sensitivity::High => rules.sensitivity.high,
        Sensitivity::Normal => rules.sensitivity.normal,
        Sensitivity::Low => rules.sensitivity.low,
    };
    let max_ms = settings
        .segment_max_ms
        .saturating_sub(rules.pre_roll_ms.saturating_add(HOP_MAX_MS))
        .max(rules.start_ms);
    let (cut_after_ms, cut_max_ms) = cut_times(settings, max_ms);
    VadConfig {
        threshold: preset.threshold,
        gate_dbfs: preset.gate_dbfs,
        start_ms: rules.start_ms,
        end_ms: settings.end_silence_ms,
        max_ms,
        cut_after_ms,
        cut_pause_ms: settings.cut_pause_ms,
        cut_max_ms,
    }
}

/// From when on an utterance is cut at a short pause, and when it is cut at its quietest place. Where utterances must be shorter
/// than that, both are earlier in proportion.
fn cut_times(settings: &InputSettings, max_ms: u32) -> (u32, u32) {
    let InputSettings { cut_after_ms, cut_max_ms, .. } = *settings;
    if cut_max_ms == u32::MAX || cut_max_ms <= max_ms {
        return (cut_after_ms, cut_max_ms);
    }
    let after_ms = u64::from(cut_after_ms) * u64::from(max_ms) / u64::from(cut_max_ms);
    (u32::try_from(after_ms).unwrap_or(u32::MAX), max_ms)
}
