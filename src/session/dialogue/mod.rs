//! A conversation: the microphone goes up second by second, the model speaks when it likes, for hours.
//!
//! - [`mic`] keeps the user's audio until it is sent, [`steps`] keeps one unit in flight
//! - [`turns`] is what the model says, [`turn`] by [`turn`], and what of it may be heard
//! - [`limits`] says when the upstream session has to be replaced, [`lane`] replaces it, also when it is lost, and
//!   [`standby`] has the next one ready; [`trouble`] is what an upstream cannot do
//! - [`pacing`] says when a unit is due
//!
//! Whatever happens, [`Converse::proceed`] is called last and does all that can be done then.

pub(crate) mod history;
mod pacing;
mod rollover;
mod rollover_limits;
mod standby;
mod turn;
mod turns;
mod unit_errors;
mod uplink;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::uplink::Streamed;
use self::{
    rollover::{Gap, Place},
    rollover_limits::Limits,
    standby::Standby,
    turns::{Telling, Turns},
    uplink::Mic,
};
use super::{
    context::Host,
    outbox::Observation,
    upstream::{
        backoff::{Failure, Trouble},
        connection::{News, millis},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{
        ClientCommand, Lane, LaneCommand, LaneEvent, Mark, Mode, RolloverReason, VideoFrame, VoiceSample, Why,
    },
    mapping::{
        profile::{AssistantText, TalkRules},
        upstream::Duplex,
    },
};

/// What a conversation needs to know of its session, at this instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    /// When the client last sent audio, heard or not.
    pub(crate) client_at: Option<Instant>,
    /// When the microphone was last listened to, and how long that frame was.
    pub(crate) mic: Option<(Instant, Duration)>,
    /// When the user was last heard to speak.
    pub(crate) voice_at: Option<Instant>,
    /// The user is in the middle of an utterance.
    pub(crate) in_speech: bool,
    /// A text is being spoken or about to be: it has the floor.
    pub(crate) floor_taken: bool,
    /// A text is being made: it has a worker, or waits for one.
    pub(crate) text_in_making: bool,
    /// The client wants partial transcripts.
    pub(crate) partials: bool,
    /// The client wants to know of rollovers.
    pub(crate) rollover_events: bool,
}

/// One session's conversation.
#[derive(Debug)]
pub(crate) struct Converse {
    rules: Arc<TalkRules>,
    mode: Mode,
    limits: Limits,
    voice: Option<VoiceSample>,
    place: Place,
    standby: Option<Standby>,
    /// The last one kept in readiness, which did not know the newest: another takes its place when it is gone.
    renewing: Option<Lane>,
    /// No second worker was to be had for this upstream session.
    alone: bool,
    mic: Mic,
    turns: Turns,
    frame: Option<VideoFrame>,
    /// An operator wants another upstream session.
    asked: bool,
    /// No audio reaches a model.
    gap: Option<Gap>,
    trouble: Option<Trouble>,
    /// The client knows that there is trouble.
    told: bool,
    /// It is over: no upstream was to be had.
    lost: Option<Failure>,
}

impl Converse {
    /// A conversation that dials at once: a model takes 10 to 16 s to be ready (field notes §7.2).
    pub(crate) fn open(
        now: Instant,
        rules: Arc<TalkRules>,
        mode: Mode,
        duplex: &Duplex,
        voice: Option<VoiceSample>,
        host: &mut Host,
    ) -> Self {
        let mut converse = Self {
            limits: Limits::new(mode, duplex, &rules.rollover),
            mic: Mic::new(&rules.converse),
            rules,
            mode,
            voice,
            place: Place::Due { at: now, after: None },
            standby: None,
            renewing: None,
            alone: false,
            turns: Turns::default(),
            frame: None,
            asked: false,
            gap: None,
            trouble: None,
            told: false,
            lost: None,
        };
        converse.dial(now, host);
        converse
    }

    /// It is to go on in another upstream session, at the next quiet moment.
    pub(crate) const fn ask_to_roll(&mut self) {
        self.asked = true;
    }

    /// The voice of upstream sessions from the next one on.
    pub(crate) fn set_voice(&mut self, voice: Option<VoiceSample>) {
        self.voice = voice;
    }

    /// The user's audio; while a text is heard the model hears silence.
    pub(crate) fn audio(&mut self, samples: &mut Vec<i16>, hush: bool) {
        self.mic.push(samples, hush);
    }

    /// What the camera sees; the newest counts. Whether this conversation has eyes.
    pub(crate) fn see(&mut self, frame: VideoFrame) -> bool {
        let sees = self.mode == Mode::Video;
        if sees {
            self.frame = Some(frame);
        }
        sees
    }

    /// Where the user's audio went.
    pub(crate) fn streamed(&self) -> Streamed {
        self.mic.streamed()
    }

    /// Samples that wait to be a unit.
    pub(crate) fn collected(&self) -> usize {
        self.mic.len()
    }

    /// The model speaks, as far as the upstream has said.
    pub(crate) const fn is_speaking(&self) -> bool {
        self.turns.is_open()
    }

    /// The user or the client wants silence of the model.
    pub(crate) fn interrupt(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        if self.turns.is_open() || host.mouth.is_busy() {
            host.out.observe(Observation::Interrupted);
        }
        self.turns.interrupt(now, self.telling(scene), host);
        host.mouth.cancel(now, &mut host.out);
    }

    /// The user spoke into a text: what was said into it is heard.
    pub(crate) fn recall(&mut self) {
        self.mic.recall();
    }

    /// Why it is over, once.
    pub(crate) const fn take_lost(&mut self) -> Option<Failure> {
        self.lost.take()
    }

    /// The upstream said something on one of its lanes.
    pub(crate) fn event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        mark: Mark<'_>,
        scene: &Scene,
        host: &mut Host,
    ) {
        if self.is_standby(lane) {
            return self.standby_event(now, event, mark, host);
        }
        let Some(link) = self.place.link_mut() else { return };
        let news = link.event(now, event, host);
        self.news(now, news, scene, host);
        self.said(now, event, mark, scene, host);
    }

    /// What the model says.
    fn said(&mut self, now: Instant, event: &LaneEvent<'_>, mark: Mark<'_>, scene: &Scene, host: &mut Host) {
        if let LaneEvent::Trouble(words) = event {
            return self.troubled(now, words, scene, host);
        }
        let telling = self.telling(scene);
        let Place::Talking(talk) = &mut self.place else { return };
        let answered = talk.heard(now, event, mark, &self.limits, host);
        match event {
            LaneEvent::Listen => self.turns.listen(now, answered.as_ref(), mark, telling, host),
            LaneEvent::Text(text) => self.turns.text(now, text, mark, telling, host),
            LaneEvent::Audio(samples) => self.turns.audio(now, samples, mark, telling, host),
            LaneEvent::Done { text, audio } => self.turns.done(now, *text, audio, mark, telling, host),
            _ => {}
        }
        if self.turns.is_open() {
            self.mic.answered();
        }
    }

    /// A lane's transport is up.
    pub(crate) fn opened(&mut self, now: Instant, lane: Lane, host: &mut Host) {
        if let Some(link) = self.link_of(lane) {
            link.opened(now, host);
        }
    }

    /// A lane's transport is gone.
    pub(crate) fn closed(&mut self, now: Instant, lane: Lane, why: &Why, scene: &Scene, host: &mut Host) {
        let Some(link) = self.link_of(lane) else { return };
        let news = link.closed(now, why, host);
        if self.is_standby(lane) {
            self.standby_news(now, &news, host);
        } else {
            self.news(now, news, scene, host);
        }
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        if let Some(standby) = &mut self.standby {
            let news = standby.talk.link.timeout(now, host);
            self.standby_news(now, &news, host);
        }
        if let Some(link) = self.place.link_mut() {
            let news = link.timeout(now, host);
            self.news(now, news, scene, host);
        }
        if let Place::Talking(talk) = &mut self.place {
            talk.timeout(now, &self.limits, host);
        }
    }

    /// Does all that can be done now: lets the model speak again, replaces what has to be replaced, sends what is due.
    pub(crate) fn proceed(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        if !scene.floor_taken {
            self.mic.forget();
        }
        let dropped_ms = self.mic.limit(matches!(self.place, Place::Talking(_)), &self.rules.converse);
        if dropped_ms > 0 {
            host.out.client(ClientCommand::FramesDropped { dropped_ms });
        }
        self.mind_yielding(now, scene, host);
        self.mind_step(now, scene, host);
        self.mind_limits(now, scene, host);
        self.mind_standby(now, host);
        self.redial(now, scene, host);
        self.mind_trouble(host);
        self.send_due(now, scene, host);
    }

    /// The model that listens may speak again; one that does not listen is replaced.
    fn mind_yielding(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Place::Talking(talk) = &self.place else { return };
        let rules = &self.rules.barge_in;
        self.turns.proceed(now, scene.voice_at, talk.steps.sent_number(), scene.floor_taken, rules);
        if self.turns.yield_due(rules).is_some_and(|due| due <= now) {
            self.roll(now, RolloverReason::NotYielding, scene, host);
        }
    }

    /// An upstream that has stopped answering is lost.
    fn mind_step(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        let Place::Talking(talk) = &mut self.place else { return };
        let bound = self.rules.converse.step_max;
        if talk.steps.in_flight().is_some_and(|unit| now >= unit.at + bound) {
            talk.link.close(now, host);
            let words = format!("the upstream did not answer a second of audio within {} ms", millis(bound));
            let lane = talk.link.lane();
            host.out.observe(Observation::LaneFailed { lane, words: words.clone() });
            self.lose(now, words, scene, host);
        }
    }

    /// Who waits for a model is told, once, why it does not come.
    fn mind_trouble(&mut self, host: &mut Host) {
        let Place::Opening(link) = &self.place else { return };
        if let (Some(words), false) = (link.trouble(), self.told) {
            self.told = true;
            let words = format!("no model is there to talk to yet: {words}; it is tried again");
            host.out.error(Error::new(ErrorKind::Unavailable, words));
        }
    }

    /// Sends a unit when one is due.
    fn send_due(&mut self, now: Instant, scene: &Scene, host: &mut Host) {
        match self.unit_due(now, scene, host.mouth.is_audible()) {
            None if self.is_idle() => return self.mic.rest(),
            None => return,
            Some(due) if due > now => return,
            Some(_) => {}
        }
        let Place::Talking(talk) = &mut self.place else { return };
        let last = talk.steps.sent_at().unwrap_or(talk.ready_at);
        let voiced = scene.in_speech || scene.voice_at.is_some_and(|at| at >= last);
        if scene.voice_at.is_some_and(|at| now >= at + self.rules.converse.linger) {
            self.mic.answered();
        }
        let mut unit = self.mic.take(voiced && !self.turns.is_open());
        unit.forced = self.turns.force(now, talk.steps.sent_number() + 1);
        unit.busy = scene.in_speech || self.turns.is_open();
        unit.frame = self.frame.take();
        talk.append(now, unit, host);
    }

    /// Nothing is on its way to the model, and nothing is waited for.
    fn is_idle(&self) -> bool {
        matches!(&self.place, Place::Talking(talk) if talk.steps.in_flight().is_none() && talk.rolling.is_none())
    }

    fn news(&mut self, now: Instant, news: News, scene: &Scene, host: &mut Host) {
        match news {
            News::None | News::Queued | News::Empty => {}
            News::Ready => self.begin(now, scene, host),
            News::Stuck(words) => host.out.error(Error::new(ErrorKind::QueueStuck, words)),
            News::Failed(failure) if failure.asked => self.lose(now, failure.words, scene, host),
            News::Failed(failure) => self.give_up(failure),
        }
    }

    fn telling(&self, scene: &Scene) -> Telling {
        Telling {
            transcripts: self.rules.converse.text == AssistantText::Transcripts,
            partials: scene.partials,
            floor_taken: scene.floor_taken,
        }
    }

    /// What an upstream session is opened with.
    fn opening(&self, host: &Host) -> LaneCommand {
        LaneCommand::Converse(Box::new(crate::event::Opening {
            prompt: self.rules.converse.prompt(&host.memory.text()),
            config: Arc::clone(&self.rules.converse.config),
            voice: self.voice.clone(),
        }))
    }
}
