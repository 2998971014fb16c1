//! Interface of the gateway to a session on a worker, in any dialect.

use std::{fmt::Debug, time::Instant};

use super::{
    EngineAnswer, JobId,
    model::OrphanedGeneration,
    session_context::{SimContext, SimSessionEnd},
};

/// A client's request to continue a session on its connection.
#[derive(Debug)]
pub(super) struct ResumeRequest {
    pub(super) session_id: String,
    /// Secret of the client whose session it is.
    pub(super) token: String,
    /// Number of the last event that the client has.
    pub(super) last_sequence: u64,
}

/// One session on a worker.
pub(super) trait DialectSession: Debug + Send {
    /// The session's id, once the client knows it.
    fn id(&self) -> Option<&str> {
        None
    }

    /// Sends what the server says first.
    fn begin(&mut self, _ctx: &mut SimContext<'_>) {}

    /// Handles a frame from the client; `None` is a binary one.
    fn handle_frame(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd>;

    /// Passes on the engines' answer; an answer for another job is ignored.
    fn handle_engine_answer(&mut self, job: JobId, answer: &EngineAnswer, ctx: &mut SimContext<'_>);

    /// Instant of the next work.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does the earliest due work; at the same instant, an answer comes before the end.
    fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd>;

    /// End of the step that continues after the session ends.
    fn step_end_time(&self) -> Option<Instant> {
        None
    }

    /// The client's connection has ended. True if the session waits for another.
    fn detach(&mut self, _now: Instant) -> bool {
        false
    }

    /// True while the session has no connection.
    fn is_detached(&self) -> bool {
        false
    }

    /// Continues on another connection, which is the context's. False if the session refuses, and has said why.
    fn resume(&mut self, _request: &ResumeRequest, _ctx: &mut SimContext<'_>) -> bool {
        false
    }

    /// Returns the generation that outlives the session, if any.
    fn into_orphaned_generation(self: Box<Self>) -> Option<OrphanedGeneration> {
        None
    }
}
