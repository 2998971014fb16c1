//! Microphone: the way of the client's audio to the speech input, the conversation and the transcriber.

use std::time::{Duration, Instant};

use super::{
    Session,
    floor::{Floor, SpeechSource},
    input::{
        rate_limiter::{RateDecision, RateLimiter},
        speech_input::{SpeechEvent, SpeechInput, StreamedAudio},
    },
    measurement::{AudioTotals, BargeInStage, Measurement},
    tools::Tools,
};
use crate::audio::scratch;
use crate::event::{ClientCommand, MicrophoneMode};

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

impl Session {
    /// Handles a frame of audio. Returns true if it starts or ends an utterance, or interrupts.
    pub(super) fn handle_audio(&mut self, now: Instant, bytes: &[u8]) -> bool {
        self.activity.idle_since = now;
        self.activity.silence_since = now;
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.user.client_audio_at = Some(now);
        }
        let groups = self.intake.speech_input.converter.completed_groups(bytes.len()) as u64;
        let length = Duration::from_secs_f64(
            groups as f64 / f64::from(self.intake.speech_input.settings.rate_hz.max(1)),
        );
        self.intake.audio_totals.received += length;
        self.activity.last_frame_length = length;
        if groups > 0 {
            match self.intake.rate_limiter.check_frame(now, length) {
                RateDecision::Accept => {}
                RateDecision::AcceptAndWarn(delay_ms) => {
                    self.tools.out.push_client(ClientCommand::RateLimited { delay_ms });
                }
                RateDecision::Drop => {
                    self.intake.speech_input.converter.discard(bytes);
                    self.intake.dropped_groups += groups;
                    self.intake.audio_totals.dropped_too_fast += length;
                    self.report_dropped(now);
                    return false;
                }
            }
        }
        let is_muted = self.tools.floor.is_audible() && self.settings.microphone == MicrophoneMode::Muted;
        let mut has_speech = false;
        if is_muted {
            self.intake.audio_totals.muted += length;
            self.intake.speech_input.mute_frame(bytes, &mut self.intake.speech_events);
        } else {
            has_speech = self.intake.speech_input.push_frame(bytes, &mut self.intake.speech_events);
            // The dialogue does not wait for audio that the model gets as silence.
            let is_silenced = is_uplink_silenced(&self.tools.floor);
            if let Some(dialogue) = self.dialogue.as_mut().filter(|_| !is_silenced) {
                dialogue.user.last_mic_frame = Some((now, length));
            }
        }
        if has_speech {
            if let Some(dialogue) = &mut self.dialogue {
                dialogue.user.voice_at = Some(now);
            }
            self.tools.floor.note_user_speech(now);
        }
        if self.intake.speech_events.is_empty() {
            self.forward_to_dialogue();
            return false;
        }
        self.process_speech_events(now);
        true
    }

    /// Passes microphone audio to the conversation.
    fn forward_to_dialogue(&mut self) {
        let Some(dialogue) = &mut self.dialogue else { return };
        let StreamedAudio { mut audio, start } = std::mem::take(&mut self.intake.speech_input.stream);
        if !audio.is_empty() {
            dialogue.uplink.push(&mut audio[start..], is_uplink_silenced(&self.tools.floor));
            scratch::put_back(audio);
        }
    }

    /// Passes audio to the conversation and speech events to the transcriber. Returns true if an utterance was completed.
    pub(super) fn process_speech_events(&mut self, now: Instant) -> bool {
        self.forward_to_dialogue();
        let mut events = std::mem::take(&mut self.intake.speech_events);
        let mut has_completed = false;
        for event in events.drain(..) {
            match &event {
                SpeechEvent::InterruptionSuspected => self.tools.floor.pause(now),
                SpeechEvent::SuspicionDismissed => self.tools.floor.resume(now, &mut self.tools.out),
                SpeechEvent::Interrupted => self.handle_barge_in(now),
                SpeechEvent::Started { .. } | SpeechEvent::Segment(_) => {}
            }
            self.track_utterance_end(&event);
            let audio = match &event {
                SpeechEvent::Segment(segment) => Some(segment.audio.clone()),
                SpeechEvent::Started { .. } => {
                    self.prepare_answer(now);
                    None
                }
                _ => None,
            };
            let completed = self.transcriber.handle_speech_event(now, event, &mut self.tools);
            self.pass_on_words();
            if let Some((segment_id, audio)) = completed.zip(audio) {
                has_completed = true;
                self.handle_committed(now, segment_id, audio);
            }
        }
        self.intake.speech_events = events;
        has_completed
    }

    /// Has the assistant dial for the utterance that begins.
    fn prepare_answer(&mut self, now: Instant) {
        if let Some(assistant) = &mut self.assistant {
            let Tools { lanes, floor, out, .. } = &mut self.tools;
            assistant.prepare(now, floor, lanes, out);
        }
    }

    /// Handles a barge-in: the user speaks during playback. The client has been notified of the speech before.
    fn handle_barge_in(&mut self, now: Instant) {
        self.transcriber.report_speech_edges(now, &mut self.tools.timers, &mut self.tools.out);
        self.pass_on_words();
        let after = self.intake.speech_input.speech_length();
        self.tools.out.measure(Measurement::BargeIn { stage: BargeInStage::Noticed, after });
        let is_floor_taken = self.is_floor_taken();
        if let Some(dialogue) = self.dialogue.as_mut().filter(|_| is_floor_taken) {
            dialogue.restore_held();
        }
        self.stop_speech(now);
    }

    /// Watches for barge-ins while something is playing and the microphone is open.
    pub(super) fn update_barge_in_watch(&mut self) {
        let Some(rules) = self.setup.profile.barge_in() else { return };
        let interrupts =
            self.assistant.as_ref().is_none_or(|assistant| assistant.settings.detection.interrupts);
        let is_speaking = self.dialogue.as_ref().is_some_and(|dialogue| dialogue.is_speaking())
            || self.assistant.as_ref().is_some_and(|assistant| assistant.is_busy())
            || self.tools.floor.is_audible();
        let is_mic_open = self.settings.microphone == MicrophoneMode::Open;
        self.intake
            .speech_input
            .watch_barge_in(Some(rules).filter(|_| is_speaking && is_mic_open && interrupts));
    }
}

/// True while the model hears silence: the client plays a text that it asked for.
fn is_uplink_silenced(floor: &Floor) -> bool {
    floor.is_audible() && floor.is_busy_with(SpeechSource::Text)
}
