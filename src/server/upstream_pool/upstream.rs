//! One upstream of several: its name, what is known of it, and what operators are told of that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{runtime::Handle, time::Instant};
use tower::load::Load;
use tracing::{debug, info, warn};

use super::{
    health::{Burden, Failing, Health},
    probe::{Probe, watch},
};

/// One upstream.
pub(super) struct Upstream {
    name: String,
    probe: Mutex<Prober>,
    state: Mutex<State>,
}

/// The way by which it is probed.
type Prober = Arc<dyn Probe + Send + Sync>;

#[derive(Default)]
struct State {
    health: Health,
    /// A task waits to probe it.
    watched: bool,
    /// A task asks it now.
    looked_at: bool,
    /// Something was learned of it, good or bad.
    known: bool,
    /// Lanes it failed, and how often it was left out, in all.
    failures: u64,
    left_out: u64,
}

/// How an upstream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its load, and whether it is left out.
    pub burden: Burden,
    /// Lanes it failed, in all.
    pub failures: u64,
    /// How often it was left out, in all.
    pub left_out: u64,
}

impl Upstream {
    pub(super) fn new(name: String, probe: Prober) -> Self {
        Self { name, probe: probe.into(), state: Mutex::default() }
    }

    /// It is gone to in another way from now on. What failed by the one before says nothing of this one.
    pub(super) fn reached_by(&self, probe: Prober) {
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = probe;
        if self.state().health.forgive() {
            info!(upstream = self.name, "it is gone to in another way: back in service");
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn probe(&self) -> Prober {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn standing(&self) -> Standing {
        let state = self.state();
        let burden = state.health.burden(Instant::now());
        Standing { burden, failures: state.failures, left_out: state.left_out }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers are whole between two of their changes, whatever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn taken(&self) {
        self.state().health.taken();
    }

    pub(super) fn gone(&self) {
        self.state().health.gone();
    }

    pub(super) fn queued(&self, position: u32) {
        self.state().health.queued(Instant::now(), position);
    }

    pub(super) fn busy(&self) {
        self.state().health.busy(Instant::now());
    }

    pub(super) fn ready(&self, had_waited: bool) {
        let mut state = self.state();
        state.known = true;
        let back = state.health.ready(had_waited);
        drop(state);
        self.tell_back(back);
    }

    pub(super) fn served(&self) {
        let back = self.state().health.served();
        self.tell_back(back);
    }

    fn tell_back(&self, back: bool) {
        if back {
            info!(upstream = self.name, "a lane succeeded: the upstream is back in service");
        }
    }

    /// A lane failed, for this reason.
    pub(super) fn failed(self: &Arc<Self>, how: Failing, words: &str) {
        let mut state = self.state();
        state.failures += 1;
        state.known = true;
        let Some(out) = state.health.failed(Instant::now(), how, fastrand::f64()) else {
            drop(state);
            return debug!(upstream = self.name, ?how, "a lane failed: {words}");
        };
        state.left_out += 1;
        let watched = std::mem::replace(&mut state.watched, true);
        drop(state);
        warn!(upstream = self.name, out_ms = out.as_millis(), "left out for a while: {words}");
        // Without a runtime everything is over anyway.
        if let (false, Ok(runtime)) = (watched, Handle::try_current()) {
            runtime.spawn(watch(Arc::downgrade(self)));
        }
    }

    /// It is in service, as far as is known; and something is.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.state();
        state.known && state.health.out_until().is_none()
    }

    /// Whether it is worth asking now: nobody does, and no lane would tell sooner.
    pub(super) fn begin_look(&self) -> bool {
        let mut state = self.state();
        let Burden { out_until, lanes } = state.health.burden(Instant::now());
        let idle = out_until.is_none() && lanes == 0 || !state.known;
        idle && !std::mem::replace(&mut state.looked_at, true)
    }

    /// What it said, or did not say, when it was asked.
    pub(super) fn looked(self: &Arc<Self>, found: Result<(), String>) {
        let mut state = self.state();
        (state.looked_at, state.known) = (false, true);
        drop(state);
        if let Err(words) = found {
            self.failed(Failing::Unreachable, &words);
        }
    }

    /// When it is to be probed; `None` ends the watch, because it is back in service.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        let mut state = self.state();
        let due = state.health.out_until();
        state.watched = due.is_some();
        due
    }

    /// What the probe said.
    pub(super) fn probed(&self, found: Result<(), String>) {
        match found {
            Ok(()) => {
                if self.state().health.found() {
                    info!(upstream = self.name, "it answers again: back in service");
                }
            }
            Err(words) => {
                let out = self.state().health.not_found(Instant::now(), fastrand::f64());
                let out_ms = out.map(|out| out.as_millis());
                debug!(upstream = self.name, out_ms, "still left out: {words}");
            }
        }
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Load for Upstream {
    type Metric = Burden;

    fn load(&self) -> Burden {
        self.state().health.burden(Instant::now())
    }
}
