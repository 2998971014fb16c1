//! SGLang-Omni's full-duplex deployment of MiniCPM-o: `/v1/realtime` of version 0.1.9.
//!
//! Order, ids, checks and errors are those of the package's `serve/realtime` and `models/minicpm_o`; where the two differ, the
//! package is right. The model is the rule of [`duplex`](super::duplex).
//!
//! - [`opening`] opens a session, and [`steps`] are the model's
//! - [`request`] checks the form of a client's event, [`negotiation`] a session's configuration
//! - [`input`] is the audio and the pictures that wait for their unit
//! - [`response`] writes the events of a turn
//! - [`pages`] are its HTTP pages

mod input;
mod negotiation;
mod opening;
pub(super) mod pages;
mod request;
mod response;
mod steps;

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::{
    input::Input,
    negotiation::Negotiated,
    opening::Opening,
    request::{Rejected, Request},
    response::OpenResponse,
    steps::{CONTEXT_TOKENS, OPENING_TOKENS, Step},
};
use super::{
    Backend, EngineAnswer, JobId,
    backlog::Backlog,
    dialect_session::DialectSession,
    duplex::{InputUnits, ModelTurn, Responder},
    messages::to_json,
    python,
    session_context::{SimContext, SimSessionEnd},
};

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
