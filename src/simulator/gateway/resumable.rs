//! Connections of vLLM-Omni, whose sessions outlast them. The first message opens a session on an idle worker, or resumes one.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{ClientFrame, Connection, Gateway, Worker};
use crate::{
    ConnId, FaultKind, SimMode, SimOutput,
    dialect_session::ResumeRequest,
    messages,
    model::WorkerModel,
    vllm_omni::{FirstMessage, Refusal, VllmSession},
};

/// Time within which the first message must come.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(10);

impl Gateway {
    /// A connection; `?model=` opens a session before any message.
    pub(super) fn connect_resumable(&mut self, conn: ConnId, mode: SimMode, now: Instant) {
        match mode {
            // `?duplex=0` asks for the handler of turns, which this deployment lacks.
            SimMode::Chat => {
                let members =
                    [("error", "Realtime API is not available".into()), ("code", "unsupported".into())];
                let error = [("type", "error".into())].into_iter().chain(members);
                self.outputs.push_back(SimOutput::Text(conn, messages::to_json(error)));
                self.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
            }
            SimMode::Autostart => {
                self.open_session(conn, &Map::new(), now);
            }
            SimMode::Audio | SimMode::Video | SimMode::Transcription | SimMode::Refused(_) => {
                let expires_at = Some(now + CONFIG_TIMEOUT);
                self.connections.insert(conn, Connection::Unplaced { mode, expires_at });
            }
        }
    }

    pub(super) fn handle_first_message(&mut self, conn: ConnId, frame: ClientFrame<'_>, now: Instant) {
        self.connections.remove(&conn);
        match FirstMessage::read(frame.as_deref()) {
            Ok(FirstMessage::Update(config)) => {
                self.open_session(conn, &config, now);
            }
            Ok(FirstMessage::Resume(request)) => self.resume_session(conn, &request, now),
            // Any other message opens a session with the defaults, and is then handled.
            Ok(FirstMessage::Other) => {
                if self.open_session(conn, &Map::new(), now) {
                    self.handle_frame(conn, frame, now);
                }
            }
            Err(refusal) => self.refuse_connection(conn, &refusal),
        }
    }

    /// Ends a connection on which nothing came.
    pub(super) fn expire_connection(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
        self.refuse_connection(conn, &Refusal::new("config_timeout", "Timeout waiting for session.update"));
    }

    /// Opens a session; false if it is refused.
    fn open_session(&mut self, conn: ConnId, config: &Map<String, Value>, now: Instant) -> bool {
        let idle = self.workers.iter().position(Worker::is_idle);
        let opened = match idle {
            Some(worker)
                if !self.faults.trigger(FaultKind::Busy) && !self.faults.trigger(FaultKind::QueueFull) =>
            {
                // A session leaves nothing behind for the next one.
                self.workers[worker].model = WorkerModel::default();
                let session = VllmSession::open(config, &mut self.context(conn, worker, now));
                session.map(|session| (worker, session))
            }
            _ => Err(Refusal::no_capacity(self.cfg.workers)),
        };
        match opened {
            Ok((worker, session)) => {
                self.workers[worker].serving = Some(conn);
                self.connections.insert(conn, Connection::Serving { worker, session: Box::new(session) });
                true
            }
            Err(refusal) => {
                self.refuse_connection(conn, &refusal.of_session(self.cfg.vllm_version));
                false
            }
        }
    }

    fn resume_session(&mut self, conn: ConnId, request: &ResumeRequest, now: Instant) {
        let Some(previous) = self.connection_of(&request.session_id) else {
            let message = format!("Unknown or expired duplex session: {}", request.session_id);
            return self.refuse_connection(conn, &Refusal::new("session_resume_expired", message));
        };
        let Some(Connection::Serving { worker, mut session }) = self.connections.remove(&previous) else {
            return;
        };
        let is_resumed = session.resume(request, &mut self.context(conn, worker, now));
        let conn = if is_resumed { conn } else { previous };
        self.workers[worker].serving = Some(conn);
        self.connections.insert(conn, Connection::Serving { worker, session });
    }

    /// Sends an error and ends the connection. The server's handler returns without a close frame.
    fn refuse_connection(&mut self, conn: ConnId, refusal: &Refusal) {
        self.outputs.push_back(SimOutput::Text(conn, refusal.to_event(&mut self.rng)));
        self.outputs.push_back(SimOutput::Abort(conn));
    }
}
