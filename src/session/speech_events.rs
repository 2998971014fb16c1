//! The client's audio, and what the speech input finds in it: utterances, pauses and barge-ins.
//!
//! [`SpeechInput`](super::input::speech_input) finds pauses and ends turns. A model judges whether a turn is over, which the
//! driver runs; and the assistant may ask for the answer early.

use std::{sync::Arc, time::Instant};

use super::{
    floor::{Floor, SpeechSource},
    input::speech_input::{SpeechEvent, StreamedAudio, pause::TurnDecision},
    measurement::{BargeInStage, Measurement},
    microphone::TakenFrame,
    outbox::{Action, recorded::RecordedItem},
    owners::Owners,
    tools::Tools,
};
use crate::{
    audio::{SPEECH_RATE_HZ, scratch},
    vocabulary::{
        AnswerRequest, ClientEvent, EndCause, Entry, EntryId, EntryPart, EntryPlace, MicrophoneMode, Role,
    },
};

impl Owners {
    /// Handles a frame of audio.
    pub(super) fn handle_audio(&mut self, now: Instant, bytes: &[u8]) -> TakenFrame {
        let Tools { settings, floor, .. } = &mut self.tools;
        let is_muted = floor.is_audible() && settings.microphone == MicrophoneMode::Muted;
        if let Some(echo) = &mut self.intake.speech_input.echo {
            echo.begin_frame(now, floor.take_playback());
        }
        let frame = self.intake.take_frame(now, bytes, is_muted, &mut floor.out);
        if !frame.is_dropped {
            floor.out.record_audio(|| RecordedItem::UserAudio(self.intake.user_audio(bytes)));
        }
        if let Some(dialogue) = &mut self.dialogue {
            // The dialogue does not wait for audio that the model gets as silence.
            let is_heard = !is_muted && !is_uplink_silenced(floor);
            dialogue.user.note_frame(now, frame, is_heard);
        }
        if frame.is_dropped {
            self.report_dropped(now);
            return frame;
        }
        if frame.has_speech {
            floor.note_user_speech(now);
        }
        if frame.is_decisive {
            self.process_speech_events(now);
        } else {
            self.forward_to_dialogue();
        }
        frame
    }

    /// Passes microphone audio to the conversation.
    fn forward_to_dialogue(&mut self) {
        let Some(dialogue) = &mut self.dialogue else { return };
        let StreamedAudio { mut audio, start } = std::mem::take(&mut self.intake.speech_input.stream);
        if !audio.is_empty() {
            let is_silenced = is_uplink_silenced(&self.tools.floor) || dialogue.is_paused();
            dialogue.uplink.push(&mut audio[start..], is_silenced);
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
                SpeechEvent::SuspicionDismissed => self.tools.floor.resume(now),
                SpeechEvent::Interrupted => self.handle_barge_in(now),
                SpeechEvent::Paused { .. }
                | SpeechEvent::Resumed
                | SpeechEvent::EndLikely(_)
                | SpeechEvent::Decided(_) => self.handle_pause(now, &event),
                SpeechEvent::Started { .. } | SpeechEvent::Segment(_) => {}
            }
            self.intake.track_utterance_end(&event);
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
            assistant.withdraw_early(now, &mut self.tools.lanes);
            assistant.prepare(now, &mut self.tools);
        }
    }

    /// Handles a barge-in: the user speaks during playback. The client has been notified of the speech before.
    fn handle_barge_in(&mut self, now: Instant) {
        self.transcriber.report_speech_edges(now, &mut self.tools);
        self.pass_on_words();
        let after = self.intake.speech_input.speech_length();
        self.tools.floor.out.measure(Measurement::BargeIn { stage: BargeInStage::Noticed, after });
        let is_floor_taken = self.is_floor_taken();
        if let Some(dialogue) = self.dialogue.as_mut().filter(|_| is_floor_taken) {
            dialogue.restore_held();
        }
        self.stop_speech(now);
    }

    /// Watches for barge-ins while something is playing and the microphone is open.
    pub(super) fn update_barge_in_watch(&mut self) {
        let Some(rules) = self.setup.profile.barge_in() else { return };
        let settings = &self.tools.settings;
        let interrupts = self.assistant.is_none() || settings.turn_detection.interrupts;
        let is_speaking = self.dialogue.as_ref().is_some_and(|dialogue| dialogue.is_speaking())
            || self.assistant.as_ref().is_some_and(|assistant| assistant.is_busy())
            || self.tools.floor.is_audible();
        let is_mic_open = settings.microphone == MicrophoneMode::Open;
        self.intake
            .speech_input
            .watch_barge_in(Some(rules).filter(|_| is_speaking && is_mic_open && interrupts));
    }

    /// Handles the begin, the end or the judgement of a pause.
    fn handle_pause(&mut self, now: Instant, event: &SpeechEvent) {
        match event {
            SpeechEvent::Paused { pause, audio, is_judged } => {
                if *is_judged {
                    self.tools.floor.out.push(Action::JudgeTurn(*pause, Arc::clone(audio)));
                }
                if let Some(assistant) = &mut self.assistant {
                    assistant.consider_early(now, *pause, audio, &mut self.tools);
                }
            }
            SpeechEvent::EndLikely(probability) => {
                if let Some(utterance) = self.intake.speech_input.utterance_so_far() {
                    let settings = &self.tools.settings;
                    self.transcriber.want_pause_transcript(utterance, *probability, settings);
                }
            }
            SpeechEvent::Resumed => {
                self.tools.floor.out.push_if_any(self.transcriber.resume_turn());
                // The next pause may need a worker again.
                if let Some(assistant) = &mut self.assistant {
                    assistant.replace_early(now, &mut self.tools);
                }
            }
            SpeechEvent::Decided(decision) => {
                if matches!(decision, TurnDecision::Void | TurnDecision::Late) {
                    self.tools.floor.out.push(Action::WithdrawJudgement);
                }
                self.tools.floor.out.measure(Measurement::TurnDecided(*decision));
            }
            _ => {}
        }
    }

    /// Passes an utterance on to the assistant once its audio is complete.
    fn handle_committed(&mut self, now: Instant, segment_id: u32, audio: Arc<Vec<i16>>) {
        let audio_ms = audio.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        let is_transcribed = self.transcriber.wants_transcript && !audio.is_empty();
        self.tools.floor.out.push_client(ClientEvent::AudioCommitted {
            segment_id,
            audio_ms,
            is_transcribed,
            silence_ms: None,
        });
        let Some(assistant) = &mut self.assistant else { return };
        let id = EntryId(segment_id);
        let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Audio(audio)] };
        assistant.entries.add(entry, EntryPlace::End);
        if self.tools.settings.turn_detection.answers {
            assistant.request(now, AnswerRequest::default(), &mut self.tools);
        } else {
            assistant.withdraw_early(now, &mut self.tools.lanes);
        }
    }

    /// Ends the utterance in progress: its audio is complete.
    pub(super) fn end_utterance(&mut self, now: Instant, cause: EndCause) {
        self.intake.speech_input.end_utterance(cause, &mut self.intake.speech_events);
        self.process_speech_events(now);
    }

    /// Completes the audio so far of the utterance in progress. Returns true if there was some.
    pub(super) fn commit_segment(&mut self, now: Instant) -> bool {
        self.intake.speech_input.commit_segment(&mut self.intake.speech_events);
        self.process_speech_events(now)
    }

    /// Drops the utterance in progress from the transcripts.
    pub(super) fn abandon_recording(&mut self, now: Instant) {
        let at_ms = self.intake.speech_input.listened_ms();
        self.transcriber.abandon_recording(now, at_ms, &mut self.tools);
        self.pass_on_words();
    }
}

/// True while the model hears silence: the client plays a text that it asked for.
fn is_uplink_silenced(floor: &Floor) -> bool {
    floor.is_audible() && floor.is_busy_with(SpeechSource::Text)
}
