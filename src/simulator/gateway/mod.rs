//! Simulated gateway: connections, the queue, worker assignment, and the cleanup after an impolite end.
//!
//! `admission` leads a connection to its session, `resumable` does so for sessions that outlast their connection, `sessions`
//! are those in progress, and `due_work` is what happens in time.
//!
//! Source: mappings/notes/minicpm-o.md#queue. The gateway considers a worker free as soon as its socket ends. Only
//! after `session.queue_done` does it learn whether the worker accepts the next session.
//!
//! Both real gateways learn that a queued client has left when they next send to it. A queue update takes the client out
//! of the queue. `session.queue_done` is sent outside their `try`: it raises, and the worker stays busy for ever.

mod admission;
mod due_work;
mod resumable;
mod sessions;

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    Backend, ConnId, SimDialect, SimInput, SimMode, SimOutput, SimTiming, SimulatorConfig,
    backlog::Backlog,
    dialect_session::DialectSession,
    fault::Faults,
    messages::UnixClock,
    model::{WorkerModel, WorkerTask},
    session_context::SimContext,
};

/// The simulated gateway with its workers; sans-IO.
#[derive(Debug)]
pub struct Gateway {
    pub(super) cfg: SimulatorConfig,
    pub(super) clock: UnixClock,
    rng: fastrand::Rng,
    faults: Faults,
    connections: BTreeMap<ConnId, Connection>,
    pub(super) queue: VecDeque<ConnId>,
    pub(super) workers: Vec<Worker>,
    job_count: u64,
    turn_count: u64,
    answer_count: u64,
    outputs: VecDeque<SimOutput>,
}

#[derive(Debug)]
enum Connection {
    Queued {
        mode: SimMode,
        next_update_at: Instant,
        is_stuck: bool,
        /// The client's transport has ended, and the gateway has not noticed.
        has_left: bool,
        held_frames: Backlog<ClientFrame<'static>>,
    },
    /// Connected to a server without a queue, before the first message, which must come until this instant.
    Unplaced { mode: SimMode, expires_at: Option<Instant> },
    /// Its session may outlast it, and then waits under its number.
    Serving { worker: usize, session: Box<dyn DialectSession> },
}

/// A client frame; `None` is a binary one, whose content does not matter.
type ClientFrame<'a> = Option<Cow<'a, str>>;

#[derive(Debug, Default)]
pub(super) struct Worker {
    serving: Option<ConnId>,
    /// Its task for that connection.
    pub(super) task: Option<WorkerTask>,
    rejects_until: Option<Instant>,
    /// A health check took it for busy, although the gateway gave it no task; until the next check.
    reported_busy_until: Option<Instant>,
    /// Assigned to a client that had left the queue: busy for ever.
    is_lost: bool,
    model: WorkerModel,
}

impl Worker {
    /// True if the gateway considers the worker idle.
    pub(super) const fn is_idle(&self) -> bool {
        self.serving.is_none() && self.reported_busy_until.is_none() && !self.is_lost
    }
}

impl Gateway {
    /// Creates a gateway. `unix_time` is the time of day at `now`; together with the seed it makes every run
    /// deterministic.
    pub fn new(mut cfg: SimulatorConfig, now: Instant, unix_time: Duration) -> Self {
        match cfg.dialect {
            SimDialect::Current => {}
            // These servers have no other back-end.
            SimDialect::Legacy { .. } | SimDialect::VllmOmni => cfg.backend = Backend::Pytorch,
            SimDialect::LlamaCppOmni => (cfg.backend, cfg.workers) = (Backend::Cpp, 1),
            SimDialect::SglangOmni | SimDialect::OpenaiRealtime(_) => cfg.backend = Backend::Cpp,
        }
        Self {
            clock: UnixClock { started_at: now, unix_at_start: unix_time },
            rng: fastrand::Rng::with_seed(cfg.seed),
            faults: Faults::new(&cfg.faults),
            connections: BTreeMap::new(),
            queue: VecDeque::new(),
            workers: std::iter::repeat_with(Worker::default).take(cfg.workers).collect(),
            job_count: 0,
            turn_count: 0,
            answer_count: 0,
            outputs: VecDeque::new(),
            cfg,
        }
    }

    /// Handles one input and all work that is due. Ignores input for a forgotten connection.
    pub fn handle_input(&mut self, now: Instant, input: SimInput<'_>) {
        self.run_due_work(now);
        match input {
            SimInput::Connected(conn, mode) => self.handle_connected(conn, mode, now),
            SimInput::Text(conn, text) => self.handle_frame(conn, Some(text.into()), now),
            SimInput::Binary(conn) => self.handle_frame(conn, None, now),
            SimInput::Closed(conn) => self.handle_closed(conn, now),
            SimInput::EngineDone(job, answer) => self.handle_engine_done(job, &answer, now),
            SimInput::AddFault(fault) => self.faults.add(fault),
            SimInput::ClearFaults => self.faults.clear(),
            SimInput::Timeout => {}
        }
        self.assign_queued(now);
        self.run_due_work(now);
    }

    /// Returns the next output; [`SimOutput::Wait`] is the last one before the next input.
    pub fn poll_output(&mut self, now: Instant) -> SimOutput {
        if self.outputs.is_empty() {
            self.run_due_work(now);
        }
        self.outputs.pop_front().unwrap_or_else(|| SimOutput::Wait(self.next_deadline()))
    }

    /// What a session on this worker may use while it handles one input.
    fn context(&mut self, conn: ConnId, worker: usize, now: Instant) -> SimContext<'_> {
        SimContext {
            now,
            conn,
            cfg: &self.cfg,
            clock: &self.clock,
            rng: &mut self.rng,
            faults: &mut self.faults,
            model: &mut self.workers[worker].model,
            job_count: &mut self.job_count,
            turn_count: &mut self.turn_count,
            answer_count: &mut self.answer_count,
            outputs: &mut self.outputs,
        }
    }

    /// Changes the processing times. Work in progress keeps its own.
    pub const fn set_timing(&mut self, timing: SimTiming) {
        self.cfg.timing = timing;
    }

    /// Number of connections. A session that waits for a client to resume it has none.
    pub fn connection_count(&self) -> usize {
        let is_connected = |connection: &&Connection| match connection {
            Connection::Serving { session, .. } => !session.is_detached(),
            Connection::Queued { .. } | Connection::Unplaced { .. } => true,
        };
        self.connections.values().filter(is_connected).count()
    }

    /// Number of workers, and of those that are idle, and of clients that wait for one.
    pub fn worker_counts(&self) -> (usize, usize, usize) {
        let idle = self.workers.iter().filter(|worker| worker.is_idle());
        (self.workers.len(), idle.count(), self.queue.len())
    }

    /// Number of workers that stay busy for ever, because their clients left the queue before they were assigned.
    pub fn lost_worker_count(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_lost).count()
    }
}
