//! SGLang-Omni's full-duplex deployment of MiniCPM-o: `/v1/realtime` of version 0.1.9.
//!
//! Order, ids, checks and errors are those of the package's `serve/realtime` and `models/minicpm_o`; where the two differ, the
//! package is right. The model is the rule of [`duplex`](super::duplex).
//!
//! - [`request`] checks the form of a client's event, [`negotiation`] a session's configuration
//! - [`input`] is the audio and the pictures that wait for their unit
//! - [`response`] writes the events of a turn
//! - [`pages`] are its HTTP pages

mod input;
mod negotiation;
pub(super) mod pages;
mod request;
mod response;

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::{
    input::{Input, Unit},
    negotiation::Negotiated,
    request::{Rejected, Request},
    response::OpenResponse,
};
use super::{
    Backend, DuplexOpening, DuplexUnit, EngineAnswer, FaultKind, JobId, SimOutput,
    backlog::Backlog,
    dialect_session::DialectSession,
    duplex::{
        BUSY_TOKENS, FRAME_TOKENS, IDLE_TOKENS, InputUnits, ModelAnswer, ModelTurn, Responder, TurnFault,
    },
    messages::to_json,
    python,
    session_context::{SimContext, SimSessionEnd},
};
use crate::audio::pcm;

/// Context length of the model (`THINKER_CONTEXT_LENGTH` in native_config.py).
const CONTEXT_TOKENS: u64 = 8192;

/// Code of the error that ends a full session.
const CONTEXT_EXHAUSTED: &str = "context_exhausted";

/// Context of the prompt and the voice, as in the other dialects.
const OPENING_TOKENS: u64 = 75;

/// Time for the `session.update` that opens the session (`session_update_timeout_s`).
const UPDATE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Before `session.update`; ends at this instant.
    Created {
        expires_at: Instant,
    },
    Open,
    /// `session.closed` was sent.
    Closed,
}

/// A configuration that the model prepares. The server reads no message meanwhile.
#[derive(Debug)]
struct Opening {
    ready_at: Instant,
    event_id: String,
    session: Map<String, Value>,
    negotiated: Negotiated,
}

/// Unit in the model.
#[derive(Debug)]
struct Step {
    ends_at: Instant,
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

/// One session.
#[derive(Debug)]
pub(super) struct SglangSession {
    id: String,
    state: State,
    opening: Option<Opening>,
    /// Frames that came meanwhile; `None` is a binary one.
    unread: Backlog<Option<String>>,
    session: Map<String, Value>,
    negotiated: Negotiated,
    input: Input,
    closes: Option<(Instant, String)>,
    tokens: u64,
    context_max: u64,
    listens_left: u64,
    utterances: InputUnits,
    responder: Responder,
    turn: Option<ModelTurn>,
    step: Option<Step>,
    response: OpenResponse,
}

impl SglangSession {
    pub(super) fn new(now: Instant, rng: &mut fastrand::Rng) -> Self {
        Self {
            id: format!("sess_{}", random_hex32(rng)),
            state: State::Created { expires_at: now + UPDATE_TIMEOUT },
            opening: None,
            unread: Backlog::default(),
            session: Map::new(),
            negotiated: Negotiated::default(),
            input: Input::default(),
            closes: None,
            tokens: OPENING_TOKENS,
            context_max: CONTEXT_TOKENS,
            listens_left: 0,
            utterances: InputUnits::new(Backend::Cpp),
            responder: Responder::default(),
            turn: None,
            step: None,
            response: OpenResponse::default(),
        }
    }

    /// Reads one frame; `None` is a binary one.
    fn read(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let (event_id, request) = match frame {
            Some(text) => request::parse(text),
            None => (None, Err(Rejected::request("binary frames are unsupported"))),
        };
        let outcome = request.and_then(|request| self.handle(request, event_id.as_deref(), ctx));
        if let Err(rejected) = outcome {
            let name = "invalid_request_error";
            send(ctx, "error", error_members(false, name, &rejected, event_id.as_deref()));
        }
        self.process_input(ctx);
        Ok(())
    }

    fn handle(
        &mut self,
        request: Request,
        event_id: Option<&str>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let event_id = event_id.unwrap_or_default();
        match request {
            Request::Update(patch) => self.update(&patch, event_id, ctx),
            Request::Audio { audio, seq, t_start_ms } => {
                let pcm = self.input.decode_audio(&audio)?;
                self.require_open()?;
                self.input.append(&pcm, seq, t_start_ms)?;
                let members = [
                    ("seq", seq.into()),
                    ("accepted_end_ms", input::milliseconds(self.input.accepted).into()),
                    ("client_event_id", event_id.into()),
                ];
                send(ctx, "sglang.input_audio.accepted", members);
                Ok(())
            }
            Request::Image { image, t_ms } => {
                let image = Input::decode_image(&image)?;
                self.require_open()?;
                let unit = self.input.append_image(image, t_ms, self.negotiated.frames_per_unit)?;
                let members =
                    [("unit_id", format!("unit_{unit}").into()), ("client_event_id", event_id.into())];
                send(ctx, "sglang.input_image.accepted", members);
                Ok(())
            }
            Request::Clear => {
                self.require_open()?;
                let discarded = input::milliseconds(self.input.clear());
                let members =
                    [("client_event_id", event_id.into()), ("sglang", json!({"discarded_ms": discarded}))];
                send(ctx, "input_audio_buffer.cleared", members);
                Ok(())
            }
            Request::End => {
                self.require_open()?;
                self.input.end(event_id)?;
                let members = [
                    ("accepted_end_ms", input::milliseconds(self.input.accepted).into()),
                    ("tail_policy", "pad".into()),
                    ("client_event_id", event_id.into()),
                ];
                send(ctx, "sglang.input_audio.ended", members);
                Ok(())
            }
            Request::Close => {
                self.closes = Some((ctx.now + ctx.cfg.timing.close, event_id.to_owned()));
                self.step = None;
                Ok(())
            }
            Request::Refused { code, message } => {
                self.require_open()?;
                Err(Rejected { code, message: message.to_owned(), param: None })
            }
        }
    }

    fn require_open(&self) -> Result<(), Rejected> {
        match self.state {
            State::Open => Ok(()),
            _ => Err(Rejected::state("session is not OPEN")),
        }
    }

    /// Opens the session, or changes what may change later: the output modalities.
    fn update(
        &mut self,
        patch: &Map<String, Value>,
        event_id: &str,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let is_open = self.state == State::Open;
        let (session, negotiated) = negotiation::negotiate(&self.session, is_open, patch)?;
        if is_open {
            self.adopt(session, negotiated, event_id, ctx);
            return Ok(());
        }
        let extra_delay = ctx.faults.trigger_with(|kind| match kind {
            FaultKind::SlowInit(by) => Some(by),
            _ => None,
        });
        let ready_at = ctx.now + ctx.cfg.timing.init + extra_delay.unwrap_or_default();
        self.opening = Some(Opening { ready_at, event_id: event_id.to_owned(), session, negotiated });
        Ok(())
    }

    fn finish_opening(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(Opening { event_id, session, negotiated, .. }) = self.opening.take() else { return Ok(()) };
        if ctx.faults.trigger(FaultKind::DieBeforeCreated) {
            let rejected = Rejected {
                code: "admission_rejected",
                message: "no capacity for another session".to_owned(),
                param: None,
            };
            let members = error_members(false, "invalid_request_error", &rejected, Some(&event_id));
            send(ctx, "error", members);
        } else {
            self.begin_model(&session, ctx);
            self.adopt(session, negotiated, &event_id, ctx);
            self.state = State::Open;
        }
        while self.opening.is_none()
            && self.closes.is_none()
            && let Some(frame) = self.unread.pop()
        {
            self.read(frame.as_deref(), ctx)?;
        }
        Ok(())
    }

    fn begin_model(&mut self, session: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let sampling = session.get("sglang").and_then(|extension| extension.get("sampling"));
        let config = sampling.and_then(Value::as_object).cloned().unwrap_or_default();
        let count = config.get("force_listen_count").and_then(Value::as_u64);
        self.listens_left = count.unwrap_or_else(|| ctx.cfg.force_listen_count.into());
        self.context_max = ctx
            .faults
            .trigger_with(|kind| match kind {
                FaultKind::ContextFull(limit) => Some(limit),
                _ => None,
            })
            .unwrap_or(CONTEXT_TOKENS);
        let start = ctx.faults.trigger_with(|kind| match kind {
            FaultKind::KvStart(start) => Some(start),
            _ => None,
        });
        self.tokens = start.unwrap_or(OPENING_TOKENS);
        let prompt = session.get("instructions").and_then(Value::as_str).map(str::to_owned);
        let voice = negotiation::voice(session);
        ctx.record(|conn| {
            SimOutput::DuplexOpened(conn, DuplexOpening { has_video: true, prompt, config, voice })
        });
    }

    fn adopt(
        &mut self,
        session: Map<String, Value>,
        negotiated: Negotiated,
        event_id: &str,
        ctx: &mut SimContext<'_>,
    ) {
        let shown = negotiation::wire_session(&session, &negotiated, &self.id);
        send(ctx, "session.updated", [("client_event_id", event_id.into()), ("session", shown)]);
        (self.session, self.negotiated) = (session, negotiated);
    }

    /// Gives the model the next unit, if it is free.
    fn process_input(&mut self, ctx: &mut SimContext<'_>) {
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
        let extra_time = ctx.faults.trigger_with(|kind| match kind {
            FaultKind::SlowSteps(by) => Some(by),
            _ => None,
        });
        self.step = Some(Step { ends_at: ctx.now + time + extra_time.unwrap_or_default(), unit, output });
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

    fn finish_step(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
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

    /// Ends the session after an error of the server.
    fn fail(
        &mut self,
        code: &'static str,
        message: String,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        let rejected = Rejected { code, message, param: None };
        send(ctx, "error", error_members(true, "server_error", &rejected, None));
        self.close("failed", code, None, ctx)
    }

    fn close(
        &mut self,
        status: &str,
        reason: &str,
        event_id: Option<&str>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        self.response.finish(status, reason, None, ctx);
        send(ctx, "session.closed", [("reason", reason.into()), ("client_event_id", event_id.into())]);
        self.state = State::Closed;
        Err(SimSessionEnd::Closed)
    }
}

impl DialectSession for SglangSession {
    fn begin(&mut self, ctx: &mut SimContext<'_>) {
        let session = json!({
            "id": self.id, "object": "realtime.session", "type": "realtime", "model": pages::MODEL,
            "sglang": {"granted": null},
        });
        send(ctx, "session.created", [("session", session)]);
    }

    fn handle_text(&mut self, text: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        self.handle_frame(Some(text), ctx)
    }

    fn handle_binary(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        self.handle_frame(None, ctx)
    }

    fn handle_engine_answer(&mut self, job: JobId, answer: &EngineAnswer, ctx: &mut SimContext<'_>) {
        // An engine that fails leaves the user without an answer.
        let _failed = self.responder.handle_engine_answer(job, answer, ctx);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let expires_at = match (&self.state, &self.opening) {
            (State::Created { expires_at }, None) => Some(*expires_at),
            _ => None,
        };
        let opening = self.opening.as_ref().map(|opening| opening.ready_at);
        let closes_at = self.closes.as_ref().map(|(at, _)| *at);
        [opening, closes_at, expires_at, self.step_end_time()].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        if is_due(self.opening.as_ref().map(|opening| opening.ready_at)) {
            return self.finish_opening(ctx);
        }
        if is_due(self.step_end_time()) {
            return self.finish_step(ctx);
        }
        if let Some((at, event_id)) = self.closes.clone()
            && at <= ctx.now
        {
            return self.close("cancelled", "client_closed", Some(&event_id), ctx);
        }
        match self.state {
            State::Created { expires_at } if is_due(Some(expires_at)) && self.opening.is_none() => {
                let message = format!("session not opened within {} s", UPDATE_TIMEOUT.as_secs());
                self.fail("session_update_timeout", message, ctx)
            }
            _ => Ok(()),
        }
    }

    fn step_end_time(&self) -> Option<Instant> {
        self.step.as_ref().map(|step| step.ends_at)
    }
}

impl SglangSession {
    fn handle_frame(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        if self.closes.is_some() {
            return Ok(());
        }
        if self.opening.is_some() {
            let bytes = frame.map_or(0, str::len);
            let has_room = self.unread.try_push(frame.map(str::to_owned), bytes);
            return if has_room { Ok(()) } else { Err(SimSessionEnd::Aborted) };
        }
        self.read(frame, ctx)
    }
}

/// Sends an event; its id and the metadata come last, as the package adds them last.
fn send<'n>(ctx: &mut SimContext<'_>, name: &'n str, members: impl IntoIterator<Item = (&'n str, Value)>) {
    let event_id = format!("evt_{}", random_hex32(ctx.rng));
    let (own, metadata): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|(key, _)| *key != "sglang" || name == "error");
    let members =
        [("type", name.into())].into_iter().chain(own).chain([("event_id", event_id.into())]).chain(metadata);
    ctx.send_text(to_json(members));
}

fn error_members(
    is_fatal: bool,
    name: &str,
    rejected: &Rejected,
    event_id: Option<&str>,
) -> [(&'static str, Value); 2] {
    let error = json!({
        "type": name, "code": rejected.code, "message": rejected.message, "event_id": event_id,
        "param": rejected.param,
    });
    [("sglang", json!({"fatal": is_fatal})), ("error", error)]
}

/// Returns the 32 hexadecimal digits of a version 4 UUID, without its fixed bits.
fn random_hex32(rng: &mut fastrand::Rng) -> String {
    format!("{:032x}", rng.u128(..))
}

/// Python's `base64.b64decode(text, validate=True)`.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let is_strict = text.len().is_multiple_of(4)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    if is_strict { python::decode_base64(text).ok() } else { None }
}
