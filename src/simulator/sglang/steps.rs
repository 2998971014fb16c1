//! The model: a unit at a time becomes a step, whose output is a second of the turn, or a failure.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{SglangSession, State, input::Unit, negotiation, send};
use crate::{
    DuplexOpening, DuplexUnit, FaultKind, SimOutput,
    audio::pcm,
    duplex::{BUSY_TOKENS, FRAME_TOKENS, IDLE_TOKENS, ModelAnswer, ModelTurn, TurnFault},
    session_context::{SimContext, SimSessionEnd},
};

/// Context length of the model (`THINKER_CONTEXT_LENGTH` in native_config.py).
pub(super) const CONTEXT_TOKENS: u64 = 8192;

/// Code of the error that ends a full session.
const CONTEXT_EXHAUSTED: &str = "context_exhausted";

/// Context of the prompt and the voice, as in the other dialects.
pub(super) const OPENING_TOKENS: u64 = 75;

/// Unit in the model.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) ends_at: Instant,
    unit: Unit,
    output: StepOutput,
}

/// The model's output for a unit.
#[derive(Debug)]
enum StepOutput {
    Listen,
    Speak {
        text: String,
        audio: Vec<f32>,
        ends_turn: bool,
    },
    /// The model's failure: code and message.
    Failed(&'static str, String),
    Abort,
    /// The unit is never answered.
    Lost,
}

impl SglangSession {
    pub(super) fn begin_model(&mut self, session: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let sampling = session.get("sglang").and_then(|extension| extension.get("sampling"));
        let config = sampling.and_then(Value::as_object).cloned().unwrap_or_default();
        let count = config.get("force_listen_count").and_then(Value::as_u64);
        self.listens_left = count.unwrap_or_else(|| ctx.cfg.force_listen_count.into());
        self.context_max = ctx.faults.trigger_positions(FaultKind::ContextFull).unwrap_or(CONTEXT_TOKENS);
        self.tokens = ctx.faults.trigger_positions(FaultKind::KvStart).unwrap_or(OPENING_TOKENS);
        let prompt = session.get("instructions").and_then(Value::as_str).map(str::to_owned);
        let voice = negotiation::voice(session);
        ctx.record(|conn| {
            SimOutput::DuplexOpened(conn, DuplexOpening { has_video: true, prompt, config, voice })
        });
    }

    /// Gives the model the next unit, if it is free.
    pub(super) fn process_input(&mut self, ctx: &mut SimContext<'_>) {
        if self.state != State::Open || self.step.is_some() || self.closes.is_some() {
            return;
        }
        let Some(unit) = self.input.cut_unit() else { return };
        let samples: Vec<f32> = unit.pcm.iter().map(|sample| pcm::to_f32(*sample)).collect();
        let recorded = DuplexUnit {
            samples: samples.clone(),
            force_listen: false,
            frame_count: unit.images,
            input_id: Some(unit.index.into()),
        };
        let output = self.run_model(&unit, samples, ctx);
        // A unit that the context has no room for is not heard.
        if !matches!(output, StepOutput::Failed(CONTEXT_EXHAUSTED, _)) {
            ctx.record(|conn| SimOutput::DuplexUnit(conn, recorded));
        }
        let timing = &ctx.cfg.timing;
        let time =
            if matches!(output, StepOutput::Speak { .. }) { timing.speak_step } else { timing.listen_step };
        self.step = Some(Step { ends_at: ctx.now + time + ctx.extra_step_time(), unit, output });
    }

    fn run_model(&mut self, unit: &Unit, samples: Vec<f32>, ctx: &mut SimContext<'_>) -> StepOutput {
        if ctx.faults.trigger(FaultKind::NeverAnswers) {
            return StepOutput::Lost;
        }
        let is_audible = self.utterances.observe_unit(samples);
        let is_busy = is_audible || self.turn.is_some();
        self.tokens += if is_busy { BUSY_TOKENS } else { IDLE_TOKENS } + unit.images as u64 * FRAME_TOKENS;
        if self.tokens > self.context_max {
            let message = format!(
                "{CONTEXT_EXHAUSTED}: the session reached the thinker context length of {} tokens (the next unit needs {} \
                 tokens, limit {}). Start a new session.",
                self.context_max, self.tokens, self.context_max
            );
            return StepOutput::Failed(CONTEXT_EXHAUSTED, message);
        }
        if is_audible && self.turn.as_ref().is_some_and(|turn| turn.yields_to_speech) {
            self.turn = None;
            return StepOutput::Speak { text: String::new(), audio: Vec::new(), ends_turn: true };
        }
        let must_listen = self.listens_left > 0;
        self.listens_left = self.listens_left.saturating_sub(1);
        if self.turn.is_none()
            && !is_audible
            && let Some(answer) = self.take_answer(must_listen, ctx)
        {
            self.turn = Some(ModelTurn::start(answer, String::new(), ctx));
        }
        self.speak()
    }

    fn take_answer(&mut self, must_listen: bool, ctx: &mut SimContext<'_>) -> Option<ModelAnswer> {
        if (!must_listen || ctx.cfg.use_engines) && self.responder.is_idle() {
            let utterance = self.utterances.take_utterance()?;
            self.responder.begin_answer(utterance, ctx);
        }
        if must_listen { None } else { self.responder.take_answer() }
    }

    /// The next second of the turn.
    fn speak(&mut self) -> StepOutput {
        let Some(turn) = &mut self.turn else { return StepOutput::Listen };
        match turn.due_fault() {
            Some(TurnFault::Crash) => {
                return StepOutput::Failed("internal", "simulated: the generator died".into());
            }
            Some(TurnFault::Abort) => return StepOutput::Abort,
            None => {}
        }
        let unit = turn.next_unit();
        let ends_turn = turn.is_over();
        if ends_turn {
            self.turn = None;
        }
        StepOutput::Speak { text: unit.text, audio: unit.audio, ends_turn }
    }

    pub(super) fn finish_step(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(Step { unit, output, .. }) = self.step.take() else { return Ok(()) };
        let modality = self.negotiated.output_modality;
        match output {
            StepOutput::Listen => {}
            StepOutput::Speak { text, audio, ends_turn } => {
                self.response.push_unit(&self.id, &text, &audio, modality, &unit, ctx);
                if ends_turn {
                    self.response.finish("completed", "stop", Some(&unit), ctx);
                }
            }
            StepOutput::Failed(code, message) => return self.fail(code, message, ctx),
            StepOutput::Abort => return Err(SimSessionEnd::Aborted),
            StepOutput::Lost => {
                self.step = Some(Step { ends_at: ctx.now + Duration::from_secs(86_400), unit, output });
                return Ok(());
            }
        }
        if unit.is_last {
            self.response.finish("completed", "stop", Some(&unit), ctx);
        }
        let members = [("unit_id", unit.id().into()), ("sglang", unit.metadata(0))];
        send(ctx, "sglang.unit.done", members);
        if let Some(event_id) = self.input.consume(&unit) {
            send(ctx, "sglang.input_audio.drained", self.input.drained(&event_id));
        }
        self.process_input(ctx);
        Ok(())
    }
}
