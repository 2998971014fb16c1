//! A session of either dialect.

use std::time::Instant;

use super::{
    EngineAnswer, JobId, SimDialect, SimMode,
    legacy::LegacySession,
    model::OrphanedGeneration,
    session::CurrentSession,
    session_context::{SimContext, SimSessionEnd},
};

/// Exception of the real gateway when it reads a binary frame as text (field notes §1.1).
const BINARY_FRAME_EXCEPTION: &str = "'text'";

/// One session on a worker, in either dialect.
#[derive(Debug)]
pub(super) enum DialectSession {
    Current(CurrentSession),
    Legacy(LegacySession),
}

impl DialectSession {
    pub(super) fn new(dialect: SimDialect, mode: SimMode, limit: Option<Instant>) -> Self {
        match dialect {
            SimDialect::Current => Self::Current(CurrentSession::new(mode, limit)),
            SimDialect::Legacy { follows_document } => {
                Self::Legacy(LegacySession::new(mode, follows_document, limit))
            }
        }
    }

    pub(super) fn handle_text(&mut self, text: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        match self {
            Self::Current(session) => session.handle_text(text, ctx),
            Self::Legacy(session) => session.handle_text(text, ctx),
        }
    }

    pub(super) const fn handle_binary(&self) -> Result<(), SimSessionEnd> {
        match self {
            Self::Current(_) => Err(SimSessionEnd::GatewayFailed(BINARY_FRAME_EXCEPTION)),
            Self::Legacy(session) => session.reject_unreadable(),
        }
    }

    pub(super) fn handle_engine_answer(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        ctx: &mut SimContext<'_>,
    ) {
        match self {
            Self::Current(session) => session.handle_engine_answer(job, answer, ctx),
            Self::Legacy(session) => session.handle_engine_answer(job, answer, ctx),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Current(session) => session.next_deadline(),
            Self::Legacy(session) => session.next_deadline(),
        }
    }

    pub(super) fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        match self {
            Self::Current(session) => session.handle_deadline(ctx),
            Self::Legacy(session) => session.handle_deadline(ctx),
        }
    }

    pub(super) fn step_end_time(&self) -> Option<Instant> {
        match self {
            Self::Current(session) => session.step_end_time(),
            Self::Legacy(session) => session.step_end_time(),
        }
    }

    pub(super) fn into_orphaned_generation(self) -> Option<OrphanedGeneration> {
        match self {
            Self::Current(session) => session.into_orphaned_generation(),
            Self::Legacy(_) => None,
        }
    }
}
