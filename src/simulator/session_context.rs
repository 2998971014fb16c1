//! What a session has at hand while it handles one thing: the time, the configuration, its worker's model, a way out.

use std::time::Instant;

use super::{
    EngineRequest, JobId, SimulatorConfig,
    duplex::{Opening, Unit},
    fault::Faults,
    messages::{Clock, Diagnostic, Event},
    model::Model,
};

/// How a session ends, seen from the gateway.
#[derive(Debug)]
pub(super) enum Ending {
    /// `session.closed` was said; the gateway closes with 1000.
    Polite,
    /// The gateway itself failed, with this exception text.
    Failed(&'static str),
    /// The TCP connection breaks.
    Aborted,
    /// What came is no message; the gateway closes with 1003.
    Unsupported,
}

/// What a session wants done.
#[derive(Debug)]
pub(super) enum Emit {
    Text(String),
    Engine(JobId, EngineRequest),
    Heard(Vec<f32>),
    Opened(Opening),
    Unit(Unit),
}

/// Everything around a session while it handles one thing.
pub(super) struct Bench<'a> {
    pub(super) now: Instant,
    pub(super) cfg: &'a SimulatorConfig,
    pub(super) clock: &'a Clock,
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) faults: &'a mut Faults,
    pub(super) model: &'a mut Model,
    pub(super) jobs: &'a mut u64,
    /// Full-duplex turns of the whole gateway so far.
    pub(super) turns: &'a mut u64,
    pub(super) out: &'a mut Vec<Emit>,
}

impl Bench<'_> {
    pub(super) fn emit(&mut self, emit: Emit) {
        self.out.push(emit);
    }

    pub(super) fn say(&mut self, text: String) {
        self.emit(Emit::Text(text));
    }

    pub(super) fn ask(&mut self, request: EngineRequest) -> JobId {
        *self.jobs += 1;
        let job = JobId(*self.jobs);
        self.emit(Emit::Engine(job, request));
        job
    }

    pub(super) fn seconds(&self) -> f64 {
        self.clock.seconds(self.now)
    }

    /// The back-end's `session.closed`.
    pub(super) fn closed(&self, session_id: &str, reason: &str, diagnostic: Option<&str>) -> String {
        let event = Event {
            name: "session.closed",
            session_id: Some(Some(session_id)),
            reason: Some(reason),
            diagnostic: diagnostic.map(|message| Diagnostic { message }),
            server_send_ts: Some(self.seconds()),
            ..Event::default()
        };
        event.write(self.cfg.backend)
    }
}

/// Twelve hexadecimal digits.
pub(super) fn hex12(rng: &mut fastrand::Rng) -> String {
    format!("{:012x}", rng.u64(..) >> 16)
}
