//! One unit in flight: which message of the upstream answers it, and how long that took.
//!
//! A model makes one step for each append, and how a step ends depends on the back-end (field notes §1.6, §1.7, §7.11):
//! a `listen`; the audio, on PyTorch, with another `listen` behind it when the turn ends; a `done`, on C++, perhaps
//! behind a `listen` of the same answer. Counting one end twice would send units twice as fast.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{audio::units::UNIT_SAMPLES, event::Mark};

/// What ends a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Listen,
    Audio,
    Done,
}

/// A unit on its way through the model.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) number: u64,
    pub(super) at: Instant,
    pub(super) forced: bool,
    pub(super) audio: Arc<Vec<i16>>,
    /// How many of its samples are the microphone's.
    pub(super) real: usize,
    /// Somebody spoke in it.
    pub(super) busy: bool,
    /// Its text came then.
    text_at: Option<Instant>,
}

/// The steps of one upstream session.
#[derive(Debug, Default)]
pub(super) struct Steps {
    sent: u64,
    answered: u64,
    slow: u64,
    sent_at: Option<Instant>,
    /// When the user's audio was last sent.
    spoken_at: Option<Instant>,
    in_flight: Option<InFlight>,
    /// The answer that ended the last step, and how.
    last: Option<(Box<str>, End)>,
    /// This upstream ends every step with `done`.
    says_done: bool,
}

/// What a unit is to last.
pub(super) const UNIT: Duration = Duration::from_secs(1);

/// A step that brought text and nothing else for this long brings nothing else.
const TEXT_ALONE: Duration = UNIT;

impl Steps {
    /// Number of the last unit sent; the first is 1.
    pub(super) const fn sent_number(&self) -> u64 {
        self.sent
    }

    /// Units that were answered.
    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// When the last unit was sent.
    pub(super) const fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// When the last unit was sent that has the user's audio in it.
    pub(super) const fn spoken_at(&self) -> Option<Instant> {
        self.spoken_at
    }

    pub(super) const fn in_flight(&self) -> Option<&InFlight> {
        self.in_flight.as_ref()
    }

    /// Takes back what was never answered.
    pub(super) const fn take_in_flight(&mut self) -> Option<InFlight> {
        self.in_flight.take()
    }

    /// A unit is sent; its number, as the wire has it.
    pub(super) fn send(
        &mut self,
        now: Instant,
        audio: &Arc<Vec<i16>>,
        real: usize,
        forced: bool,
        busy: bool,
    ) -> Box<str> {
        self.sent += 1;
        self.sent_at = Some(now);
        self.spoken_at = Some(now).filter(|_| real > 0).or(self.spoken_at);
        let audio = audio.clone();
        let number = self.sent;
        self.in_flight = Some(InFlight {
            number,
            at: now,
            forced,
            audio,
            real: real.min(UNIT_SAMPLES),
            busy,
            text_at: None,
        });
        number.to_string().into()
    }

    /// Text came.
    pub(super) const fn text(&mut self, now: Instant) {
        if let Some(unit) = &mut self.in_flight
            && unit.text_at.is_none()
        {
            unit.text_at = Some(now);
        }
    }

    /// Something came that may end the step; the unit it answers.
    pub(super) fn end(&mut self, now: Instant, end: End, mark: Mark<'_>) -> Option<InFlight> {
        self.says_done |= end == End::Done;
        if end == End::Audio && self.says_done {
            return None;
        }
        let repeated = self.repeats(end, mark);
        self.last = mark.response_id.map(|id| (id.into(), end));
        let unit = self.in_flight.as_ref()?;
        let answers = match mark.input_id.and_then(|id| id.parse::<u64>().ok()) {
            Some(number) => number == unit.number,
            None => !repeated,
        };
        if answers { self.close(now) } else { None }
    }

    /// A step of text alone is over.
    pub(super) fn timeout(&mut self, now: Instant) -> Option<InFlight> {
        let due = self.text_alone_due()?;
        if due <= now { self.close(now) } else { None }
    }

    /// When a step of text alone is over.
    pub(super) fn text_alone_due(&self) -> Option<Instant> {
        Some(self.in_flight.as_ref()?.text_at? + TEXT_ALONE)
    }

    /// Counts a step that took longer than its unit lasts; which of them the operator is to hear of.
    pub(super) fn alarm(&mut self, took: Duration) -> Option<u64> {
        /// One in so many is told: a slow GPU is slow all the time.
        const TOLD_EVERY: u64 = 30;
        if took <= UNIT {
            return None;
        }
        self.slow += 1;
        (self.slow % TOLD_EVERY == 1).then_some(self.slow)
    }

    const fn close(&mut self, _now: Instant) -> Option<InFlight> {
        self.answered += 1;
        self.in_flight.take()
    }

    /// Whether it says once more what ended the last step.
    fn repeats(&self, end: End, mark: Mark<'_>) -> bool {
        let (Some((last, by)), Some(id)) = (&self.last, mark.response_id) else { return false };
        // One answer is one step on C++; on PyTorch it is a turn, whose steps end with audio and at last with a listen.
        **last == *id
            && match end {
                End::Done => true,
                End::Listen => *by != End::Audio,
                End::Audio => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        Instant::now()
    }

    fn mark<'a>(response_id: &'a str, input_id: &'a str) -> Mark<'a> {
        let some = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        Mark { response_id: some(response_id), input_id: some(input_id), context_tokens: None }
    }

    fn sent(steps: &mut Steps, now: Instant) {
        assert!(steps.in_flight().is_none(), "one at a time");
        steps.send(now, &Arc::new(Vec::new()), 0, false, false);
    }

    #[test]
    fn the_append_it_names_is_the_one_it_answers() {
        let (mut steps, now) = (Steps::default(), start());
        sent(&mut steps, now);
        assert!(steps.end(now, End::Listen, mark("", "7")).is_none());
        assert!(steps.end(now, End::Audio, mark("r", "1")).is_some());
        assert!(
            steps.end(now, End::Listen, mark("r", "1")).is_none(),
            "the end of the turn ends no second step"
        );
        sent(&mut steps, now);
        assert!(steps.end(now, End::Listen, mark("r", "1")).is_none(), "nor does it come late");
        assert!(steps.end(now, End::Listen, mark("", "2")).is_some());
    }

    #[test]
    fn without_names_an_answer_ends_one_step() {
        let (mut steps, now) = (Steps::default(), start());
        for (ends, answer) in [
            (vec![End::Listen], "s_1"),
            (vec![End::Listen, End::Done], "s_2"),
            (vec![End::Done, End::Done], "s_3"),
            (vec![End::Audio, End::Audio, End::Done], "s_4"),
            (vec![End::Listen, End::Listen], "s_5"),
        ] {
            sent(&mut steps, now);
            let ended = ends.iter().filter(|end| steps.end(now, **end, mark(answer, "")).is_some()).count();
            assert_eq!(ended, 1, "{answer}");
            sent(&mut steps, now);
            assert!(steps.end(now, *ends.last().unwrap(), mark(answer, "")).is_none(), "{answer} comes late");
            steps.take_in_flight();
        }
    }

    #[test]
    fn one_answer_for_a_whole_turn_ends_a_step_with_each_audio() {
        let (mut steps, now) = (Steps::default(), start());
        for _ in 0..3 {
            sent(&mut steps, now);
            assert!(steps.end(now, End::Audio, mark("r", "")).is_some());
        }
        sent(&mut steps, now);
        assert!(
            steps.end(now, End::Listen, mark("r", "")).is_some(),
            "a forced listen names the interrupted turn"
        );
    }

    #[test]
    fn text_alone_is_an_answer_after_a_while() {
        let (mut steps, now) = (Steps::default(), start());
        sent(&mut steps, now);
        steps.text(now);
        assert!(steps.timeout(now).is_none());
        assert!(steps.timeout(now + TEXT_ALONE).is_some());
        assert_eq!(steps.answered(), 1);
    }
}
