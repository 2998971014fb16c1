//! What the model says, and how the client of a relay is told.

use std::time::Instant;

use super::{
    Combine, Phase, Place, Relay, Turn,
    merge_reply::{Step, Tell},
    pending::{Append, Rank},
};
use crate::session::measurement::Figure;
use crate::{
    error::{Error, ErrorKind},
    event::{
        Ending, Lane, Mark, Message, Mode,
        relay::{About, EndName, FromModel, Output, Told, Wires},
    },
};

impl Relay {
    /// An upstream said something; `text` is how it came.
    pub(crate) fn upstream(
        &mut self,
        now: Instant,
        lane: Lane,
        (event, mark): (&FromModel<'_>, Mark<'_>),
        text: &str,
        w: &dyn Wires,
    ) {
        if !matches!(&self.place, Place::Up(link) if link.lane() == lane) {
            return self.leaving_event(now, lane, &event.lane_event());
        }
        if let Some(tokens) = mark.context_tokens {
            self.context_tokens = Some(tokens);
            self.host.out.measured(Figure::Context { lane, tokens });
        }
        match event {
            FromModel::Queued(_) | FromModel::Granted => self.before_open(now, event, text, w),
            FromModel::Opened(session_id) => {
                self.session_id = session_id.map(str::to_owned);
                self.before_open(now, event, text, w);
            }
            FromModel::Ended(why, ending) => return self.upstream_ended(now, *why, ending, text, w),
            FromModel::Failed(ending, goes_on) => return self.failed(now, event, ending, *goes_on, text, w),
            FromModel::Unknown(_) => self.unknown(text, w),
            _ if self.is_heard() => self.said(now, event, mark, text, w),
            _ => {}
        }
        let news = self.with_link(|link, host| link.event(now, &event.lane_event(), host));
        let opened = news == crate::session::upstream::connection::News::Ready;
        self.heard(now, news, w);
        if opened {
            self.opened(now);
        }
        self.finish_if_answered(now, w);
    }

    /// What it says is for the client: the session is open, or the client still waits for its end.
    fn is_heard(&self) -> bool {
        self.told_open && (self.is_up() || matches!(self.phase, Phase::Closing(_)))
    }

    /// Queue and opening: told once each, however many attempts it takes.
    fn before_open(&mut self, now: Instant, event: &FromModel<'_>, text: &str, w: &dyn Wires) {
        let told = match event {
            // An open session that says so again: some can be set up anew.
            _ if self.is_up() && w.native() => return self.tell(Message::Text(text.to_owned())),
            FromModel::Queued(place) if !self.told_granted => {
                Told::Queued { place: *place, moved: std::mem::replace(&mut self.told_queued, true) }
            }
            FromModel::Granted if !std::mem::replace(&mut self.told_granted, true) => Told::Granted,
            FromModel::Opened(_) if !std::mem::replace(&mut self.told_open, true) => {
                Told::Opened { prompt_chars: self.prompt_chars }
            }
            _ => return,
        };
        if w.native() {
            return self.tell(Message::Text(text.to_owned()));
        }
        let about = self.about(now);
        if let Some(spelled) = w.tell(&told, &about) {
            self.tell(Message::Text(spelled));
        }
    }

    /// The link tells operators.
    fn unknown(&mut self, text: &str, w: &dyn Wires) {
        if w.native() && !text.is_empty() {
            self.tell(Message::Text(text.to_owned()));
        }
    }

    /// What the model says in an open session.
    fn said(&mut self, now: Instant, event: &FromModel<'_>, mark: Mark<'_>, text: &str, w: &dyn Wires) {
        let append = match event {
            _ if self.mode == Mode::Chat => self.flight.begun(mark.input_id),
            FromModel::Output(_) => self.flight.answered_at_once(),
            _ => self.flight.answered(rank(event), mark.input_id, mark.response_id, self.turn.is_some()),
        };
        self.answers += 1;
        self.name_turn(event, mark, &append);
        if w.native() {
            self.tell(Message::Text(text.to_owned()));
        } else if w.combines() {
            self.combined(now, event, mark, w);
        } else {
            self.apart(now, event, mark, &append, w);
        }
        self.end_turn(event, mark);
    }

    /// An answer has begun: the upstream's name for it, the client's, or one of our own.
    fn name_turn(&mut self, event: &FromModel<'_>, mark: Mark<'_>, append: &Append) {
        let speaks = match event {
            FromModel::Text(_) | FromModel::Speech(_) => true,
            FromModel::Output(output) => !output.text.is_empty() || output.audio.is_some(),
            _ => false,
        };
        if !speaks || self.turn.is_some() {
            return;
        }
        let named = mark.response_id.or(append.response_id.as_deref()).map(str::to_owned);
        let own = || format!("resp_{:012x}", self.host.rng.u64(..) & 0xffff_ffff_ffff);
        self.turn = Some(Turn { response_id: named.unwrap_or_else(own) });
    }

    fn end_turn(&mut self, event: &FromModel<'_>, mark: Mark<'_>) {
        match event {
            FromModel::Listening | FromModel::Output(Output { end_of_turn: true, .. }) => self.turn = None,
            FromModel::Answered(..) if self.mode == Mode::Chat => {
                self.turn = None;
                self.flight.complete(mark.input_id);
            }
            _ => {}
        }
    }

    /// All of a step in one event.
    fn combined(&mut self, now: Instant, event: &FromModel<'_>, mark: Mark<'_>, w: &dyn Wires) {
        let step = Step {
            name: mark.input_id.or(mark.response_id),
            input_id: mark.input_id,
            tokens: mark.context_tokens,
        };
        self.with_combine(now, w, |combine, tell| match event {
            FromModel::Text(text) => combine.text(now, text, step, tell),
            FromModel::Speech(audio) => combine.speech(now, audio, step, tell),
            FromModel::Listening => combine.listening(step, tell),
            FromModel::Answered(..) => combine.done(step, tell),
            FromModel::Output(output) => {
                combine.flush(tell);
                tell(&Told::Output(*output), step.tokens);
            }
            _ => {}
        });
    }

    /// Every part of a step in an event of its own.
    fn apart(&mut self, now: Instant, event: &FromModel<'_>, mark: Mark<'_>, append: &Append, w: &dyn Wires) {
        let own_id = append.input_id.as_deref().filter(|_| append.own_id);
        let response_id = self.turn.as_ref().map(|turn| turn.response_id.as_str());
        let about = About {
            response_id: mark.response_id.or(response_id),
            // Nobody is told a name that nobody gave.
            input_id: own_id,
            ..self.about(now)
        };
        let mut told = Vec::new();
        match event {
            FromModel::Text(text) => told.push(Told::Text(text)),
            FromModel::Speech(audio) => told.push(Told::Speech(audio)),
            FromModel::Listening => told.push(Told::Listening),
            FromModel::Answered(text, audio) => told.push(Told::Answered(*text, *audio)),
            FromModel::Output(output) => {
                // A step in which nothing was said is answered too: some clients wait for it.
                let nothing = output.audio.is_none() && !output.end_of_turn;
                told.extend(Some(output.text).filter(|text| nothing || !text.is_empty()).map(Told::Text));
                told.extend(output.audio.map(Told::Speech));
                told.extend(output.end_of_turn.then_some(Told::Listening));
            }
            _ => {}
        }
        let spelled: Vec<_> = told.iter().filter_map(|told| w.tell(told, &about)).collect();
        spelled.into_iter().for_each(|text| self.tell(Message::Text(text)));
    }

    /// What is held is told, and a turn that is open is closed: no more of it comes.
    pub(super) fn close_turn(&mut self, now: Instant, w: &dyn Wires) {
        let Some(turn) = self.turn.take() else { return };
        if w.combines() && !w.native() {
            return self.with_combine(now, w, |combine, tell| combine.end(tell));
        }
        let about = About { response_id: Some(&turn.response_id), ..self.about(now) };
        let ended = if w.combines() {
            Told::Output(Output { text: "", audio: None, end_of_turn: true })
        } else {
            Told::Listening
        };
        if self.mode != Mode::Chat
            && let Some(text) = w.tell(&ended, &about)
        {
            self.tell(Message::Text(text));
        }
    }

    /// What is held is told; the turn is left as it is.
    pub(super) fn flush_turn(&mut self, now: Instant, w: &dyn Wires) {
        self.with_combine(now, w, |combine, tell| combine.flush(tell));
    }

    /// What has been held long enough.
    pub(super) fn combine_timeout(&mut self, now: Instant, w: &dyn Wires) {
        self.with_combine(now, w, |combine, tell| combine.timeout(now, tell));
    }

    fn with_combine(&mut self, now: Instant, w: &dyn Wires, act: impl FnOnce(&mut Combine, &mut Tell<'_>)) {
        let Self { combine, host, session_id, context_tokens, opened_at, .. } = self;
        let at_s = (now - *opened_at).as_secs_f64();
        act(combine, &mut |told, tokens| {
            // A protocol that tells it always tells it: nothing in use is not known to be wrong.
            let context_tokens = tokens.or(*context_tokens).or(Some(0));
            let session_id = session_id.as_deref();
            let about = About { session_id, context_tokens, at_s, ..About::default() };
            let spelled = w.tell(told, &about).map(Message::Text);
            host.out.push_all(spelled);
        });
    }

    /// The upstream says that something failed.
    fn failed(
        &mut self,
        now: Instant,
        event: &FromModel<'_>,
        ending: &Ending,
        goes_on: bool,
        text: &str,
        w: &dyn Wires,
    ) {
        if goes_on && self.refused_to_open(now, ending, text, w) {
            return;
        }
        if !goes_on || !self.is_heard() {
            // Before the session is open another attempt follows; in the middle it is as good as lost.
            self.spell_otherwise(now);
            let news = self.with_link(|link, host| link.event(now, &event.lane_event(), host));
            return self.heard(now, news, w);
        }
        if self.mode == Mode::Chat {
            // No answer comes, or no more of it.
            self.turn = None;
            self.flight.complete(None);
        } else {
            self.flight.answered_at_once();
        }
        if w.native() {
            self.tell(Message::Text(text.to_owned()));
        } else {
            self.refuse(now, &Error::new(ErrorKind::ModelFailed, ending.words.clone()), w);
        }
    }

    /// An upstream that refuses what would open the session, and waits for something better: where messages pass as they
    /// come that is for the client to know, else after as many attempts as there are ways to say it.
    fn refused_to_open(&mut self, now: Instant, ending: &Ending, text: &str, w: &dyn Wires) -> bool {
        if !self.is_initialising() {
            return false;
        }
        if w.native() {
            self.await_opening();
            self.tell(Message::Text(text.to_owned()));
            return true;
        }
        self.refusals += 1;
        let hopeless = self.is_refused_for_good();
        if hopeless {
            self.end(now, EndName::Failed, Some(&ending.words), w);
        }
        hopeless
    }

    /// The upstream ends the session.
    fn upstream_ended(&mut self, now: Instant, why: EndName, ending: &Ending, text: &str, w: &dyn Wires) {
        let initialising = self.is_initialising();
        let opening = !self.is_up() && !matches!(self.phase, Phase::Closing(_));
        self.refusals += u32::from(initialising);
        self.spell_otherwise(now);
        let final_word = matches!(why, EndName::Timeout | EndName::ContextFull);
        let again = opening && self.refusals < self.rules.open_attempts.max(1) && !final_word;
        let event = FromModel::Ended(why, ending.clone());
        let news = self.with_link(|link, host| link.event(now, &event.lane_event(), host));
        if again {
            return self.heard(now, news, w);
        }
        if opening {
            // What it refuses, others would refuse as well: no further attempt.
            self.with_link(|link, host| {
                link.close(now, host);
                crate::session::upstream::connection::News::None
            });
        }
        self.put_link_away();
        if w.native() {
            self.close_native(now, why, text, w);
        } else {
            let own = matches!(self.phase, Phase::Closing(_));
            let detail = (why == EndName::Failed && !own).then_some(ending.words.as_str());
            let why = if own { EndName::Asked } else { why };
            self.end(now, why, detail, w);
        }
    }
}

const fn rank(event: &FromModel<'_>) -> Rank {
    match event {
        FromModel::Text(_) => Rank::Text,
        FromModel::Speech(_) => Rank::Speech,
        FromModel::Listening => Rank::Listening,
        _ => Rank::Done,
    }
}
