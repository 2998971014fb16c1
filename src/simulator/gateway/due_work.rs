//! Timed work of the gateway: queue updates, deadlines of the sessions, and health checks of the workers.

use std::time::{Duration, Instant};

use super::{Connection, Gateway};
use crate::{ConnId, SimOutput, messages};

impl Gateway {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.pending_deadlines().map(|(at, _)| at).chain(self.next_health_check()).min()
    }

    fn pending_deadlines(&self) -> impl Iterator<Item = (Instant, ConnId)> {
        self.connections.iter().filter_map(|(conn, connection)| match connection {
            Connection::Unplaced { expires_at, .. } => expires_at.map(|at| (at, *conn)),
            Connection::Queued { next_update_at, .. } => Some((*next_update_at, *conn)),
            Connection::Serving { session, .. } => session.next_deadline().map(|at| (at, *conn)),
        })
    }

    /// Instant of the next health check that matters.
    fn next_health_check(&self) -> Option<Instant> {
        self.workers.iter().filter_map(|worker| worker.reported_busy_until).min()
    }

    /// Runs all due work, earliest first, each at its own instant. A late call therefore only delays the outputs.
    pub(super) fn run_due_work(&mut self, now: Instant) {
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
            Some(Connection::Unplaced { .. }) => self.expire_connection(conn),
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
