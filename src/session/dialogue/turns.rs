//! Turns of the model: when a turn begins and ends, and which output of an interrupted turn must be dropped.
//!
//! A turn begins with its first text or audio and ends with the next `listen`
//! (mappings/notes/minicpm-o-duplex.md#turns, mappings/notes/llama-cpp-omni.md#events). On PyTorch the `listen` carries
//! the turn's response id. On C++ every unit has a `done` and a response id of its own.
//!
//! An interrupted turn raises a fence. The fence drops all output until the model has acknowledged a unit that forced
//! it to listen and the user is quiet (mappings/notes/minicpm-o-duplex.md#barge-in). Later output under one of the
//! turn's ids is dropped too. An upstream without ids answers in order, each unit once
//! (mappings/notes/minicpm-o-legacy.md#messages): nothing of an interrupted turn follows the answer to the forced unit.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{history::History, reply_tracker::UnitInFlight, turn::AssistantTurn, user_audio::UserAudio};
use crate::session::{
    floor::{Claim, Floor, Permission, SpeechSource},
    growing_text::is_report_due,
    measurement::{BargeInStage, Measurement},
    output_filter::OutputFilter,
    timers::{Timer, Timers},
    tools::Tools,
    usage::UsageMeter,
};
use crate::{
    spelling::profile::BargeInRules,
    vocabulary::{MessageMeta, Speaker, SpeechId},
};

/// Remembered ids of interrupted turns. C++ uses one per unit, and its audio is at most one unit late.
const STALE_IDS_MAX: usize = 8;

/// Ended turn whose audio may still arrive.
#[derive(Debug)]
struct EndedTurn {
    /// `None` if it had no audio.
    played_as: Option<SpeechId>,
    response_ids: VecDeque<Box<str>>,
}

/// Fence against an interrupted turn.
#[derive(Debug)]
pub(super) struct Fence {
    since: Instant,
    /// Number of the first unit that forced the model to listen.
    pub(super) first_forced: Option<u64>,
    acknowledged: bool,
}

/// Turns of one conversation.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) open: Option<AssistantTurn>,
    /// The client gets the model's words.
    reports_words: bool,
    /// Words so far, for the prompt of the next upstream session.
    pub(super) history: History,
    /// Last ended turn. The C++ back-end makes audio in a thread of its own, so some may arrive late
    /// (mappings/notes/llama-cpp-omni.md#events).
    last_ended: Option<EndedTurn>,
    /// Set while the model is forced to listen.
    pub(super) fence: Option<Fence>,
    stale_ids: VecDeque<Box<str>>,
    /// Answers to units up to this number belong to an interrupted turn.
    stale_through_unit: u64,
    filter: OutputFilter,
    unit_contents: UnitContents,
    /// Tokens since the last turn's end.
    pub(super) usage: UsageMeter,
    /// When the last turn ended.
    pub(super) ended_at: Option<Instant>,
}

/// Contents of the current unit, to detect repetitions.
#[derive(Debug, Default)]
struct UnitContents {
    response_id: Option<Box<str>>,
    has_text: bool,
    has_audio: bool,
    is_done: bool,
}

impl Turns {
    pub(super) fn new(history: History, reports_words: bool) -> Self {
        Self { history, reports_words, ..Self::default() }
    }

    /// Handles text of the model.
    pub(super) fn handle_text(
        &mut self,
        now: Instant,
        delta: &str,
        meta: MessageMeta<'_>,
        tools: &mut Tools,
    ) {
        if !self.admit(now, meta, &tools.floor) || delta.is_empty() || self.ended_turn(meta).is_some() {
            return;
        }
        self.unit_contents.has_text = true;
        let turn = self.open.get_or_insert_with(|| AssistantTurn::start(false, self.reports_words, tools));
        turn.add_response_id(meta.response_id);
        if turn.dropped_samples > 0 {
            return;
        }
        let before = turn.text.len();
        turn.push_text(&mut self.filter, delta);
        let has_news = !turn.text[before..].trim().is_empty();
        if turn.has_partials(tools) && has_news && is_report_due(turn.text.len(), &mut turn.reported_bytes) {
            tools.floor.out.push_client(turn.partial());
        }
    }

    /// Handles audio of the model.
    pub(super) fn handle_audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        meta: MessageMeta<'_>,
        tools: &mut Tools,
    ) {
        if !self.admit(now, meta, &tools.floor) || samples.is_empty() {
            return;
        }
        if let Some(ended) = self.ended_turn(meta) {
            if let Some(turn) = ended.played_as {
                tools.floor.push_audio(now, turn, samples);
            }
            return;
        }
        self.unit_contents.has_audio = true;
        let turn = self.open.get_or_insert_with(|| AssistantTurn::start(false, self.reports_words, tools));
        turn.add_response_id(meta.response_id);
        turn.push_audio(now, samples, &mut tools.floor);
    }

    /// Handles the end of a unit. It may repeat the unit's text and audio.
    pub(super) fn handle_done(
        &mut self,
        now: Instant,
        text: Option<&str>,
        audio: &[f32],
        meta: MessageMeta<'_>,
        tools: &mut Tools,
    ) {
        if !self.admit(now, meta, &tools.floor) || std::mem::replace(&mut self.unit_contents.is_done, true) {
            return;
        }
        if let Some(text) = text.filter(|_| !self.unit_contents.has_text) {
            let said = self.open.as_ref().map_or("", |turn| turn.text.as_str());
            let new_text = text.strip_prefix(said).unwrap_or(text).to_owned();
            let repeated = !said.is_empty() && said.ends_with(text);
            if !repeated {
                self.handle_text(now, &new_text, meta, tools);
            }
        }
        if !self.unit_contents.has_audio {
            self.handle_audio(now, audio, meta, tools);
        }
        if meta.response_id.is_none() {
            self.unit_contents = UnitContents::default();
        }
    }

    /// Handles `listen`. `answered` is the unit that it completed, if one was in flight.
    pub(super) fn handle_listen(
        &mut self,
        now: Instant,
        answered: Option<&UnitInFlight>,
        meta: MessageMeta<'_>,
        tools: &mut Tools,
    ) {
        if let Some(fence) = &mut self.fence {
            let named = meta.input_id.and_then(|id| id.parse().ok());
            let number = named.or(answered.map(|unit| unit.number));
            let forced = answered.is_some_and(|unit| unit.unit.force_listen);
            let is_acknowledged =
                forced || fence.first_forced.zip(number).is_some_and(|(first, number)| number >= first);
            if is_acknowledged && !std::mem::replace(&mut fence.acknowledged, true) {
                tools.timers.clear(&[Timer::Yield]);
                let (stage, after) = (BargeInStage::ModelYielded, now - fence.since);
                tools.floor.out.measure(Measurement::BargeIn { stage, after });
            }
            return;
        }
        if !self.is_stale(meta) {
            if meta.hit_limit {
                self.cut_open(now, tools);
            }
            self.end_turn(now, tools);
        }
    }

    /// Ends the turn with its upstream session. Audio received so far is played to its end. The client learns that the
    /// turn is incomplete.
    pub(super) fn reset(&mut self, now: Instant, tools: &mut Tools) {
        self.cut_open(now, tools);
        self.end_turn(now, tools);
        self.clear_fence(&mut tools.timers);
        self.last_ended = None;
        self.stale_ids.clear();
        self.stale_through_unit = 0;
        self.unit_contents = UnitContents::default();
    }

    /// Cuts the open turn where its audio ends so far, because the rest of it was lost. A turn without audio ends.
    fn cut_open(&mut self, now: Instant, tools: &mut Tools) {
        if let Some(mut unheard) = self.open.take_if(|turn| turn.playing.is_none()) {
            self.filter.clear();
            self.ended_at = Some(now);
            unheard.usage = self.usage.take();
            unheard.follow_earlier(now, &mut tools.floor);
            unheard.report_cut(tools);
            tools.floor.out.push_if_any(unheard.end(true));
            if let Some(playing) = unheard.playing {
                tools.floor.truncate(playing);
                tools.floor.finish(now, playing);
            }
        } else if let Some(turn) = &mut self.open {
            self.filter.finish(&mut turn.text);
            turn.cut_unmade_words();
            turn.playing.into_iter().for_each(|playing| tools.floor.truncate(playing));
        }
    }

    /// Ends the turn because the model finished it.
    fn end_turn(&mut self, now: Instant, tools: &mut Tools) {
        let Some(mut turn) = self.open.take() else { return };
        self.filter.finish(&mut turn.text);
        turn.usage = self.usage.take();
        self.ended_at = Some(now);
        self.history.push(Speaker::Assistant, turn.segment_id, turn.kept_words().0);
        turn.follow_earlier(now, &mut tools.floor);
        turn.report_complete(tools);
        tools.floor.out.push_if_any(turn.end(false));
        if let Some(playing) = turn.playing {
            tools.floor.finish(now, playing);
        }
        self.last_ended = Some(EndedTurn { played_as: turn.playing, response_ids: turn.response_ids });
    }

    /// Interrupts the turn: ends it for the client and forces the model to listen. Cuts the history to what was heard;
    /// the floor then cuts the final transcripts in the same way.
    pub(super) fn interrupt(&mut self, now: Instant, tools: &mut Tools) {
        self.interrupt_open(now, tools);
        for (segment_id, heard, _) in tools.floor.heard_turns(now) {
            self.history.cut(segment_id, &heard);
        }
    }

    fn interrupt_open(&mut self, now: Instant, tools: &mut Tools) {
        for id in self.last_ended.take().into_iter().flat_map(|ended| ended.response_ids) {
            self.remember_stale(id);
        }
        let Some(mut turn) = self.open.take() else { return };
        self.filter.clear();
        turn.usage = self.usage.take();
        self.ended_at = Some(now);
        if turn.playing.is_some() {
            self.history.push(Speaker::Assistant, turn.segment_id, &turn.text);
        }
        turn.follow_earlier(now, &mut tools.floor);
        turn.report_cut(tools);
        tools.floor.out.push_if_any(turn.end(true));
        for id in turn.response_ids {
            self.remember_stale(id);
        }
        self.raise_fence(now);
    }

    fn raise_fence(&mut self, now: Instant) {
        if self.fence.is_none() {
            self.fence = Some(Fence { since: now, first_forced: None, acknowledged: false });
        }
    }

    /// True if the unit with this number must force the model to listen. Called when the unit is sent.
    pub(super) fn force_listen(
        &mut self,
        now: Instant,
        number: u64,
        rules: &BargeInRules,
        timers: &mut Timers,
    ) -> bool {
        let Some(fence) = &mut self.fence else { return false };
        if fence.first_forced.is_none() {
            fence.first_forced = Some(number);
            timers.set(Timer::Yield, now + Duration::from_millis(rules.yield_max_ms));
        }
        true
    }

    /// Arms [`Timer::FenceLift`] for a model that has listened, once the user is quiet and no text is spoken.
    pub(super) fn arm_fence_lift(
        &self,
        user: &UserAudio,
        rules: &BargeInRules,
        floor: &Floor,
        timers: &mut Timers,
    ) {
        let fence =
            self.fence.as_ref().filter(|fence| fence.acknowledged && !floor.is_busy_with(SpeechSource::Text));
        let lift_at = fence.map(|fence| {
            let quiet_since = user.voice_at.map_or(fence.since, |voice_at| voice_at.max(fence.since));
            let ms = Duration::from_millis;
            (quiet_since + ms(rules.quiet_ms)).min(fence.since + ms(rules.suppress_max_ms))
        });
        timers.set_or_clear(Timer::FenceLift, lift_at);
    }

    /// Lets output be heard again. `last_sent` is the number of the last unit.
    pub(super) fn lift_fence(&mut self, last_sent: u64, timers: &mut Timers) {
        self.clear_fence(timers);
        self.stale_through_unit = last_sent;
    }

    fn clear_fence(&mut self, timers: &mut Timers) {
        self.fence = None;
        timers.clear(&[Timer::FenceLift, Timer::Yield]);
    }

    /// True if output may be heard. Raises the fence for output that starts while a requested text is being spoken.
    fn admit(&mut self, now: Instant, meta: MessageMeta<'_>, floor: &Floor) -> bool {
        // Another response id begins a unit. On PyTorch, where it stays the same, nothing is repeated.
        if meta.response_id.is_some() && self.unit_contents.response_id.as_deref() != meta.response_id {
            self.unit_contents =
                UnitContents { response_id: meta.response_id.map(Into::into), ..UnitContents::default() };
        }
        if self.fence.is_some() {
            if let Some(id) = meta.response_id {
                self.remember_stale(id.into());
            }
            return false;
        }
        if self.is_stale(meta) {
            return false;
        }
        if floor.may_speak(Claim::Turn) == Permission::Refused {
            self.raise_fence(now);
            return false;
        }
        true
    }

    /// The ended turn to which late output belongs.
    fn ended_turn(&self, meta: MessageMeta<'_>) -> Option<&EndedTurn> {
        let (ended, id) = (self.last_ended.as_ref()?, meta.response_id?);
        ended.response_ids.iter().any(|known| **known == *id).then_some(ended)
    }

    fn is_stale(&self, meta: MessageMeta<'_>) -> bool {
        let number = meta.input_id.and_then(|id| id.parse::<u64>().ok());
        number.is_some_and(|number| number <= self.stale_through_unit)
            || meta.response_id.is_some_and(|id| self.stale_ids.iter().any(|stale| **stale == *id))
    }

    fn remember_stale(&mut self, id: Box<str>) {
        if self.stale_ids.contains(&id) {
            return;
        }
        if self.stale_ids.len() == STALE_IDS_MAX {
            self.stale_ids.pop_front();
        }
        self.stale_ids.push_back(id);
    }
}
