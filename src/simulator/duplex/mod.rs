//! Full duplex: each unit of client audio is answered by `listen` or by a second of speech. Sources:
//! mappings/notes/minicpm-o-duplex.md#turns for PyTorch, mappings/notes/llama-cpp-omni.md#events for C++; captured in
//! mappings/notes/minicpm-o.md#exchanges.
//!
//! One append is one step of the model and takes its time; the next append waits. A rule replaces the model: it answers
//! each stretch of audible units that a silent unit follows. Its speech is the [`watermark_sample`] or comes from an
//! engine.

mod init;
mod input;
mod input_units;
mod legacy;
mod reply;
mod responder;
mod stepwise;
mod turn;
mod watermark;

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

pub(super) use init::DEFAULT_PROMPT;
pub use init::DuplexOpening;
pub use input::DuplexUnit;
pub(super) use input_units::{InputUnits, rms};
pub(super) use responder::{ModelAnswer, Responder};
pub(super) use stepwise::UnitOutput;
pub(super) use turn::{ModelTurn, TurnFault};
pub use watermark::{read_watermark, watermark_sample};

use super::{
    Backend, EngineAnswer, FaultKind, JobId, SimDialect, SimOutput,
    messages::{self, StepMetrics},
    session_context::{InitRejected, SimContext, SimSessionEnd, random_hex12},
};
use input::DuplexAppend;
use reply::{CountedUnit, ReplyBuilder, StepEvent};

/// Context positions of an idle unit, a busy unit and a video frame (mappings/notes/minicpm-o-duplex.md#context).
pub(super) const IDLE_TOKENS: u64 = 13;
pub(super) const BUSY_TOKENS: u64 = 28;
pub(super) const FRAME_TOKENS: u64 = 64;

/// Context limit of the legacy server (mappings/notes/minicpm-o-legacy.md#faults); the current one enforces none
/// (mappings/notes/minicpm-o-duplex.md#limits).
const LEGACY_CONTEXT_TOKENS: u64 = 8192;

/// A unit that is too short still adds its `<unit>` token to the context (mappings/notes/minicpm-o-duplex.md#units).
const SHORT_UNIT_TOKENS: u64 = 1;

/// A full-duplex session on its worker.
#[derive(Debug)]
pub(super) struct DuplexSession {
    has_video: bool,
    force_listen_count: u32,
    context_limit: Option<u64>,
    /// The client was sent `context_full`.
    context_full_sent: bool,
    append_count: u64,
    unit_count: u32,
    input_units: InputUnits,
    responder: Responder,
    turn: Option<ModelTurn>,
    /// An interrupted turn that continues by itself.
    resuming: Option<ModelTurn>,
    step: Option<DuplexStep>,
}

/// One model step in progress.
#[derive(Debug)]
struct DuplexStep {
    ends_at: Instant,
    events: Vec<StepEvent>,
    input_id: Option<Value>,
    metrics: StepMetrics,
    outcome: StepOutcome,
}

/// Result of a step.
#[derive(Debug)]
enum StepOutcome {
    Continue,
    ContextFull,
    Crash(String),
    Abort,
    /// The step failed, but the session continues.
    Failed,
}

impl DuplexStep {
    /// Creates a step without events.
    fn silent(ends_at: Instant, outcome: StepOutcome) -> Self {
        Self { ends_at, events: Vec::new(), input_id: None, metrics: StepMetrics::default(), outcome }
    }
}

impl DuplexSession {
    pub(super) fn prepare(
        has_video: bool,
        payload: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<Self, InitRejected> {
        let backend = ctx.cfg.backend;
        let opening = DuplexOpening::from_payload(backend, has_video, payload, &mut ctx.model.config)?;
        let start_tokens = ctx.faults.trigger_positions(FaultKind::KvStart);
        ctx.model.kv_cache_length = start_tokens.unwrap_or_else(|| opening.context_tokens());
        let force_listen_count = opening.force_listen_count(backend).unwrap_or(ctx.cfg.force_listen_count);
        ctx.record(|conn| SimOutput::DuplexOpened(conn, opening));
        Ok(Self {
            has_video,
            force_listen_count,
            context_limit: context_limit(ctx),
            context_full_sent: false,
            append_count: 0,
            unit_count: 0,
            input_units: InputUnits::new(backend),
            responder: Responder::default(),
            turn: None,
            resuming: None,
            step: None,
        })
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.step.is_some()
    }

    /// End of the step in progress. Nothing ends a step early.
    pub(super) fn step_deadline(&self) -> Option<Instant> {
        self.step.as_ref().map(|step| step.ends_at)
    }

    /// Processes one append. Its results are computed now and sent when the step ends.
    pub(super) fn handle_append(
        &mut self,
        id: &str,
        input: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        self.append_count += 1;
        let append = match DuplexAppend::parse(ctx.cfg.backend, self.has_video, input) {
            Ok(append) => append,
            Err(rejection) => return ctx.reject_append(id, &rejection),
        };
        ctx.record(|conn| SimOutput::DuplexUnit(conn, append.unit.clone()));
        if ctx.faults.trigger(FaultKind::NeverAnswers) {
            return Ok(());
        }
        if ctx.cfg.dialect.is_legacy() && ctx.faults.trigger(FaultKind::InferenceFails) {
            self.step = Some(DuplexStep::silent(ctx.now + ctx.cfg.timing.listen_step, StepOutcome::Failed));
            return Ok(());
        }
        self.begin_step(id, append, ctx);
        Ok(())
    }

    /// Starts the model's step for an append.
    fn begin_step(&mut self, id: &str, mut append: DuplexAppend, ctx: &mut SimContext<'_>) {
        let mut reply = ReplyBuilder::new(id, self.append_count, ctx);
        let samples = std::mem::take(&mut append.unit.samples);
        let (duration, outcome) = match self.input_units.push_append(samples) {
            Some(unit) => self.process_unit(&append, unit, &mut reply, ctx),
            None => {
                ctx.model.kv_cache_length += SHORT_UNIT_TOKENS;
                reply.push_listen(None);
                (Duration::ZERO, StepOutcome::Continue)
            }
        };
        self.step = Some(self.build_step(append, reply, duration, outcome, ctx));
    }

    /// Processes one whole unit: listens, starts a turn, continues or interrupts it.
    fn process_unit(
        &mut self,
        append: &DuplexAppend,
        samples: Vec<f32>,
        reply: &mut ReplyBuilder,
        ctx: &mut SimContext<'_>,
    ) -> (Duration, StepOutcome) {
        self.unit_count = self.unit_count.saturating_add(1);
        let is_audible = self.input_units.observe_unit(samples);
        let must_listen = append.unit.force_listen || self.unit_count <= self.force_listen_count;
        let should_stop = append.unit.force_listen
            || (is_audible && self.turn.as_ref().is_some_and(|turn| turn.yields_to_speech));
        if let Some(turn) = self.turn.take_if(|turn| should_stop && turn.try_stop()) {
            self.interrupt_turn(turn, reply, ctx);
        } else if self.turn.is_none() {
            self.turn = self.open_turn(append, is_audible, must_listen, ctx);
        }
        let is_speaking = self.turn.is_some() && !reply.is_listening();
        let outcome = if is_speaking { self.speak_units(reply, ctx) } else { StepOutcome::Continue };
        if !is_speaking && !reply.is_listening() {
            reply.push_listen(None);
        }
        let tokens = if is_audible || is_speaking { BUSY_TOKENS } else { IDLE_TOKENS };
        ctx.model.kv_cache_length += tokens + append.unit.frame_count as u64 * FRAME_TOKENS;
        let timing = &ctx.cfg.timing;
        let duration = if is_speaking { timing.speak_step } else { timing.listen_step };
        (duration + ctx.extra_step_time(), outcome)
    }

    /// Ends a turn early. C++ may still send the audio that its vocoder thread has finished.
    fn interrupt_turn(&mut self, mut turn: ModelTurn, reply: &mut ReplyBuilder, ctx: &mut SimContext<'_>) {
        reply.push_listen(Some(&turn.response_id));
        if ctx.faults.trigger(FaultKind::LateAudio) {
            let late = turn.next_unit().audio;
            reply.push_late_audio(&turn.response_id, late);
        }
        self.resuming = Some(turn).filter(|turn| !turn.is_over() && ctx.faults.trigger(FaultKind::Resumes));
    }

    /// Returns the turn that starts with this unit, if any.
    fn open_turn(
        &mut self,
        append: &DuplexAppend,
        is_audible: bool,
        must_listen: bool,
        ctx: &mut SimContext<'_>,
    ) -> Option<ModelTurn> {
        let requested_id = append.response_id.clone();
        if !must_listen && let Some(mut turn) = self.resuming.take() {
            turn.response_id = requested_id.unwrap_or_else(|| new_response_id(ctx));
            return Some(turn);
        }
        let answer = self.take_answer(is_audible, must_listen, ctx)?;
        Some(ModelTurn::start(answer, requested_id.unwrap_or_else(|| new_response_id(ctx)), ctx))
    }

    /// Returns an answer to speak. Engines start when the user falls silent, the rule when the model may speak.
    fn take_answer(
        &mut self,
        is_audible: bool,
        must_listen: bool,
        ctx: &mut SimContext<'_>,
    ) -> Option<ModelAnswer> {
        let may_speak = !is_audible && !must_listen;
        if !is_audible && (may_speak || ctx.cfg.use_engines) && self.responder.is_idle() {
            let utterance = self.input_units.take_utterance()?;
            self.responder.begin_answer(utterance, ctx);
        }
        if may_speak { self.responder.take_answer() } else { None }
    }

    /// Adds one unit of the turn, or several in a burst.
    fn speak_units(&mut self, reply: &mut ReplyBuilder, ctx: &mut SimContext<'_>) -> StepOutcome {
        let Some(turn) = &mut self.turn else { return StepOutcome::Continue };
        match turn.due_fault() {
            Some(TurnFault::Crash) => return StepOutcome::Crash("simulated: the generator died".to_owned()),
            Some(TurnFault::Abort) => return StepOutcome::Abort,
            None => {}
        }
        for _ in 0..turn.units_in_next_step() {
            let unit = turn.next_unit();
            reply.push_unit(turn, unit, ctx);
        }
        if turn.is_over() {
            reply.end_turn(&turn.response_id);
            self.turn = None;
        }
        StepOutcome::Continue
    }

    fn build_step(
        &self,
        append: DuplexAppend,
        mut reply: ReplyBuilder,
        duration: Duration,
        outcome: StepOutcome,
        ctx: &mut SimContext<'_>,
    ) -> DuplexStep {
        if ctx.faults.trigger(FaultKind::DoubleTerminal) {
            reply.duplicate_terminals();
        }
        let is_full = self.context_limit.is_some_and(|limit| ctx.model.kv_cache_length >= limit);
        DuplexStep {
            ends_at: ctx.now + duration,
            metrics: reply.step_metrics(ctx.cfg.backend, duration, append.unit.frame_count as u64),
            events: reply.events,
            input_id: append.unit.input_id.filter(|_| ctx.cfg.backend == Backend::Pytorch),
            outcome: if is_full && matches!(outcome, StepOutcome::Continue) {
                StepOutcome::ContextFull
            } else {
                outcome
            },
        }
    }

    /// Sends the messages of the completed step.
    pub(super) fn finish_step(&mut self, id: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(step) = self.step.take() else { return Ok(()) };
        if let SimDialect::Legacy { follows_document } = ctx.cfg.dialect {
            return self.finish_legacy_step(step, follows_document, ctx);
        }
        let mut counted = ctx.model.usage.as_mut().map(|total| CountedUnit::count(total, &step.metrics));
        for event in &step.events {
            let message = event.to_json(id, step.input_id.as_ref(), &step.metrics, counted.take(), ctx);
            ctx.send_text(message);
        }
        let final_message = match (step.outcome, ctx.cfg.backend) {
            (StepOutcome::Continue | StepOutcome::Failed, _) => return Ok(()),
            (StepOutcome::Abort, _) => return Err(SimSessionEnd::Aborted),
            (StepOutcome::ContextFull, _) => ctx.session_closed(id, "context_full", None),
            (StepOutcome::Crash(message), Backend::Pytorch) => {
                ctx.session_closed(id, "backend_error", Some(&message))
            }
            (StepOutcome::Crash(_), _) if ctx.cfg.dialect == SimDialect::LlamaCppOmni => {
                return Err(SimSessionEnd::Aborted);
            }
            (StepOutcome::Crash(_), Backend::Cpp) => messages::worker_closed(Some(id)),
        };
        ctx.send_text(final_message);
        Err(SimSessionEnd::Closed)
    }

    /// Handles the engines' answer. A failure crashes the step in progress, or the session at once.
    pub(super) fn handle_engine_answer(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        ctx: &mut SimContext<'_>,
    ) {
        let Err(reason) = self.responder.handle_engine_answer(job, answer, ctx) else { return };
        self.step.get_or_insert(DuplexStep::silent(ctx.now, StepOutcome::Continue)).outcome =
            StepOutcome::Crash(reason);
    }
}

fn new_response_id(ctx: &mut SimContext<'_>) -> String {
    format!("resp_{}", random_hex12(ctx.rng))
}

/// Number of context positions at which the session ends.
fn context_limit(ctx: &mut SimContext<'_>) -> Option<u64> {
    let fault_limit = ctx.faults.trigger_positions(FaultKind::ContextFull);
    fault_limit.or(ctx.cfg.dialect.is_legacy().then_some(LEGACY_CONTEXT_TOKENS))
}
