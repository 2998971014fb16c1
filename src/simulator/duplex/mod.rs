//! Full duplex: the client's audio goes in by units, and every unit is answered by listening or by a second of speech
//! (field notes §1.6 for PyTorch, §1.7 for C++; captured in §6.1).
//!
//! One append is one step of the model and takes its time; the next one waits. What stands in for the model's mind is a
//! rule: a stretch of audible units followed by a silent one is answered. Its speech is the [`marker()`], or an engine's.

mod init;
mod input;
mod input_units;
mod legacy;
mod reply;
mod responder;
mod turn;
mod watermark;

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

pub(super) use init::DEFAULT_PROMPT;
pub use init::Opening;
pub use input::Unit;
pub use watermark::{marker, read_marker};

use super::{
    Backend, Dialect, EngineAnswer, FaultKind, JobId,
    messages::{self, StepMetrics},
    session_context::{Bench, Emit, Ending, hex12},
    session_mode::{InitRefused, refuse},
};
use input::Append;
use input_units::Ear;
use reply::{Reply, Say};
use responder::{Answer, Mind};
use turn::{Fate, Turn};

/// Positions of the context that a unit takes, idle and busy, and a frame (field notes §7).
const IDLE_TOKENS: u64 = 13;
const BUSY_TOKENS: u64 = 28;
const FRAME_TOKENS: u64 = 64;

/// What the legacy server enforces (field notes §4); the current one does not (§1.6).
const LEGACY_CONTEXT: u64 = 8192;

/// A unit that is too short still leaves its `<unit>` token behind (field notes §1.6).
const UNIT_TOKENS: u64 = 1;

/// A full-duplex session on its worker.
#[derive(Debug)]
pub(super) struct Duplex {
    sees: bool,
    force_listen_count: u32,
    context_limit: Option<u64>,
    /// The client was told that the context is full.
    was_full: bool,
    inputs: u64,
    units: u32,
    ear: Ear,
    mind: Mind,
    turn: Option<Turn>,
    /// An interrupted turn that comes back by itself.
    resuming: Option<Turn>,
    step: Option<Step>,
}

/// One step of the model under way.
#[derive(Debug)]
struct Step {
    until: Instant,
    says: Vec<Say>,
    input_id: Option<Value>,
    metrics: StepMetrics,
    then: Then,
}

/// What follows a step.
#[derive(Debug)]
enum Then {
    Next,
    ContextFull,
    Crash(String),
    Abort,
    /// The step failed, and the session goes on.
    Fails,
}

impl Step {
    /// One that says nothing.
    fn of(until: Instant, then: Then) -> Self {
        Self { until, says: Vec::new(), input_id: None, metrics: StepMetrics::default(), then }
    }
}

impl Duplex {
    pub(super) fn prepare(
        sees: bool,
        payload: &Map<String, Value>,
        bench: &mut Bench<'_>,
    ) -> Result<Self, InitRefused> {
        let backend = bench.cfg.backend;
        let opening = Opening::read(backend, sees, payload, &mut bench.model.config)?;
        let start = bench.faults.strike(|kind| match kind {
            FaultKind::KvStart(start) => Some(start),
            _ => None,
        });
        bench.model.kv_cache_length = start.unwrap_or_else(|| opening.tokens());
        let force_listen_count = opening.force_listen_count(backend).unwrap_or(bench.cfg.force_listen_count);
        if bench.cfg.record {
            bench.emit(Emit::Opened(opening));
        }
        Ok(Self {
            sees,
            force_listen_count,
            context_limit: context_limit(bench),
            was_full: false,
            inputs: 0,
            units: 0,
            ear: Ear::new(backend),
            mind: Mind::default(),
            turn: None,
            resuming: None,
            step: None,
        })
    }

    pub(super) const fn busy(&self) -> bool {
        self.step.is_some()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.step.as_ref().map(|step| step.until)
    }

    /// Nothing ends a step early.
    pub(super) fn step_end(&self) -> Option<Instant> {
        self.next()
    }

    /// Takes one append: all that comes of it is settled now and said when the step is over.
    pub(super) fn begin(
        &mut self,
        id: &str,
        input: &Map<String, Value>,
        bench: &mut Bench<'_>,
    ) -> Result<(), Ending> {
        self.inputs += 1;
        let mut append = match Append::parse(bench.cfg.backend, self.sees, input) {
            Ok(append) => append,
            Err(refusal) => return refuse(id, &refusal, bench),
        };
        if bench.cfg.record {
            bench.emit(Emit::Unit(append.unit.clone()));
        }
        if bench.faults.hits(FaultKind::NeverAnswers) {
            return Ok(());
        }
        if bench.cfg.dialect != Dialect::Current && bench.faults.hits(FaultKind::InferenceFails) {
            self.step = Some(Step::of(bench.now + bench.cfg.timing.listen_step, Then::Fails));
            return Ok(());
        }
        let mut reply = Reply::new(id, self.inputs, bench);
        let samples = std::mem::take(&mut append.unit.samples);
        let (took, then) = match self.ear.take(samples) {
            Some(unit) => self.unit(&append, unit, &mut reply, bench),
            None => {
                bench.model.kv_cache_length += UNIT_TOKENS;
                reply.listen(None);
                (Duration::ZERO, Then::Next)
            }
        };
        self.step = Some(self.under_way(append, reply, took, then, bench));
        Ok(())
    }

    /// One whole unit: listens, begins to speak, goes on speaking or is interrupted.
    fn unit(
        &mut self,
        append: &Append,
        samples: Vec<f32>,
        reply: &mut Reply,
        bench: &mut Bench<'_>,
    ) -> (Duration, Then) {
        self.units = self.units.saturating_add(1);
        let audible = self.ear.hear(samples);
        let forced = append.unit.forced || self.units <= self.force_listen_count;
        let stops = append.unit.forced || (audible && self.turn.as_ref().is_some_and(|turn| turn.yields));
        if let Some(turn) = self.turn.take_if(|turn| stops && turn.stops()) {
            self.interrupted(turn, reply, bench);
        } else if self.turn.is_none() {
            self.turn = self.opens(append, audible, forced, bench);
        }
        let speaking = self.turn.is_some() && !reply.listens();
        let then = if speaking { self.speak(reply, bench) } else { Then::Next };
        if !speaking && !reply.listens() {
            reply.listen(None);
        }
        let tokens = if audible || speaking { BUSY_TOKENS } else { IDLE_TOKENS };
        bench.model.kv_cache_length += tokens + append.unit.frames as u64 * FRAME_TOKENS;
        let timing = &bench.cfg.timing;
        let took = if speaking { timing.speak_step } else { timing.listen_step };
        (took + slowness(bench), then)
    }

    /// The turn is over before its end; what it would have said next may still come out of the C++ back-end's thread.
    fn interrupted(&mut self, mut turn: Turn, reply: &mut Reply, bench: &mut Bench<'_>) {
        reply.listen(Some(&turn.response_id));
        if bench.faults.hits(FaultKind::LateAudio) {
            let late = turn.speak().audio;
            reply.late(&turn.response_id, late);
        }
        self.resuming = Some(turn).filter(|turn| !turn.over() && bench.faults.hits(FaultKind::Resumes));
    }

    /// The turn that begins with this unit, if one does.
    fn opens(&mut self, append: &Append, audible: bool, forced: bool, bench: &mut Bench<'_>) -> Option<Turn> {
        let chosen = append.response_id.clone();
        if !forced && let Some(mut turn) = self.resuming.take() {
            turn.response_id = chosen.unwrap_or_else(|| response_id(bench));
            return Some(turn);
        }
        let answer = self.answer(audible, forced, bench)?;
        Some(Turn::begin(answer, chosen.unwrap_or_else(|| response_id(bench)), bench))
    }

    /// Engines start to work when the user falls silent; the rule answers when it may speak.
    fn answer(&mut self, audible: bool, forced: bool, bench: &mut Bench<'_>) -> Option<Answer> {
        let may_speak = !audible && !forced;
        if !audible && (may_speak || bench.cfg.engines) && self.mind.idle() {
            let utterance = self.ear.utterance()?;
            self.mind.think(utterance, bench);
        }
        if may_speak { self.mind.answer() } else { None }
    }

    /// One unit of the turn; several, when they come in a burst.
    fn speak(&mut self, reply: &mut Reply, bench: &mut Bench<'_>) -> Then {
        let Some(turn) = &mut self.turn else { return Then::Next };
        match turn.fate() {
            Some(Fate::Dies) => return Then::Crash("simulated: the generator died".to_owned()),
            Some(Fate::Drops) => return Then::Abort,
            None => {}
        }
        for _ in 0..turn.at_once() {
            let unit = turn.speak();
            reply.speak(turn, unit, bench);
        }
        if turn.over() {
            reply.ends(&turn.response_id);
            self.turn = None;
        }
        Then::Next
    }

    fn under_way(
        &self,
        append: Append,
        mut reply: Reply,
        took: Duration,
        then: Then,
        bench: &mut Bench<'_>,
    ) -> Step {
        if bench.faults.hits(FaultKind::DoubleTerminal) {
            reply.double_terminals();
        }
        let full = self.context_limit.is_some_and(|limit| bench.model.kv_cache_length >= limit);
        Step {
            until: bench.now + took,
            metrics: reply.metrics(bench.cfg.backend, took, append.unit.frames as u64),
            says: reply.says,
            input_id: append.unit.input_id.filter(|_| bench.cfg.backend == Backend::Pytorch),
            then: if full && matches!(then, Then::Next) { Then::ContextFull } else { then },
        }
    }

    /// Says what the step brought.
    pub(super) fn step(&mut self, id: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Some(step) = self.step.take() else { return Ok(()) };
        if let Dialect::Legacy { documented } = bench.cfg.dialect {
            return self.legacy_step(step, documented, bench);
        }
        for say in &step.says {
            let event = say.event(id, step.input_id.as_ref(), &step.metrics, bench);
            bench.say(event);
        }
        let last = match (step.then, bench.cfg.backend) {
            (Then::Next | Then::Fails, _) => return Ok(()),
            (Then::Abort, _) => return Err(Ending::Aborted),
            (Then::ContextFull, _) => bench.closed(id, "context_full", None),
            (Then::Crash(message), Backend::Pytorch) => bench.closed(id, "backend_error", Some(&message)),
            (Then::Crash(_), Backend::Cpp) => messages::worker_closed(Some(id)),
        };
        bench.say(last);
        Err(Ending::Polite)
    }

    /// The engines' answer; a failure ends the step under way, or the session at once.
    pub(super) fn answered(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) {
        let Err(why) = self.mind.answered(job, answer, bench) else { return };
        self.step.get_or_insert(Step::of(bench.now, Then::Next)).then = Then::Crash(why);
    }
}

fn response_id(bench: &mut Bench<'_>) -> String {
    format!("resp_{}", hex12(bench.rng))
}

/// How many positions of the context end the session.
fn context_limit(bench: &mut Bench<'_>) -> Option<u64> {
    let struck = bench.faults.strike(|kind| match kind {
        FaultKind::ContextFull(limit) => Some(limit),
        _ => None,
    });
    struck.or((bench.cfg.dialect != Dialect::Current).then_some(LEGACY_CONTEXT))
}

fn slowness(bench: &mut Bench<'_>) -> Duration {
    let slow = bench.faults.strike(|kind| match kind {
        FaultKind::SlowSteps(by) => Some(by),
        _ => None,
    });
    slow.unwrap_or_default()
}
