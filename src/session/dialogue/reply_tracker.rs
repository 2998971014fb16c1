//! Reply tracker: finds the message that ends the step of the unit in flight.
//!
//! A model makes one step per append. The end of a step depends on the back-end
//! (mappings/notes/minicpm-o-duplex.md#turns, mappings/notes/llama-cpp-omni.md#events). It is a `listen`; on PyTorch
//! the audio, with another `listen` at the end of the turn; on C++ a `done`, after any number of deltas and perhaps
//! after a `listen` of the same answer. Counting an end twice would double the rate of units.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES},
    vocabulary::{LaneEvent, MessageMeta, VideoFrame},
};

/// Kind of model output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    Listen,
    Text,
    Audio,
    Done,
}

impl ReplyKind {
    /// Kind of an event; `None` if it is no model output.
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

/// Unit to send to the model.
#[derive(Debug, Clone)]
pub(crate) struct UplinkUnit {
    pub(crate) audio: Arc<Vec<i16>>,
    /// Samples from the microphone; the rest is silence.
    pub(crate) mic_samples: usize,
    pub(crate) frame: Option<VideoFrame>,
    /// Forces the model to listen.
    pub(crate) force_listen: bool,
    /// The user or the model speaks during it.
    pub(crate) has_speech: bool,
}

impl UplinkUnit {
    /// Unit without any flag.
    pub(crate) const fn new(audio: Arc<Vec<i16>>, mic_samples: usize) -> Self {
        Self { audio, mic_samples, frame: None, force_listen: false, has_speech: false }
    }

    /// A second of silence.
    pub(crate) fn silence() -> Self {
        Self::new(Arc::new(vec![0; UNIT_SAMPLES]), 0)
    }

    /// Length of its audio.
    pub(crate) fn length(&self) -> Duration {
        length_of(self.audio.len())
    }
}

/// Length of this number of samples.
pub(crate) fn length_of(samples: usize) -> Duration {
    Duration::from_micros(samples as u64 * 1_000_000 / u64::from(SPEECH_RATE_HZ))
}

/// Unit that the model has not answered yet.
#[derive(Debug)]
pub(crate) struct UnitInFlight {
    pub(crate) number: u64,
    pub(crate) sent_at: Instant,
    pub(crate) unit: UplinkUnit,
    /// Time of the last output of its answer.
    last_delta_at: Option<Instant>,
    response_id: Option<Box<str>>,
}

/// Steps of one upstream session.
#[derive(Debug, Default)]
pub(crate) struct ReplyTracker {
    /// Number of the last unit sent; the first is 1.
    pub(crate) sent_count: u64,
    /// Number of answered units, and the length of their audio.
    pub(crate) answered_count: u64,
    pub(crate) answered: Duration,
    slow_count: u64,
    /// Running average of the time that a unit takes.
    usual_time: Option<Duration>,
    /// When the last unit was sent, and its length.
    pub(crate) last_sent_at: Option<Instant>,
    pub(crate) last_length: Duration,
    /// When the last unit with microphone audio was sent.
    pub(crate) mic_sent_at: Option<Instant>,
    pub(crate) in_flight: Option<UnitInFlight>,
    /// Response id that ended the last step, and the kind of its end.
    last_ended: Option<(Box<str>, ReplyKind)>,
    /// The upstream ends every step with `done`.
    sends_done: bool,
}

/// Length of MiniCPM-o's unit, and the longest of other models.
pub(crate) const UNIT_DURATION: Duration = Duration::from_secs(1);

/// A unit that takes this many times the usual time has stalled.
const STALL_FACTOR: u32 = 3;
/// Answered units after which the usual time is known: the first units of a session may take longer.
const USUAL_TIME_UNITS: u64 = 3;
/// Shortest time after which a stalled unit is given up. A busy GPU may pause for some seconds, and a new session takes
/// 10 to 16 s (mappings/notes/minicpm-o-duplex.md#rollover).
const GIVE_UP_MIN: Duration = Duration::from_secs(5);

/// A step that has some output ends after this time without more: text without audio, or audio of an upstream that
/// reports neither the unit nor its end.
const REPLY_END_TIMEOUT: Duration = Duration::from_millis(500);
/// An upstream that reports the end of its steps gets more time, because it may still be working.
const REPLY_END_TIMEOUT_WITH_DONE: Duration = Duration::from_secs(3);

impl ReplyTracker {
    /// Records a unit that is sent. Returns its id for the upstream.
    pub(crate) fn record_sent(&mut self, now: Instant, unit: UplinkUnit) -> Box<str> {
        self.sent_count += 1;
        (self.last_sent_at, self.last_length) = (Some(now), unit.length());
        self.mic_sent_at = Some(now).filter(|_| unit.mic_samples > 0).or(self.mic_sent_at);
        let number = self.sent_count;
        self.in_flight =
            Some(UnitInFlight { number, sent_at: now, unit, last_delta_at: None, response_id: None });
        number.to_string().into()
    }

    /// Handles model output. Returns the unit whose step it ended.
    pub(crate) fn handle_reply(
        &mut self,
        now: Instant,
        kind: ReplyKind,
        meta: MessageMeta<'_>,
    ) -> Option<UnitInFlight> {
        let named_number = meta.input_id.and_then(|id| id.parse::<u64>().ok());
        // The output repeats the end of an earlier step. A response id is one step on C++. On PyTorch it is a turn: its steps end
        // with audio, the last one with a `listen`.
        let is_repeat =
            self.last_ended.as_ref().zip(meta.response_id).is_some_and(|((last, ended_by), id)| {
                **last == *id && (kind == ReplyKind::Done || *ended_by != ReplyKind::Audio)
            });
        if let (ReplyKind::Listen | ReplyKind::Done, Some(id)) = (kind, meta.response_id) {
            self.last_ended = Some((id.into(), kind));
        }
        let unit = self.in_flight.as_mut()?;
        if named_number.map_or(is_repeat, |number| number != unit.number) {
            return None;
        }
        let ends = match kind {
            ReplyKind::Listen | ReplyKind::Done => true,
            ReplyKind::Audio => named_number.is_some(),
            ReplyKind::Text => false,
        };
        if !ends {
            unit.last_delta_at = Some(now);
        }
        // After the end of a step a `done` may repeat it. Such a repetition says nothing about other steps.
        self.sends_done |= kind == ReplyKind::Done;
        if unit.response_id.as_deref() != meta.response_id {
            unit.response_id = meta.response_id.map(Into::into);
        }
        if ends { self.complete_in_flight() } else { None }
    }

    /// When a step ends without a report of the upstream.
    pub(crate) fn reply_end_at(&self) -> Option<Instant> {
        let last_delta_at = self.in_flight.as_ref()?.last_delta_at?;
        Some(last_delta_at + if self.sends_done { REPLY_END_TIMEOUT_WITH_DONE } else { REPLY_END_TIMEOUT })
    }

    /// Time after which a unit without an answer is given up, at most `longest`.
    pub(crate) fn give_up_after(&self, longest: Duration) -> Duration {
        match self.usual_time {
            Some(usual_time) if self.answered_count >= USUAL_TIME_UNITS => {
                (STALL_FACTOR * usual_time).max(GIVE_UP_MIN).min(longest)
            }
            _ => longest,
        }
    }

    /// Adds a step to the usual time. Returns true if the step had stalled.
    pub(crate) fn note_reply_time(&mut self, took: Duration) -> bool {
        let usual_time = self.usual_time.unwrap_or(UNIT_DURATION);
        self.usual_time = Some(self.usual_time.map_or(took, |usual_time| (7 * usual_time + took) / 8));
        took > STALL_FACTOR * usual_time
    }

    /// Counts a step that took longer than the longest unit. Returns the count if operators should be informed.
    pub(crate) fn count_slow_reply(&mut self, took: Duration) -> Option<u64> {
        /// Only every 30th is reported: a slow GPU is slow all the time.
        const REPORT_EVERY: u64 = 30;
        if took <= UNIT_DURATION {
            return None;
        }
        self.slow_count += 1;
        (self.slow_count % REPORT_EVERY == 1).then_some(self.slow_count)
    }

    /// Ends the step of the unit in flight.
    pub(crate) fn complete_in_flight(&mut self) -> Option<UnitInFlight> {
        let unit = self.in_flight.take()?;
        self.answered_count += 1;
        self.answered += unit.unit.length();
        if let Some(id) = &unit.response_id
            && self.last_ended.as_ref().is_none_or(|(last, _)| last != id)
        {
            self.last_ended = Some((id.clone(), ReplyKind::Audio));
        }
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        Instant::now()
    }

    fn meta<'a>(response_id: &'a str, input_id: &'a str) -> MessageMeta<'a> {
        let non_empty = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        MessageMeta {
            response_id: non_empty(response_id),
            input_id: non_empty(input_id),
            ..MessageMeta::default()
        }
    }

    fn send_unit(tracker: &mut ReplyTracker, now: Instant) {
        assert!(tracker.in_flight.is_none(), "only one unit may be in flight");
        tracker.record_sent(now, UplinkUnit::silence());
    }

    #[test]
    fn named_input_id_selects_the_answered_unit() {
        let (mut tracker, now) = (ReplyTracker::default(), start());
        send_unit(&mut tracker, now);
        assert!(tracker.handle_reply(now, ReplyKind::Listen, meta("", "7")).is_none());
        assert!(tracker.handle_reply(now, ReplyKind::Audio, meta("r", "1")).is_some());
        assert!(
            tracker.handle_reply(now, ReplyKind::Listen, meta("r", "1")).is_none(),
            "the end of the turn does not end a second step"
        );
        send_unit(&mut tracker, now);
        assert!(
            tracker.handle_reply(now, ReplyKind::Listen, meta("r", "1")).is_none(),
            "a late repetition ends nothing"
        );
        assert!(tracker.handle_reply(now, ReplyKind::Listen, meta("", "2")).is_some());
    }

    #[test]
    fn unnamed_answer_ends_exactly_one_step() {
        let (mut tracker, now) = (ReplyTracker::default(), start());
        for (ends, answer) in [
            (vec![ReplyKind::Listen], "s_1"),
            (vec![ReplyKind::Listen, ReplyKind::Done], "s_2"),
            (vec![ReplyKind::Done, ReplyKind::Done], "s_3"),
            (vec![ReplyKind::Audio, ReplyKind::Audio, ReplyKind::Done], "s_4"),
            (vec![ReplyKind::Listen, ReplyKind::Listen], "s_5"),
        ] {
            send_unit(&mut tracker, now);
            let ended = ends
                .iter()
                .filter(|end| tracker.handle_reply(now, **end, meta(answer, "")).is_some())
                .count();
            assert_eq!(ended, 1, "{answer}");
            send_unit(&mut tracker, now);
            assert!(
                tracker.handle_reply(now, *ends.last().unwrap(), meta(answer, "")).is_none(),
                "late repetition of {answer}"
            );
            tracker.in_flight.take();
        }
    }

    #[test]
    fn turn_wide_response_id_ends_a_step_with_each_audio() {
        let (mut tracker, now) = (ReplyTracker::default(), start());
        for number in ["1", "2", "3"] {
            send_unit(&mut tracker, now);
            assert!(tracker.handle_reply(now, ReplyKind::Text, meta("r", number)).is_none());
            assert!(tracker.handle_reply(now, ReplyKind::Audio, meta("r", number)).is_some());
        }
        send_unit(&mut tracker, now);
        assert!(
            tracker.handle_reply(now, ReplyKind::Listen, meta("r", "")).is_some(),
            "a forced listen carries the id of the interrupted turn"
        );
    }

    #[test]
    fn unterminated_step_ends_after_a_timeout() {
        let (mut tracker, now) = (ReplyTracker::default(), start());
        let later = now + REPLY_END_TIMEOUT / 2;
        for kind in [ReplyKind::Text, ReplyKind::Audio] {
            send_unit(&mut tracker, now);
            assert!(tracker.handle_reply(now, kind, meta("s_1", "")).is_none());
            assert!(
                tracker.handle_reply(later, kind, meta("s_1", "")).is_none(),
                "more output restarts the timeout"
            );
            assert_eq!(tracker.reply_end_at(), Some(later + REPLY_END_TIMEOUT));
            assert!(tracker.complete_in_flight().is_some());
        }
        send_unit(&mut tracker, now);
        assert!(
            tracker.handle_reply(now, ReplyKind::Done, meta("s_1", "")).is_none(),
            "this repeats the previous step"
        );
        assert!(tracker.handle_reply(now, ReplyKind::Done, meta("s_2", "")).is_some());
        send_unit(&mut tracker, now);
        assert!(tracker.handle_reply(now, ReplyKind::Text, meta("s_3", "")).is_none());
        assert_eq!(
            tracker.reply_end_at(),
            Some(now + REPLY_END_TIMEOUT_WITH_DONE),
            "this upstream reports `done`"
        );
        assert_eq!(tracker.answered_count, 3);
    }

    #[test]
    fn done_after_listen_does_not_delay_the_next_audio() {
        let (mut tracker, now) = (ReplyTracker::default(), start());
        send_unit(&mut tracker, now);
        assert!(tracker.handle_reply(now, ReplyKind::Listen, meta("r", "1")).is_some());
        assert!(tracker.handle_reply(now, ReplyKind::Done, meta("r", "1")).is_none());
        send_unit(&mut tracker, now);
        assert!(tracker.handle_reply(now, ReplyKind::Audio, meta("s", "2")).is_some());
    }

    #[test]
    fn stall_is_measured_by_the_usual_time() {
        let (mut tracker, ms) = (ReplyTracker::default(), Duration::from_millis);
        let longest = ms(12_000);
        for (took, stalled, give_up_ms) in [(900, false, 12_000), (400, false, 12_000), (3000, true, 5000)] {
            send_unit(&mut tracker, start());
            assert!(tracker.complete_in_flight().is_some());
            assert_eq!(tracker.note_reply_time(ms(took)), stalled, "{took}");
            assert_eq!(tracker.give_up_after(longest), ms(give_up_ms), "{took}");
        }
        for _ in 0..50 {
            tracker.note_reply_time(ms(2400));
        }
        let slow = tracker.give_up_after(longest);
        assert!(slow > ms(7000) && slow < ms(7300), "a slow upstream gets more time: {slow:?}");
        assert_eq!(tracker.give_up_after(ms(4000)), ms(4000), "the profile's limit holds");
    }

    #[test]
    fn reply_to_another_unit_is_ignored() {
        let (mut tracker, now) = (ReplyTracker::default(), start());
        send_unit(&mut tracker, now);
        assert!(tracker.handle_reply(now, ReplyKind::Text, meta("r", "7")).is_none());
        assert_eq!(tracker.reply_end_at(), None);
    }
}
