//! How a connection comes to its session: at once, through the queue, at the handshake or at its first message, as the dialect
//! has it; and the refusals on that way.

use std::time::{Duration, Instant};

use super::{ClientFrame, Connection, Gateway, Worker};
use crate::{
    ConnId, FaultKind, SimDialect, SimMode, SimOutput,
    backlog::{BACKLOG_FULL, Backlog},
    dialect_session::DialectSession,
    legacy::LegacySession,
    messages,
    model::WorkerTask,
    openai::OpenaiSession,
    session::CurrentSession,
    session_context::random_hex12,
    sglang::{self, SglangSession},
};

/// Error text of the gateway's own WebSocket client when a worker rejects it (mappings/notes/minicpm-o.md#queue).
const WORKER_REJECTION: &str = "server rejected WebSocket connection: HTTP 403";

impl Gateway {
    pub(super) fn handle_connected(&mut self, conn: ConnId, mode: SimMode, now: Instant) {
        if self.cfg.dialect == SimDialect::LlamaCppOmni {
            self.connections.insert(conn, Connection::Unplaced { mode, expires_at: None });
            return;
        }
        if let (SimDialect::OpenaiRealtime(server), SimMode::Refused(refusal)) = (self.cfg.dialect, mode) {
            return self.outputs.extend(server.refuse(refusal, conn));
        }
        if self.cfg.dialect.admits_at_handshake() {
            return self.admit_connection(conn, mode, now);
        }
        if self.cfg.dialect == SimDialect::VllmOmni {
            return self.connect_resumable(conn, mode, now);
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
        let refuses = self.faults.trigger(FaultKind::Busy) || self.faults.trigger(FaultKind::QueueFull);
        match self.workers.iter().position(Worker::is_idle).filter(|_| !refuses) {
            Some(worker) => {
                self.serve_connection(conn, mode, worker, now);
                self.with_session(conn, now, |session, ctx| {
                    session.begin(ctx);
                    Ok(())
                });
            }
            None => {
                let page = match self.cfg.dialect {
                    SimDialect::OpenaiRealtime(server) => server.unavailable(),
                    _ => sglang::pages::unavailable(),
                };
                self.outputs.push_back(SimOutput::Refuse(conn, page));
            }
        }
    }

    /// Mode of a connection that waits in the queue.
    pub(crate) fn queued_mode(&self, conn: ConnId) -> Option<SimMode> {
        match self.connections.get(&conn)? {
            Connection::Queued { mode, .. } => Some(*mode),
            Connection::Unplaced { .. } | Connection::Serving { .. } => None,
        }
    }

    /// Gives a connection its session at its first message. A server without a queue closes it without an event if the
    /// only session is taken, or still stops.
    pub(super) fn place_connection(
        &mut self,
        conn: ConnId,
        mode: SimMode,
        first: ClientFrame<'_>,
        now: Instant,
    ) {
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
            // `resumable` opens those of vLLM-Omni.
            SimDialect::Current | SimDialect::LlamaCppOmni | SimDialect::VllmOmni => {
                Box::new(CurrentSession::new(mode, limit))
            }
            SimDialect::Legacy { follows_document } => {
                Box::new(LegacySession::new(mode, follows_document, limit))
            }
            SimDialect::SglangOmni => Box::new(SglangSession::new(now, &mut self.rng)),
            SimDialect::OpenaiRealtime(server) => Box::new(OpenaiSession::new(server, mode, &mut self.rng)),
        };
        self.connections.insert(conn, Connection::Serving { worker, session });
    }

    /// Returns true if an apparently idle worker rejects the session. The legacy gateway waits for the worker instead
    /// (mappings/notes/minicpm-o-legacy.md#sizes).
    fn is_rejected_by_worker(&mut self, worker: usize, now: Instant) -> bool {
        let is_cleaning_up = self.workers[worker].rejects_until.is_some_and(|until| until > now);
        (is_cleaning_up && self.cfg.dialect == SimDialect::Current)
            || self.faults.trigger(FaultKind::RefusedAfterQueue)
    }

    /// Watchdog limit for a session of this mode; chat has none (mappings/notes/minicpm-o-duplex.md#limits).
    fn session_time_limit(&mut self, mode: SimMode) -> Option<Duration> {
        let limit = match mode {
            _ if self.cfg.dialect == SimDialect::LlamaCppOmni || self.cfg.dialect.admits_at_handshake() => {
                return None;
            }
            SimMode::Chat | SimMode::Autostart | SimMode::Transcription | SimMode::Refused(_) => return None,
            SimMode::Audio => self.cfg.audio_time_limit,
            SimMode::Video => self.cfg.video_time_limit,
        };
        Some(self.faults.trigger_time(FaultKind::Timeout).unwrap_or(limit))
    }

    /// Assigns idle workers to queued connections in order. Called after any change that may free a worker.
    pub(super) fn assign_queued(&mut self, now: Instant) {
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

    pub(super) fn fail_queued(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
        self.queue.retain(|queued| *queued != conn);
        self.outputs.push_back(SimOutput::Text(conn, messages::error("session_failed", BACKLOG_FULL)));
        self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
    }
}
