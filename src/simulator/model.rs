//! A worker's model across sessions: the positions in use, and the generations that outlive their sessions.

use std::time::Instant;

use serde_json::{Map, Value};

use super::JobId;

/// What a worker's model remembers across sessions.
#[derive(Debug, Default)]
pub(super) struct WorkerModel {
    /// Positions in use; PyTorch shows the previous session's in `session.created` (field notes §6.2).
    pub(super) kv_cache_length: u64,
    /// The last full-duplex `config`. PyTorch stores it on the shared view and never resets it (field notes §1.6).
    pub(super) config: Map<String, Value>,
    orphans: Vec<OrphanedGeneration>,
}

/// A generation whose session is gone.
#[derive(Debug)]
pub(super) enum OrphanedGeneration {
    RunningUntil(Instant),
    AwaitingEngines(JobId),
}

impl WorkerModel {
    /// Keeps a generation running although nobody hears it any more. C++ is assumed to be no better than PyTorch.
    pub(super) fn adopt_orphan(&mut self, generation: OrphanedGeneration) {
        self.orphans.push(generation);
    }

    /// Whether somebody else's generation still runs.
    pub(super) fn has_running_orphan(&mut self, now: Instant) -> bool {
        self.orphans.retain(|orphan| match orphan {
            OrphanedGeneration::RunningUntil(end) => *end > now,
            OrphanedGeneration::AwaitingEngines(_) => true,
        });
        !self.orphans.is_empty()
    }

    /// Takes the engines' answer to a generation whose session is gone; nothing more is asked for it.
    pub(super) fn drop_orphan_awaiting(&mut self, job: JobId) {
        self.orphans.retain(|orphan| match orphan {
            OrphanedGeneration::RunningUntil(_) => true,
            OrphanedGeneration::AwaitingEngines(pending) => *pending != job,
        });
    }
}
