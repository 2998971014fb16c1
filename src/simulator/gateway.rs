//! Simulated gateway: connections, the queue, worker assignment, and the cleanup after an impolite end.
//!
//! Source: field notes §1.2. The gateway considers a worker free as soon as its socket ends. Only after
//! `session.queue_done` does it learn whether the worker accepts the next session.
//!
//! Both real gateways learn that a queued client has left when they next send to it. A queue update takes the client out
//! of the queue. `session.queue_done` is sent outside their `try`: it raises, and the worker stays busy for ever.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    Backend, ConnId, EngineAnswer, FaultKind, JobId, SimDialect, SimInput, SimMode, SimOutput,
    SimulatorConfig,
    backlog::{BACKLOG_FULL, Backlog},
    dialect_session::DialectSession,
    fault::Faults,
    legacy::LegacySession,
    messages::{self, UnixClock},
    model::{WorkerModel, WorkerTask},
    session::CurrentSession,
    session_context::{SimContext, SimSessionEnd, random_hex12},
    sglang::{self, SglangSession},
    vllm_omni::{VllmContext, VllmServer},
};

/// Error text of the gateway's own WebSocket client when a worker rejects it (field notes §1.2).
const WORKER_REJECTION: &str = "server rejected WebSocket connection: HTTP 403";

/// Time between two health checks of a worker (`HEALTH_CHECK_INTERVAL` in gateway_modules/worker_pool.py).
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(10);

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
    /// Used instead of the connections, queue and workers if the dialect is vLLM-Omni's.
    vllm: VllmServer,
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
    /// Connected to a server without a queue, before the first message.
    Unplaced {
        mode: SimMode,
    },
    Serving {
        worker: usize,
        session: Box<dyn DialectSession>,
    },
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
            SimDialect::SglangOmni => cfg.backend = Backend::Cpp,
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
            vllm: VllmServer::default(),
            outputs: VecDeque::new(),
            cfg,
        }
    }

    /// Handles one input and all work that is due. Ignores input for a forgotten connection.
    pub fn handle_input(&mut self, now: Instant, input: SimInput<'_>) {
        self.run_due_work(now);
        let Some(input) = self.handle_vllm_input(now, input) else { return self.run_due_work(now) };
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

    /// Passes an input to vLLM-Omni's server. Returns one that is not for it.
    fn handle_vllm_input<'i>(&mut self, now: Instant, input: SimInput<'i>) -> Option<SimInput<'i>> {
        if self.cfg.dialect != SimDialect::VllmOmni {
            return Some(input);
        }
        let (vllm, mut ctx) = self.vllm_parts(now);
        match input {
            SimInput::Connected(conn, mode) => vllm.handle_connected(conn, mode, &mut ctx),
            SimInput::Text(conn, text) => vllm.handle_text(conn, text, &mut ctx),
            SimInput::Binary(conn) => vllm.handle_binary(conn, &mut ctx),
            SimInput::Closed(conn) => vllm.handle_closed(conn, &ctx),
            SimInput::EngineDone(job, answer) => vllm.handle_engine_done(job, &answer, &mut ctx),
            other => return Some(other),
        }
        None
    }

    /// vLLM-Omni's server, and what it uses of the gateway.
    const fn vllm_parts(&mut self, now: Instant) -> (&mut VllmServer, VllmContext<'_>) {
        let Self { cfg, clock, rng, faults, job_count, turn_count, outputs, vllm, .. } = self;
        (vllm, VllmContext { now, cfg, clock, rng, faults, job_count, turn_count, outputs })
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.pending_deadlines()
            .map(|(at, _)| at)
            .chain(self.next_health_check())
            .chain(self.vllm.deadline())
            .min()
    }

    /// Number of sessions and queued connections.
    pub fn connection_count(&self) -> usize {
        self.connections.len() + self.vllm.connection_count()
    }

    /// Number of workers that stay busy for ever, because their clients left the queue before they were assigned.
    pub fn lost_worker_count(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_lost).count()
    }

    fn handle_connected(&mut self, conn: ConnId, mode: SimMode, now: Instant) {
        if self.cfg.dialect == SimDialect::LlamaCppOmni {
            self.connections.insert(conn, Connection::Unplaced { mode });
            return;
        }
        if self.cfg.dialect == SimDialect::SglangOmni {
            return self.admit_connection(conn, mode, now);
        }
        let is_stuck = self.faults.trigger(FaultKind::StuckQueue);
        if self.faults.trigger(FaultKind::QueueFull) {
            return self.reject_connection(conn, "queue_full", "Queue full");
        }
        if self.workers.is_empty() || self.faults.trigger(FaultKind::Busy) {
            return self.reject_connection(conn, "worker_busy", "No worker available");
        }
        match self.workers.iter().position(Worker::is_idle) {
            Some(worker) if !is_stuck => self.assign_worker(conn, mode, worker, Backlog::default(), now),
            _ if self.queue.len() >= self.cfg.queue_limit => {
                self.reject_connection(conn, "queue_full", "Queue full");
            }
            _ => self.enqueue_connection(conn, mode, is_stuck, now),
        }
    }

    /// Gives a connection its session at the handshake, or refuses the handshake.
    fn admit_connection(&mut self, conn: ConnId, mode: SimMode, now: Instant) {
        let refuses = self.faults.trigger(FaultKind::Busy);
        match self.workers.iter().position(Worker::is_idle).filter(|_| !refuses) {
            Some(worker) => {
                self.serve_connection(conn, mode, worker, now);
                self.with_session(conn, now, |session, ctx| {
                    session.begin(ctx);
                    Ok(())
                });
            }
            None => self.outputs.push_back(SimOutput::Refuse(conn, sglang::pages::unavailable())),
        }
    }

    /// Mode of a connection that waits in the queue.
    pub(super) fn queued_mode(&self, conn: ConnId) -> Option<SimMode> {
        match self.connections.get(&conn)? {
            Connection::Queued { mode, .. } => Some(*mode),
            Connection::Unplaced { .. } | Connection::Serving { .. } => None,
        }
    }

    /// Gives a connection its session at its first message. A server without a queue closes it without an event if the
    /// only session is taken, or still stops.
    fn place_connection(&mut self, conn: ConnId, mode: SimMode, first: ClientFrame<'_>, now: Instant) {
        self.connections.remove(&conn);
        let is_free =
            |worker: &Worker| worker.is_idle() && worker.rejects_until.is_none_or(|until| until <= now);
        let refuses = self.faults.trigger(FaultKind::Busy);
        match (self.workers.iter().position(is_free), first) {
            (Some(worker), Some(first)) if !refuses => {
                self.serve_connection(conn, mode, worker, now);
                self.handle_frame(conn, Some(first), now);
            }
            _ => self.outputs.push_back(SimOutput::Close(conn, 1000, String::new())),
        }
    }

    fn reject_connection(&mut self, conn: ConnId, code: &str, message: &str) {
        self.outputs.push_back(SimOutput::Text(conn, messages::error(code, message)));
        self.outputs.push_back(SimOutput::Close(conn, 1013, message.to_owned()));
    }

    fn enqueue_connection(&mut self, conn: ConnId, mode: SimMode, is_stuck: bool, now: Instant) {
        self.queue.push_back(conn);
        let next_update_at = now + self.cfg.timing.queue_update_interval;
        let held_frames = Backlog::default();
        let queued = Connection::Queued { mode, next_update_at, is_stuck, has_left: false, held_frames };
        self.connections.insert(conn, queued);
        let ticket = format!("q_{}", random_hex12(&mut self.rng));
        let length = self.queue.len();
        let text = messages::queued(Some(&ticket), length, length, self.estimated_wait_s(length, now));
        self.outputs.push_back(SimOutput::Text(conn, text));
    }

    fn assign_worker(
        &mut self,
        conn: ConnId,
        mode: SimMode,
        worker: usize,
        mut held_frames: Backlog<ClientFrame<'static>>,
        now: Instant,
    ) {
        self.outputs.push_back(SimOutput::Text(conn, messages::queue_done()));
        if self.is_rejected_by_worker(worker, now) {
            self.connections.remove(&conn);
            if let SimDialect::Legacy { follows_document } = self.cfg.dialect {
                let code = if follows_document { "worker_connect_failed" } else { "worker_busy" };
                return self.reject_connection(conn, code, "No worker available");
            }
            self.outputs
                .push_back(SimOutput::Text(conn, messages::error("session_failed", WORKER_REJECTION)));
            self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
            return;
        }
        self.serve_connection(conn, mode, worker, now);
        while let Some(frame) = held_frames.pop() {
            self.handle_frame(conn, frame, now);
        }
    }

    /// Begins the session of a connection on a worker.
    fn serve_connection(&mut self, conn: ConnId, mode: SimMode, worker: usize, now: Instant) {
        self.workers[worker].serving = Some(conn);
        self.workers[worker].task = Some(WorkerTask { mode, started_at: now });
        let limit = self.session_time_limit(mode).map(|limit| now + limit);
        let session: Box<dyn DialectSession> = match self.cfg.dialect {
            // vLLM-Omni's sessions are its own.
            SimDialect::Current | SimDialect::LlamaCppOmni | SimDialect::VllmOmni => {
                Box::new(CurrentSession::new(mode, limit))
            }
            SimDialect::Legacy { follows_document } => {
                Box::new(LegacySession::new(mode, follows_document, limit))
            }
            SimDialect::SglangOmni => Box::new(SglangSession::new(now, &mut self.rng)),
        };
        self.connections.insert(conn, Connection::Serving { worker, session });
    }

    /// Returns true if an apparently idle worker rejects the session. The legacy gateway waits for the worker instead
    /// (field notes §4).
    fn is_rejected_by_worker(&mut self, worker: usize, now: Instant) -> bool {
        let is_cleaning_up = self.workers[worker].rejects_until.is_some_and(|until| until > now);
        (is_cleaning_up && self.cfg.dialect == SimDialect::Current)
            || self.faults.trigger(FaultKind::RefusedAfterQueue)
    }

    /// Watchdog limit for a session of this mode; chat has none (field notes §1.6).
    fn session_time_limit(&mut self, mode: SimMode) -> Option<Duration> {
        let limit = match mode {
            _ if matches!(self.cfg.dialect, SimDialect::LlamaCppOmni | SimDialect::SglangOmni) => {
                return None;
            }
            SimMode::Chat | SimMode::Autostart => return None,
            SimMode::Audio => self.cfg.audio_time_limit,
            SimMode::Video => self.cfg.video_time_limit,
        };
        let fault_limit = self.faults.trigger_with(|kind| match kind {
            FaultKind::Timeout(after) => Some(after),
            _ => None,
        });
        Some(fault_limit.unwrap_or(limit))
    }

    /// Assigns idle workers to queued connections in order. Called after any change that may free a worker.
    fn assign_queued(&mut self, now: Instant) {
        while let Some(worker) = self.workers.iter().position(Worker::is_idle) {
            let can_be_served = |conn: &ConnId| {
                matches!(self.connections.get(conn), Some(Connection::Queued { is_stuck: false, .. }))
            };
            let Some(index) = self.queue.iter().position(can_be_served) else { return };
            let Some(conn) = self.queue.remove(index) else { return };
            match self.connections.remove(&conn) {
                Some(Connection::Queued { mode, has_left: true, .. }) => self.lose_worker(mode, worker, now),
                Some(Connection::Queued { mode, held_frames, .. }) => {
                    self.assign_worker(conn, mode, worker, held_frames, now);
                }
                _ => {}
            }
        }
    }

    /// Assigns a worker to a client that has left the queue. Nothing frees the worker again.
    fn lose_worker(&mut self, mode: SimMode, worker: usize, now: Instant) {
        self.workers[worker].is_lost = true;
        self.workers[worker].task = Some(WorkerTask { mode, started_at: now });
    }

    fn handle_frame(&mut self, conn: ConnId, frame: ClientFrame<'_>, now: Instant) {
        match (self.connections.get_mut(&conn), frame) {
            (Some(Connection::Unplaced { mode }), frame) => {
                let mode = *mode;
                self.place_connection(conn, mode, frame, now);
            }
            (Some(Connection::Queued { held_frames, .. }), frame) => {
                let bytes = frame.as_ref().map_or(0, |text| text.len());
                if !held_frames.try_push(frame.map(|text| text.into_owned().into()), bytes) {
                    self.fail_queued(conn);
                }
            }
            (Some(Connection::Serving { .. }), Some(text)) => {
                self.with_session(conn, now, |session, ctx| session.handle_text(&text, ctx));
            }
            (Some(Connection::Serving { .. }), None) => {
                self.with_session(conn, now, |session, ctx| session.handle_binary(ctx));
            }
            (None, _) => {}
        }
    }

    fn fail_queued(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
        self.queue.retain(|queued| *queued != conn);
        self.outputs.push_back(SimOutput::Text(conn, messages::error("session_failed", BACKLOG_FULL)));
        self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
    }

    fn handle_closed(&mut self, conn: ConnId, now: Instant) {
        if let Some(Connection::Queued { has_left, .. }) = self.connections.get_mut(&conn)
            && !self.faults.trigger(FaultKind::NoticesLeavers)
        {
            *has_left = true;
            return;
        }
        match self.connections.remove(&conn) {
            Some(Connection::Queued { .. }) => self.queue.retain(|queued| *queued != conn),
            Some(Connection::Serving { worker, session }) => {
                // llama.cpp-omni takes the end of the transport as the end of the session, once it is idle.
                let is_polite =
                    self.cfg.dialect == SimDialect::LlamaCppOmni && session.next_deadline().is_none();
                self.release_worker(worker, session, !is_polite, now);
            }
            Some(Connection::Unplaced { .. }) | None => {}
        }
    }

    fn handle_engine_done(&mut self, job: JobId, answer: &EngineAnswer, now: Instant) {
        for worker in &mut self.workers {
            worker.model.drop_orphan_awaiting(job);
        }
        let serving: Vec<ConnId> = self.workers.iter().filter_map(|worker| worker.serving).collect();
        for conn in serving {
            self.with_session(conn, now, |session, ctx| {
                session.handle_engine_answer(job, answer, ctx);
                Ok(())
            });
        }
    }

    /// Runs an action on a session, and ends the session if the action ended it.
    fn with_session(
        &mut self,
        conn: ConnId,
        now: Instant,
        action: impl FnOnce(&mut dyn DialectSession, &mut SimContext<'_>) -> Result<(), SimSessionEnd>,
    ) {
        let Some(Connection::Serving { worker, session }) = self.connections.get_mut(&conn) else { return };
        let worker = *worker;
        let mut ctx = SimContext {
            now,
            conn,
            cfg: &self.cfg,
            clock: &self.clock,
            rng: &mut self.rng,
            faults: &mut self.faults,
            model: &mut self.workers[worker].model,
            job_count: &mut self.job_count,
            turn_count: &mut self.turn_count,
            outputs: &mut self.outputs,
        };
        if let Err(ending) = action(session.as_mut(), &mut ctx) {
            self.end_session(conn, &ending, now);
        }
    }

    fn end_session(&mut self, conn: ConnId, ending: &SimSessionEnd, now: Instant) {
        let Some(Connection::Serving { worker, session }) = self.connections.remove(&conn) else { return };
        match ending {
            SimSessionEnd::Closed | SimSessionEnd::Unanswered => {
                self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
            }
            SimSessionEnd::GatewayFailed(message) => {
                self.outputs.push_back(SimOutput::Text(conn, messages::error("session_failed", message)));
                self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
            }
            SimSessionEnd::UnsupportedData => {
                self.outputs.push_back(SimOutput::Close(conn, 1003, "unsupported data".to_owned()));
            }
            SimSessionEnd::Aborted => self.outputs.push_back(SimOutput::Abort(conn)),
        }
        let is_polite = matches!(ending, SimSessionEnd::Closed | SimSessionEnd::Unanswered);
        self.release_worker(worker, session, !is_polite, now);
    }

    /// Ends the session with this id at once, as a client of llama.cpp-omni may request. False if there is none.
    pub(super) fn end_session_by_id(&mut self, id: &str, now: Instant) -> bool {
        let has_id = |connection: &Connection| match connection {
            Connection::Serving { session, .. } => session.id() == Some(id),
            _ => false,
        };
        let Some(conn) = self.connections.iter().find_map(|(conn, it)| has_id(it).then_some(*conn)) else {
            return false;
        };
        self.with_session(conn, now, |_, ctx| {
            ctx.send_text(ctx.session_closed(id, "client_closed", None));
            Err(SimSessionEnd::Closed)
        });
        true
    }

    fn release_worker(
        &mut self,
        worker: usize,
        session: Box<dyn DialectSession>,
        impolite: bool,
        now: Instant,
    ) {
        let released = &mut self.workers[worker];
        (released.serving, released.task) = (None, None);
        if impolite {
            // A step in progress is completed first (field notes §2).
            let clean_at = now + self.cfg.timing.cleanup;
            released.rejects_until = Some(session.step_end_time().map_or(clean_at, |end| end.max(clean_at)));
            if self.faults.trigger(FaultKind::HealthCheckStall) {
                released.reported_busy_until = Some(now + HEALTH_CHECK_INTERVAL);
            }
        }
        // llama.cpp-omni stops the generation before it takes the next session.
        if self.cfg.dialect != SimDialect::LlamaCppOmni
            && let Some(generation) = session.into_orphaned_generation()
        {
            released.model.adopt_orphan(generation);
        }
    }

    fn pending_deadlines(&self) -> impl Iterator<Item = (Instant, ConnId)> {
        self.connections.iter().filter_map(|(conn, connection)| match connection {
            Connection::Unplaced { .. } => None,
            Connection::Queued { next_update_at, .. } => Some((*next_update_at, *conn)),
            Connection::Serving { session, .. } => session.next_deadline().map(|at| (at, *conn)),
        })
    }

    /// Instant of the next health check that matters.
    fn next_health_check(&self) -> Option<Instant> {
        self.workers.iter().filter_map(|worker| worker.reported_busy_until).min()
    }

    /// Runs all due work, earliest first, each at its own instant. A late call therefore only delays the outputs.
    fn run_due_work(&mut self, now: Instant) {
        while let Some(at) = self.vllm.deadline().filter(|at| *at <= now) {
            let (vllm, mut ctx) = self.vllm_parts(at);
            vllm.handle_deadline(&mut ctx);
        }
        loop {
            let deadline = self.pending_deadlines().min().filter(|(at, _)| *at <= now);
            let check = self.next_health_check().filter(|at| *at <= now);
            let at = match (deadline, check) {
                (Some((at, conn)), check) if check.is_none_or(|check| at < check) => {
                    self.run_deadline(conn, at, now);
                    at
                }
                (_, Some(check)) => {
                    self.run_health_check(check);
                    check
                }
                (_, None) => return,
            };
            self.assign_queued(at);
        }
    }

    /// Runs the work of a connection that was due at `at`.
    fn run_deadline(&mut self, conn: ConnId, at: Instant, now: Instant) {
        let position = self.queue.iter().position(|queued| *queued == conn).map_or(1, |at| at + 1);
        let wait_s = self.estimated_wait_s(position, at);
        match self.connections.get_mut(&conn) {
            // The update fails, which takes the client out of the queue.
            Some(Connection::Queued { has_left: true, .. }) => {
                self.connections.remove(&conn);
                self.queue.retain(|queued| *queued != conn);
            }
            Some(Connection::Queued { next_update_at, .. }) => {
                // However late the call, it sends one update, never a burst.
                *next_update_at =
                    now.max(at) + self.cfg.timing.queue_update_interval.max(Duration::from_millis(1));
                let text = messages::queued(None, position, self.queue.len(), wait_s);
                self.outputs.push_back(SimOutput::Text(conn, text));
            }
            _ => self.with_session(conn, at, |session, ctx| session.handle_deadline(ctx)),
        }
    }

    /// The workers that were taken for busy turn out to be idle.
    fn run_health_check(&mut self, at: Instant) {
        for worker in &mut self.workers {
            worker.reported_busy_until = worker.reported_busy_until.filter(|until| *until > at);
        }
    }
}
