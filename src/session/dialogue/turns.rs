//! The model's turns: when one begins and ends, and what of an interrupted one still comes and must not be heard.
//!
//! A turn begins with its first text or audio and ends with the next `listen` (field notes §1.6, §1.7, §7.15): on
//! PyTorch that carries the turn's own id, on C++ every unit has a `done` and an id of its own. An interrupted turn is
//! fenced off: nothing is heard until the model has acknowledged a unit that forced it to listen and the user is quiet
//! (§7.18), and what comes later under one of its ids is dropped. An upstream that gives no ids answers in order, each
//! unit once (§4): there nothing of an interrupted turn comes behind the answer to the forced unit.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::turn::AssistantTurn;
use crate::session::{
    context::LaneContext,
    measurement::{BargeInStage, Measurement},
    tts::player::PlaybackSource,
    upstream::{output_filter::OutputFilter, reply_tracker::UnitInFlight},
};
use crate::{
    event::{ClientCommand, MessageMeta, Speaker},
    mapping::profile::BargeInRules,
};

/// Ids of interrupted turns that are remembered: C++ has one a unit, and its audio comes a unit late at most.
const STALE_IDS_MAX: usize = 8;

/// A turn that was over before all of its audio had come.
#[derive(Debug)]
struct EndedTurn {
    request_id: String,
    response_ids: VecDeque<Box<str>>,
}

/// What keeps an interrupted turn away.
#[derive(Debug)]
struct Fence {
    since: Instant,
    /// The first unit that forced the model to listen, and when it was sent.
    first_forced: Option<(u64, Instant)>,
    acknowledged: bool,
}

/// One conversation's turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    open: Option<AssistantTurn>,
    /// The last one that was over: its audio may come late (C++ has a thread of its own for it, field notes §1.7).
    last_ended: Option<EndedTurn>,
    fence: Option<Fence>,
    stale_ids: VecDeque<Box<str>>,
    /// What answers this unit or an earlier one belongs to an interrupted turn.
    stale_through_unit: u64,
    filter: OutputFilter,
    unit_contents: UnitContents,
    /// When the last turn was over.
    ended_at: Option<Instant>,
}

/// What the unit at hand has brought, to tell news from repetition.
#[derive(Debug, Default)]
struct UnitContents {
    response_id: Option<Box<str>>,
    has_text: bool,
    has_audio: bool,
    is_done: bool,
}

/// What a turn needs to know of its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct TranscriptOptions {
    /// Whether the client is told of the words.
    pub(super) transcripts: bool,
    /// And while they come.
    pub(super) partials: bool,
    /// A text is being spoken: the model has not the floor.
    pub(super) is_tts_active: bool,
}

impl Turns {
    /// The model speaks, as far as the upstream has said.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The model is to listen.
    pub(super) const fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// The model is to listen and has not been told.
    pub(super) fn needs_force_listen(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.first_forced.is_none())
    }

    /// When the last turn was over.
    pub(super) const fn ended_at(&self) -> Option<Instant> {
        self.ended_at
    }

    /// Text came.
    pub(super) fn handle_text(
        &mut self,
        now: Instant,
        delta: &str,
        meta: MessageMeta<'_>,
        options: TranscriptOptions,
        context: &mut LaneContext,
    ) {
        if !self.admit(now, meta, options) || delta.is_empty() || self.ended_turn_request(meta).is_some() {
            return;
        }
        self.unit_contents.has_text = true;
        let turn = self.open.get_or_insert_with(|| AssistantTurn::start(context));
        turn.add_response_id(meta.response_id);
        let before = turn.text.len();
        turn.push_text(&mut self.filter, delta);
        let (said, new_text) = (turn.text.trim(), &turn.text[before..]);
        if options.transcripts && options.partials && !said.is_empty() && !new_text.trim().is_empty() {
            context.out.push_client(ClientCommand::TranscriptPartial {
                speaker: Speaker::Assistant,
                text: said.to_owned(),
                segment_id: turn.segment_id,
                audio_ms: turn.audio_ms(),
                start_ms: 0,
            });
        }
    }

    /// Audio came.
    pub(super) fn handle_audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        meta: MessageMeta<'_>,
        options: TranscriptOptions,
        context: &mut LaneContext,
    ) {
        if !self.admit(now, meta, options) || samples.is_empty() {
            return;
        }
        if let Some(request_id) = self.ended_turn_request(meta) {
            return context.player.append_audio(now, request_id, samples, &mut context.out);
        }
        self.unit_contents.has_audio = true;
        let turn = self.open.get_or_insert_with(|| AssistantTurn::start(context));
        turn.add_response_id(meta.response_id);
        turn.audio_samples += samples.len() as u64;
        if !std::mem::replace(&mut turn.playout_started, true) {
            let spoken_text = turn.text.trim().to_owned();
            context.player.begin_item(now, PlaybackSource::Turn, turn.request_id.clone(), spoken_text);
        }
        context.player.push_audio(now, samples, &mut context.out);
    }

    /// A unit is complete; it may repeat what it brought.
    pub(super) fn handle_done(
        &mut self,
        now: Instant,
        text: Option<&str>,
        audio: &[f32],
        meta: MessageMeta<'_>,
        options: TranscriptOptions,
        context: &mut LaneContext,
    ) {
        if !self.admit(now, meta, options) || std::mem::replace(&mut self.unit_contents.is_done, true) {
            return;
        }
        if let Some(text) = text.filter(|_| !self.unit_contents.has_text) {
            let said = self.open.as_ref().map_or("", |turn| turn.text.as_str());
            let new_text = text.strip_prefix(said).unwrap_or(text).to_owned();
            let repeated = !said.is_empty() && said.ends_with(text);
            if !repeated {
                self.handle_text(now, &new_text, meta, options, context);
            }
        }
        if !self.unit_contents.has_audio {
            self.handle_audio(now, audio, meta, options, context);
        }
        if meta.response_id.is_none() {
            self.unit_contents = UnitContents::default();
        }
    }

    /// The model listens; `answered` is the unit it says that about, if it was in flight.
    pub(super) fn handle_listen(
        &mut self,
        now: Instant,
        answered: Option<&UnitInFlight>,
        meta: MessageMeta<'_>,
        options: TranscriptOptions,
        context: &mut LaneContext,
    ) {
        if let Some(fence) = &mut self.fence {
            let named = meta.input_id.and_then(|id| id.parse().ok());
            let number = named.or(answered.map(|unit| unit.number));
            let first = fence.first_forced.map(|(first, _)| first);
            let forced = answered.is_some_and(|unit| unit.unit.force_listen);
            let is_acknowledged = forced || first.zip(number).is_some_and(|(first, number)| number >= first);
            if is_acknowledged && !std::mem::replace(&mut fence.acknowledged, true) {
                let (stage, after) = (BargeInStage::ModelYielded, now - fence.since);
                context.out.measure(Measurement::BargeIn { stage, after });
            }
            return;
        }
        if !self.is_stale(meta) {
            self.end_turn(now, options, context);
        }
    }

    /// The upstream session is over: so is the turn, and what came of it is heard to its end.
    pub(super) fn reset(&mut self, now: Instant, options: TranscriptOptions, context: &mut LaneContext) {
        self.end_turn(now, options, context);
        self.fence = None;
        self.last_ended = None;
        self.stale_ids.clear();
        self.stale_through_unit = 0;
        self.unit_contents = UnitContents::default();
    }

    /// The turn is over, as the model wants it.
    fn end_turn(&mut self, now: Instant, options: TranscriptOptions, context: &mut LaneContext) {
        let Some(mut turn) = self.open.take() else { return };
        self.filter.finish(&mut turn.text);
        self.ended_at = Some(now);
        turn.report(turn.text.trim(), options, context);
        if turn.playout_started {
            context.player.finish_item(now, &mut context.out);
        }
        self.last_ended = Some(EndedTurn { request_id: turn.request_id, response_ids: turn.response_ids });
    }

    /// Silence: the turn is over for the client, and the model is to hear of it.
    pub(super) fn interrupt(&mut self, now: Instant, options: TranscriptOptions, context: &mut LaneContext) {
        for id in self.last_ended.take().into_iter().flat_map(|ended| ended.response_ids) {
            self.remember_stale(id);
        }
        let Some(turn) = self.open.take() else { return };
        self.filter.clear();
        self.ended_at = Some(now);
        turn.report(turn.heard_text(context.player.unplayed_length(now)), options, context);
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

    /// A unit is sent; whether it forces the model to listen.
    pub(super) fn force_listen(&mut self, now: Instant, number: u64) -> bool {
        let Some(fence) = &mut self.fence else { return false };
        fence.first_forced.get_or_insert((number, now));
        true
    }

    /// Lets the model speak again, once it has listened and the user is quiet. `sent` is the last unit's number.
    pub(super) fn lift_fence_if_due(
        &mut self,
        now: Instant,
        voice_at: Option<Instant>,
        last_sent: u64,
        is_tts_active: bool,
        rules: &BargeInRules,
    ) {
        if is_tts_active || self.fence_lift_at(voice_at, rules).is_none_or(|due| due > now) {
            return;
        }
        self.fence = None;
        self.stale_through_unit = last_sent;
    }

    /// When the fence falls; none while the model has not listened.
    pub(super) fn fence_lift_at(&self, voice_at: Option<Instant>, rules: &BargeInRules) -> Option<Instant> {
        let ms = Duration::from_millis;
        let fence = self.fence.as_ref().filter(|fence| fence.acknowledged)?;
        let quiet_since = voice_at.map_or(fence.since, |voice_at| voice_at.max(fence.since));
        Some((quiet_since + ms(rules.quiet_ms)).min(fence.since + ms(rules.suppress_max_ms)))
    }

    /// When a model that goes on talking is given up.
    pub(super) fn yield_deadline(&self, rules: &BargeInRules) -> Option<Instant> {
        let fence = self.fence.as_ref().filter(|fence| !fence.acknowledged)?;
        fence.first_forced.map(|(_, at)| at + Duration::from_millis(rules.yield_max_ms))
    }

    /// Whether what came may be heard; what may not be, and is no echo of the past, is told to stop.
    fn admit(&mut self, now: Instant, meta: MessageMeta<'_>, options: TranscriptOptions) -> bool {
        self.unit_contents.start_if_new(meta);
        if self.fence.is_some() {
            if let Some(id) = meta.response_id {
                self.remember_stale(id.into());
            }
            return false;
        }
        if self.is_stale(meta) {
            return false;
        }
        if options.is_tts_active {
            self.raise_fence(now);
            return false;
        }
        true
    }

    /// The turn that was over and this still belongs to.
    fn ended_turn_request(&self, meta: MessageMeta<'_>) -> Option<&str> {
        let (ended, id) = (self.last_ended.as_ref()?, meta.response_id?);
        ended.response_ids.iter().any(|known| **known == *id).then_some(ended.request_id.as_str())
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

impl UnitContents {
    /// Another answer is another unit; on PyTorch, where it is not, nothing is ever repeated.
    fn start_if_new(&mut self, meta: MessageMeta<'_>) {
        if meta.response_id.is_some() && self.response_id.as_deref() != meta.response_id {
            *self = Self { response_id: meta.response_id.map(Into::into), ..Self::default() };
        }
    }
}
