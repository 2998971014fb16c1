//! What is owed, what is waited for, and how a session ends: every pair closed, every lane told goodbye.

use std::time::{Duration, Instant};

use super::{
    Phase, Session,
    drain_plan::{OVERTIME, Parting},
    measurement::{Figure, Reason},
    outbox::{Action, Observation, lockstep::Owed},
    settings::asking,
    upstream::connection::millis,
};
use crate::{
    error::{Error, ErrorKind},
    event::{ClientCommand, ClientEvent, CloseName},
};

/// How long a model may talk to a client that sends nothing: no upstream session lasts longer (field notes §1.6). One that
/// never stops must not keep up a session that nobody is in.
const TALK_MAX: Duration = Duration::from_secs(600);

/// All that came is answered within this time, when a client has said that no more follows: longer than any queue.
const ALL_WITHIN: Duration = Duration::from_secs(600);

impl Session {
    /// The client's transport is gone.
    pub(crate) fn client_gone(&mut self, now: Instant) {
        if self.phase != Phase::Over {
            self.host.out.measured(Figure::Ending(Reason::ClientGone));
            self.end(now);
        }
    }

    /// voxbridge stops, an operator ends the session, or its time is up: what is being said, answered and spoken is finished first, within
    /// a bound. Who is told twice has the shorter of both.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration, why: CloseName) {
        let parting = Parting::new(now, within, why);
        self.host.hurry(parting.hurry_by);
        match &mut self.phase {
            Phase::Open => {
                let earlier = self.parting.filter(|known| known.answered_by <= parting.answered_by);
                self.parting = earlier.or(Some(parting));
            }
            Phase::Finishing(_, until) => *until = parting.answered_by.min(*until),
            Phase::Over => return,
        }
        self.settle(now);
    }

    /// An operator wants the conversation to go on in another upstream session.
    pub(crate) fn roll_over(&mut self, now: Instant) {
        match &mut self.converse {
            Some(converse) => converse.ask_to_roll(),
            None => {
                let words = "there is no conversation to roll over in this session".to_owned();
                self.host.out.observe(Observation::NoEffect(words));
            }
        }
        self.settle(now);
    }

    /// Who says goodbye while it is waited for waits no longer than it otherwise would.
    pub(super) fn client_parts(&mut self, now: Instant, event: &ClientEvent<'_>) {
        let patience = self.setup.profile.hear.speech_end_wait;
        if let (Phase::Finishing(_, until), Some(_), ClientEvent::Close(_)) =
            (&mut self.phase, self.parting, event)
        {
            *until = (now + patience).min(*until);
        }
    }

    /// Ends a session that was only waiting for whoever speaks to finish.
    fn part(&mut self, now: Instant) {
        let (Some(parting), Phase::Open) = (self.parting, self.phase) else { return };
        if now >= parting.heard_by || self.quiet_at(now).is_some_and(|at| at <= now) {
            self.finish(now, parting.why);
        }
    }

    /// Since when nobody would be cut off by the end; none while somebody would.
    fn quiet_at(&self, now: Instant) -> Option<Instant> {
        let recording = self.ear.so_far().is_some();
        let talk = match &self.converse {
            Some(converse) => converse.ends_well_at(now, &self.scene(), &self.host),
            None => Some(now),
        };
        talk.filter(|_| !recording)
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant) {
        self.lanes_timeout(now);
        if self.stall_due().is_some_and(|due| due <= now) {
            self.ear.end(&mut self.heard);
            self.tell_heard(now);
        }
        if self.idle_due().is_some_and(|due| due <= now) {
            self.finish(now, CloseName::Idle);
        }
        if self.ends_due().is_some_and(|due| due <= now) {
            self.ends_at = None;
            self.drain(now, OVERTIME, CloseName::TimeLimit);
        }
        self.settle(now);
    }

    /// When [`Session::timeout`] has something to do.
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let finishing = match self.phase {
            Phase::Finishing(_, until) => Some(until),
            Phase::Open | Phase::Over => None,
        };
        let (lanes, mouth) = (self.next_lanes_timeout(now), self.host.mouth.next_timeout(now));
        let own = [self.part_due(now), self.ends_due()];
        let waits = [finishing, lanes, mouth, self.stall_due(), self.idle_due()];
        waits.into_iter().chain(own).flatten().min()
    }

    /// When [`Session::part`] has something to do.
    fn part_due(&self, now: Instant) -> Option<Instant> {
        let parting = self.parting.filter(|_| self.phase == Phase::Open)?;
        let quiet = self.quiet_at(now).filter(|at| *at > now);
        Some(quiet.map_or(parting.heard_by, |at| at.min(parting.heard_by)))
    }

    /// When its time is up.
    fn ends_due(&self) -> Option<Instant> {
        self.ends_at.filter(|_| self.phase == Phase::Open)
    }

    /// When an utterance ends because its audio has stopped coming: nobody waits for what will not be sent.
    fn stall_due(&self) -> Option<Instant> {
        let recording = self.phase == Phase::Open && !self.held && self.ear.so_far().is_some();
        let stall = Duration::from_millis(self.setup.profile.listen.stall_ms.into());
        recording.then(|| self.audio_at + stall)
    }

    /// The client waits for words or for speech.
    pub(super) fn owes(&self) -> bool {
        self.speaks() || self.texts.is_waiting() || !self.hear.is_settled()
    }

    /// The client hears something, or is about to.
    pub(super) fn speaks(&self) -> bool {
        self.speak.is_busy() || self.host.mouth.is_busy()
    }

    /// When the session ends for want of audio: who listens sends none, and who waits for words sends none either, as long
    /// as an upstream's queue may take.
    fn idle_due(&self) -> Option<Instant> {
        let idle = self.idle.filter(|_| self.phase == Phase::Open && !self.floor_taken())?;
        let talks = self.host.mouth.is_busy();
        let due = if talks { self.audio_at + TALK_MAX } else { self.idle_since + idle };
        let patience = Duration::from_millis(self.setup.profile.lanes.queue_max_ms);
        Some(if self.hear.is_settled() { due } else { due.max(self.audio_at + patience) })
    }

    /// Everything is done and said, and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        let converses = self.converse.as_ref().is_some_and(|converse| converse.has_lanes());
        let lanes =
            converses || self.hear.lane().is_some() || self.speak.is_busy() || !self.host.leaving.is_empty();
        self.phase == Phase::Over && !lanes && self.host.out.is_empty()
    }

    /// The next thing to do.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        self.host.out.pop()
    }

    /// No more follows: all that came is answered, then the session ends.
    pub(super) fn conclude(&mut self, now: Instant) {
        self.host.out.measured(Figure::Ending(Reason::ClientClose));
        self.ear.end(&mut self.heard);
        self.tell_heard(now);
        self.ear.stop();
        self.texts.rest();
        self.stop_conversation(now);
        self.host.out.owe(Owed::All);
        self.phase = Phase::Finishing(CloseName::ClientClose, now + ALL_WITHIN);
    }

    /// Begins to end: what is being said is dropped as the Macaw server drops it, what was said is still answered
    /// (the server answers commands only after the answer it owes, field notes macaw.md §1.8).
    pub(super) fn finish(&mut self, now: Instant, why: CloseName) {
        self.host.out.measured(Figure::Ending(why.into()));
        if matches!(why, CloseName::Shutdown | CloseName::Operator | CloseName::TimeLimit) {
            self.ear.commit(&mut self.heard);
            self.tell_heard(now);
        } else {
            self.texts.forget();
            self.silence(now);
        }
        self.ear.stop();
        self.stop_conversation(now);
        let asking = asking(&self.setup.profile, &self.settings);
        self.hear.abandon_recording(now, self.ear.at_ms(), &asking, &mut self.host);
        let until = now + self.setup.profile.hear.speech_end_wait;
        let until = match self.parting {
            Some(parting) if why == parting.why => parting.answered_by,
            Some(parting) => until.min(parting.answered_by),
            None => until,
        };
        self.phase = Phase::Finishing(why, until);
    }

    /// After everything that may have changed something: the conversation and the mouth go on, and what has to end ends.
    pub(super) fn settle(&mut self, now: Instant) {
        self.host.mouth.release(now, &mut self.host.out);
        self.speak_on(now);
        if self.phase == Phase::Open {
            self.converse_on(now);
        }
        self.part(now);
        self.tell_gap();
        self.host.out.answer(self.hear.is_settled());
        // What is not read has not stopped coming.
        if self.held {
            self.audio_at = now;
        }
        self.held = self.holds_back();
        let owes = self.owes();
        let listens = self.floor_taken() || (self.speaks() && now < self.audio_at + TALK_MAX);
        if self.owed && !owes {
            self.answered_at = Some(now);
        }
        if listens || (self.owed && !owes) {
            self.idle_since = now;
        }
        self.owed = owes;
        let Phase::Finishing(why, until) = self.phase else { return };
        if self.owes() && now < until {
            return;
        }
        self.end(now);
        self.host.out.answer(true);
        self.host.out.client(ClientCommand::SessionClosed {
            why,
            total_ms: millis(now - self.opened_at),
            audio_ms: self.ear.at_ms(),
            segments: self.hear.segments(),
            session_id: self.session_id.clone(),
        });
        self.host.out.push(Action::EndClient(why));
    }

    fn converse_on(&mut self, now: Instant) {
        self.watch();
        let scene = self.scene();
        let Some(converse) = &mut self.converse else { return };
        converse.proceed(now, &scene, &mut self.host);
        if let Some(failure) = converse.take_lost() {
            self.host.out.error(Error::new(ErrorKind::ConversationLost, failure.words));
            self.finish(now, CloseName::Upstream);
        }
    }

    fn stop_conversation(&mut self, now: Instant) {
        let scene = self.scene();
        if let Some(converse) = &mut self.converse {
            converse.stop(now, &scene, &mut self.host);
        }
    }

    /// Closes every pair and leaves every lane.
    fn end(&mut self, now: Instant) {
        self.phase = Phase::Over;
        self.texts.forget();
        self.ear.stop();
        self.silence(now);
        self.stop_conversation(now);
        let asking = asking(&self.setup.profile, &self.settings);
        self.hear.stop(now, self.ear.at_ms(), &asking, &mut self.host);
    }
}
