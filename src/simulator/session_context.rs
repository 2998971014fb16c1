//! What a session has at hand while it handles one thing: the time, the configuration, its worker's model, a way out.

use std::time::Instant;

use super::{
    EngineRequest, JobId, SimulatorConfig,
    duplex::{DuplexOpening, DuplexUnit},
    fault::Faults,
    messages::{Diagnostic, ServerEvent, UnixClock},
    model::WorkerModel,
};

/// How a session ends, seen from the gateway.
#[derive(Debug)]
pub(super) enum SimSessionEnd {
    /// `session.closed` was said; the gateway closes with 1000.
    Closed,
    /// The gateway itself failed, with this exception text.
    GatewayFailed(&'static str),
    /// The TCP connection breaks.
    Aborted,
    /// What came is no message; the gateway closes with 1003.
    UnsupportedData,
}

/// What a session wants done.
#[derive(Debug)]
pub(super) enum SessionOutput {
    Text(String),
    AskEngines(JobId, EngineRequest),
    AsrAudio(Vec<f32>),
    DuplexOpened(DuplexOpening),
    DuplexUnit(DuplexUnit),
}

/// Everything around a session while it handles one thing.
pub(super) struct SimContext<'a> {
    pub(super) now: Instant,
    pub(super) cfg: &'a SimulatorConfig,
    pub(super) clock: &'a UnixClock,
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) faults: &'a mut Faults,
    pub(super) model: &'a mut WorkerModel,
    pub(super) job_count: &'a mut u64,
    /// Full-duplex turns of the whole gateway so far.
    pub(super) turn_count: &'a mut u64,
    pub(super) outputs: &'a mut Vec<SessionOutput>,
}

impl SimContext<'_> {
    pub(super) fn emit(&mut self, emit: SessionOutput) {
        self.outputs.push(emit);
    }

    pub(super) fn send_text(&mut self, text: String) {
        self.emit(SessionOutput::Text(text));
    }

    pub(super) fn ask_engines(&mut self, request: EngineRequest) -> JobId {
        *self.job_count += 1;
        let job = JobId(*self.job_count);
        self.emit(SessionOutput::AskEngines(job, request));
        job
    }

    pub(super) fn unix_seconds(&self) -> f64 {
        self.clock.unix_seconds(self.now)
    }

    /// The back-end's `session.closed`.
    pub(super) fn session_closed(&self, session_id: &str, reason: &str, diagnostic: Option<&str>) -> String {
        let event = ServerEvent {
            name: "session.closed",
            session_id: Some(Some(session_id)),
            reason: Some(reason),
            diagnostic: diagnostic.map(|message| Diagnostic { message }),
            server_send_ts: Some(self.unix_seconds()),
            ..ServerEvent::default()
        };
        event.to_json(self.cfg.backend)
    }
}

/// Twelve hexadecimal digits.
pub(super) fn random_hex12(rng: &mut fastrand::Rng) -> String {
    format!("{:012x}", rng.u64(..) >> 16)
}
