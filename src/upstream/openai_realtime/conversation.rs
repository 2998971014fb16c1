//! Conversation whose server decides when the user's turn is over: units of audio, the model's answers, and barge-in.
//!
//! - The server answers no unit. A unit ends at once, so that the next one follows by the session's clock.
//! - A server makes audio faster than it is heard. The model's turn therefore ends when its audio has been heard, as far as the
//!   clock can tell, and can be interrupted until then.
//! - A server that has taken the user's turn owes output until the end of its answer. One that owes it for too long is stuck.
//! - A forced `listen` is `response.cancel` if the response goes on, and a truncation to what was heard. Output until its end is
//!   dropped. Only the first of several forced units interrupts: a response after it answers the words of the interruption.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::NOTHING_MORE;
use crate::{
    upstream::{
        behaviour::{CodecAction, EventSink},
        played_answer::PlayedAnswer,
    },
    vocabulary::{EndKind, LaneEvent, MessageMeta, UpstreamEnd},
};

/// Longest time from the end of the user's turn to the first output, and between two outputs of an answer: those of questions
/// (`first_answer_max_ms` and `answer_max_ms` of the profiles).
const FIRST_OUTPUT_MAX: Duration = Duration::from_secs(15);
const NEXT_OUTPUT_MAX: Duration = Duration::from_secs(30);

/// What a forced unit makes of the answer in progress.
#[derive(Debug, Default)]
pub(super) struct Interruption {
    /// The response goes on.
    pub(super) cancels: bool,
    /// The item to cut, and how much of it was heard, ms.
    pub(super) heard: Option<(Box<str>, u64)>,
}

/// State of one conversation.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    answer: Option<PlayedAnswer>,
    /// The answer's item with audio.
    item_id: Option<Box<str>>,
    /// Unit whose cancellation is not confirmed.
    cancelled_by: Option<Box<str>>,
    /// The last unit forced the model to listen.
    was_forced: bool,
    /// Since when the server owes output, and the time for which it did before the user went on.
    owes_since: Option<Instant>,
    owed_before: Duration,
}

impl Conversation {
    /// The server has taken the user's turn.
    pub(super) fn await_answer(&mut self, now: Instant) {
        self.owes_since.get_or_insert(now);
    }

    /// The user speaks, so that no answer is due now. A server that is not stuck ends the response that it had begun.
    pub(super) fn note_user_speaks(&mut self, now: Instant) {
        if let Some(since) = self.owes_since.take() {
            self.owed_before += now - since;
        }
    }

    /// The server has sent output, or the end of a response.
    const fn settle(&mut self) {
        (self.owes_since, self.owed_before) = (None, Duration::ZERO);
    }

    /// Takes output of the model. Returns false for output of a cancelled response.
    pub(super) fn note_output(
        &mut self,
        now: Instant,
        samples: usize,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) -> bool {
        if self.cancelled_by.is_some() {
            return false;
        }
        self.settle();
        self.owes_since = Some(now);
        let id = meta.response_id.unwrap_or_default();
        if self.answer.take_if(|answer| *answer.response_id != *id).is_some() {
            emit(LaneEvent::Listen, MessageMeta::default());
        }
        if self.answer.is_none() {
            self.item_id = None;
        }
        self.answer.get_or_insert_with(|| PlayedAnswer::new(now, id)).push(now, samples);
        if samples > 0 && self.item_id.is_none() {
            self.item_id = meta.item_id.map(Into::into);
        }
        true
    }

    /// The server has ended a response.
    pub(super) fn end_response(&mut self, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        if let Some(unit) = self.cancelled_by.take() {
            let meta = MessageMeta { input_id: Some(&unit), hit_limit: false, ..meta };
            return emit(LaneEvent::Listen, meta);
        }
        self.settle();
        let Some(answer) = &mut self.answer else { return };
        if meta.hit_limit || answer.samples == 0 {
            self.answer = None;
            return emit(LaneEvent::Listen, meta);
        }
        answer.is_complete = true;
        // Its tokens are counted now.
        emit(NOTHING_MORE, meta);
    }

    /// Handles a unit that was sent. Returns what it interrupts.
    pub(super) fn end_unit(
        &mut self,
        now: Instant,
        input_id: &str,
        is_forced: bool,
        actions: &mut VecDeque<CodecAction>,
    ) -> Interruption {
        let was_forced = std::mem::replace(&mut self.was_forced, is_forced);
        if !is_forced || was_forced {
            let end = if is_forced { LaneEvent::Listen } else { NOTHING_MORE };
            actions.push_back(CodecAction::Event(end));
            return Interruption::default();
        }
        let Some(answer) = self.answer.take() else {
            actions.push_back(CodecAction::Event(LaneEvent::Listen));
            return Interruption::default();
        };
        let heard_ms = answer.heard_ms(now);
        self.settle();
        if answer.is_complete {
            actions.push_back(CodecAction::Event(LaneEvent::Listen));
        } else {
            self.cancelled_by = Some(input_id.into());
        }
        Interruption { cancels: !answer.is_complete, heard: self.item_id.take().map(|item| (item, heard_ms)) }
    }

    /// When [`Conversation::handle_timeout`] must run.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.heard_at().into_iter().chain(self.output_due_at()).min()
    }

    /// Ends the model's turn if its answer has been heard by now. Returns the end of a server that is stuck.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        actions: &mut VecDeque<CodecAction>,
    ) -> Option<UpstreamEnd> {
        if self.heard_at().is_some_and(|at| at <= now) {
            self.answer = None;
            actions.push_back(CodecAction::Event(LaneEvent::Listen));
        }
        if self.output_due_at().is_none_or(|at| at > now) {
            return None;
        }
        let waited_s = self.output_wait_max().as_secs();
        self.settle();
        let detail = format!("it took the user's turn, and then sent no output for {waited_s} s");
        Some(UpstreamEnd { kind: EndKind::Other, detail })
    }

    /// When a server that sends nothing counts as stuck.
    fn output_due_at(&self) -> Option<Instant> {
        Some(self.owes_since? + self.output_wait_max().saturating_sub(self.owed_before))
    }

    fn output_wait_max(&self) -> Duration {
        let is_answering = self.answer.as_ref().is_some_and(|answer| !answer.is_complete);
        if is_answering { NEXT_OUTPUT_MAX } else { FIRST_OUTPUT_MAX }
    }

    /// When the answer has been heard.
    fn heard_at(&self) -> Option<Instant> {
        self.answer.as_ref().filter(|answer| answer.is_complete).map(PlayedAnswer::ends_at)
    }
}
