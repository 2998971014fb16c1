//! Context of a session while it handles one input: time, configuration, worker model, outputs.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    ConnId, EngineRequest, FaultKind, JobId, SimDialect, SimOutput, SimulatorConfig,
    chat::AppendRejection,
    fault::Faults,
    messages::{self, Diagnostic, ServerEvent, TokenUsage, UnixClock},
    model::WorkerModel,
};

/// End of a session, as the gateway sees it.
#[derive(Debug)]
pub(super) enum SimSessionEnd {
    /// `session.closed` was sent; the gateway closes with 1000.
    Closed,
    /// The server closes with 1000 and this reason.
    ClosedFor(String),
    /// The server closes with this code and reason.
    ClosedWith { code: u16, reason: &'static str },
    /// The session had no connection.
    Detached,
    /// The server closes without an event.
    Unanswered,
    /// The gateway itself failed, with this exception text.
    GatewayFailed(&'static str),
    /// The TCP connection is aborted.
    Aborted,
    /// A frame was not a message; the gateway closes with 1003.
    UnsupportedData,
}

/// The session cannot be created; the worker does not report the reason (mappings/notes/minicpm-o.md#rejections,
/// mappings/notes/llama-cpp-omni.md#rejections).
#[derive(Debug)]
pub(super) struct InitRejected;

/// Everything that a session may use while it handles one input.
pub(super) struct SimContext<'a> {
    pub(super) now: Instant,
    pub(super) conn: ConnId,
    pub(super) cfg: &'a SimulatorConfig,
    pub(super) clock: &'a UnixClock,
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) faults: &'a mut Faults,
    pub(super) model: &'a mut WorkerModel,
    pub(super) job_count: &'a mut u64,
    /// Scripted answers of the whole gateway so far.
    pub(super) answer_count: &'a mut u64,
    /// Full-duplex turns of the whole gateway so far.
    pub(super) turn_count: &'a mut u64,
    pub(super) outputs: &'a mut VecDeque<SimOutput>,
}

impl SimContext<'_> {
    pub(super) fn send_text(&mut self, text: String) {
        self.outputs.push_back(SimOutput::Text(self.conn, text));
    }

    /// Emits a recording output if [`SimulatorConfig::record`] is set.
    pub(super) fn record(&mut self, output: impl FnOnce(ConnId) -> SimOutput) {
        if self.cfg.record {
            self.outputs.push_back(output(self.conn));
        }
    }

    pub(super) fn ask_engines(&mut self, request: EngineRequest) -> JobId {
        *self.job_count += 1;
        let job = JobId(*self.job_count);
        self.outputs.push_back(SimOutput::AskEngines(job, request));
        job
    }

    /// Instant at which an initialisation that begins now is complete.
    pub(super) fn init_end(&mut self) -> Instant {
        let delay = self.faults.trigger_time(FaultKind::SlowInit).unwrap_or_default();
        self.now + self.cfg.timing.init + delay
    }

    /// Time that a fault adds to a step of the model.
    pub(super) fn extra_step_time(&mut self) -> Duration {
        self.faults.trigger_time(FaultKind::SlowSteps).unwrap_or_default()
    }

    pub(super) fn unix_seconds(&self) -> f64 {
        self.clock.unix_seconds(self.now)
    }

    /// Serialises the back-end's `session.closed`.
    pub(super) fn session_closed(&self, session_id: &str, reason: &str, diagnostic: Option<&str>) -> String {
        let event = ServerEvent {
            name: "session.closed",
            session_id: Some(Some(session_id)),
            reason: Some(reason),
            diagnostic: diagnostic.map(|message| Diagnostic { message }),
            usage: self.model.usage.map(TokenUsage::to_json),
            server_send_ts: Some(self.unix_seconds()),
            ..ServerEvent::default()
        };
        event.to_json(self.cfg.backend)
    }

    /// Answers a rejected append. The rejection ends the session, except in the legacy document.
    pub(super) fn reject_append(
        &mut self,
        session_id: &str,
        rejection: &AppendRejection,
    ) -> Result<(), SimSessionEnd> {
        match self.cfg.dialect {
            SimDialect::LlamaCppOmni if *rejection == AppendRejection::Silent => {
                return Err(SimSessionEnd::Aborted);
            }
            SimDialect::Current
            | SimDialect::LlamaCppOmni
            | SimDialect::VllmOmni
            | SimDialect::SglangOmni
            | SimDialect::OpenaiRealtime(_) => {}
            SimDialect::Legacy { follows_document: false } => return Err(SimSessionEnd::Aborted),
            SimDialect::Legacy { follows_document: true } => {
                self.send_text(messages::client_error("invalid_payload", "invalid append"));
                return Ok(());
            }
        }
        self.send_text(match rejection {
            AppendRejection::Exception(message) => {
                self.session_closed(session_id, "backend_error", Some(message))
            }
            AppendRejection::Reason(reason) => self.session_closed(session_id, reason, None),
            AppendRejection::Silent => messages::worker_closed(Some(session_id)),
        });
        Err(SimSessionEnd::Closed)
    }

    /// Sends the legacy dialect's non-fatal error.
    pub(super) fn send_inference_error(&mut self, follows_document: bool, message: &str) {
        let code = if follows_document { "inference_error" } else { "inference_failed" };
        self.send_text(messages::error(code, message));
    }
}

/// Returns twelve hexadecimal digits.
pub(super) fn random_hex12(rng: &mut fastrand::Rng) -> String {
    format!("{:012x}", rng.u64(..) >> 16)
}
