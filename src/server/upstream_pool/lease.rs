//! What a lane holds of its upstream from dialling to its end: its part of the load, and a way to say what became of it.
//!
//! The first verdict counts. A lane about which nothing bad was said served well if it had been ready.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{health::Failing, upstream::Upstream};
use crate::event::Why;

/// A dial that is given up after so long was waited for in vain; a session has its own, longer patience.
const IN_VAIN: Duration = Duration::from_millis(500);
/// Close code of a gateway that takes nobody: queue full, worker busy, not ready (field notes §1.1, §1.2).
const TRY_AGAIN_LATER: u16 = 1013;

/// A lane's hold on its upstream; dropping it gives the load back.
#[derive(Debug)]
pub struct Lease {
    upstream: Arc<Upstream>,
    memory: Memory,
    stage: Stage,
    had_waited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Connecting since.
    Dialling(Instant),
    /// Connected and not initialised.
    Opening,
    /// Initialised.
    Ready,
    /// The transport broke; whether the session minded is for it to say.
    Broken { was_ready: bool },
    /// What became of it was said.
    Judged,
}

impl Lease {
    pub(super) fn new(upstream: Arc<Upstream>, memory: Memory) -> Self {
        upstream.taken();
        Self { upstream, memory, stage: Stage::Dialling(Instant::now()), had_waited: false }
    }

    /// The upstream's name.
    #[must_use]
    pub fn upstream(&self) -> &str {
        self.upstream.name()
    }

    pub(super) const fn connected(&mut self) {
        self.stage = Stage::Opening;
    }

    pub(super) fn not_connected(&mut self, why: &Why) {
        if let Why::Refused(_) = why {
            self.stage = Stage::Opening;
        }
        self.failed(&format!("it {why}"));
    }

    /// The lane waits at this place of the upstream's queue.
    pub fn queued(&mut self, position: u32) {
        self.had_waited = true;
        self.upstream.queued(position);
    }

    /// The lane is initialised.
    pub fn ready(&mut self) {
        if self.stage == Stage::Opening {
            self.stage = Stage::Ready;
            self.memory.forget();
            self.upstream.ready(self.had_waited);
        }
    }

    /// The upstream takes nobody for now: no failure, but others are preferred for a while.
    pub fn busy(&mut self) {
        self.stage = Stage::Judged;
        self.memory.avoid(&self.upstream);
        self.upstream.busy();
    }

    /// The upstream failed the lane, in words.
    pub fn failed(&mut self, words: &str) {
        let how = match self.stage {
            Stage::Judged => return,
            Stage::Dialling(_) => Failing::Unreachable,
            Stage::Opening | Stage::Broken { was_ready: false } => Failing::Refused,
            Stage::Ready | Stage::Broken { was_ready: true } => Failing::Died,
        };
        self.stage = Stage::Judged;
        self.memory.avoid(&self.upstream);
        self.upstream.failed(how, words);
    }

    /// The transport is gone. That alone is no failure: the session knows whether it still wanted something.
    pub fn ended(&mut self, why: &Why) {
        match (why, self.stage) {
            (_, Stage::Judged) => {}
            (Why::Closed(TRY_AGAIN_LATER, _), _) => self.busy(),
            (Why::Closed(..), _) => {}
            (_, stage) => self.stage = Stage::Broken { was_ready: stage == Stage::Ready },
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.stage {
            Stage::Dialling(since) if since.elapsed() >= IN_VAIN => {
                self.failed("it did not answer the connection in time");
            }
            Stage::Ready => self.upstream.served(),
            _ => {}
        }
        self.upstream.gone();
    }
}

/// Which upstream failed a session last: its next lane goes to another if there is one. Known by its address, which no
/// other has while it is in use; 0 for none.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Arc<AtomicUsize>);

impl Memory {
    pub(super) fn avoids(&self, upstream: &Upstream) -> bool {
        self.0.load(Relaxed) == address(upstream)
    }

    fn avoid(&self, upstream: &Upstream) {
        self.0.store(address(upstream), Relaxed);
    }

    fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

fn address(upstream: &Upstream) -> usize {
    std::ptr::from_ref(upstream).addr()
}
