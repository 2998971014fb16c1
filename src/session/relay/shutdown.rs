//! How a relayed session ends: whoever ends it, the client is told in its own words, and the upstream politely.

use std::time::{Duration, Instant};

use super::{Begin, Message, Phase, Place, Relay};
use crate::event::{
    Mode,
    relay::{EndName, Told, Wires},
};
use crate::session::{
    drain_plan::{OVERTIME, Parting},
    measurement::{Figure, Reason, State},
    outbox::{Action, Observation},
    upstream::connection::News,
};

impl Relay {
    /// Where it is. Nobody here hears who speaks.
    pub(crate) fn state(&self) -> State {
        match &self.place {
            _ if self.phase != Phase::Open => State::Ending,
            Place::Up(link) if link.is_engaged() => match self.turn {
                Some(_) => State::Answering,
                None => State::Idle,
            },
            _ if self.gap.is_some() => State::RollingOver,
            Place::Up(link) if link.is_queued() => State::Queued,
            Place::Up(_) | Place::Due(_) | Place::Out => State::Opening,
        }
    }

    /// The client says goodbye.
    pub(super) fn client_closes(&mut self, now: Instant, reason: Option<&str>, text: &str, w: &dyn Wires) {
        self.phase = Phase::Closing(reason.map(str::to_owned));
        if !self.is_up() {
            return self.confirm_close(now, w);
        }
        let words = if w.native() { text.to_owned() } else { w.close(reason) };
        self.with_link(|link, host| {
            link.leave_saying(now, words, host);
            News::None
        });
    }

    /// The upstream is gone, or never was: nobody else answers the client's goodbye.
    pub(super) fn confirm_close(&mut self, now: Instant, w: &dyn Wires) {
        self.end(now, EndName::Asked, None, w);
    }

    /// Tells the client that it is over, and why.
    pub(super) fn end(&mut self, now: Instant, why: EndName, detail: Option<&str>, w: &dyn Wires) {
        if self.phase == Phase::Over {
            return;
        }
        self.host.out.measured(Figure::Ending(why.into()));
        if why == EndName::Asked {
            // Who leaves in the middle of a turn hears what is there of it, and no end that was none.
            self.flush_turn(now, w);
        } else {
            self.close_turn(now, w);
        }
        let own = match &self.phase {
            Phase::Closing(reason) => reason.clone(),
            _ => None,
        };
        let told = Told::Ended { why, own: own.as_deref(), detail };
        let text = w.tell(&told, &self.about(now));
        if let Some(text) = text {
            self.tell(Message::Text(text));
        }
        self.close_client(now, why, w);
    }

    /// The upstream's own last words, as they came.
    pub(super) fn close_native(&mut self, now: Instant, why: EndName, text: &str, w: &dyn Wires) {
        self.host.out.measured(Figure::Ending(why.into()));
        self.tell(Message::Text(text.to_owned()));
        self.close_client(now, why, w);
    }

    fn close_client(&mut self, now: Instant, why: EndName, w: &dyn Wires) {
        let (code, reason) = w.close_frame(why);
        self.tell(Message::Close(code, reason));
        self.over(now);
    }

    /// Nothing more is told; the upstream is left.
    pub(super) fn over(&mut self, now: Instant) {
        self.phase = Phase::Over;
        self.keep.clear();
        self.first = None;
        self.leave(now);
    }

    /// The client's transport is gone.
    pub(crate) fn client_gone(&mut self, now: Instant) {
        if self.phase != Phase::Over {
            self.host.out.measured(Figure::Ending(Reason::ClientGone));
            self.over(now);
        }
    }

    /// voxbridge stops, an operator ends the session, or its time is up: what is being answered is finished first, within a bound.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration, why: EndName, w: &dyn Wires) {
        let Parting { answered_by, hurry_by, .. } = Parting::new(now, within, ());
        self.host.hurry(hurry_by);
        let until = answered_by.min(now + Duration::from_millis(self.rules.finish_max_ms));
        match &mut self.phase {
            Phase::Open => self.phase = Phase::Finishing(until, why),
            Phase::Finishing(known, _) => *known = until.min(*known),
            Phase::Closing(_) | Phase::Over => return,
        }
        self.finish_if_answered(now, w);
    }

    /// Only a conversation that voxbridge leads itself can be carried over.
    pub(crate) fn cannot_roll_over(&mut self) {
        let words = "a relayed session cannot be rolled over: what was said in it is its client's alone";
        self.host.out.observe(Observation::NoEffect(words.to_owned()));
    }

    /// Ends a session that was only waiting for an answer to end.
    pub(super) fn finish_if_answered(&mut self, now: Instant, w: &dyn Wires) {
        let Phase::Finishing(until, why) = self.phase else { return };
        let asked = self.mode == Mode::Chat && self.flight.len() > 0;
        if now >= until || !self.is_up() || (self.turn.is_none() && !asked) {
            self.end(now, why, None, w);
        }
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant, w: &dyn Wires) {
        self.combine_timeout(now, w);
        self.lanes_timeout(now, w);
        self.finish_if_answered(now, w);
        if self.idle_due().is_some_and(|due| due <= now) {
            self.end(now, EndName::Idle, None, w);
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.ends_at = None;
            self.drain(now, OVERTIME, EndName::Timeout, w);
        }
    }

    /// When [`Relay::timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let finishing = match self.phase {
            Phase::Finishing(until, _) => Some(until),
            _ => None,
        };
        let held = self.combine.next_timeout();
        let ends_at = self.ends_at.filter(|_| self.phase != Phase::Over);
        [finishing, held, ends_at, self.idle_due(), self.next_lanes_timeout()].into_iter().flatten().min()
    }

    fn idle_due(&self) -> Option<Instant> {
        let Place::Up(link) = &self.place else { return None };
        let worker = link.granted_at().filter(|_| self.phase == Phase::Open && link.holds_worker());
        // While it waits in a queue nobody expects anything of it.
        let granted_at = worker?;
        let silent_since = if self.told_open { self.heard_at } else { self.heard_at.max(granted_at) };
        let idle = self.idle.map(|idle| silent_since + idle);
        let most = Duration::from_millis(self.rules.granted_max_ms);
        let unopened = (!self.told_open && self.opens_nothing()).then(|| granted_at + most);
        [idle, unopened].into_iter().flatten().min()
    }

    /// The client has said nothing yet that an upstream session begins with.
    fn opens_nothing(&self) -> bool {
        match self.begin {
            Begin::Unknown => true,
            Begin::Opening(_) => false,
            Begin::Message => self.first.as_ref().is_some_and(|first| first.append.is_none()),
        }
    }

    /// Everything is told, and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        let lanes = !matches!(self.place, Place::Out) || !self.host.leaving.is_empty();
        self.phase == Phase::Over && !lanes && self.host.out.is_empty()
    }

    /// The next thing to do.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        self.host.out.pop()
    }
}
