//! One upstream of the pool: name, health, probes and logs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{runtime::Handle, time::Instant};
use tower::load::Load;
use tracing::{debug, info, warn};

use super::{
    health::{Health, LaneFailure, UpstreamLoad},
    probe::{Probe, probe_until_readmitted},
};

/// One upstream of the pool.
pub(super) struct PooledUpstream {
    name: String,
    probe: Mutex<Prober>,
    state: Mutex<UpstreamState>,
}

/// Dialer used for probes.
type Prober = Arc<dyn Probe + Send + Sync>;

#[derive(Default)]
struct UpstreamState {
    health: Health,
    /// A task waits to probe the upstream.
    has_probe_task: bool,
    /// An idle probe is running.
    is_being_probed: bool,
    /// A lane or probe has reported a result.
    has_reported: bool,
    /// Total failed lanes and total ejections.
    failures: u64,
    ejections: u64,
}

/// Status of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Load and ejection.
    pub load: UpstreamLoad,
    /// Total failed lanes.
    pub failures: u64,
    /// Total ejections.
    pub ejections: u64,
}

impl PooledUpstream {
    pub(super) fn new(name: String, probe: Prober) -> Self {
        Self { name, probe: probe.into(), state: Mutex::default() }
    }

    /// Replaces the dialer used for probes, and clears the failures of the previous one.
    pub(super) fn replace_probe(&self, probe: Prober) {
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = probe;
        if self.state().health.reset_failures() {
            info!(upstream = self.name, "dial settings changed: upstream back in service");
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn probe(&self) -> Prober {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn status(&self) -> UpstreamStatus {
        let state = self.state();
        let load = state.health.load(Instant::now());
        UpstreamStatus { load, failures: state.failures, ejections: state.ejections }
    }

    fn state(&self) -> MutexGuard<'_, UpstreamState> {
        // A panic cannot leave the counters inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lane_opened(&self) {
        self.state().health.lane_opened();
    }

    pub(super) fn lane_closed(&self) {
        self.state().health.lane_closed();
    }

    pub(super) fn lane_queued(&self, position: u32) {
        self.state().health.lane_queued(Instant::now(), position);
    }

    pub(super) fn mark_busy(&self) {
        self.state().health.mark_busy(Instant::now());
    }

    pub(super) fn lane_ready(&self, had_waited: bool) {
        let mut state = self.state();
        state.has_reported = true;
        let is_readmitted = state.health.lane_ready(had_waited);
        drop(state);
        self.log_readmission(is_readmitted);
    }

    pub(super) fn lane_served(&self) {
        let is_readmitted = self.state().health.lane_served();
        self.log_readmission(is_readmitted);
    }

    fn log_readmission(&self, is_readmitted: bool) {
        if is_readmitted {
            info!(upstream = self.name, "lane succeeded: upstream back in service");
        }
    }

    /// Records a failed lane with its reason; ejects and starts to probe the upstream if it fails repeatedly.
    pub(super) fn lane_failed(self: &Arc<Self>, failure: LaneFailure, message: &str) {
        let mut state = self.state();
        state.failures += 1;
        state.has_reported = true;
        let Some(pause) = state.health.lane_failed(Instant::now(), failure, fastrand::f64()) else {
            drop(state);
            return debug!(upstream = self.name, ?failure, "lane failed: {message}");
        };
        state.ejections += 1;
        let has_probe_task = std::mem::replace(&mut state.has_probe_task, true);
        drop(state);
        warn!(upstream = self.name, out_ms = pause.as_millis(), "upstream ejected: {message}");
        // Without a runtime the process is shutting down anyway.
        if let (false, Ok(runtime)) = (has_probe_task, Handle::try_current()) {
            runtime.spawn(probe_until_readmitted(Arc::downgrade(self)));
        }
    }

    /// True if the upstream has reported and is not ejected.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.state();
        state.has_reported && state.health.ejected_until().is_none()
    }

    /// True if an idle probe is useful: none is running, and no lane would report sooner.
    pub(super) fn begin_idle_probe(&self) -> bool {
        let mut state = self.state();
        let UpstreamLoad { ejected_until, lanes } = state.health.load(Instant::now());
        let is_idle = ejected_until.is_none() && lanes == 0 || !state.has_reported;
        is_idle && !std::mem::replace(&mut state.is_being_probed, true)
    }

    /// Records the result of an idle probe.
    pub(super) fn idle_probe_finished(self: &Arc<Self>, result: Result<(), String>) {
        let mut state = self.state();
        (state.is_being_probed, state.has_reported) = (false, true);
        drop(state);
        if let Err(message) = result {
            self.lane_failed(LaneFailure::Unreachable, &message);
        }
    }

    /// Instant of the next probe; `None` ends the probe task, because the upstream is back in service.
    pub(super) fn next_probe_at(&self) -> Option<Instant> {
        let mut state = self.state();
        let due = state.health.ejected_until();
        state.has_probe_task = due.is_some();
        due
    }

    /// Records the result of a probe.
    pub(super) fn probe_finished(&self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if self.state().health.probe_succeeded() {
                    info!(upstream = self.name, "probe succeeded: upstream back in service");
                }
            }
            Err(message) => {
                let out = self.state().health.probe_failed(Instant::now(), fastrand::f64());
                let out_ms = out.map(|out| out.as_millis());
                debug!(upstream = self.name, out_ms, "probe failed: upstream stays ejected: {message}");
            }
        }
    }
}

impl std::fmt::Debug for PooledUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Load for PooledUpstream {
    type Metric = UpstreamLoad;

    fn load(&self) -> UpstreamLoad {
        self.state().health.load(Instant::now())
    }
}
