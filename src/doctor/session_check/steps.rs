//! The steps of a check that succeed: a worker, an initialised session, and answers in time.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CheckPhase, Depth, SessionCheck};
use crate::{
    doctor::{
        step::{CheckOutcome, DoctorStep, StepVerdict},
        symptom::{Symptom, format_queue_position},
    },
    vocabulary::{LaneRequest, UnitInput},
};

/// Duration of one unit of a conversation (mappings/notes/minicpm-o-duplex.md#units).
const UNIT_DURATION: Duration = Duration::from_secs(1);

/// Maximum number of units to measure: the first one may be slow because of a warm-up.
const QUESTIONS_MAX: u32 = 3;

impl SessionCheck {
    /// True if the plan checks a conversation, not a chat.
    pub(super) const fn is_conversation(&self) -> bool {
        matches!(self.plan.question, LaneRequest::Append(_))
    }

    pub(super) fn handle_granted(&mut self, now: Instant) {
        self.has_worker = true;
        self.reached = Some(Depth::Queue);
        let note = self
            .queue_position
            .map_or_else(String::new, |(position, length)| format_queue_position(position, length));
        let took = now - self.step_started_at;
        let mut outcome =
            CheckOutcome::completed(DoctorStep::Queue, took, self.plan.limits.queue_usual, note);
        if let (StepVerdict::Slow(symptom), Some((position, length))) =
            (&mut outcome.verdict, self.queue_position)
        {
            *symptom = Symptom::StillQueued { position, length, waited: took };
        }
        self.outcomes.push_back(outcome);
        self.note_capacity();
        if self.plan.depth == Depth::Queue {
            return self.start_closing(now, now);
        }
        self.send(now, self.plan.init.clone());
        (self.phase, self.step_started_at) = (CheckPhase::Initialising, now);
    }

    /// Adds the announced number of sessions to the note of the last step.
    pub(super) fn note_capacity(&mut self) {
        if let (Some(outcome), Some(capacity)) = (self.outcomes.back_mut(), &self.plan.capacity) {
            let separator = if outcome.note.is_empty() { "" } else { "; " };
            outcome.note.push_str(separator);
            outcome.note.push_str(capacity);
        }
    }

    /// The number of sessions that a server announces in its first messages (vLLM-Omni's capabilities).
    pub(super) fn announced_sessions(&self) -> Option<u64> {
        let count = |text: &String| {
            let message: Value = serde_json::from_str(text).ok()?;
            message.pointer("/session/capabilities/max_sessions")?.as_u64()
        };
        self.received.iter().find_map(count)
    }

    pub(super) fn handle_ready(&mut self, now: Instant, note: String) {
        self.reached = Some(Depth::Init);
        self.outcomes.push_back(CheckOutcome::completed(
            DoctorStep::Init,
            now - self.step_started_at,
            self.plan.limits.init_usual,
            note,
        ));
        if self.plan.depth == Depth::Init {
            return self.start_closing(now, now);
        }
        self.send_question(now);
    }

    fn send_question(&mut self, now: Instant) {
        self.questions_sent += 1;
        self.unknown_message = None;
        let mut question = self.plan.question.clone();
        if let LaneRequest::Append(UnitInput { input_id, .. }) = &mut question {
            *input_id = format!("doctor-{}", self.questions_sent).into();
        }
        self.send(now, question);
        (self.phase, self.step_started_at) = (CheckPhase::AwaitingAnswer, now);
    }

    /// The codec ends the silent second, because such a server answers speech alone.
    pub(super) fn handle_unit_end(&mut self, now: Instant) {
        if matches!(self.phase, CheckPhase::AwaitingAnswer) {
            let (took, usual) = (now - self.step_started_at, UNIT_DURATION);
            let note = "one silent second was sent; the server answers speech alone";
            self.reached = Some(Depth::Answer);
            self.outcomes.push_back(CheckOutcome::completed(DoctorStep::Answer, took, usual, note));
            self.start_closing(now, now);
        }
    }

    pub(super) fn handle_answer(&mut self, now: Instant) {
        let took = now - self.step_started_at;
        self.fastest_answer = self.fastest_answer.min(took);
        if self.is_conversation()
            && self.fastest_answer > UNIT_DURATION
            && self.questions_sent < QUESTIONS_MAX
        {
            return self.send_question(now);
        }
        let took = self.fastest_answer;
        let outcome = if !self.is_conversation() {
            CheckOutcome::completed(DoctorStep::Answer, took, self.plan.limits.question_usual, "one question")
        } else if took > UNIT_DURATION {
            CheckOutcome::failed(
                DoctorStep::Answer,
                took,
                Symptom::SlowerThanRealTime { took, unit: UNIT_DURATION },
            )
        } else {
            let ratio = took.as_secs_f64() / UNIT_DURATION.as_secs_f64();
            CheckOutcome::completed(
                DoctorStep::Answer,
                took,
                UNIT_DURATION,
                format!("one silent second, {ratio:.2} times real time"),
            )
        };
        if outcome.failure().is_none() {
            self.reached = Some(Depth::Answer);
        }
        self.outcomes.push_back(outcome);
        self.start_closing(now, now);
    }
}
