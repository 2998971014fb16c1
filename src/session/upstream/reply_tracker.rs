//! One unit in flight: which message of the upstream answers it, and how long that took.
//!
//! A model makes one step for each append, and how a step ends depends on the back-end (field notes §1.6, §1.7, §7.11):
//! a `listen`; the audio, on PyTorch, with another `listen` behind it when the turn ends; a `done`, on C++, behind any
//! number of deltas and perhaps behind a `listen` of the same answer. Counting one end twice would send units twice as
//! fast.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    audio::units::UNIT_SAMPLES,
    event::{LaneEvent, Mark, VideoFrame},
};

/// What a model makes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Listen,
    Text,
    Audio,
    Done,
}

impl Sign {
    /// What an event is to the steps, if it is one of theirs.
    pub(crate) const fn of(event: &LaneEvent<'_>) -> Option<Self> {
        match event {
            LaneEvent::Listen => Some(Self::Listen),
            LaneEvent::Text(_) => Some(Self::Text),
            LaneEvent::Audio(_) => Some(Self::Audio),
            LaneEvent::Done { .. } => Some(Self::Done),
            _ => None,
        }
    }
}

/// A unit on its way to the model.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) audio: Arc<Vec<i16>>,
    /// How many of its samples are the microphone's.
    pub(crate) real: usize,
    pub(crate) frame: Option<VideoFrame>,
    /// The model is to listen.
    pub(crate) forced: bool,
    /// Somebody speaks in it.
    pub(crate) busy: bool,
}

impl Unit {
    /// Audio of nobody in particular.
    pub(crate) const fn of(audio: Arc<Vec<i16>>, real: usize) -> Self {
        Self { audio, real, frame: None, forced: false, busy: false }
    }

    /// A second of nothing.
    pub(crate) fn silence() -> Self {
        Self::of(Arc::new(vec![0; UNIT_SAMPLES]), 0)
    }
}

/// A unit on its way through the model.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    pub(crate) unit: Unit,
    /// When something of its answer last came, and under which id.
    delta_at: Option<Instant>,
    id: Option<Box<str>>,
}

/// The steps of one upstream session.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    sent: u64,
    answered: u64,
    slow: u64,
    sent_at: Option<Instant>,
    /// When the user's audio was last sent.
    spoken_at: Option<Instant>,
    in_flight: Option<InFlight>,
    /// The answer that ended the last step, and how.
    last: Option<(Box<str>, Sign)>,
    /// This upstream ends every step with `done`.
    says_done: bool,
}

/// What a unit is to last.
pub(crate) const UNIT: Duration = Duration::from_secs(1);

/// A step that has brought something, but nothing that ends it for so long, has ended: text without audio, or audio of
/// an upstream that says neither which unit it is of nor when it is done.
const OPEN_END: Duration = Duration::from_millis(500);
/// One that says when it is done is waited for longer: it may still be at work.
const OPEN_END_PATIENT: Duration = Duration::from_secs(3);

impl Steps {
    /// Number of the last unit sent; the first is 1.
    pub(crate) const fn sent_number(&self) -> u64 {
        self.sent
    }

    /// Units that were answered.
    pub(crate) const fn answered(&self) -> u64 {
        self.answered
    }

    /// When the last unit was sent.
    pub(crate) const fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// When the last unit was sent that has the user's audio in it.
    pub(crate) const fn spoken_at(&self) -> Option<Instant> {
        self.spoken_at
    }

    pub(crate) const fn in_flight(&self) -> Option<&InFlight> {
        self.in_flight.as_ref()
    }

    /// Takes back what was never answered.
    pub(crate) const fn take_in_flight(&mut self) -> Option<InFlight> {
        self.in_flight.take()
    }

    /// A unit is sent; its number, as the wire has it.
    pub(crate) fn send(&mut self, now: Instant, unit: Unit) -> Box<str> {
        self.sent += 1;
        self.sent_at = Some(now);
        self.spoken_at = Some(now).filter(|_| unit.real > 0).or(self.spoken_at);
        let number = self.sent;
        self.in_flight = Some(InFlight { number, at: now, unit, delta_at: None, id: None });
        number.to_string().into()
    }

    /// The model said something; the unit that was all about.
    pub(crate) fn heard(&mut self, now: Instant, sign: Sign, mark: Mark<'_>) -> Option<InFlight> {
        let named = mark.input_id.and_then(|id| id.parse::<u64>().ok());
        let repeated = self.repeats(sign, mark);
        if let (Sign::Listen | Sign::Done, Some(id)) = (sign, mark.response_id) {
            self.last = Some((id.into(), sign));
        }
        let unit = self.in_flight.as_mut()?;
        if named.map_or(repeated, |number| number != unit.number) {
            return None;
        }
        let ends = match sign {
            Sign::Listen | Sign::Done => true,
            Sign::Audio => named.is_some(),
            Sign::Text => false,
        };
        if !ends {
            unit.delta_at = Some(now);
        }
        // Behind what has ended a step it only repeats it, and says nothing about other steps.
        self.says_done |= sign == Sign::Done;
        if unit.id.as_deref() != mark.response_id {
            unit.id = mark.response_id.map(Into::into);
        }
        if ends { self.close() } else { None }
    }

    /// A step whose end nobody tells is over.
    pub(crate) fn timeout(&mut self, now: Instant) -> Option<InFlight> {
        let due = self.open_end_due()?;
        if due <= now { self.close() } else { None }
    }

    /// When a step is over whose end nobody tells.
    pub(crate) fn open_end_due(&self) -> Option<Instant> {
        let delta_at = self.in_flight.as_ref()?.delta_at?;
        Some(delta_at + if self.says_done { OPEN_END_PATIENT } else { OPEN_END })
    }

    /// Counts a step that took longer than its unit lasts; which of them the operator is to hear of.
    pub(crate) fn alarm(&mut self, took: Duration) -> Option<u64> {
        /// One in so many is told: a slow GPU is slow all the time.
        const TOLD_EVERY: u64 = 30;
        if took <= UNIT {
            return None;
        }
        self.slow += 1;
        (self.slow % TOLD_EVERY == 1).then_some(self.slow)
    }

    fn close(&mut self) -> Option<InFlight> {
        let unit = self.in_flight.take()?;
        self.answered += 1;
        if let Some(id) = &unit.id
            && self.last.as_ref().is_none_or(|(last, _)| last != id)
        {
            self.last = Some((id.clone(), Sign::Audio));
        }
        Some(unit)
    }

    /// Whether it is about what was over before.
    fn repeats(&self, sign: Sign, mark: Mark<'_>) -> bool {
        let (Some((last, by)), Some(id)) = (&self.last, mark.response_id) else { return false };
        // One answer is one step on C++; on PyTorch it is a turn, whose steps end with audio and at last with a listen.
        **last == *id && (sign == Sign::Done || *by != Sign::Audio)
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
        Mark { response_id: some(response_id), input_id: some(input_id), ..Mark::default() }
    }

    fn sent(steps: &mut Steps, now: Instant) {
        assert!(steps.in_flight().is_none(), "one at a time");
        steps.send(now, Unit::silence());
    }

    #[test]
    fn the_append_it_names_is_the_one_it_answers() {
        let (mut steps, now) = (Steps::default(), start());
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Listen, mark("", "7")).is_none());
        assert!(steps.heard(now, Sign::Audio, mark("r", "1")).is_some());
        assert!(
            steps.heard(now, Sign::Listen, mark("r", "1")).is_none(),
            "the end of the turn ends no second step"
        );
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Listen, mark("r", "1")).is_none(), "nor does it come late");
        assert!(steps.heard(now, Sign::Listen, mark("", "2")).is_some());
    }

    #[test]
    fn without_names_an_answer_ends_one_step() {
        let (mut steps, now) = (Steps::default(), start());
        for (ends, answer) in [
            (vec![Sign::Listen], "s_1"),
            (vec![Sign::Listen, Sign::Done], "s_2"),
            (vec![Sign::Done, Sign::Done], "s_3"),
            (vec![Sign::Audio, Sign::Audio, Sign::Done], "s_4"),
            (vec![Sign::Listen, Sign::Listen], "s_5"),
        ] {
            sent(&mut steps, now);
            let ended = ends.iter().filter(|end| steps.heard(now, **end, mark(answer, "")).is_some()).count();
            assert_eq!(ended, 1, "{answer}");
            sent(&mut steps, now);
            assert!(
                steps.heard(now, *ends.last().unwrap(), mark(answer, "")).is_none(),
                "{answer} comes late"
            );
            steps.take_in_flight();
        }
    }

    #[test]
    fn one_answer_for_a_whole_turn_ends_a_step_with_each_audio() {
        let (mut steps, now) = (Steps::default(), start());
        for number in ["1", "2", "3"] {
            sent(&mut steps, now);
            assert!(steps.heard(now, Sign::Text, mark("r", number)).is_none());
            assert!(steps.heard(now, Sign::Audio, mark("r", number)).is_some());
        }
        sent(&mut steps, now);
        assert!(
            steps.heard(now, Sign::Listen, mark("r", "")).is_some(),
            "a forced listen names the interrupted turn"
        );
    }

    #[test]
    fn what_nobody_ends_ends_by_itself() {
        let (mut steps, now) = (Steps::default(), start());
        let later = now + OPEN_END / 2;
        for sign in [Sign::Text, Sign::Audio] {
            sent(&mut steps, now);
            assert!(steps.heard(now, sign, mark("s_1", "")).is_none());
            assert!(steps.heard(later, sign, mark("s_1", "")).is_none(), "there is more of it");
            assert!(steps.timeout(now + OPEN_END).is_none());
            assert!(steps.timeout(later + OPEN_END).is_some());
        }
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Done, mark("s_1", "")).is_none(), "that was the one before");
        assert!(steps.heard(now, Sign::Done, mark("s_2", "")).is_some());
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Text, mark("s_3", "")).is_none());
        assert_eq!(steps.open_end_due(), Some(now + OPEN_END_PATIENT), "this upstream says when it is done");
        assert_eq!(steps.answered(), 3);
    }

    #[test]
    fn a_done_behind_a_listen_does_not_make_audio_wait_for_another() {
        let (mut steps, now) = (Steps::default(), start());
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Listen, mark("r", "1")).is_some());
        assert!(steps.heard(now, Sign::Done, mark("r", "1")).is_none());
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Audio, mark("s", "2")).is_some());
    }

    #[test]
    fn what_another_unit_is_about_changes_nothing() {
        let (mut steps, now) = (Steps::default(), start());
        sent(&mut steps, now);
        assert!(steps.heard(now, Sign::Text, mark("r", "7")).is_none());
        assert_eq!(steps.open_end_due(), None);
    }
}
