//! A worker's model across sessions: the positions in use, and the generations that outlive their sessions.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{JobId, generate::Generation};

/// What a worker's model remembers across sessions.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Positions in use; PyTorch shows the previous session's in `session.created` (field notes §6.2).
    pub(super) kv_cache_length: u64,
    /// The last full-duplex `config`. PyTorch stores it on the shared view and never resets it (field notes §1.6).
    pub(super) config: Map<String, Value>,
    left_over: Vec<LeftOver>,
}

/// A generation whose session is gone.
#[derive(Debug)]
enum LeftOver {
    Until(Instant),
    Awaiting(Box<Generation>),
}

impl Model {
    /// Keeps a generation running although nobody hears it any more. C++ is assumed to be no better than PyTorch.
    pub(super) fn adopt(&mut self, generation: Generation) {
        self.left_over.push(match (generation.job, generation.ends()) {
            (Some(_), _) => LeftOver::Awaiting(Box::new(generation)),
            (None, Some(end)) => LeftOver::Until(end),
            (None, None) => return,
        });
    }

    /// Whether somebody else's generation still runs.
    pub(super) fn busy(&mut self, now: Instant) -> bool {
        self.left_over.retain(|left| match left {
            LeftOver::Until(end) => *end > now,
            LeftOver::Awaiting(_) => true,
        });
        !self.left_over.is_empty()
    }

    /// Takes the engines' answer to a generation whose session is gone; nothing more is asked for it.
    pub(super) fn answered(&mut self, job: JobId) {
        self.left_over.retain(|left| match left {
            LeftOver::Until(_) => true,
            LeftOver::Awaiting(generation) => generation.job != Some(job),
        });
    }
}
