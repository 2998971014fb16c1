//! The upstream session of a conversation: opened, replaced before it ends, replaced when it is lost.
//!
//! The old one is told goodbye and gone before the next is dialled, unless a second worker keeps one in readiness: with
//! one worker, two connections queue behind each other (field notes §7.2, §7.3).

use std::time::{Duration, Instant};

use super::{
    Converse, Scene,
    rollover_limits::{Context, Due, Limits},
};
use crate::session::{
    context::Host,
    measurement::{Figure, Purpose, State},
    outbox::{Action, Observation},
    upstream::{
        backoff::{Failure, Trouble},
        connection::{UpstreamConnection, millis},
        reply_tracker::{InFlight, Sign, Steps, UNIT, Unit},
    },
};
use crate::{
    audio::SPEECH_RATE_HZ,
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
    Opening(Box<UpstreamConnection>),
    /// Under way.
    Talking(Box<Talk>),
}

/// One upstream session in use.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) link: UpstreamConnection,
    pub(super) ready_at: Instant,
    pub(super) steps: Steps,
    pub(super) context: Context,
    pub(super) frames_since_answer: bool,
    /// Units in a row that the upstream could not work on.
    pub(super) troubles: u32,
    /// To be replaced as soon as the unit in flight is answered.
    pub(super) rolling: Option<RolloverReason>,
}

/// Since when no audio reaches a model, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    reason: RolloverReason,
    since: Instant,
}

/// Units after which an upstream session was of use at all: during the first three a model only listens.
const USEFUL_UNITS: u64 = 3;

/// Units after which an upstream session was a good one.
const HEALTHY_UNITS: u64 = 10;

impl Place {
    pub(super) fn link(&self) -> Option<&UpstreamConnection> {
        match self {
            Self::Out | Self::Due { .. } => None,
            Self::Opening(link) => Some(link),
            Self::Talking(talk) => Some(&talk.link),
        }
    }

    pub(super) fn link_mut(&mut self) -> Option<&mut UpstreamConnection> {
        match self {
            Self::Out | Self::Due { .. } => None,
            Self::Opening(link) => Some(link),
            Self::Talking(talk) => Some(&mut talk.link),
        }
    }
}

impl Talk {
    pub(super) fn new(now: Instant, link: UpstreamConnection) -> Self {
        Self {
            link,
            ready_at: now,
            steps: Steps::default(),
            context: Context::default(),
            frames_since_answer: false,
            troubles: 0,
            rolling: None,
        }
    }

    /// Sends a unit.
    pub(super) fn append(&mut self, now: Instant, unit: Unit, host: &mut Host) {
        self.frames_since_answer |= unit.frame.is_some();
        let (audio, force_listen, frame) = (unit.audio.clone(), unit.forced, unit.frame.clone());
        let input_id = self.steps.send(now, unit);
        let append = Append { audio, input_id, force_listen, frame };
        host.out.push(Action::ToLane(self.link.lane(), LaneCommand::Append(append)));
    }

    /// The model said something; the unit that was all about.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        mark: Mark<'_>,
        limits: &Limits,
        host: &mut Host,
    ) -> Option<InFlight> {
        let sign = Sign::of(event)?;
        self.troubles = 0;
        self.context.report(mark.context_tokens);
        let unit = self.steps.heard(now, sign, mark)?;
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
        self.context.count(unit.unit.busy, std::mem::take(&mut self.frames_since_answer), limits);
        let (took, lane) = (now - unit.at, self.link.lane());
        host.out.measured(Figure::Step { lane, took, unit: UNIT });
        host.out.measured(Figure::Context { lane, tokens: self.context.tokens() });
        if let Some(count) = self.steps.alarm(took) {
            host.out.observe(Observation::SlowStep { step_ms: millis(took), count });
        }
    }
}

impl Converse {
    /// Where the session is, as long as no model is there.
    pub(crate) fn state(&self) -> Option<State> {
        match &self.place {
            Place::Talking(_) | Place::Out => None,
            _ if self.gap.is_some() => Some(State::RollingOver),
            Place::Opening(link) if link.is_queued() => Some(State::Queued),
            Place::Opening(_) | Place::Due { .. } => Some(State::Opening),
        }
    }

    /// Every lane it has.
    pub(super) fn links(&self) -> impl Iterator<Item = &UpstreamConnection> {
        self.place.link().into_iter().chain(self.standby.as_ref().map(|standby| &standby.talk.link))
    }

    /// Whether a lane is the one kept in readiness.
    pub(super) fn is_standby(&self, lane: Lane) -> bool {
        self.standby.as_ref().is_some_and(|standby| standby.talk.link.lane() == lane)
    }

    pub(super) fn link_of(&mut self, lane: Lane) -> Option<&mut UpstreamConnection> {
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
        self.links().any(UpstreamConnection::holds_worker)
    }

    pub(super) fn dial(&mut self, now: Instant, host: &mut Host) {
        self.place = Place::Opening(Box::new(UpstreamConnection::open(
            now,
            (Purpose::Converse, self.mode),
            self.opening(host),
            host,
        )));
    }

    /// Dials when it is time to.
    pub(super) fn redial(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Place::Due { at, after } = self.place else { return };
        if now < at || after.is_some_and(|lane| host.is_leaving(lane)) || !host.may_dial() {
            return;
        }
        // A text that needs the worker goes first. When it is made the worker is free, long before it is heard.
        let lent = self.gap.is_some_and(|gap| gap.reason == RolloverReason::Lent);
        if lent && (scene.text_in_making || host.leaving.iter().any(UpstreamConnection::holds_worker)) {
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
        self.place = Place::Talking(Box::new(Talk::new(now, *link)));
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

    /// Replaces the upstream session now. One that was of no use is trouble: its successor may be no better.
    pub(super) fn roll(&mut self, now: Instant, reason: RolloverReason, scene: &Scene, host: &mut Host) {
        let of_use = matches!(&self.place, Place::Talking(talk) if talk.steps.answered() >= USEFUL_UNITS);
        let unheard = reason == RolloverReason::NotYielding;
        let after = self.leave(now, unheard, scene, host);
        self.gap = Some(Gap { reason, since: now });
        // An operator who asks early has no complaint about it.
        if !of_use && reason != RolloverReason::Asked {
            let words = format!("a new upstream session had to be replaced at once: {}", reason.name());
            Trouble::note(&mut self.trouble, now, ErrorKind::Unavailable, words);
        }
        self.succeed(now, after, scene, host);
    }

    /// The next upstream session takes over, or is waited for.
    fn succeed(&mut self, now: Instant, after: Option<Lane>, scene: &Scene, host: &mut Host) {
        match self.standby.take().map(|standby| standby.talk) {
            Some(talk) if talk.link.is_engaged() => {
                self.place = Place::Talking(Box::new(talk));
                return self.arrive(now, true, scene, host);
            }
            // Not ready yet, but on its way: sooner there than another.
            Some(talk) if !talk.link.is_gone() => return self.place = Place::Opening(Box::new(talk.link)),
            _ => {}
        }
        let next = self.trouble.as_ref().map(|it| it.next_attempt(now, now, &host.times, &mut host.rng));
        match next {
            Some(Err(failure)) => self.give_up(failure),
            Some(Ok(at)) => self.place = Place::Due { at, after },
            None => self.place = Place::Due { at: now, after },
        }
    }

    /// Leaves the upstream session politely: what came of a turn is heard to its end; what was asked and `unheard` is asked
    /// again. The lane that is left.
    fn leave(&mut self, now: Instant, unheard: bool, scene: &Scene, host: &mut Host) -> Option<Lane> {
        let telling = self.telling(scene);
        match std::mem::replace(&mut self.place, Place::Out) {
            Place::Talking(mut talk) => {
                self.asked = false;
                if talk.was_good(now, &host.times) {
                    self.trouble = None;
                } else if let Some(trouble) = self.trouble.as_mut().filter(|_| talk.steps.answered() > 0) {
                    trouble.rest(now - talk.ready_at);
                }
                if let Some(InFlight { mut unit, .. }) = talk.steps.take_in_flight() {
                    self.mic.give_back(&unit);
                    self.frame = self.frame.take().or(unit.frame.take());
                }
                if unheard {
                    self.mic.ask_again();
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
        let after = self.leave(now, true, scene, host);
        let error = format!(
            "the conversation was interrupted: {words}; it goes on as soon as another session is there"
        );
        host.out.error(Error::new(ErrorKind::ConversationInterrupted, error));
        self.told = true;
        Trouble::note(&mut self.trouble, now, ErrorKind::Unavailable, words);
        self.gap = Some(Gap { reason: RolloverReason::Lost, since: now });
        self.succeed(now, after, scene, host);
    }

    pub(super) fn give_up(&mut self, failure: Failure) {
        self.place = Place::Out;
        self.lost = Some(failure);
    }

    /// Gives a worker to a text that waits for one, until the text is made: the one in readiness rather than the one in
    /// use.
    pub(crate) fn lend_worker(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let spare = self.standby.take().is_some_and(|standby| {
            let held = standby.talk.link.holds_worker();
            standby.talk.link.retire(now, host);
            held
        });
        if spare || !self.holds_worker() {
            return;
        }
        let since = self.gap.map_or(now, |gap| gap.since);
        let after = self.leave(now, false, scene, host);
        self.gap = Some(Gap { reason: RolloverReason::Lent, since });
        self.place = Place::Due { at: now, after };
    }

    /// The session is over.
    pub(crate) fn stop(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        if let Some(standby) = self.standby.take() {
            standby.talk.link.retire(now, host);
        }
        self.leave(now, false, scene, host);
        self.gap = None;
    }

    /// Looks whether the upstream session has to be replaced, and does it at a quiet moment.
    pub(super) fn mind_limits(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Some(due) = self.limits_reached(now) else { return };
        let quiet = self.quiet_at(scene, host).is_some_and(|at| at <= now);
        let ready = self.mind_successor(now, quiet && !due.hard, host);
        let Place::Talking(talk) = &mut self.place else { return };
        // What the unit in flight brought may have ended the quiet.
        talk.rolling = (due.hard || (quiet && ready)).then_some(due.reason);
        if let Some(reason) = talk.rolling
            && talk.steps.in_flight().is_none()
        {
            self.roll(now, reason, scene, host);
        }
    }

    fn limits_reached(&self, now: Instant) -> Option<Due> {
        let Place::Talking(talk) = &self.place else { return None };
        let asked = self.asked.then_some(Due { reason: RolloverReason::Asked, hard: false });
        self.limits.due(now, talk.link.granted_at()?, talk.context).or(asked)
    }

    /// When [`Converse::mind_limits`] has something to do.
    pub(super) fn limits_due(&self, now: Instant, scene: &Scene, host: &Host) -> Option<Instant> {
        let Place::Talking(talk) = &self.place else { return None };
        let granted_at = talk.link.granted_at()?;
        let next = self.limits.next(now, granted_at);
        let quiet = self.limits_reached(now).and_then(|_| self.quiet_at(scene, host)).filter(|at| *at > now);
        next.into_iter().chain(quiet).min()
    }

    /// Since when nobody would be cut off if it ended; none while somebody would. Who spoke while there was no model to
    /// hear it has waited long enough when a model would have.
    pub(crate) fn ends_well_at(&self, now: Instant, scene: &Scene, host: &Host) -> Option<Instant> {
        match &self.place {
            Place::Talking(_) => self.quiet_at(scene, host),
            _ if host.mouth.is_busy() || scene.floor_taken || scene.in_speech => None,
            _ => Some(scene.voice_at.map_or(now, |at| at + self.rules.converse.linger)),
        }
    }

    /// Since when nobody speaks and nobody waits for an answer; none while somebody does.
    fn quiet_at(&self, scene: &Scene, host: &Host) -> Option<Instant> {
        let busy =
            self.turns.is_open() || self.turns.is_fenced() || host.mouth.is_busy() || self.mic.has_unit();
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
