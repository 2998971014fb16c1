//! End of a checked session: a clean close, or an end that the server reports.

use std::time::{Duration, Instant};

use super::{CheckPhase, Depth, SessionCheck};
use crate::{
    doctor::{
        step::{CheckOutcome, DoctorStep},
        symptom::{Symptom, format_duration},
    },
    spelling::upstream::CloseBy,
    vocabulary::{EndKind, LaneRequest, UpstreamEnd},
};

/// How long the check waits for the server to end the connection after the session.
const TRANSPORT_END_WAIT: Duration = Duration::from_secs(1);

impl SessionCheck {
    /// Stops the check and closes the session. A worker answers the close only after its initialisation.
    pub fn stop(&mut self, now: Instant, reason: &str) {
        let ready_by = self.step_started_at + self.plan.limits.step_timeout;
        let readable_at = match self.phase {
            CheckPhase::Closing { .. }
            | CheckPhase::LeavingQueue { .. }
            | CheckPhase::EndedByServer { .. }
            | CheckPhase::ClosingTransport { .. }
            | CheckPhase::Finished => return,
            CheckPhase::Initialising => ready_by,
            CheckPhase::Queued | CheckPhase::AwaitingAnswer => now,
        };
        self.outcomes.push_back(CheckOutcome::skipped(self.current_step(), reason));
        self.start_closing(now, readable_at);
    }

    /// Handles the end of the session reported by the server.
    pub(super) fn handle_closed(&mut self, now: Instant, end: &UpstreamEnd) {
        let took = now - self.step_started_at;
        match self.phase {
            CheckPhase::Closing { .. } => {
                let outcome =
                    CheckOutcome::completed(DoctorStep::Close, took, self.plan.limits.close_timeout, "");
                self.outcomes.push_back(outcome);
            }
            CheckPhase::LeavingQueue { .. } => self.mark_server_left(),
            // The server keeps the connection and the worker until the client closes the session.
            _ if matches!(end.kind, EndKind::LimitReachedStillOpen | EndKind::UnfitStillOpen) => {
                let symptom = Symptom::RecoverableError(end.detail.clone());
                return self.fail(now, symptom);
            }
            // Some back-ends end a chat when the transcript of silence is empty (mappings/notes/minicpm-o.md#chat).
            CheckPhase::AwaitingAnswer if end.kind == EndKind::EmptyAnswer => {
                self.reached = Some(Depth::Answer);
                let note = "one question, with an empty answer";
                self.outcomes.push_back(CheckOutcome::completed(
                    DoctorStep::Answer,
                    took,
                    self.plan.limits.question_usual,
                    note,
                ));
                self.mark_server_left();
            }
            _ => self.unreported_end = Some((self.current_step(), took, end.clone())),
        }
        self.step_started_at = now;
        self.phase =
            CheckPhase::EndedByServer { until: now + self.plan.limits.close_timeout.min(TRANSPORT_END_WAIT) };
    }

    pub(super) fn report_session_ended(
        &mut self,
        step: DoctorStep,
        took: Duration,
        end: UpstreamEnd,
        code: Option<u16>,
    ) {
        self.outcomes.push_back(CheckOutcome::failed(step, took, self.session_ended_symptom(end, code)));
        self.mark_server_left();
    }

    pub(super) fn session_ended_symptom(&self, end: UpstreamEnd, code: Option<u16>) -> Symptom {
        let had_voice = matches!(&self.plan.init, LaneRequest::Init(Some(_)))
            || matches!(&self.plan.init, LaneRequest::InitConversation(opening) if opening.voice.is_some());
        Symptom::SessionEnded { detail: end.detail, kind: end.kind, code, had_voice }
    }

    /// Logs the close step as skipped, because the server has ended the session.
    pub(super) fn mark_server_left(&mut self) {
        if !std::mem::replace(&mut self.has_server_left, true) {
            self.outcomes.push_back(CheckOutcome::skipped(DoctorStep::Close, "the server ended the session"));
        }
    }

    /// Sends the close command for a worker that may be assigned. The worker reads it from `readable_at` on
    /// (mappings/notes/minicpm-o.md#queue).
    pub(super) fn start_closing(&mut self, now: Instant, readable_at: Instant) {
        if !self.has_worker && self.queue_position.is_some() {
            return self.leave_queue(now, false);
        }
        let by_socket = self.plan.dialect.close_by == CloseBy::Socket;
        self.send(now, LaneRequest::Close);
        self.step_started_at = now;
        let until = readable_at.max(now) + self.plan.limits.close_timeout;
        self.phase = CheckPhase::Closing { until, by_socket };
    }

    /// Waits for the worker that the queue will assign, to close the session then.
    pub(super) fn leave_queue(&mut self, now: Instant, is_close_sent: bool) {
        self.step_started_at = now;
        let until = now + self.plan.limits.queue_exit_max;
        self.phase = CheckPhase::LeavingQueue { until, is_close_sent };
    }

    /// Closes a session that has waited in the queue only for that. The worker reads a close that was sent before.
    pub(super) fn handle_late_grant(&mut self, now: Instant, is_close_sent: bool) {
        self.has_worker = true;
        if !is_close_sent {
            return self.start_closing(now, now);
        }
        self.step_started_at = now;
        self.phase = CheckPhase::Closing { until: now + self.plan.limits.close_timeout, by_socket: false };
    }

    /// Leaves the queue without a worker after the longest wait.
    pub(super) fn give_up_in_queue(&mut self, now: Instant) {
        let waited = now - self.step_started_at;
        let detail = format!("still in the queue after {}", format_duration(waited));
        self.outcomes.push_back(CheckOutcome::failed(
            DoctorStep::Close,
            waited,
            Symptom::CloseNotAcknowledged(detail),
        ));
        self.close_transport(now);
    }

    pub(super) fn close_transport(&mut self, now: Instant) {
        self.step_started_at = now;
        self.phase = CheckPhase::ClosingTransport { until: now + self.plan.limits.close_timeout };
    }

    pub(super) fn finish(&mut self) {
        self.commands.clear();
        self.outgoing.clear();
        self.phase = CheckPhase::Finished;
    }
}
