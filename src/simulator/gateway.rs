//! The gateway: connections, the queue, which worker serves whom, and what an impolite end costs.
//!
//! Source: field notes §1.2. A worker is free for the gateway as soon as its socket ends; whether it accepts the next
//! session is found out only after `session.queue_done`.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    Backend, ConnId, Dialect, EngineAnswer, FaultKind, JobId, Mode, SimInput, SimOutput, SimulatorConfig,
    backlog::{Backlog, TOO_MUCH},
    dialect_session::Serving,
    fault::Faults,
    messages::{self, Clock},
    model::Model,
    session_context::{Bench, Emit, Ending, hex12},
};

/// What the gateway's own WebSocket client says when a worker refuses (field notes §1.2).
const REFUSED: &str = "server rejected WebSocket connection: HTTP 403";

/// The embedded gateway with its workers; sans-IO.
#[derive(Debug)]
pub struct Gateway {
    cfg: SimulatorConfig,
    clock: Clock,
    rng: fastrand::Rng,
    faults: Faults,
    connections: BTreeMap<ConnId, Connection>,
    queue: VecDeque<ConnId>,
    workers: Vec<Worker>,
    jobs: u64,
    turns: u64,
    out: VecDeque<SimOutput>,
}

#[derive(Debug)]
enum Connection {
    Queued { mode: Mode, update: Instant, stuck: bool, held: Backlog<Frame<String>> },
    Serving { worker: usize, session: Box<Serving> },
}

/// A frame, lent by the driver or kept while its connection waits.
#[derive(Debug, Clone, Copy)]
enum Frame<T> {
    Text(T),
    Binary,
}

impl Frame<&str> {
    fn kept(self) -> Frame<String> {
        match self {
            Self::Text(text) => Frame::Text(text.to_owned()),
            Self::Binary => Frame::Binary,
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary => 0,
        }
    }
}

impl Frame<String> {
    fn lent(&self) -> Frame<&str> {
        match self {
            Self::Text(text) => Frame::Text(text),
            Self::Binary => Frame::Binary,
        }
    }
}

#[derive(Debug, Default)]
struct Worker {
    serves: Option<ConnId>,
    refuses_until: Option<Instant>,
    model: Model,
}

impl Gateway {
    /// `unix` is the time of day at `now`; with the configuration's seed it makes every run the same.
    #[must_use]
    pub fn new(mut cfg: SimulatorConfig, now: Instant, unix: Duration) -> Self {
        if cfg.dialect != Dialect::Current {
            // There was no other back-end then.
            cfg.backend = Backend::Pytorch;
        }
        Self {
            clock: Clock { started: now, unix },
            rng: fastrand::Rng::with_seed(cfg.seed),
            faults: Faults::new(&cfg.faults),
            connections: BTreeMap::new(),
            queue: VecDeque::new(),
            workers: std::iter::repeat_with(Worker::default).take(cfg.workers).collect(),
            jobs: 0,
            turns: 0,
            out: VecDeque::new(),
            cfg,
        }
    }

    /// Takes one input and everything that is due; cannot fail. Input for a forgotten connection is ignored.
    pub fn handle_input(&mut self, now: Instant, input: SimInput<'_>) {
        self.run_due(now);
        match input {
            SimInput::Connected(conn, mode) => self.connected(conn, mode, now),
            SimInput::Text(conn, text) => self.frame(conn, Frame::Text(text), now),
            SimInput::Binary(conn) => self.frame(conn, Frame::Binary, now),
            SimInput::Closed(conn) => self.closed(conn, now),
            SimInput::EngineDone(job, answer) => self.engine_done(job, &answer, now),
            SimInput::Break(fault) => self.faults.add(fault),
            SimInput::Mend => self.faults.clear(),
            SimInput::Timeout => {}
        }
        self.assign_waiting(now);
        self.run_due(now);
    }

    /// The next output; ends with [`SimOutput::Wait`], until the next input.
    pub fn poll_output(&mut self, now: Instant) -> SimOutput {
        if self.out.is_empty() {
            self.run_due(now);
        }
        self.out.pop_front().unwrap_or_else(|| SimOutput::Wait(self.deadlines().map(|(at, _)| at).min()))
    }

    /// Sessions and waiting connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn connected(&mut self, conn: ConnId, mode: Mode, now: Instant) {
        let stuck = self.faults.hits(FaultKind::StuckQueue);
        if self.faults.hits(FaultKind::QueueFull) {
            return self.refuse(conn, "queue_full", "Queue full");
        }
        if self.workers.is_empty() || self.faults.hits(FaultKind::Busy) {
            return self.refuse(conn, "worker_busy", "No worker available");
        }
        match self.workers.iter().position(|worker| worker.serves.is_none()) {
            Some(worker) if !stuck => self.assign(conn, mode, worker, Backlog::default(), now),
            _ if self.queue.len() >= self.cfg.queue_limit => self.refuse(conn, "queue_full", "Queue full"),
            _ => self.enqueue(conn, mode, stuck, now),
        }
    }

    fn refuse(&mut self, conn: ConnId, code: &str, message: &str) {
        self.out.push_back(SimOutput::Text(conn, messages::error(code, message)));
        self.out.push_back(SimOutput::Close(conn, 1013, message.to_owned()));
    }

    fn enqueue(&mut self, conn: ConnId, mode: Mode, stuck: bool, now: Instant) {
        self.queue.push_back(conn);
        let update = now + self.cfg.timing.queue_update;
        self.connections.insert(conn, Connection::Queued { mode, update, stuck, held: Backlog::default() });
        let ticket = format!("q_{}", hex12(&mut self.rng));
        let length = self.queue.len();
        self.out.push_back(SimOutput::Text(conn, messages::queued(Some(&ticket), length, length)));
    }

    fn assign(
        &mut self,
        conn: ConnId,
        mode: Mode,
        worker: usize,
        mut held: Backlog<Frame<String>>,
        now: Instant,
    ) {
        self.out.push_back(SimOutput::Text(conn, messages::queue_done()));
        if self.refuses(worker, now) {
            self.connections.remove(&conn);
            if let Dialect::Legacy { documented } = self.cfg.dialect {
                let code = if documented { "worker_connect_failed" } else { "worker_busy" };
                return self.refuse(conn, code, "No worker available");
            }
            self.out.push_back(SimOutput::Text(conn, messages::error("session_failed", REFUSED)));
            self.out.push_back(SimOutput::Close(conn, 1000, String::new()));
            return;
        }
        self.workers[worker].serves = Some(conn);
        let limit = self.limit(mode).map(|limit| now + limit);
        let session = Box::new(Serving::new(self.cfg.dialect, mode, limit));
        self.connections.insert(conn, Connection::Serving { worker, session });
        while let Some(frame) = held.pop() {
            self.frame(conn, frame.lent(), now);
        }
    }

    /// Whether a worker that the gateway thinks idle is not. The legacy gateway waits until it is (field notes §4).
    fn refuses(&mut self, worker: usize, now: Instant) -> bool {
        let cleaning = self.workers[worker].refuses_until.is_some_and(|until| until > now);
        (cleaning && self.cfg.dialect == Dialect::Current) || self.faults.hits(FaultKind::RefusedAfterQueue)
    }

    /// How long the watchdog lets a session of this mode live; chat has none (field notes §1.6).
    fn limit(&mut self, mode: Mode) -> Option<Duration> {
        let limit = match mode {
            Mode::Chat => return None,
            Mode::Audio => self.cfg.limit_audio,
            Mode::Video => self.cfg.limit_video,
        };
        let struck = self.faults.strike(|kind| match kind {
            FaultKind::Timeout(after) => Some(after),
            _ => None,
        });
        Some(struck.unwrap_or(limit))
    }

    /// Gives idle workers to those who wait, in order; after everything that may have freed one.
    fn assign_waiting(&mut self, now: Instant) {
        while let Some(worker) = self.workers.iter().position(|worker| worker.serves.is_none()) {
            let free = |conn: &ConnId| {
                matches!(self.connections.get(conn), Some(Connection::Queued { stuck: false, .. }))
            };
            let Some(at) = self.queue.iter().position(free) else { return };
            let Some(conn) = self.queue.remove(at) else { return };
            if let Some(Connection::Queued { mode, held, .. }) = self.connections.remove(&conn) {
                self.assign(conn, mode, worker, held, now);
            }
        }
    }

    fn frame(&mut self, conn: ConnId, frame: Frame<&str>, now: Instant) {
        match (self.connections.get_mut(&conn), frame) {
            (Some(Connection::Queued { held, .. }), frame) => {
                if !held.push(frame.kept(), frame.bytes()) {
                    self.fail_queued(conn);
                }
            }
            (Some(Connection::Serving { .. }), Frame::Text(text)) => {
                self.with_session(conn, now, |session, bench| session.text(text, bench));
            }
            (Some(Connection::Serving { .. }), Frame::Binary) => {
                self.with_session(conn, now, |session, _| session.binary());
            }
            (None, _) => {}
        }
    }

    fn fail_queued(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
        self.queue.retain(|queued| *queued != conn);
        self.out.push_back(SimOutput::Text(conn, messages::error("session_failed", TOO_MUCH)));
        self.out.push_back(SimOutput::Close(conn, 1000, String::new()));
    }

    fn closed(&mut self, conn: ConnId, now: Instant) {
        match self.connections.remove(&conn) {
            Some(Connection::Queued { .. }) => self.queue.retain(|queued| *queued != conn),
            Some(Connection::Serving { worker, session }) => {
                self.release(worker, *session, true, now);
            }
            None => {}
        }
    }

    fn engine_done(&mut self, job: JobId, answer: &EngineAnswer, now: Instant) {
        for worker in &mut self.workers {
            worker.model.answered(job);
        }
        let serving: Vec<ConnId> = self.workers.iter().filter_map(|worker| worker.serves).collect();
        for conn in serving {
            self.with_session(conn, now, |session, bench| {
                session.engine(job, answer, bench);
                Ok(())
            });
        }
    }

    /// Lets a session do something, passes on what it wants, and ends it if it ended.
    fn with_session(
        &mut self,
        conn: ConnId,
        now: Instant,
        act: impl FnOnce(&mut Serving, &mut Bench<'_>) -> Result<(), Ending>,
    ) {
        let Some(Connection::Serving { worker, session }) = self.connections.get_mut(&conn) else { return };
        let worker = *worker;
        let mut emitted = Vec::new();
        let mut bench = Bench {
            now,
            cfg: &self.cfg,
            clock: &self.clock,
            rng: &mut self.rng,
            faults: &mut self.faults,
            model: &mut self.workers[worker].model,
            jobs: &mut self.jobs,
            turns: &mut self.turns,
            out: &mut emitted,
        };
        let outcome = act(session, &mut bench);
        self.out.extend(emitted.into_iter().map(|emit| match emit {
            Emit::Text(text) => SimOutput::Text(conn, text),
            Emit::Engine(job, request) => SimOutput::Engine(job, request),
            Emit::Heard(samples) => SimOutput::Heard(conn, samples),
            Emit::Opened(opening) => SimOutput::Opened(conn, opening),
            Emit::Unit(unit) => SimOutput::Unit(conn, unit),
        }));
        if let Err(ending) = outcome {
            self.end(conn, &ending, now);
        }
    }

    fn end(&mut self, conn: ConnId, ending: &Ending, now: Instant) {
        let Some(Connection::Serving { worker, session }) = self.connections.remove(&conn) else { return };
        match ending {
            Ending::Polite => self.out.push_back(SimOutput::Close(conn, 1000, String::new())),
            Ending::Failed(message) => {
                self.out.push_back(SimOutput::Text(conn, messages::error("session_failed", message)));
                self.out.push_back(SimOutput::Close(conn, 1000, String::new()));
            }
            Ending::Unsupported => {
                self.out.push_back(SimOutput::Close(conn, 1003, "unsupported data".to_owned()));
            }
            Ending::Aborted => self.out.push_back(SimOutput::Drop(conn)),
        }
        self.release(worker, *session, !matches!(ending, Ending::Polite), now);
    }

    fn release(&mut self, worker: usize, session: Serving, bare: bool, now: Instant) {
        let freed = &mut self.workers[worker];
        freed.serves = None;
        if bare {
            // A step under way is finished first (field notes §2).
            let clean = now + self.cfg.timing.cleanup;
            freed.refuses_until = Some(session.step_end().map_or(clean, |end| end.max(clean)));
        }
        if let Some(generation) = session.left_over() {
            freed.model.adopt(generation);
        }
    }

    fn deadlines(&self) -> impl Iterator<Item = (Instant, ConnId)> {
        self.connections.iter().filter_map(|(conn, connection)| match connection {
            Connection::Queued { update, .. } => Some((*update, *conn)),
            Connection::Serving { session, .. } => session.deadline().map(|at| (at, *conn)),
        })
    }

    /// Everything due, earliest first, each at its own instant, so that a late call changes nothing but the lateness.
    fn run_due(&mut self, now: Instant) {
        while let Some((at, conn)) = self.deadlines().min().filter(|(at, _)| *at <= now) {
            match self.connections.get_mut(&conn) {
                Some(Connection::Queued { update, .. }) => {
                    // One update however late the call: never a burst.
                    *update = now.max(at) + self.cfg.timing.queue_update.max(Duration::from_millis(1));
                    let position =
                        self.queue.iter().position(|queued| *queued == conn).map_or(1, |at| at + 1);
                    let text = messages::queued(None, position, self.queue.len());
                    self.out.push_back(SimOutput::Text(conn, text));
                }
                _ => self.with_session(conn, at, |session, bench| session.tick(bench)),
            }
            self.assign_waiting(at);
        }
    }
}
