//! The upstream session of a conversation: opened, replaced before it ends, replaced when it is lost.
//!
//! The old one is told goodbye and gone before the next is dialled, unless a second worker keeps one in readiness: with
//! one worker, two connections queue behind each other (field notes §7.2, §7.3).

use std::time::{Duration, Instant};

use super::{
    super::{
        action::Observation,
        host::Host,
        link::{Link, News, millis},
        retry::{Failure, Trouble},
    },
    Converse, Scene,
    limits::{Context, Due, Limits},
    steps::{End, InFlight, Steps},
};
use crate::{
    audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES},
    error::{Error, ErrorKind},
    event::{Append, ClientCommand, Lane, LaneCommand, LaneEvent, Mark, RolloverReason},
    mapping::profile::LaneTimes,
};

/// Where a conversation is.
#[derive(Debug)]
pub(super) enum Place {
    /// Nowhere, and wants to be nowhere: over, or its worker speaks a text.
    Out,
    /// To be dialled then, when that lane is gone.
    Due { at: Instant, after: Option<Lane> },
    /// Being dialled and initialised.
    Opening(Link),
    /// Under way.
    Talking(Box<Talk>),
}

/// One upstream session in use.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) link: Link,
    pub(super) ready_at: Instant,
    pub(super) steps: Steps,
    pub(super) context: Context,
    pub(super) frames_since_answer: bool,
    /// To be replaced as soon as the unit in flight is answered.
    pub(super) rolling: Option<RolloverReason>,
}

/// The next upstream session, kept in readiness on a second worker.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) talk: Talk,
    /// What had been said when it was opened.
    version: u64,
    renewed: bool,
}

/// Since when no audio reaches a model, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    reason: RolloverReason,
    since: Instant,
}

/// Units after which an upstream session was a good one.
const HEALTHY_UNITS: u64 = 10;

/// With less time than this until the hard bound, a session kept in readiness is taken as it is.
const RENEW_WITHIN: Duration = Duration::from_secs(20);

impl Place {
    pub(super) fn link(&self) -> Option<&Link> {
        match self {
            Self::Out | Self::Due { .. } => None,
            Self::Opening(link) => Some(link),
            Self::Talking(talk) => Some(&talk.link),
        }
    }

    pub(super) fn link_mut(&mut self) -> Option<&mut Link> {
        match self {
            Self::Out | Self::Due { .. } => None,
            Self::Opening(link) => Some(link),
            Self::Talking(talk) => Some(&mut talk.link),
        }
    }
}

impl Talk {
    fn new(now: Instant, link: Link) -> Self {
        Self {
            link,
            ready_at: now,
            steps: Steps::default(),
            context: Context::default(),
            frames_since_answer: false,
            rolling: None,
        }
    }

    /// Something came that may end a step; the unit it answers.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        end: End,
        mark: Mark<'_>,
        limits: &Limits,
        host: &mut Host,
    ) -> Option<InFlight> {
        let unit = self.steps.end(now, end, mark)?;
        self.count(now, &unit, limits, host);
        Some(unit)
    }

    /// Time has passed.
    pub(super) fn timeout(&mut self, now: Instant, limits: &Limits, host: &mut Host) {
        if let Some(unit) = self.steps.timeout(now) {
            self.count(now, &unit, limits, host);
        }
    }

    /// Whether it was of use, or there for longer than all attempts together may take: what is lost with it or after it is
    /// no part of the trouble before.
    fn was_good(&self, now: Instant, times: &LaneTimes) -> bool {
        let lived = now - self.ready_at;
        self.steps.answered() >= HEALTHY_UNITS || lived >= Duration::from_millis(times.retry_total_ms)
    }

    fn count(&mut self, now: Instant, unit: &InFlight, limits: &Limits, host: &mut Host) {
        self.context.count(unit.busy, std::mem::take(&mut self.frames_since_answer), limits);
        let took = now - unit.at;
        if let Some(count) = self.steps.alarm(took) {
            host.out.observe(Observation::SlowStep { step_ms: millis(took), count });
        }
    }
}

impl Converse {
    /// Every lane it has.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.place.link().into_iter().chain(self.standby.as_ref().map(|standby| &standby.talk.link))
    }

    pub(super) fn link_of(&mut self, lane: Lane) -> Option<&mut Link> {
        let standby = self.standby.as_mut().map(|standby| &mut standby.talk.link);
        self.place.link_mut().into_iter().chain(standby).find(|link| link.lane() == lane)
    }

    /// Whether a lane is one of its own.
    pub(crate) fn owns(&self, lane: Lane) -> bool {
        self.links().any(|link| link.lane() == lane)
    }

    /// Whether it has lanes.
    pub(crate) fn has_lanes(&self) -> bool {
        self.links().next().is_some()
    }

    /// Whether one of its lanes holds a worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.links().any(Link::holds_worker)
    }

    pub(super) fn dial(&mut self, now: Instant, host: &mut Host) {
        self.place = Place::Opening(Link::open(now, self.mode, self.opening(host), host));
    }

    /// Dials when it is time to.
    pub(super) fn redial(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Place::Due { at, after } = self.place else { return };
        if now < at || after.is_some_and(|lane| host.is_leaving(lane)) || !host.may_dial() {
            return;
        }
        // A text that needs the worker goes first. When it is made the worker is free, long before it is heard.
        let lent = self.gap.is_some_and(|gap| gap.reason == RolloverReason::Lent);
        if lent && (scene.text_in_making || host.leaving.iter().any(Link::holds_worker)) {
            return;
        }
        self.dial(now, host);
    }

    pub(super) fn redial_due(&self, host: &Host) -> Option<Instant> {
        let Place::Due { at, after } = self.place else { return None };
        let blocked = after.is_some_and(|lane| host.is_leaving(lane)) || !host.may_dial();
        let lent = self.gap.is_some_and(|gap| gap.reason == RolloverReason::Lent);
        (!blocked && !lent).then_some(at)
    }

    /// An upstream session is ready: the conversation goes on in it.
    pub(super) fn begin(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Place::Opening(mut link) = std::mem::replace(&mut self.place, Place::Out) else { return };
        link.engage();
        self.place = Place::Talking(Box::new(Talk::new(now, link)));
        self.arrive(now, false, scene, host);
    }

    /// The conversation goes on; operators and clients who asked are told.
    fn arrive(&mut self, now: Instant, standby: bool, scene: &Scene, host: &mut Host) {
        self.mic.catch_up();
        self.alone = false;
        self.renewing = None;
        self.told = false;
        let Some(Gap { reason, since }) = self.gap.take() else { return };
        let gap_ms = millis(now - since);
        let kept_ms = self.mic.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        host.out.observe(Observation::RolledOver { reason, gap_ms, standby, kept_ms });
        if scene.rollover_events {
            host.out.client(ClientCommand::RolledOver { reason, gap_ms, standby, kept_ms });
        }
    }

    /// Replaces the upstream session now.
    pub(super) fn roll(&mut self, now: Instant, reason: RolloverReason, scene: &Scene, host: &mut Host) {
        let after = self.leave(now, scene, host);
        self.gap = Some(Gap { reason, since: now });
        match self.standby.take() {
            Some(standby) if standby.is_warm(self.rules.rollover.standby_units) => {
                self.place = Place::Talking(Box::new(standby.talk));
                self.arrive(now, true, scene, host);
            }
            // Not ready yet, but on its way: sooner there than another.
            Some(standby) => self.place_opening(now, standby.talk, scene, host),
            None => self.place = Place::Due { at: now, after },
        }
    }

    fn place_opening(&mut self, now: Instant, talk: Talk, scene: &Scene, host: &mut Host) {
        if talk.link.is_engaged() {
            self.place = Place::Talking(Box::new(talk));
            self.arrive(now, true, scene, host);
        } else {
            self.place = Place::Opening(talk.link);
        }
    }

    /// Leaves the upstream session politely: what came of a turn is heard to its end. The lane that is left.
    fn leave(&mut self, now: Instant, scene: &Scene, host: &mut Host) -> Option<Lane> {
        let telling = self.telling(scene);
        match std::mem::replace(&mut self.place, Place::Out) {
            Place::Talking(mut talk) => {
                if talk.was_good(now, &host.times) {
                    self.trouble = None;
                }
                if let Some(unit) = talk.steps.take_in_flight() {
                    self.mic.give_back(&unit.audio, unit.real);
                }
                self.turns.lost(now, telling, host);
                let lane = talk.link.lane();
                talk.link.retire(now, host);
                Some(lane)
            }
            Place::Opening(link) => {
                let lane = link.lane();
                link.retire(now, host);
                Some(lane)
            }
            Place::Out | Place::Due { .. } => None,
        }
    }

    /// The upstream session is lost: the client is told, and another is looked for.
    pub(super) fn lose(&mut self, now: Instant, words: String, scene: &Scene, host: &mut Host) {
        let after = self.leave(now, scene, host);
        let error = format!(
            "the conversation was interrupted: {words}; it goes on as soon as another session is there"
        );
        host.out.error(Error::new(ErrorKind::ConversationInterrupted, error));
        self.told = true;
        Trouble::note(&mut self.trouble, now, ErrorKind::Unavailable, words);
        self.gap = Some(Gap { reason: RolloverReason::Lost, since: now });
        if let Some(standby) = self.standby.take() {
            return self.place_opening(now, standby.talk, scene, host);
        }
        let next =
            self.trouble.as_ref().map(|trouble| trouble.next_attempt(now, now, &host.times, &mut host.rng));
        match next {
            Some(Err(failure)) => self.give_up(failure),
            Some(Ok(at)) => self.place = Place::Due { at, after },
            None => {}
        }
    }

    pub(super) fn give_up(&mut self, failure: Failure) {
        self.place = Place::Out;
        self.lost = Some(failure);
    }

    /// Gives the worker to a text that waits for one, until the text is spoken.
    pub(crate) fn lend_worker(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        if let Some(standby) = self.standby.take() {
            standby.talk.link.retire(now, host);
        }
        if !self.holds_worker() {
            return;
        }
        let after = self.leave(now, scene, host);
        self.gap = Some(Gap { reason: RolloverReason::Lent, since: now });
        self.place = Place::Due { at: now, after };
    }

    /// The session is over.
    pub(crate) fn stop(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        if let Some(standby) = self.standby.take() {
            standby.talk.link.retire(now, host);
        }
        self.leave(now, scene, host);
        self.gap = None;
    }

    /// Looks whether the upstream session has to be replaced, and does it at a quiet moment.
    pub(super) fn mind_limits(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Some(due) = self.limits_reached(now) else { return };
        let quiet = self.quiet_at(scene, host).is_some_and(|at| at <= now);
        if quiet && self.may_open_standby(host) {
            self.open_standby(now, host);
        }
        let ready = self.standby_is_fresh(now, host);
        let Place::Talking(talk) = &mut self.place else { return };
        if talk.rolling.is_none() && (due.hard || (quiet && ready)) {
            talk.rolling = Some(due.reason);
        }
        if let Some(reason) = talk.rolling
            && talk.steps.in_flight().is_none()
        {
            self.roll(now, reason, scene, host);
        }
    }

    fn limits_reached(&self, now: Instant) -> Option<Due> {
        let Place::Talking(talk) = &self.place else { return None };
        self.limits.due(now, talk.link.granted_at()?, talk.context)
    }

    /// When [`Converse::mind_limits`] has something to do.
    pub(super) fn limits_due(&self, now: Instant, scene: &Scene, host: &Host) -> Option<Instant> {
        let Place::Talking(talk) = &self.place else { return None };
        let granted_at = talk.link.granted_at()?;
        let next = self.limits.next(now, granted_at);
        let quiet = self.limits_reached(now).and_then(|_| self.quiet_at(scene, host)).filter(|at| *at > now);
        next.into_iter().chain(quiet).min()
    }

    /// Since when nobody speaks and nobody waits for an answer; none while somebody does.
    fn quiet_at(&self, scene: &Scene, host: &Host) -> Option<Instant> {
        let busy = self.turns.is_open() || self.turns.is_fenced() || host.mouth.is_busy();
        let Place::Talking(talk) = &self.place else { return None };
        if busy || scene.floor_taken || scene.in_speech {
            return None;
        }
        let Some(voice_at) = scene.voice_at else { return Some(talk.ready_at) };
        // Who has asked something is not made to ask again.
        let answered = self.turns.ended_at().is_some_and(|ended| ended >= voice_at);
        let rest = if answered {
            Duration::from_millis(self.rules.rollover.quiet_ms)
        } else {
            self.rules.converse.linger
        };
        Some(voice_at + rest)
    }
}

impl Standby {
    /// It has listened to nothing for as long as a new model only listens.
    fn is_warm(&self, units: u32) -> bool {
        self.talk.link.is_engaged()
            && self.talk.steps.answered() >= u64::from(units)
            && self.talk.steps.in_flight().is_none()
    }
}

impl Converse {
    fn wants_standby(&self) -> bool {
        self.rules.rollover.standby && self.standby.is_none() && !self.alone
    }

    /// Not while the one it takes the place of still has the worker: it would queue behind that, as if there were none.
    fn may_open_standby(&self, host: &Host) -> bool {
        self.wants_standby() && self.renewing.is_none_or(|lane| !host.is_leaving(lane))
    }

    fn open_standby(&mut self, now: Instant, host: &mut Host) {
        let renewed = self.renewing.take().is_some();
        let link = Link::open(now, self.mode, self.opening(host), host);
        let version = host.memory.version();
        self.standby = Some(Standby { talk: Talk::new(now, link), version, renewed });
    }

    /// Nothing is to be waited for: the next session is ready and knows all that was said, or there will be none.
    fn standby_is_fresh(&mut self, now: Instant, host: &mut Host) -> bool {
        let Some(standby) = &self.standby else { return !self.wants_standby() };
        if !standby.is_warm(self.rules.rollover.standby_units) {
            return false;
        }
        let Place::Talking(talk) = &self.place else { return false };
        let left = talk.link.granted_at().map_or(Duration::ZERO, |at| self.limits.left(now, at));
        if standby.version == host.memory.version() || standby.renewed || left < RENEW_WITHIN {
            return true;
        }
        if let Some(standby) = self.standby.take() {
            self.renewing = Some(standby.talk.link.lane());
            standby.talk.link.retire(now, host);
        }
        false
    }

    /// The upstream said something on the lane kept in readiness.
    pub(super) fn standby_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        mark: Mark<'_>,
        host: &mut Host,
    ) {
        let Some(standby) = &mut self.standby else { return };
        let news = standby.talk.link.event(now, event, host);
        standby.talk.context.report(mark.context_tokens);
        let end = match event {
            LaneEvent::Listen => Some(End::Listen),
            LaneEvent::Audio(_) => Some(End::Audio),
            LaneEvent::Done { .. } => Some(End::Done),
            _ => None,
        };
        if let Some(end) = end {
            standby.talk.ended(now, end, mark, &self.limits, host);
        }
        self.standby_news(now, &news, host);
    }

    pub(super) fn standby_news(&mut self, now: Instant, news: &News, host: &mut Host) {
        match news {
            News::Ready => {
                if let Some(standby) = &mut self.standby {
                    standby.talk.link.engage();
                    standby.talk.ready_at = now;
                }
            }
            // No worker is free, and it is not for us to take one from others.
            News::Queued | News::Stuck(_) | News::Failed(_) => {
                self.alone = true;
                if let Some(standby) = self.standby.take() {
                    standby.talk.link.retire(now, host);
                }
            }
            News::None | News::Empty => {}
        }
    }

    /// Sends the next session the silence that it only listens to.
    pub(super) fn mind_standby(&mut self, now: Instant, host: &mut Host) {
        if self.standby_due().is_none_or(|due| due > now) {
            return;
        }
        let Some(Standby { talk, .. }) = &mut self.standby else { return };
        let audio = std::sync::Arc::new(vec![0; UNIT_SAMPLES]);
        let input_id = talk.steps.send(now, &audio, 0, false, false);
        let append = Append { audio, input_id, force_listen: false, frame: None };
        host.out.push(super::super::action::Action::ToLane(talk.link.lane(), LaneCommand::Append(append)));
    }

    pub(super) fn standby_due(&self) -> Option<Instant> {
        let Standby { talk, .. } = self.standby.as_ref()?;
        let fed = talk.steps.sent_number() >= u64::from(self.rules.rollover.standby_units);
        let idle = talk.link.is_engaged() && talk.steps.in_flight().is_none();
        let at = talk.steps.sent_at().map_or(talk.ready_at, |at| at + self.rules.converse.unit_min);
        (idle && !fed).then_some(at)
    }
}
