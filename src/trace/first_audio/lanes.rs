//! When the upstream sessions of a session were connected, asked and answered.

use std::{collections::BTreeMap, time::Instant};

use super::Stage;
use crate::vocabulary::{Lane, LaneEvent, LanePurpose};

/// Instants of one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneTimes {
    purpose: Option<LanePurpose>,
    opened: Option<Instant>,
    granted: Option<Instant>,
    ready: Option<Instant>,
    asked: Option<Instant>,
    /// The last message of the question.
    sent: Option<Instant>,
    first_delta: Option<Instant>,
    first_audio: Option<Instant>,
    /// The client got audio of this answer.
    is_heard: bool,
    /// Seconds of a conversation's audio.
    appended: Vec<Instant>,
}

impl LaneTimes {
    fn begin_answer(&mut self) {
        (self.first_delta, self.first_audio, self.is_heard) = (None, None, false);
    }
}

/// The lanes of a session.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Lane, LaneTimes>,
    /// The lane of the first question for the next answer.
    question: Option<Lane>,
}

/// The way of an answer through its lanes.
#[derive(Debug)]
pub(super) struct AnswerTimes {
    /// The lane that was asked.
    pub(super) lane: Lane,
    /// The model decides by itself when it answers.
    pub(super) is_full_duplex: bool,
    /// When each stage ended; `None` if that is not known.
    pub(super) ends: Vec<(Stage, Option<Instant>)>,
}

impl Lanes {
    pub(super) fn dialled(&mut self, lane: Lane, purpose: LanePurpose) {
        self.lanes.insert(lane, LaneTimes { purpose: Some(purpose), ..LaneTimes::default() });
    }

    fn get(&mut self, lane: Lane) -> &mut LaneTimes {
        self.lanes.entry(lane).or_default()
    }

    /// The lane was connected, and has its worker now.
    pub(super) fn granted(&mut self, lane: Lane, opened: Option<Instant>, now: Instant) {
        let lane = self.get(lane);
        (lane.opened, lane.granted) = (opened, Some(now));
    }

    pub(super) fn initialised(&mut self, lane: Lane, now: Instant) {
        self.get(lane).ready = Some(now);
    }

    /// The model is asked for an answer. A question that follows calls of tools goes on with the answer.
    pub(super) fn ask_question(&mut self, lane: Lane, now: Instant, continues: bool) {
        if self.question.is_none_or(|_| !continues) {
            self.question = Some(lane);
        } else if self.question == Some(lane) {
            return;
        }
        self.ask(lane, now);
    }

    /// A lane is asked.
    pub(super) fn ask(&mut self, lane: Lane, now: Instant) {
        let lane = self.get(lane);
        (lane.asked, lane.sent) = (Some(now), None);
        lane.begin_answer();
    }

    /// The next question is for another answer.
    pub(super) const fn forget_question(&mut self) {
        self.question = None;
    }

    /// A second of a conversation's audio is sent.
    pub(super) fn append(&mut self, lane: Lane, now: Instant) {
        self.get(lane).appended.push(now);
    }

    /// A message leaves for a lane.
    pub(super) fn sent(&mut self, lane: Lane, now: Instant) {
        let lane = self.get(lane);
        if lane.asked.is_some() && lane.first_delta.is_none() {
            lane.sent = Some(now);
        }
    }

    pub(super) fn answered(&mut self, lane: Lane, now: Instant, event: &LaneEvent<'_>) {
        let lane = self.get(lane);
        let (has_output, has_audio) = match event {
            LaneEvent::Text(text) => (!text.is_empty(), false),
            LaneEvent::Call { .. } => (true, false),
            LaneEvent::Audio(sound) => (!sound.is_none(), !sound.is_none()),
            LaneEvent::Done { text, audio } => {
                (text.is_some_and(|text| !text.is_empty()) || !audio.is_none(), !audio.is_none())
            }
            LaneEvent::Listen => return lane.begin_answer(),
            _ => (false, false),
        };
        if has_output {
            lane.first_delta.get_or_insert(now);
        }
        if has_audio {
            lane.first_audio.get_or_insert(now);
        }
    }

    /// The way of a text whose audio begins; it was requested at this instant.
    pub(super) fn hear_text(&mut self, requested: Instant) -> Option<AnswerTimes> {
        let spoken = self.lanes.iter_mut().filter(|(_, lane)| lane.first_audio.is_some() && !lane.is_heard);
        let spoken = spoken.filter(|(_, lane)| lane.asked.is_some_and(|asked| asked >= requested));
        let (lane, times) = spoken.min_by_key(|(_, lane)| lane.asked)?;
        times.is_heard = true;
        let ends = asked_ends(times, times.first_audio);
        Some(AnswerTimes { lane: *lane, is_full_duplex: false, ends })
    }

    /// The way of an answer or a turn of the model whose audio begins; the wait for it began at this instant.
    pub(super) fn hear_answer(&mut self, begun: Instant) -> Option<AnswerTimes> {
        let heard = self.lanes.iter().filter(|(_, lane)| lane.first_audio.is_some() && !lane.is_heard);
        let (heard, times) = heard.max_by_key(|(_, lane)| lane.first_audio)?;
        let (heard, times) = (*heard, times.clone());
        self.get(heard).is_heard = true;
        if times.purpose == Some(LanePurpose::Converse) {
            let is_in_time =
                |at: &&Instant| **at >= begun && times.first_delta.is_none_or(|delta| **at <= delta);
            let sent = times.appended.iter().find(is_in_time).copied();
            let ends = vec![
                (Stage::Upload, sent),
                (Stage::Model, times.first_delta),
                (Stage::Voice, times.first_audio),
            ];
            return Some(AnswerTimes { lane: heard, is_full_duplex: true, ends });
        }
        // The words of an answer may be spoken on a lane of their own.
        let asked = self.question.unwrap_or(heard);
        let ends = asked_ends(self.get(asked), times.first_audio);
        Some(AnswerTimes { lane: asked, is_full_duplex: false, ends })
    }
}

/// The stages of an answer on the lane that was asked.
fn asked_ends(lane: &LaneTimes, first_audio: Option<Instant>) -> Vec<(Stage, Option<Instant>)> {
    vec![
        (Stage::Dial, lane.opened),
        (Stage::Queue, lane.granted),
        (Stage::Init, lane.ready),
        (Stage::Ask, lane.asked),
        (Stage::Upload, lane.sent),
        (Stage::Model, lane.first_delta),
        (Stage::Voice, first_audio),
    ]
}
