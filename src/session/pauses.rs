//! Pauses in the user's speech: a model judges whether the turn is over, and the assistant may ask for the answer early.
//!
//! [`SpeechInput`](super::input::speech_input) finds the pauses and ends the turns; the driver runs the model.

use std::{sync::Arc, time::Instant};

use super::{
    Session, SessionPhase,
    effects::Effects,
    input::speech_input::{SpeechEvent, pause::TurnDecision},
    measurement::Measurement,
    outbox::Action,
};
use crate::vocabulary::PauseId;

impl Session {
    /// Handles the begin, the end or the judgement of a pause.
    pub(super) fn handle_pause(&mut self, now: Instant, event: &SpeechEvent) {
        match event {
            SpeechEvent::Paused { pause, audio, is_judged } => {
                if *is_judged {
                    self.tools.out.push(Action::JudgeTurn(*pause, Arc::clone(audio)));
                }
                if let Some(assistant) = &mut self.assistant {
                    assistant.consider_early(now, (*pause, audio), &mut self.tools);
                }
            }
            SpeechEvent::EndLikely(probability) => {
                let speech_input = &self.intake.speech_input;
                if let Some(audio) = speech_input.current_recording() {
                    let end_ms = speech_input.listened_ms();
                    let settings = &self.tools.settings;
                    self.transcriber.want_pause_transcript(audio, end_ms, *probability, settings);
                }
            }
            SpeechEvent::Resumed => {
                self.transcriber.resume_turn(&mut self.tools.out);
                // The next pause may need a worker again.
                if let Some(assistant) = &mut self.assistant {
                    assistant.replace_early(now, &mut self.tools);
                }
            }
            SpeechEvent::Decided(decision) => {
                if matches!(decision, TurnDecision::Void | TurnDecision::Late) {
                    self.tools.out.push(Action::WithdrawJudgement);
                }
                self.tools.out.measure(Measurement::TurnDecided(*decision));
            }
            _ => {}
        }
    }

    /// Withdraws a question that was asked early. Returns true if there was one.
    pub(super) fn withdraw_early(&mut self, now: Instant) -> bool {
        self.assistant.as_mut().is_some_and(|assistant| assistant.withdraw_early(now, &mut self.tools.lanes))
    }

    /// Takes the model's verdict on a pause: the probability that the user has finished, or `None` if there is none.
    pub(crate) fn handle_verdict(&mut self, now: Instant, pause: PauseId, probability: Option<f32>) {
        if self.phase == SessionPhase::Open {
            self.intake.speech_input.judge_pause(pause, probability, &mut self.intake.speech_events);
            self.process_speech_events(now);
            self.follow(now, Effects::ALL);
        }
    }

    /// A worker is free in this pause, and no one waits for it.
    pub(crate) fn handle_free_worker(&mut self, now: Instant, pause: PauseId) {
        if let Some(assistant) = &mut self.assistant
            && self.phase == SessionPhase::Open
        {
            assistant.ask_early(now, pause, &mut self.tools);
            self.follow(now, Effects::ALL);
        }
    }
}
