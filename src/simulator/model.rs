//! State of a worker's model across sessions: used context positions, and generations that outlive their sessions.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{JobId, SimMode, messages::TokenUsage};

/// Model state that survives sessions.
#[derive(Debug, Default)]
pub(super) struct WorkerModel {
    /// Context positions in use; PyTorch shows those of the previous session in `session.created`
    /// (mappings/notes/minicpm-o.md#exchanges).
    pub(super) kv_cache_length: u64,
    /// Last full-duplex `config`. PyTorch stores it in the shared view and never resets it
    /// (mappings/notes/minicpm-o-duplex.md#settings).
    pub(super) config: Map<String, Value>,
    /// Tokens of the units of a full-duplex session; `None` in a chat, and of a back-end that does not count them.
    pub(super) usage: Option<TokenUsage>,
    orphans: Vec<OrphanedGeneration>,
}

/// A worker's task for a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerTask {
    pub(super) mode: SimMode,
    pub(super) started_at: Instant,
}

/// A generation whose session has ended.
#[derive(Debug)]
pub(super) enum OrphanedGeneration {
    RunningUntil(Instant),
    AwaitingEngines(JobId),
}

impl WorkerModel {
    /// Keeps a generation running after its session ended. C++ presumably behaves like PyTorch.
    pub(super) fn adopt_orphan(&mut self, generation: OrphanedGeneration) {
        self.orphans.push(generation);
    }

    /// True if a generation of an ended session still runs.
    pub(super) fn has_running_orphan(&mut self, now: Instant) -> bool {
        self.orphans.retain(|orphan| match orphan {
            OrphanedGeneration::RunningUntil(end) => *end > now,
            OrphanedGeneration::AwaitingEngines(_) => true,
        });
        !self.orphans.is_empty()
    }

    /// Removes the orphaned generation that awaits this engine answer; it makes no further request.
    pub(super) fn drop_orphan_awaiting(&mut self, job: JobId) {
        self.orphans.retain(|orphan| match orphan {
            OrphanedGeneration::RunningUntil(_) => true,
            OrphanedGeneration::AwaitingEngines(pending) => *pending != job,
        });
    }
}
