//! Handles the calls of tools in an answer, once the model has answered.

use std::time::Instant;

use super::Answer;
use crate::{
    error::{Error, ErrorKind},
    session::{
        assistant::{calling::Outcome, spoken_words::SpokenWords},
        dialogue::turn::AssistantTurn,
        outbox::Observation,
        pace::Pace,
        tools::Tools,
    },
    vocabulary::{ToolCall, heard_words},
};

impl Answer {
    /// Decides about calls of tools. Returns false if the model is asked once more, or the answer has failed.
    pub(super) fn conclude_calls(&mut self, now: Instant, tools: &mut Tools) -> bool {
        let Some(calling) = &mut self.calling else { return true };
        let words = calling.finish();
        self.say(&words, tools);
        let has_words = !self.words_of_question().trim().is_empty()
            || self.spoken.as_ref().is_some_and(SpokenWords::has_words);
        let Some(calling) = &mut self.calling else { return true };
        if calling.has_dropped_audio() {
            self.heard_bytes = Some(heard_bytes(&self.turn));
        }
        let Some(calling) = &mut self.calling else { return true };
        let outcome = calling.conclude(has_words);
        self.cut_unheard_words(&outcome);
        let Some(calling) = &mut self.calling else { return true };
        match outcome {
            Outcome::Calls { calls, words, is_unchecked } => {
                if is_unchecked {
                    let note = "the arguments of a call were passed on unchecked: the check against the client's schema \
                                would take too long";
                    tools.floor.out.observe(Observation::Note(note.to_owned()));
                }
                let audio = if calls.is_empty() { calling.release_all_audio() } else { Vec::new() };
                self.say(&words, tools);
                self.play(now, &audio, tools);
                for call in calls {
                    let entry_id = tools.segment_ids.next_id();
                    let call_id = format!("call_{:08x}{entry_id:08x}", tools.lanes.rng().u32(..));
                    let call = ToolCall { call_id, name: call.name, arguments: call.arguments };
                    self.turn.calls.push((entry_id, call));
                }
                return true;
            }
            Outcome::AskAgain(mistake) => {
                tools.lanes.finish(now, &mut self.ask);
                self.prepare_second_question();
                tools.floor.out.observe(Observation::ModelMistake(mistake));
                let note = "the model's call of a tool could not be used".to_owned();
                tools.floor.out.observe(Observation::AskedAgain(note));
            }
            Outcome::Failed(mistake) => {
                tools.lanes.finish(now, &mut self.ask);
                let detail = "the model's call of a tool could not be used, twice";
                let error = Error {
                    segment_id: Some(self.turn.segment_id),
                    ..Error::new(ErrorKind::AnswerFailed, detail)
                };
                tools.floor.out.push_quoting_error(error, &mistake);
                tools.floor.out.observe(Observation::ModelMistake(mistake));
                self.end_failed(now, tools);
            }
        }
        false
    }

    /// Prepares for another answer of the model, after a mistake in its calls.
    fn prepare_second_question(&mut self) {
        self.filter.clear();
        let Some(calling) = &mut self.calling else { return };
        if calling.ask_silently() && self.speaks {
            self.spoken.get_or_insert_with(|| SpokenWords::new(self.speak_attempts));
        }
        if let Some(spoken) = self.spoken.as_mut().filter(|_| calling.had_words) {
            // The second answer's words come all at once. Until then, its lane may need the only worker.
            spoken.finish();
        }
    }

    /// Cuts the words before a call to those that are heard, if the rest of their audio was dropped with the call's. If further
    /// words follow or may follow, the words that the client already has are kept.
    fn cut_unheard_words(&mut self, outcome: &Outcome) {
        let kept_bytes = match outcome {
            Outcome::Calls { words, .. } if !words.trim().is_empty() => return,
            Outcome::AskAgain(_) => self.turn.reported_bytes,
            Outcome::Calls { .. } | Outcome::Failed(_) => 0,
        };
        if let Some(heard_bytes) = self.heard_bytes {
            self.turn.text.truncate(heard_bytes.max(kept_bytes));
        }
    }
}

/// Estimated length of the words whose audio was made, at the usual pace.
fn heard_bytes(turn: &AssistantTurn) -> usize {
    let made_ms = turn.audio_ms();
    let expected_ms = Pace::USUAL.length_ms(&turn.text).max(made_ms);
    heard_words(&turn.text, made_ms, expected_ms).len()
}
