//! A relay's upstream session: dialled at once, tried again while it is not open, replaced when it is lost.

use std::time::{Duration, Instant};

use super::{Begin, Phase, Relay, Words};
use crate::session::{
    measurement::Purpose,
    outbox::{Action, Observation},
    upstream::{
        backoff::{Failure, Trouble},
        connection::{UpstreamConnection, News, millis},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{Lane, LaneCommand, LaneEvent, Mode, Why, relay::Wires},
};

/// An upstream session that has answered so often was of use: its successor is dialled at once, unless it was over in less
/// time than the pause that a failed attempt is followed by. Who says anything at all and dies is not dialled without end.
const USEFUL_ANSWERS: u64 = 3;

/// Where the upstream session is.
#[derive(Debug)]
pub(super) enum Place {
    /// There, or on its way.
    Up(Box<UpstreamConnection>),
    /// To be dialled then.
    Due(Instant),
    /// There is none, and there will be none.
    Out,
}

/// A time without an upstream session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    since: Instant,
}

impl Relay {
    fn owns(&self, lane: Lane) -> bool {
        matches!(&self.place, Place::Up(link) if link.lane() == lane)
    }

    /// The upstream session is open.
    pub(super) fn is_up(&self) -> bool {
        matches!(&self.place, Place::Up(link) if link.is_engaged())
    }

    /// A lane's transport is up.
    pub(crate) fn lane_opened(&mut self, now: Instant, lane: Lane) {
        match &mut self.place {
            Place::Up(link) if link.lane() == lane => link.opened(now, &mut self.host),
            _ => self.with_leaving(lane, |link, host| link.opened(now, host)),
        }
    }

    /// A lane's transport is gone.
    pub(crate) fn lane_closed(&mut self, now: Instant, lane: Lane, why: &Why, w: &dyn Wires) {
        if !self.owns(lane) {
            return self.with_leaving(lane, |link, host| {
                link.closed(now, why, host);
            });
        }
        let refused = !self.told_open && self.is_initialising();
        self.spell_otherwise(now);
        let news = self.with_link(|link, host| link.closed(now, why, host));
        self.refusals += u32::from(refused);
        if refused && self.is_refused_for_good() {
            let words = format!("the upstream {why} whenever the session was to be opened");
            return self.hopeless(now, Failure { kind: ErrorKind::Unavailable, words, asked: false }, w);
        }
        self.heard(now, news, w);
    }

    pub(super) fn is_initialising(&self) -> bool {
        matches!(&self.place, Place::Up(link) if link.is_initialising())
    }

    /// Upstreams have refused to open the session in each of the ways to say it, and often enough.
    pub(super) fn is_refused_for_good(&self) -> bool {
        let ways = if let Begin::Opening(words) = &self.begin { words.len() } else { 1 };
        self.refusals as usize >= ways.max(self.rules.open_attempts as usize)
    }

    /// A session that fails while it is initialised may have been asked for in words that this upstream does not take.
    pub(super) fn spell_otherwise(&mut self, now: Instant) {
        if self.is_initialising() {
            self.spelling += 1;
            self.initialise(now);
        }
    }

    /// Something for a lane that was left.
    pub(super) fn leaving_event(&mut self, now: Instant, lane: Lane, event: &LaneEvent<'_>) {
        self.with_leaving(lane, |link, host| {
            link.event(now, event, host);
        });
    }

    fn with_leaving(&mut self, lane: Lane, act: impl FnOnce(&mut UpstreamConnection, &mut super::Host)) {
        let Some(at) = self.host.leaving.iter().position(|link| link.lane() == lane) else { return };
        let mut link = self.host.leaving.swap_remove(at);
        act(&mut link, &mut self.host);
        if !link.is_gone() {
            self.host.leaving.push(link);
        }
    }

    pub(super) fn with_link(&mut self, act: impl FnOnce(&mut UpstreamConnection, &mut super::Host) -> News) -> News {
        match &mut self.place {
            Place::Up(link) => act(link, &mut self.host),
            Place::Due(_) | Place::Out => News::None,
        }
    }

    /// What the link has to say.
    pub(super) fn heard(&mut self, now: Instant, news: News, w: &dyn Wires) {
        match news {
            News::Failed(failure) if failure.asked => self.lost(now, failure.words, w),
            News::Failed(failure) => self.hopeless(now, failure, w),
            News::Stuck(words) => {
                let Place::Up(link) = &self.place else { return };
                let queued = Observation::LaneQueued { lane: link.lane(), position: None, words };
                self.host.out.observe(queued);
            }
            News::None | News::Queued | News::Ready | News::Empty => {}
        }
        self.pass_ahead(w);
        if matches!(self.phase, Phase::Closing(_)) && !self.is_leaving_politely() {
            self.confirm_close(now, w);
        }
    }

    fn is_leaving_politely(&self) -> bool {
        matches!(&self.place, Place::Up(link) if !link.is_gone())
    }

    /// Initialises the upstream session with what the client said, when there is one and it has said something.
    pub(super) fn initialise(&mut self, now: Instant) {
        let init = match (&self.begin, &self.first) {
            (Begin::Opening(words), _) => match words.get(self.spelling % words.len().max(1)) {
                Some(words) => words.clone(),
                None => return,
            },
            (Begin::Message, Some(words)) => words.text.clone(),
            _ => return,
        };
        if let Place::Up(link) = &mut self.place {
            link.initialise_with(now, LaneCommand::Spelled(init), &mut self.host);
        }
    }

    /// Where the client has not opened the session in words, its next message does.
    pub(super) fn begin_with_message(&mut self, now: Instant) {
        if self.begin == Begin::Message && self.first.is_none() && !self.is_up() {
            self.first = self.keep.pop();
            self.initialise(now);
        }
    }

    /// What the client said first has opened nothing: this does.
    pub(super) fn open_instead(&mut self, now: Instant, words: Vec<String>, w: &dyn Wires) {
        let ahead = self.told_ahead() + usize::from(self.is_initialising());
        if let Some(first) = self.first.take() {
            self.keep.push_front(first);
        }
        self.begin = Begin::Opening(words);
        if let Place::Up(link) = &mut self.place {
            self.ahead = Some((link.lane(), ahead));
            link.await_init();
        }
        self.initialise(now);
        self.pass_ahead(w);
    }

    /// A server of the client's own protocol hears everything as soon as there is one, as without voxbridge: it knows what
    /// it makes of it. For another attempt it is kept all the same.
    pub(super) fn pass_ahead(&mut self, w: &dyn Wires) {
        let told = self.told_ahead();
        let Place::Up(link) = &self.place else { return };
        if !w.native() || self.told_open || !link.is_initialising() {
            return;
        }
        let lane = link.lane();
        for words in self.keep.after(told) {
            self.host.out.push(Action::ToLane(lane, LaneCommand::Spelled(words.text.clone())));
        }
        self.ahead = Some((lane, self.keep.len()));
    }

    fn told_ahead(&self) -> usize {
        self.ahead.filter(|(lane, _)| self.owns(*lane)).map_or(0, |(_, count)| count)
    }

    /// The upstream has refused the opening and whatever came behind it, and waits for another one.
    pub(super) fn await_opening(&mut self) {
        (0..self.told_ahead()).for_each(|_| drop(self.keep.pop()));
        (self.begin, self.first, self.ahead) = (Begin::Unknown, None, None);
        if let Place::Up(link) = &mut self.place {
            link.await_init();
        }
    }

    /// The upstream session is open: what waited for it goes.
    pub(super) fn opened(&mut self, now: Instant) {
        if let Place::Up(link) = &mut self.place {
            link.engage();
        }
        self.refusals = 0;
        self.ready_at = Some(now);
        self.answers = 0;
        if let Some(gap) = self.gap.take() {
            let (kept, dropped) = (self.keep.len() as u64, std::mem::take(&mut self.keep.dropped));
            let gap_ms = millis(now - gap.since);
            self.host.out.observe(Observation::RelayResumed { gap_ms, kept, dropped });
        }
        if let Some(Words { text, append: Some(append) }) = self.first.take() {
            self.flight.push(text, append);
        }
        let ahead = self.told_ahead();
        self.ahead = None;
        for at in 0.. {
            match self.keep.pop() {
                Some(Words { text, append: Some(append) }) if at < ahead => self.flight.push(text, append),
                Some(_) if at < ahead => {}
                Some(words) => self.send_up(words),
                None => break,
            }
        }
    }

    /// The upstream is lost in the middle of a session: another takes its place, and the client sees a pause.
    pub(super) fn lost(&mut self, now: Instant, words: String, w: &dyn Wires) {
        self.put_link_away();
        if self.phase != Phase::Open {
            return self.lost_at_the_end(now, w);
        }
        if self.mode == Mode::Chat && self.turn.is_some() {
            // Part of the answer was told; asked again it would be another one.
            let error = format!("the answer was interrupted: {words}");
            return self.fail(now, &Error::new(ErrorKind::ConversationLost, error), w);
        }
        self.close_turn(now, w);
        self.combine.forget_steps();
        let (unanswered, too_long) = self.flight.take_unanswered();
        if too_long > 0 && self.mode == Mode::Chat {
            let error = format!("{words}; what was asked is too long to be asked again");
            return self.fail(now, &Error::new(ErrorKind::ConversationLost, error), w);
        }
        self.keep.dropped += too_long as u64;
        unanswered.into_iter().for_each(|words| self.keep.push_front(words));
        self.gap = self.gap.or(Some(Gap { since: now }));
        self.redial(now, words, w);
    }

    fn lost_at_the_end(&mut self, now: Instant, w: &dyn Wires) {
        match self.phase {
            Phase::Finishing(_, why) => self.end(now, why, None, w),
            Phase::Closing(_) => self.confirm_close(now, w),
            Phase::Open | Phase::Over => {}
        }
    }

    /// Dials again: at once after a session that was of use, else after a pause.
    fn redial(&mut self, now: Instant, words: String, w: &dyn Wires) {
        let pause = Duration::from_millis(self.host.times.retry_first_ms);
        let lived = self.ready_at.is_some_and(|ready_at| now - ready_at >= pause);
        if self.answers >= USEFUL_ANSWERS && lived {
            self.trouble = None;
            return self.dial(now);
        }
        if let (Some(trouble), Some(ready_at)) = (&mut self.trouble, self.ready_at) {
            trouble.rest(now - ready_at);
        }
        Trouble::note(&mut self.trouble, now, ErrorKind::ConversationLost, words);
        let Some(trouble) = &self.trouble else { return };
        match trouble.next_attempt(now, now, &self.host.times, &mut self.host.rng) {
            Ok(at) => self.place = Place::Due(at),
            Err(failure) => self.hopeless(now, failure, w),
        }
    }

    pub(super) fn dial(&mut self, now: Instant) {
        if !self.host.may_dial() {
            // Those that were left are waited for: a client takes a few workers at most.
            let pause = Duration::from_millis(self.host.times.retry_first_ms.max(1));
            self.place = Place::Due(now + pause);
            return;
        }
        let link = UpstreamConnection::start(now, (Purpose::Relay, self.mode), None, &mut self.host);
        self.place = Place::Up(Box::new(link));
        self.initialise(now);
        self.begin_with_message(now);
    }

    /// The client opens the session once more, otherwise: in a fresh upstream session.
    pub(super) fn open_again(&mut self, now: Instant, w: &dyn Wires) {
        self.close_turn(now, w);
        self.combine.forget_steps();
        self.keep.clear();
        self.flight.take_unanswered();
        (self.told_open, self.gap) = (false, None);
        if matches!(&self.place, Place::Due(_))
            || matches!(&self.place, Place::Up(link) if !link.holds_worker())
        {
            // Only the words are others; the place in the queue stays.
            return self.initialise(now);
        }
        self.leave(now);
        self.dial(now);
    }

    /// When a lost upstream session is to have been replaced.
    fn resume_due(&self) -> Option<Instant> {
        let gap = self.gap.filter(|_| self.phase == Phase::Open)?;
        Some(gap.since + Duration::from_millis(self.rules.resume_max_ms))
    }

    fn not_resumed(&mut self, now: Instant, w: &dyn Wires) {
        let why = if let Place::Up(link) = &self.place { link.trouble() } else { None };
        let why = why.map_or(String::new(), |why| format!("; last, {why}"));
        let most = self.rules.resume_max_ms;
        let words = format!("the upstream was lost, and there was no other one within {most} ms{why}");
        self.hopeless(now, Failure { kind: ErrorKind::ConversationLost, words, asked: false }, w);
    }

    /// No upstream is to be had.
    fn hopeless(&mut self, now: Instant, failure: Failure, w: &dyn Wires) {
        // One that would try again does not.
        self.leave(now);
        let kind = if self.told_open { ErrorKind::ConversationLost } else { failure.kind };
        self.fail(now, &Error::new(kind, failure.words), w);
    }

    /// A link on its way out is waited for by the session.
    pub(super) fn put_link_away(&mut self) {
        if let Place::Up(link) = std::mem::replace(&mut self.place, Place::Out)
            && !link.is_gone()
        {
            self.host.leaving.push(*link);
        }
    }

    /// Leaves the upstream politely; an answer that goes on is waited out.
    pub(super) fn leave(&mut self, now: Instant) {
        let Place::Up(mut link) = std::mem::replace(&mut self.place, Place::Out) else { return };
        if self.mode == Mode::Chat {
            link.owe(now, u16::try_from(self.flight.len()).unwrap_or(u16::MAX));
        }
        link.retire(now, &mut self.host);
    }

    /// Time has passed for the lanes.
    pub(super) fn lanes_timeout(&mut self, now: Instant, w: &dyn Wires) {
        if self.resume_due().is_some_and(|due| due <= now) {
            self.not_resumed(now, w);
        }
        if let Place::Due(at) = self.place
            && at <= now
        {
            self.dial(now);
        }
        let news = self.with_link(|link, host| link.timeout(now, host));
        self.heard(now, news, w);
        for mut link in std::mem::take(&mut self.host.leaving) {
            link.timeout(now, &mut self.host);
            if !link.is_gone() {
                self.host.leaving.push(link);
            }
        }
    }

    pub(super) fn next_lanes_timeout(&self) -> Option<Instant> {
        let times = &self.host.times;
        let place = match &self.place {
            Place::Up(link) => link.next_timeout(times),
            Place::Due(at) => Some(*at),
            Place::Out => None,
        };
        self.host
            .leaving
            .iter()
            .filter_map(|link| link.next_timeout(times))
            .chain(place)
            .chain(self.resume_due())
            .min()
    }
}
