//! One session on a worker: initialise, answer appends one after the other, close (field notes §1.3–§1.5).
//!
//! The worker reads each message at once and judges its form; the back-end takes the appends in order and judges their
//! content when their turn comes (`talk`). Every violation ends the session.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{
    EngineAnswer, FaultKind, JobId, Mode,
    backlog::{Backlog, TOO_MUCH},
    generate::Generation,
    messages::{self, Event, Metrics},
    python,
    session_context::{Bench, Ending, hex12},
    session_mode::{InitRefused, Talk},
};

#[derive(Debug)]
enum Stage {
    /// For the first message.
    Waiting,
    /// Until `session.created`; messages wait, as the worker does not read meanwhile.
    Initialising { until: Instant, payload: Map<String, Value>, first: Option<Map<String, Value>> },
    /// With its id.
    Live { id: String, talk: Talk },
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    mode: Mode,
    /// When the gateway's watchdog ends it.
    limit: Option<Instant>,
    stage: Stage,
    unread: Backlog<String>,
    appends: Backlog<Map<String, Value>>,
    closing: Option<(Instant, String)>,
}

impl Session {
    pub(super) fn new(mode: Mode, limit: Option<Instant>) -> Self {
        Self {
            mode,
            limit,
            stage: Stage::Waiting,
            unread: Backlog::default(),
            appends: Backlog::default(),
            closing: None,
        }
    }

    /// A text frame from the client.
    pub(super) fn text(&mut self, text: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        if self.closing.is_some() {
            return Ok(());
        }
        match &self.stage {
            Stage::Waiting => self.first(text, bench),
            Stage::Initialising { .. } => {
                let kept = self.unread.push(text.to_owned(), text.len());
                if kept { Ok(()) } else { Err(Ending::Failed(TOO_MUCH)) }
            }
            Stage::Live { .. } => self.read(text, bench),
        }
    }

    fn first(&mut self, text: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Some(mut message) = object(text) else { return self.worker_closes(bench) };
        let (payload, first) = match (kind(&message), message.remove("payload"), message.remove("input")) {
            ("session.init", Some(Value::Object(payload)), _) => (payload, None),
            // An append may come first; the worker makes up the init (field notes §1.4).
            ("input.append", _, Some(Value::Object(input))) => (Map::new(), Some(input)),
            _ => return self.worker_closes(bench),
        };
        let slow = bench.faults.strike(|kind| match kind {
            FaultKind::SlowInit(by) => Some(by),
            _ => None,
        });
        let until = bench.now + bench.cfg.timing.init + slow.unwrap_or_default();
        self.stage = Stage::Initialising { until, payload, first };
        Ok(())
    }

    fn read(&mut self, text: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Some(mut message) = object(text) else { return self.worker_closes(bench) };
        match (kind(&message), message.remove("input")) {
            ("input.append", Some(Value::Object(input))) => {
                if !self.appends.push(input, text.len()) {
                    return Err(Ending::Failed(TOO_MUCH));
                }
                self.answer_next(bench)
            }
            ("session.close", _) => {
                let given = message.get("reason").filter(|reason| python::truthy(reason));
                let reason = given.map_or("client_closed".to_owned(), python::text_of);
                let at = bench.now + bench.cfg.timing.close;
                let at = self.step_end().map_or(at, |end| end.max(at));
                self.closing = Some((at, bench.cfg.backend.close_reason(reason)));
                Ok(())
            }
            _ => self.worker_closes(bench),
        }
    }

    /// Takes the next appends, as long as nothing is under way.
    fn answer_next(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Stage::Live { id, talk } = &mut self.stage else { return Ok(()) };
        while !talk.busy() && self.closing.is_none() {
            let Some(input) = self.appends.pop() else { return Ok(()) };
            talk.begin(id, &input, bench)?;
        }
        Ok(())
    }

    /// The engines' answer; ignored if it is not for this session.
    pub(super) fn engine(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) {
        if let Stage::Live { talk, .. } = &mut self.stage {
            talk.answered(job, answer, bench);
        }
    }

    /// The next instant at which something happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let work = match &self.stage {
            Stage::Initialising { until, .. } => Some(*until),
            Stage::Live { talk, .. } => talk.next(),
            Stage::Waiting => None,
        };
        let closing = self.closing.as_ref().map(|(at, _)| *at);
        [work, closing, self.limit].into_iter().flatten().min()
    }

    /// Does the earliest thing that is due; of two at one instant, the answer comes before the end.
    pub(super) fn tick(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= bench.now);
        match &mut self.stage {
            Stage::Initialising { until, .. } if due(Some(*until)) => return self.created(bench),
            Stage::Live { id, talk } if due(talk.next()) => {
                talk.step(id, bench)?;
                return self.answer_next(bench);
            }
            _ => {}
        }
        match (&self.stage, &self.closing) {
            (Stage::Live { id, .. }, Some((at, reason))) if due(Some(*at)) => {
                bench.say(bench.closed(id, reason, None));
            }
            _ if due(self.limit) => bench.say(messages::timed_out()),
            _ => return Ok(()),
        }
        Err(Ending::Polite)
    }

    fn created(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Stage::Initialising { payload, first, .. } = std::mem::replace(&mut self.stage, Stage::Waiting)
        else {
            return Ok(());
        };
        let Ok(talk) = self.prepare(&payload, bench) else { return self.worker_closes(bench) };
        let id = format!("sess_{}", hex12(bench.rng));
        let event = Event {
            name: "session.created",
            session_id: Some(Some(&id)),
            mode: Some(talk.mode()),
            metrics: Some(Metrics::new(bench.cfg.backend, bench.model.kv_cache_length)),
            server_send_ts: Some(bench.seconds()),
            ..Event::default()
        };
        bench.say(event.write(bench.cfg.backend));
        self.stage = Stage::Live { id, talk };
        if let Some(input) = first {
            // The backlog is empty here, so there is room.
            let _fits = self.appends.push(input, 0);
            self.answer_next(bench)?;
        }
        while let Some(text) = self.unread.pop() {
            self.text(&text, bench)?;
        }
        Ok(())
    }

    /// The payload's own mode wins over the connection's (field notes §1.3).
    fn prepare(&self, payload: &Map<String, Value>, bench: &mut Bench<'_>) -> Result<Talk, InitRefused> {
        let duplex = match payload.get("mode").and_then(Value::as_str) {
            Some("turn_based") => false,
            Some("full_duplex") => true,
            _ => self.mode != Mode::Chat,
        };
        let talk = Talk::prepare(duplex, self.mode == Mode::Video, payload, bench)?;
        if bench.faults.hits(FaultKind::DieBeforeCreated) { Err(InitRefused) } else { Ok(talk) }
    }

    fn worker_closes(&self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let id = match &self.stage {
            Stage::Live { id, .. } => Some(id.as_str()),
            _ => None,
        };
        bench.say(messages::worker_closed(id));
        Err(Ending::Polite)
    }

    /// The end of a step that an end of the session does not interrupt.
    pub(super) fn step_end(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Live { talk, .. } => talk.step_end(),
            _ => None,
        }
    }

    /// What goes on in the model after the session is gone.
    pub(super) fn left_over(self) -> Option<Generation> {
        match self.stage {
            Stage::Live { talk, .. } => talk.left_over(),
            _ => None,
        }
    }
}

fn object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(message)) => Some(message),
        _ => None,
    }
}

fn kind(message: &Map<String, Value>) -> &'static str {
    match message.get("type").and_then(Value::as_str) {
        Some("session.init") => "session.init",
        Some("input.append") => "input.append",
        Some("session.close") => "session.close",
        _ => "",
    }
}
