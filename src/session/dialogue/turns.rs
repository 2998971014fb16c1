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

use super::turn::Turn;
use crate::session::{
    context::Host,
    measurement::{Figure, Stage},
    tts::player::By,
    upstream::{output_filter::Words, reply_tracker::InFlight},
};
use crate::{
    event::{ClientCommand, Mark, Speaker},
    mapping::profile::BargeIn,
};

/// Ids of interrupted turns that are remembered: C++ has one a unit, and its audio comes a unit late at most.
const STALE_MAX: usize = 8;

/// A turn that was over before all of its audio had come.
#[derive(Debug)]
struct Over {
    request_id: String,
    ids: VecDeque<Box<str>>,
}

/// What keeps an interrupted turn away.
#[derive(Debug)]
struct Fence {
    since: Instant,
    /// The first unit that forced the model to listen, and when it was sent.
    forced: Option<(u64, Instant)>,
    acknowledged: bool,
}

/// One conversation's turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    open: Option<Turn>,
    /// The last one that was over: its audio may come late (C++ has a thread of its own for it, field notes §1.7).
    over: Option<Over>,
    fence: Option<Fence>,
    stale_ids: VecDeque<Box<str>>,
    /// What answers this unit or an earlier one belongs to an interrupted turn.
    stale_through: u64,
    words: Words,
    unit: Brought,
    /// When the last turn was over.
    ended_at: Option<Instant>,
}

/// What the unit at hand has brought, to tell news from repetition.
#[derive(Debug, Default)]
struct Brought {
    id: Option<Box<str>>,
    text: bool,
    audio: bool,
    done: bool,
}

/// What a turn needs to know of its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Telling {
    /// Whether the client is told of the words.
    pub(super) transcripts: bool,
    /// And while they come.
    pub(super) partials: bool,
    /// A text is being spoken: the model has not the floor.
    pub(super) floor_taken: bool,
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
    pub(super) fn wants_force(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.forced.is_none())
    }

    /// When the last turn was over.
    pub(super) const fn ended_at(&self) -> Option<Instant> {
        self.ended_at
    }

    /// Text came.
    pub(super) fn text(
        &mut self,
        now: Instant,
        delta: &str,
        mark: Mark<'_>,
        telling: Telling,
        host: &mut Host,
    ) {
        if !self.admits(now, mark, telling) || delta.is_empty() || self.is_over(mark).is_some() {
            return;
        }
        self.unit.text = true;
        let turn = self.open.get_or_insert_with(|| Turn::begin(host));
        turn.is_called(mark.response_id);
        let before = turn.text.len();
        turn.says(&mut self.words, delta);
        let (said, news) = (turn.text.trim(), &turn.text[before..]);
        if telling.transcripts && telling.partials && !said.is_empty() && !news.trim().is_empty() {
            host.out.client(ClientCommand::TranscriptPartial {
                speaker: Speaker::Assistant,
                text: said.to_owned(),
                segment_id: turn.segment_id,
                at_ms: turn.audio_ms(),
                from_ms: 0,
            });
        }
    }

    /// Audio came.
    pub(super) fn audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        mark: Mark<'_>,
        telling: Telling,
        host: &mut Host,
    ) {
        if !self.admits(now, mark, telling) || samples.is_empty() {
            return;
        }
        if let Some(request_id) = self.is_over(mark) {
            return host.mouth.append(now, request_id, samples, &mut host.out);
        }
        self.unit.audio = true;
        let turn = self.open.get_or_insert_with(|| Turn::begin(host));
        turn.is_called(mark.response_id);
        turn.samples += samples.len() as u64;
        if !std::mem::replace(&mut turn.begun, true) {
            let words = turn.text.trim().to_owned();
            host.mouth.begin(now, By::Turn, turn.request_id.clone(), words);
        }
        host.mouth.say(now, samples, &mut host.out);
    }

    /// A unit is complete; it may repeat what it brought.
    pub(super) fn done(
        &mut self,
        now: Instant,
        text: Option<&str>,
        audio: &[f32],
        mark: Mark<'_>,
        telling: Telling,
        host: &mut Host,
    ) {
        if !self.admits(now, mark, telling) || std::mem::replace(&mut self.unit.done, true) {
            return;
        }
        if let Some(text) = text.filter(|_| !self.unit.text) {
            let said = self.open.as_ref().map_or("", |turn| turn.text.as_str());
            let news = text.strip_prefix(said).unwrap_or(text).to_owned();
            let repeated = !said.is_empty() && said.ends_with(text);
            if !repeated {
                self.text(now, &news, mark, telling, host);
            }
        }
        if !self.unit.audio {
            self.audio(now, audio, mark, telling, host);
        }
        if mark.response_id.is_none() {
            self.unit = Brought::default();
        }
    }

    /// The model listens; `answered` is the unit it says that about, if it was in flight.
    pub(super) fn listen(
        &mut self,
        now: Instant,
        answered: Option<&InFlight>,
        mark: Mark<'_>,
        telling: Telling,
        host: &mut Host,
    ) {
        if let Some(fence) = &mut self.fence {
            let named = mark.input_id.and_then(|id| id.parse().ok());
            let number = named.or(answered.map(|unit| unit.number));
            let first = fence.forced.map(|(first, _)| first);
            let forced = answered.is_some_and(|unit| unit.unit.forced);
            let listens = forced || first.zip(number).is_some_and(|(first, number)| number >= first);
            if listens && !std::mem::replace(&mut fence.acknowledged, true) {
                let (stage, after) = (Stage::Yielded, now - fence.since);
                host.out.measured(Figure::BargeIn { stage, after });
            }
            return;
        }
        if !self.is_stale(mark) {
            self.close(now, telling, host);
        }
    }

    /// The upstream session is over: so is the turn, and what came of it is heard to its end.
    pub(super) fn lost(&mut self, now: Instant, telling: Telling, host: &mut Host) {
        self.close(now, telling, host);
        self.fence = None;
        self.over = None;
        self.stale_ids.clear();
        self.stale_through = 0;
        self.unit = Brought::default();
    }

    /// The turn is over, as the model wants it.
    fn close(&mut self, now: Instant, telling: Telling, host: &mut Host) {
        let Some(mut turn) = self.open.take() else { return };
        self.words.finish(&mut turn.text);
        self.ended_at = Some(now);
        turn.tell(turn.text.trim(), telling, host);
        if turn.begun {
            host.mouth.finish(now, &mut host.out);
        }
        self.over = Some(Over { request_id: turn.request_id, ids: turn.ids });
    }

    /// Silence: the turn is over for the client, and the model is to hear of it.
    pub(super) fn interrupt(&mut self, now: Instant, telling: Telling, host: &mut Host) {
        for id in self.over.take().into_iter().flat_map(|over| over.ids) {
            self.remember_stale(id);
        }
        let Some(turn) = self.open.take() else { return };
        self.words.clear();
        self.ended_at = Some(now);
        turn.tell(turn.heard(host.mouth.unheard(now)), telling, host);
        for id in turn.ids {
            self.remember_stale(id);
        }
        self.raise_fence(now);
    }

    fn raise_fence(&mut self, now: Instant) {
        if self.fence.is_none() {
            self.fence = Some(Fence { since: now, forced: None, acknowledged: false });
        }
    }

    /// A unit is sent; whether it forces the model to listen.
    pub(super) fn force(&mut self, now: Instant, number: u64) -> bool {
        let Some(fence) = &mut self.fence else { return false };
        fence.forced.get_or_insert((number, now));
        true
    }

    /// Lets the model speak again, once it has listened and the user is quiet. `sent` is the last unit's number.
    pub(super) fn proceed(
        &mut self,
        now: Instant,
        voice_at: Option<Instant>,
        sent: u64,
        floor_taken: bool,
        rules: &BargeIn,
    ) {
        if floor_taken || self.fence_due(voice_at, rules).is_none_or(|due| due > now) {
            return;
        }
        self.fence = None;
        self.stale_through = sent;
    }

    /// When the fence falls; none while the model has not listened.
    pub(super) fn fence_due(&self, voice_at: Option<Instant>, rules: &BargeIn) -> Option<Instant> {
        let ms = Duration::from_millis;
        let fence = self.fence.as_ref().filter(|fence| fence.acknowledged)?;
        let quiet_since = voice_at.map_or(fence.since, |voice_at| voice_at.max(fence.since));
        Some((quiet_since + ms(rules.quiet_ms)).min(fence.since + ms(rules.hold_max_ms)))
    }

    /// When a model that goes on talking is given up.
    pub(super) fn yield_due(&self, rules: &BargeIn) -> Option<Instant> {
        let fence = self.fence.as_ref().filter(|fence| !fence.acknowledged)?;
        fence.forced.map(|(_, at)| at + Duration::from_millis(rules.yield_max_ms))
    }

    /// Whether what came may be heard; what may not be, and is no echo of the past, is told to stop.
    fn admits(&mut self, now: Instant, mark: Mark<'_>, telling: Telling) -> bool {
        self.unit.meet(mark);
        if self.fence.is_some() {
            if let Some(id) = mark.response_id {
                self.remember_stale(id.into());
            }
            return false;
        }
        if self.is_stale(mark) {
            return false;
        }
        if telling.floor_taken {
            self.raise_fence(now);
            return false;
        }
        true
    }

    /// The turn that was over and this still belongs to.
    fn is_over(&self, mark: Mark<'_>) -> Option<&str> {
        let (over, id) = (self.over.as_ref()?, mark.response_id?);
        over.ids.iter().any(|known| **known == *id).then_some(over.request_id.as_str())
    }

    fn is_stale(&self, mark: Mark<'_>) -> bool {
        let number = mark.input_id.and_then(|id| id.parse::<u64>().ok());
        number.is_some_and(|number| number <= self.stale_through)
            || mark.response_id.is_some_and(|id| self.stale_ids.iter().any(|stale| **stale == *id))
    }

    fn remember_stale(&mut self, id: Box<str>) {
        if self.stale_ids.contains(&id) {
            return;
        }
        if self.stale_ids.len() == STALE_MAX {
            self.stale_ids.pop_front();
        }
        self.stale_ids.push_back(id);
    }
}

impl Brought {
    /// Another answer is another unit; on PyTorch, where it is not, nothing is ever repeated.
    fn meet(&mut self, mark: Mark<'_>) {
        if mark.response_id.is_some() && self.id.as_deref() != mark.response_id {
            *self = Self { id: mark.response_id.map(Into::into), ..Self::default() };
        }
    }
}
