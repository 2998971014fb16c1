//! The conversation with one upstream, from the upgrade to the goodbye; sans-IO.
//!
//! It says what to send and until when to wait, and what came of each step. Whatever happens it ends politely and within
//! a bound: who holds a worker, or may hold one, says goodbye and waits for the answer; who is still queued just goes.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    step::{Bounds, Outcome, Step, Verdict},
    symptom::{Symptom, place},
};
use crate::{
    event::{Append, EndMeaning, Ending, Frame, LaneCommand, LaneEvent, Mark, Why},
    mapping::UpstreamMapping,
    upstream::Dialect,
};

/// What one unit of a conversation lasts (field notes minicpm-o.md §1.6).
const UNIT: Duration = Duration::from_secs(1);
/// A first unit may warm something up; who is slower than real time is so more than once.
const UNITS_MAX: u32 = 3;
/// Servers end a session's connection with the session; this side helps after so long.
const OWN_END: Duration = Duration::from_secs(1);
/// What is kept of what a server said, to find out who it is.
const KEPT_MESSAGES: usize = 3;
const KEPT_BYTES: usize = 16 * 1024;

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Until a worker is assigned.
    Queue,
    /// Until it is ready.
    Init,
    /// Until it has answered.
    Answer,
}

/// What to say to whom.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The dialect.
    pub dialect: Arc<UpstreamMapping>,
    /// What a session is opened with.
    pub init: LaneCommand,
    /// What is asked then.
    pub question: LaneCommand,
    /// How far to go.
    pub depth: Depth,
    /// How long it may take.
    pub bounds: Bounds,
}

/// What the driver is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Want {
    /// Send this text frame.
    Send(String),
    /// Wait for a frame, the end, or this instant.
    Wait(Instant),
    /// Send a close frame and wait for the end, or this instant.
    Leave(Instant),
    /// It is over.
    Over,
}

#[derive(Debug)]
enum Phase {
    Queued,
    Initialising,
    Asked,
    /// Goodbye is said; until then.
    Leaving {
        until: Instant,
    },
    /// The server has said that it is over; the transport's end is its own to bring.
    Ending {
        until: Instant,
    },
    /// Nothing more is said, and this side ends the transport.
    HangingUp {
        until: Instant,
    },
    Over,
}

/// One examination.
#[derive(Debug)]
pub struct Walk {
    dialect: Dialect,
    plan: Plan,
    phase: Phase,
    /// When this step began.
    since: Instant,
    out: VecDeque<String>,
    outcomes: VecDeque<Outcome>,
    /// A step that failed because the server ended the session, but for the code of its close frame.
    ended: Option<(Step, Duration, Ending)>,
    /// The server had the last word: there is nobody to say goodbye to.
    left_by_server: bool,
    granted: bool,
    place: Option<(Option<u32>, Option<u32>)>,
    units: u32,
    quickest: Duration,
    strange: Option<String>,
    heard: Vec<String>,
    reached: Option<Depth>,
}

impl Walk {
    /// The WebSocket is open.
    #[must_use]
    pub fn new(now: Instant, plan: Plan) -> Self {
        Self {
            dialect: Dialect::new(plan.dialect.clone()),
            plan,
            phase: Phase::Queued,
            since: now,
            out: VecDeque::new(),
            outcomes: VecDeque::new(),
            ended: None,
            left_by_server: false,
            granted: false,
            place: None,
            units: 0,
            quickest: Duration::MAX,
            strange: None,
            heard: Vec::new(),
            reached: None,
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Want {
        if let Some(text) = self.out.pop_front() {
            return Want::Send(text);
        }
        match self.phase {
            Phase::Queued | Phase::Initialising | Phase::Asked => {
                Want::Wait(self.since + self.plan.bounds.step)
            }
            Phase::Leaving { until } | Phase::Ending { until } => Want::Wait(until),
            Phase::HangingUp { until } => Want::Leave(until),
            Phase::Over => Want::Over,
        }
    }

    /// The next step that is done.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// How far it came.
    #[must_use]
    pub const fn reached(&self) -> Option<Depth> {
        self.reached
    }

    /// The first messages of the server, as they came.
    #[must_use]
    pub fn heard(&self) -> &[String] {
        &self.heard
    }

    /// The server sent something.
    pub fn frame(&mut self, now: Instant, frame: Frame<'_>) {
        if let (Frame::Text(text), true) = (frame, self.heard.len() < KEPT_MESSAGES) {
            self.heard.extend((text.len() <= KEPT_BYTES).then(|| text.to_owned()));
        }
        // Decoding lends its own room, so it cannot live in `self` meanwhile.
        let mut dialect = std::mem::replace(&mut self.dialect, Dialect::new(self.plan.dialect.clone()));
        dialect.decode(frame, |event, mark| self.event(now, &event, mark));
        self.dialect = dialect;
    }

    fn event(&mut self, now: Instant, event: &LaneEvent<'_>, mark: Mark<'_>) {
        match (&self.phase, event) {
            (Phase::Over | Phase::Ending { .. } | Phase::HangingUp { .. }, _) => {}
            (_, LaneEvent::Closed(ending)) => self.closed(now, ending),
            (_, LaneEvent::Unknown(words)) => drop(self.strange.get_or_insert_with(|| words.clone())),
            (Phase::Leaving { .. }, LaneEvent::Queued { .. }) if !self.granted => self.hang_up(now),
            (Phase::Queued, LaneEvent::Queued { position, length, .. }) => {
                self.place = Some((*position, *length));
            }
            (Phase::Queued, LaneEvent::Granted) => self.granted(now),
            (Phase::Queued, LaneEvent::Ready { .. }) => {
                self.fail(now, Step::Queue, Symptom::Unasked);
            }
            (Phase::Initialising, LaneEvent::Ready { session_id }) => {
                let backend = mark.backend.map(|backend| format!("back-end {backend}"));
                let session = session_id.map(str::to_owned);
                let note = [backend, session].into_iter().flatten().collect::<Vec<_>>().join(", ");
                self.ready(now, note);
            }
            (Phase::Initialising, LaneEvent::Trouble(words)) => {
                self.fail(now, Step::Init, Symptom::Trouble((*words).to_owned()));
            }
            (Phase::Asked, LaneEvent::Trouble(words)) => {
                self.fail(now, Step::Answer, Symptom::Trouble((*words).to_owned()));
            }
            (Phase::Asked, LaneEvent::Done { .. }) => self.answered(now),
            // In a conversation one of these is the answer; in a chat they are its beginning.
            (Phase::Asked, LaneEvent::Listen | LaneEvent::Audio(_)) if self.converses() => self.answered(now),
            _ => {}
        }
    }

    /// The transport is gone.
    pub fn ended(&mut self, now: Instant, why: Why) {
        let took = now - self.since;
        match (&self.phase, self.ended.take()) {
            (Phase::Over, _) => return,
            (_, Some((step, took, ending))) => {
                let code = match why {
                    Why::Closed(code, _) => Some(code),
                    _ => None,
                };
                self.tell_ended(step, took, ending, code);
            }
            (Phase::Leaving { .. }, None) => {
                self.outcomes.push_back(Outcome::failed(
                    Step::Close,
                    took,
                    Symptom::NoGoodbye(why.to_string()),
                ));
            }
            (Phase::Ending { .. } | Phase::HangingUp { .. }, None) => {}
            (_, None) => {
                let step = self.step();
                self.outcomes.push_back(Outcome::failed(step, took, Symptom::Dropped(why)));
                self.server_left();
            }
        }
        self.over();
    }

    /// It is then.
    pub fn tick(&mut self, now: Instant) {
        let due = now >= self.since + self.plan.bounds.step;
        let waited = now - self.since;
        match self.phase {
            Phase::Queued if due => {
                let symptom = match (self.place, &self.strange) {
                    (Some((position, length)), _) => Symptom::Held { position, length, waited },
                    (None, Some(words)) => Symptom::Strange(words.clone()),
                    (None, None) => Symptom::Silent { waited },
                };
                self.fail(now, Step::Queue, symptom);
            }
            Phase::Initialising if due => self.fail(now, Step::Init, Symptom::Silent { waited }),
            Phase::Asked if due => self.fail(now, Step::Answer, Symptom::Silent { waited }),
            Phase::Leaving { until } if now >= until => {
                let words = "no answer to the goodbye".to_owned();
                self.outcomes.push_back(Outcome::failed(Step::Close, waited, Symptom::NoGoodbye(words)));
                self.hang_up(now);
            }
            Phase::Ending { until } if now >= until => {
                // It did not mean it: a server of another dialect may go on after what means the end in this one.
                match self.ended.take() {
                    Some((step, took, ending)) if self.granted => {
                        self.outcomes.push_back(Outcome::failed(step, took, self.ended_by(ending, None)));
                        self.leave(now, now);
                    }
                    Some((step, took, ending)) => {
                        self.tell_ended(step, took, ending, None);
                        self.hang_up(now);
                    }
                    None => self.hang_up(now),
                }
            }
            Phase::HangingUp { until } if now >= until => self.over(),
            _ => {}
        }
    }

    /// It goes no further, because of this. A worker that is being made ready answers only then.
    pub fn stop(&mut self, now: Instant, why: &str) {
        let ready_by = self.since + self.plan.bounds.step;
        let heard_at = match self.phase {
            Phase::Leaving { .. } | Phase::Ending { .. } | Phase::HangingUp { .. } | Phase::Over => return,
            Phase::Initialising => ready_by,
            Phase::Queued | Phase::Asked => now,
        };
        self.outcomes.push_back(Outcome::skipped(self.step(), why));
        self.leave(now, heard_at);
    }

    /// Whether it was asked for a conversation.
    const fn converses(&self) -> bool {
        matches!(self.plan.question, LaneCommand::Append(_))
    }

    const fn step(&self) -> Step {
        match self.phase {
            Phase::Queued => Step::Queue,
            Phase::Initialising => Step::Init,
            Phase::Asked => Step::Answer,
            Phase::Leaving { .. } | Phase::Ending { .. } | Phase::HangingUp { .. } | Phase::Over => {
                Step::Close
            }
        }
    }

    fn granted(&mut self, now: Instant) {
        self.granted = true;
        self.reached = Some(Depth::Queue);
        let note = self.place.map_or_else(String::new, |(position, length)| place(position, length));
        let took = now - self.since;
        let mut outcome = Outcome::good(Step::Queue, took, self.plan.bounds.queue, note);
        if let (Verdict::Slow(symptom), Some((position, length))) = (&mut outcome.verdict, self.place) {
            *symptom = Symptom::Held { position, length, waited: took };
        }
        self.outcomes.push_back(outcome);
        if self.plan.depth == Depth::Queue {
            return self.leave(now, now);
        }
        self.out.push_back(self.dialect().encode(&self.plan.init));
        (self.phase, self.since) = (Phase::Initialising, now);
    }

    fn ready(&mut self, now: Instant, note: String) {
        self.reached = Some(Depth::Init);
        self.outcomes.push_back(Outcome::good(Step::Init, now - self.since, self.plan.bounds.init, note));
        if self.plan.depth == Depth::Init {
            return self.leave(now, now);
        }
        self.ask(now);
    }

    fn ask(&mut self, now: Instant) {
        self.units += 1;
        let mut question = self.plan.question.clone();
        if let LaneCommand::Append(Append { input_id, .. }) = &mut question {
            *input_id = format!("doctor-{}", self.units).into();
        }
        self.out.push_back(self.dialect().encode(&question));
        (self.phase, self.since) = (Phase::Asked, now);
    }

    fn answered(&mut self, now: Instant) {
        let took = now - self.since;
        self.quickest = self.quickest.min(took);
        if self.converses() && self.quickest > UNIT && self.units < UNITS_MAX {
            return self.ask(now);
        }
        let took = self.quickest;
        let outcome = if !self.converses() {
            Outcome::good(Step::Answer, took, self.plan.bounds.question, "one question")
        } else if took > UNIT {
            Outcome::failed(Step::Answer, took, Symptom::SlowerThanLife { took, unit: UNIT })
        } else {
            let ratio = took.as_secs_f64() / UNIT.as_secs_f64();
            Outcome::good(Step::Answer, took, UNIT, format!("one silent second, {ratio:.2} of real time"))
        };
        if outcome.failure().is_none() {
            self.reached = Some(Depth::Answer);
        }
        self.outcomes.push_back(outcome);
        self.leave(now, now);
    }

    /// The server says that the session is over.
    fn closed(&mut self, now: Instant, ending: &Ending) {
        let took = now - self.since;
        match self.phase {
            Phase::Leaving { .. } => {
                let outcome = Outcome::good(Step::Close, took, self.plan.bounds.close, "");
                self.outcomes.push_back(outcome);
            }
            // Its connection stays until it is told goodbye, and with it the worker.
            _ if ending.meaning == EndMeaning::UsedUpAndOpen => {
                let symptom = Symptom::Trouble(ending.words.clone());
                return self.fail(now, self.step(), symptom);
            }
            // Silence has no words, which ends a chat with some back-ends (field notes minicpm-o.md §2).
            Phase::Asked if ending.meaning == EndMeaning::EmptyAnswer => {
                self.reached = Some(Depth::Answer);
                let note = "one question, to which it had nothing to say";
                self.outcomes.push_back(Outcome::good(Step::Answer, took, self.plan.bounds.question, note));
                self.server_left();
            }
            _ => self.ended = Some((self.step(), took, ending.clone())),
        }
        self.since = now;
        self.phase = Phase::Ending { until: now + self.plan.bounds.close.min(OWN_END) };
    }

    fn tell_ended(&mut self, step: Step, took: Duration, ending: Ending, code: Option<u16>) {
        self.outcomes.push_back(Outcome::failed(step, took, self.ended_by(ending, code)));
        self.server_left();
    }

    fn ended_by(&self, ending: Ending, code: Option<u16>) -> Symptom {
        let voice = matches!(&self.plan.init, LaneCommand::Init(Some(_)))
            || matches!(&self.plan.init, LaneCommand::Converse(opening) if opening.voice.is_some());
        Symptom::Ended { words: ending.words, meaning: ending.meaning, code, voice }
    }

    /// The server has ended the session: there is no goodbye to be seen.
    fn server_left(&mut self) {
        if !std::mem::replace(&mut self.left_by_server, true) {
            self.outcomes.push_back(Outcome::skipped(Step::Close, "the server ended the session"));
        }
    }

    fn fail(&mut self, now: Instant, step: Step, symptom: Symptom) {
        self.outcomes.push_back(Outcome::failed(step, now - self.since, symptom));
        self.leave(now, now);
    }

    /// Says goodbye to a worker that may be there and hears it from `heard_at` on (field notes minicpm-o.md §1.2).
    fn leave(&mut self, now: Instant, heard_at: Instant) {
        if !self.granted && self.place.is_some() {
            self.outcomes
                .push_back(Outcome::skipped(Step::Close, "in the queue there is nobody to say goodbye to"));
            return self.hang_up(now);
        }
        self.out.push_back(self.dialect().encode(&LaneCommand::Close));
        self.since = now;
        self.phase = Phase::Leaving { until: heard_at.max(now) + self.plan.bounds.close };
    }

    fn hang_up(&mut self, now: Instant) {
        self.since = now;
        self.phase = Phase::HangingUp { until: now + self.plan.bounds.close };
    }

    fn over(&mut self) {
        self.out.clear();
        self.phase = Phase::Over;
    }

    /// For encoding alone, which needs nothing but the mapping.
    fn dialect(&self) -> Dialect {
        Dialect::new(self.plan.dialect.clone())
    }
}
