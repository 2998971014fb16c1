//! A session of whichever dialect the gateway speaks.

use std::time::Instant;

use super::{
    Dialect, EngineAnswer, JobId, Mode,
    generate::Generation,
    legacy::Legacy,
    session::Session,
    session_context::{Bench, Ending},
};

/// What reading the text of a binary frame raises (field notes §1.1).
const BINARY: &str = "'text'";

/// One session on a worker.
#[derive(Debug)]
pub(super) enum Serving {
    Current(Session),
    Legacy(Legacy),
}

impl Serving {
    pub(super) fn new(dialect: Dialect, mode: Mode, limit: Option<Instant>) -> Self {
        match dialect {
            Dialect::Current => Self::Current(Session::new(mode, limit)),
            Dialect::Legacy { documented } => Self::Legacy(Legacy::new(mode, documented, limit)),
        }
    }

    pub(super) fn text(&mut self, text: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        match self {
            Self::Current(session) => session.text(text, bench),
            Self::Legacy(session) => session.text(text, bench),
        }
    }

    pub(super) const fn binary(&self) -> Result<(), Ending> {
        match self {
            Self::Current(_) => Err(Ending::Failed(BINARY)),
            Self::Legacy(session) => session.unreadable(),
        }
    }

    pub(super) fn engine(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) {
        match self {
            Self::Current(session) => session.engine(job, answer, bench),
            Self::Legacy(session) => session.engine(job, answer, bench),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Current(session) => session.deadline(),
            Self::Legacy(session) => session.deadline(),
        }
    }

    pub(super) fn tick(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        match self {
            Self::Current(session) => session.tick(bench),
            Self::Legacy(session) => session.tick(bench),
        }
    }

    pub(super) fn step_end(&self) -> Option<Instant> {
        match self {
            Self::Current(session) => session.step_end(),
            Self::Legacy(session) => session.step_end(),
        }
    }

    pub(super) fn left_over(self) -> Option<Generation> {
        match self {
            Self::Current(session) => session.left_over(),
            Self::Legacy(_) => None,
        }
    }
}
