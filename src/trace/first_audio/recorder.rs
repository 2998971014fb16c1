//! Notes the instants of a session that is replayed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    FirstAudio, Stage, Trigger,
    lanes::{AnswerTimes, Lanes},
};
use crate::{
    audio::encoding::Encoding,
    bridge::{EventTap, Output},
    session::{AudioOrigin, EarlyQuestionResult, Measurement, Observation, RecordedItem, UserAudio},
    vocabulary::{
        ClientEvent, ClientRequest, EntryId, Lane, LaneEvent, LaneRequest, MessageMeta, ServerCall,
        ServerCallResult,
    },
};

/// The recorder of a session. Clones share it, because the bridge owns its tap.
#[derive(Debug, Clone)]
pub(super) struct SharedRecorder(Arc<Mutex<Recorder>>);

#[derive(Debug)]
struct Recorder {
    epoch: Instant,
    /// Dialect of the lanes that have no other.
    first_dialect: String,
    dialects: BTreeMap<Lane, String>,
    lanes: Lanes,
    /// Arrivals of the user's audio, and the lengths of its messages.
    frames: Vec<(Instant, Duration)>,
    /// When the audio of the last utterance was complete.
    committed: Option<Instant>,
    /// When the client asked for the next answer.
    requested: Option<Instant>,
    /// What the audio answers that begins now, and the begin of the wait for it.
    waited: Option<(Trigger, Instant)>,
    /// An answer has begun.
    is_answering: bool,
    answers: Vec<FirstAudio>,
}

impl SharedRecorder {
    /// A recorder of a session that begins at `epoch`.
    pub(super) fn new(epoch: Instant, dialects: BTreeMap<Lane, String>, first_dialect: &str) -> Self {
        Self(Arc::new(Mutex::new(Recorder {
            epoch,
            first_dialect: first_dialect.to_owned(),
            dialects,
            lanes: Lanes::default(),
            frames: Vec::new(),
            committed: None,
            requested: None,
            waited: None,
            is_answering: false,
            answers: Vec::new(),
        })))
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        // Every change leaves a valid recorder, so a poisoned lock holds one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the answers so far.
    pub(super) fn take_answers(&self) -> Vec<FirstAudio> {
        std::mem::take(&mut self.recorder().answers)
    }

    /// Takes note of an output of the bridge.
    pub(super) fn observe(&self, now: Instant, output: &Output) {
        let mut recorder = self.recorder();
        match output {
            Output::ToLane(lane, _) | Output::Request(lane, _) => recorder.lanes.sent(*lane, now),
            Output::Observe(Observation::Measured(measurement)) => recorder.measure(now, measurement),
            Output::Record(item) => {
                if let RecordedItem::UserAudio(audio) = &**item {
                    recorder.frames.push((now, length(audio)));
                }
            }
            _ => {}
        }
    }
}

/// Length of a message of audio. That of a packet of Opus is not known here.
fn length(audio: &UserAudio) -> Duration {
    if audio.encoding == Encoding::Opus {
        return Duration::ZERO;
    }
    let group_bytes = audio.encoding.bytes_per_sample() * usize::from(audio.channels);
    let groups = audio.bytes.len().checked_div(group_bytes).unwrap_or_default();
    Duration::from_secs_f64(groups as f64 / f64::from(audio.rate_hz.max(1)))
}

impl Recorder {
    fn measure(&mut self, now: Instant, measurement: &Measurement) {
        match *measurement {
            Measurement::LaneDialled { lane, purpose } => self.lanes.dialled(lane, purpose),
            Measurement::LaneGranted { lane, after } => {
                self.lanes.granted(lane, now.checked_sub(after), now);
            }
            Measurement::LaneInitialised { lane, .. } => self.lanes.initialised(lane, now),
            Measurement::EarlyQuestion(EarlyQuestionResult::Withdrawn) => self.lanes.forget_question(),
            Measurement::FirstAudio { origin, after } => {
                let trigger = match origin {
                    AudioOrigin::Text => Trigger::Text,
                    AudioOrigin::Utterance => Trigger::Speech,
                };
                self.waited = now.checked_sub(after).map(|begun| (trigger, begun));
            }
            _ => {}
        }
    }

    /// Audio begins to leave for the client.
    fn hear(&mut self, now: Instant, is_text: bool) {
        let requested = self.requested.take_if(|_| !is_text);
        let request = requested.map(|at| (Trigger::Request, at));
        let Some((trigger, begun)) = self.waited.take().or(request) else { return };
        let heard = if is_text { self.lanes.hear_text(begun) } else { self.lanes.hear_answer(begun) };
        let Some(AnswerTimes { lane, is_full_duplex, ends }) = heard else { return };
        let verdict = self.committed.filter(|_| trigger == Trigger::Speech && !is_full_duplex);
        let ends = [(Stage::Verdict, verdict)].into_iter().chain(ends);
        let server = self.dialects.get(&lane).unwrap_or(&self.first_dialect).clone();
        self.answers.push(FirstAudio {
            at: now - self.epoch,
            trigger,
            server,
            frame: if trigger == Trigger::Speech { self.frame_at(begun) } else { Duration::ZERO },
            stages: divide(begun, ends, now),
        });
    }

    /// Length of the user's message that arrived at this instant.
    fn frame_at(&self, at: Instant) -> Duration {
        let after = self.frames.partition_point(|(arrived, _)| *arrived <= at);
        self.frames[..after].last().map_or(Duration::ZERO, |(_, length)| *length)
    }
}

/// Divides a time at the ends of its stages. A stage whose end is unknown, or earlier than that of one before, takes no time; what
/// is left at the end is playout.
fn divide(
    begun: Instant,
    ends: impl IntoIterator<Item = (Stage, Option<Instant>)>,
    heard: Instant,
) -> [Duration; Stage::ALL.len()] {
    let mut stages = [Duration::ZERO; Stage::ALL.len()];
    let mut reached = begun;
    for (stage, end) in ends.into_iter().chain([(Stage::Playout, Some(heard))]) {
        let end = end.map_or(reached, |end| end.clamp(reached, heard.max(reached)));
        stages[stage as usize] = end - reached;
        reached = end;
    }
    stages
}

impl EventTap for SharedRecorder {
    fn client_request(&mut self, now: Instant, request: &ClientRequest<'_>) {
        if let ClientRequest::Answer(_) = request {
            self.recorder().requested = Some(now);
        }
    }

    fn client_event(&mut self, now: Instant, event: &ClientEvent) {
        let mut recorder = self.recorder();
        match event {
            ClientEvent::AudioCommitted { .. } => recorder.committed = Some(now),
            ClientEvent::AnswerStarted { .. } => recorder.is_answering = true,
            ClientEvent::AnswerEnded { .. } => {
                recorder.is_answering = false;
                recorder.lanes.forget_question();
            }
            ClientEvent::SpeakingStarted { is_requested, .. } => recorder.hear(now, *is_requested),
            _ => {}
        }
    }

    fn lane_request(&mut self, now: Instant, lane: Lane, request: &LaneRequest) {
        let recorder = &mut *self.recorder();
        match request {
            LaneRequest::Chat(_) => recorder.lanes.ask_question(lane, now, recorder.is_answering),
            LaneRequest::Speak { .. } => recorder.lanes.ask(lane, now),
            LaneRequest::Append(_) => recorder.lanes.append(lane, now),
            _ => {}
        }
    }

    fn lane_event(&mut self, now: Instant, lane: Lane, event: &LaneEvent<'_>, _: &MessageMeta<'_>) {
        self.recorder().lanes.answered(lane, now, event);
    }

    fn tool_called(&mut self, _: Instant, _: &ServerCall) {}

    fn tool_ended(&mut self, _: Instant, _: EntryId, _: &ServerCallResult) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_divide_the_time_and_late_or_unknown_ends_take_none() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let begun = Instant::now();
        let at = |ms| Some(begun + Duration::from_millis(ms));
        let cases = [
            // The question was asked early, and its answer waited for the verdict.
            (
                vec![(Stage::Verdict, at(200)), (Stage::Ask, at(110)), (Stage::Voice, at(150))],
                [200, 0, 0, 10],
            ),
            (vec![(Stage::Verdict, at(200)), (Stage::Ask, at(205)), (Stage::Voice, at(210))], [200, 5, 5, 0]),
            (vec![(Stage::Verdict, None), (Stage::Ask, at(30)), (Stage::Voice, None)], [0, 30, 0, 180]),
            (vec![(Stage::Verdict, at(900))], [210, 0, 0, 0]),
        ];
        for (ends, expected) in cases {
            let stages = divide(begun, ends.clone(), begun + Duration::from_millis(210));
            let named = [Stage::Verdict, Stage::Ask, Stage::Voice, Stage::Playout];
            assert_eq!(named.map(|stage| stages[stage as usize].as_millis()), expected, "{ends:?}");
            assert_eq!(stages.iter().sum::<Duration>(), Duration::from_millis(210));
        }
    }
}
