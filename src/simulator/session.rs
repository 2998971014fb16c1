//! One session on a worker: initialise, answer appends one after the other, close (field notes §1.3–§1.5).
//!
//! The worker reads each message at once and judges its form; the back-end takes the appends in order and judges their
//! content when their turn comes. Every violation ends the session.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{
    Backend, EngineAnswer, FaultKind, JobId,
    backlog::{Backlog, TOO_MUCH},
    bench::{Bench, Ending, hex12},
    chat::{ChatRequest, Refusal, init_voice},
    generate::Generation,
    python,
    wire::{self, Event, Metrics},
};

#[derive(Debug)]
enum Stage {
    /// For the first message.
    Waiting,
    /// Until `session.created`; messages wait, as the worker does not read meanwhile.
    Initialising { until: Instant, payload: Map<String, Value>, first: Option<Map<String, Value>> },
    /// With its id.
    Live(String),
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    stage: Stage,
    unread: Backlog<String>,
    appends: Backlog<Map<String, Value>>,
    generation: Option<Generation>,
    closing: Option<(Instant, String)>,
    turns: u64,
    voice: Option<Vec<f32>>,
}

impl Session {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Waiting,
            unread: Backlog::default(),
            appends: Backlog::default(),
            generation: None,
            closing: None,
            turns: 0,
            voice: None,
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
            Stage::Live(_) => self.read(text, bench),
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
                self.closing = Some((at, bench.cfg.backend.close_reason(reason)));
                Ok(())
            }
            _ => self.worker_closes(bench),
        }
    }

    /// Takes the next append if nothing is being generated.
    fn answer_next(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Stage::Live(id) = &self.stage else { return Ok(()) };
        while self.generation.is_none() {
            let Some(input) = self.appends.pop() else { return Ok(()) };
            self.turns += 1;
            let request = match ChatRequest::parse(bench.cfg.backend, &input) {
                Ok(request) => request,
                Err(refusal) => return refuse(id, &refusal, bench),
            };
            if bench.faults.hits(FaultKind::NeverAnswers) {
                continue;
            }
            let response_id = match (bench.cfg.backend, &request.response_id) {
                (Backend::Cpp, _) => format!("{id}_resp_{}", self.turns),
                (Backend::Pytorch, Some(given)) => given.clone(),
                (Backend::Pytorch, None) => format!("resp_{}", hex12(bench.rng)),
            };
            self.generation = Some(Generation::begin(request, response_id, self.voice.as_deref(), bench));
        }
        Ok(())
    }

    /// The engines' answer; `false` if it is not for this session.
    pub(super) fn engine(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) -> bool {
        self.generation.as_mut().is_some_and(|generation| generation.answered(job, answer, bench))
    }

    /// The next instant at which something happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let init = match &self.stage {
            Stage::Initialising { until, .. } => Some(*until),
            _ => None,
        };
        let delta = self.generation.as_ref().and_then(Generation::next);
        let closing = self.closing.as_ref().map(|(at, _)| *at);
        [init, delta, closing].into_iter().flatten().min()
    }

    /// Does the earliest thing that is due.
    pub(super) fn tick(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        if matches!(self.stage, Stage::Initialising { .. }) {
            return self.created(bench);
        }
        let Stage::Live(id) = &self.stage else { return Ok(()) };
        let delta = self.generation.as_ref().and_then(Generation::next);
        if let Some((_, reason)) =
            self.closing.as_ref().filter(|(at, _)| delta.is_none_or(|delta| *at <= delta))
        {
            bench.say(bench.closed(id, reason, None));
            return Err(Ending::Polite);
        }
        let Some(generation) = &mut self.generation else { return Ok(()) };
        if generation.step(id, bench)? {
            self.generation = None;
            self.answer_next(bench)?;
        }
        Ok(())
    }

    fn created(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Stage::Initialising { payload, first, .. } = std::mem::replace(&mut self.stage, Stage::Waiting)
        else {
            return Ok(());
        };
        // A refused init loses its reason: the back-end's socket closes and the worker speaks (field notes §1.5, §1.7).
        let Ok(voice) = init_voice(bench.cfg.backend, &payload) else { return self.worker_closes(bench) };
        if bench.faults.hits(FaultKind::DieBeforeCreated) {
            return self.worker_closes(bench);
        }
        if bench.cfg.backend == Backend::Cpp {
            // C++ clears the context, then prefills the voice. PyTorch ignores the payload in chat mode.
            bench.model.kv_cache_length = voice.as_ref().map_or(0, |voice| 16 + voice.len() as u64 / 1600);
            self.voice = voice;
        }
        let id = format!("sess_{}", hex12(bench.rng));
        let event = Event {
            name: "session.created",
            session_id: Some(Some(&id)),
            mode: Some("turn_based"),
            metrics: Some(Metrics::new(bench.cfg.backend, bench.model.kv_cache_length)),
            server_send_ts: Some(bench.seconds()),
            ..Event::default()
        };
        bench.say(event.write(bench.cfg.backend));
        self.stage = Stage::Live(id);
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

    fn worker_closes(&self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let id = match &self.stage {
            Stage::Live(id) => Some(id.as_str()),
            _ => None,
        };
        bench.say(wire::worker_closed(id));
        Err(Ending::Polite)
    }

    /// What goes on in the model after the session is gone.
    pub(super) fn left_over(self) -> Option<Generation> {
        self.generation
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

fn refuse(id: &str, refusal: &Refusal, bench: &mut Bench<'_>) -> Result<(), Ending> {
    bench.say(match refusal {
        Refusal::Exception(message) => bench.closed(id, "backend_error", Some(message)),
        Refusal::Reason(reason) => bench.closed(id, reason, None),
        Refusal::Silent => wire::worker_closed(Some(id)),
    });
    Err(Ending::Polite)
}
