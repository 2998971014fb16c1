//! Sessions in progress: what reaches them, how they end, and what their workers do then.

use std::time::{Duration, Instant};

use super::{ClientFrame, Connection, Gateway};
use crate::{
    ConnId, EngineAnswer, FaultKind, JobId, SimDialect, SimOutput,
    dialect_session::DialectSession,
    messages,
    session_context::{SimContext, SimSessionEnd},
};

/// Time between two health checks of a worker (`HEALTH_CHECK_INTERVAL` in gateway_modules/worker_pool.py).
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(10);

impl Gateway {
    pub(super) fn handle_frame(&mut self, conn: ConnId, frame: ClientFrame<'_>, now: Instant) {
        match (self.connections.get_mut(&conn), frame) {
            (Some(Connection::Unplaced { .. }), frame) if self.cfg.dialect == SimDialect::VllmOmni => {
                self.handle_first_message(conn, frame, now);
            }
            (Some(Connection::Unplaced { mode, .. }), frame) => {
                let mode = *mode;
                self.place_connection(conn, mode, frame, now);
            }
            (Some(Connection::Queued { held_frames, .. }), frame) => {
                let bytes = frame.as_ref().map_or(0, |text| text.len());
                if !held_frames.try_push(frame.map(|text| text.into_owned().into()), bytes) {
                    self.fail_queued(conn);
                }
            }
            (Some(Connection::Serving { .. }), frame) => {
                self.with_session(conn, now, |session, ctx| session.handle_frame(frame.as_deref(), ctx));
            }
            (None, _) => {}
        }
    }

    pub(super) fn handle_closed(&mut self, conn: ConnId, now: Instant) {
        if let Some(Connection::Queued { has_left, .. }) = self.connections.get_mut(&conn)
            && !self.faults.trigger(FaultKind::NoticesLeavers)
        {
            *has_left = true;
            return;
        }
        if let Some(Connection::Serving { session, .. }) = self.connections.get_mut(&conn)
            && session.detach(now)
        {
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

    pub(super) fn handle_engine_done(&mut self, job: JobId, answer: &EngineAnswer, now: Instant) {
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
    pub(super) fn with_session(
        &mut self,
        conn: ConnId,
        now: Instant,
        action: impl FnOnce(&mut dyn DialectSession, &mut SimContext<'_>) -> Result<(), SimSessionEnd>,
    ) {
        let Some(Connection::Serving { worker, mut session }) = self.connections.remove(&conn) else {
            return;
        };
        match action(session.as_mut(), &mut self.context(conn, worker, now)) {
            Ok(()) => {
                self.connections.insert(conn, Connection::Serving { worker, session });
            }
            Err(ending) => {
                let is_polite = self.close_connection(conn, ending);
                self.release_worker(worker, session, !is_polite, now);
            }
        }
    }

    /// Ends the connection of a session that is over. True if the worker can take the next session at once.
    fn close_connection(&mut self, conn: ConnId, ending: SimSessionEnd) -> bool {
        let is_polite = self.cfg.dialect == SimDialect::VllmOmni
            || matches!(ending, SimSessionEnd::Closed | SimSessionEnd::Unanswered);
        match ending {
            SimSessionEnd::Closed | SimSessionEnd::Unanswered => {
                self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
            }
            SimSessionEnd::ClosedFor(reason) => {
                self.outputs.push_back(SimOutput::Close(conn, 1000, reason));
            }
            SimSessionEnd::ClosedWith { code, reason } => {
                self.outputs.push_back(SimOutput::Close(conn, code, reason.to_owned()));
            }
            SimSessionEnd::Detached => {}
            SimSessionEnd::GatewayFailed(message) => {
                self.outputs.push_back(SimOutput::Text(conn, messages::error("session_failed", message)));
                self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
            }
            SimSessionEnd::UnsupportedData => {
                self.outputs.push_back(SimOutput::Close(conn, 1003, "unsupported data".to_owned()));
            }
            SimSessionEnd::Aborted => self.outputs.push_back(SimOutput::Abort(conn)),
        }
        is_polite
    }

    /// The connection of the session with this id, or its last one.
    pub(super) fn connection_of(&self, session_id: &str) -> Option<ConnId> {
        let is_its = |connection: &Connection| match connection {
            Connection::Serving { session, .. } => session.id() == Some(session_id),
            _ => false,
        };
        self.connections.iter().find_map(|(conn, connection)| is_its(connection).then_some(*conn))
    }

    /// Ends the session with this id at once, as a client of llama.cpp-omni may request. False if there is none.
    pub(crate) fn end_session_by_id(&mut self, id: &str, now: Instant) -> bool {
        let Some(conn) = self.connection_of(id) else { return false };
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
            // A step in progress is completed first (mappings/notes/minicpm-o.md#stopping-a-chat).
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
}
