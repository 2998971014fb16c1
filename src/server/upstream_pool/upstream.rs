//! One upstream of the pool: its name, its health, and its log lines for operators.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};
use tower::load::Load;
use tracing::{debug, info, warn};

use super::{
    health::{Health, LaneFailure, LeaseId, UpstreamLoad, is_busy},
    places::{Places, PlacesStatus},
    probe::Probe,
    signals::Signals,
};
use crate::vocabulary::LanePurpose;

/// A probe that takes longer has failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// One upstream.
pub(super) struct PooledUpstream {
    name: String,
    probe: Mutex<Prober>,
    state: Mutex<UpstreamState>,
    places: Places,
    /// Signals of its pool.
    signals: Signals,
}

/// How the upstream is probed.
type Prober = Arc<dyn Probe + Send + Sync>;

#[derive(Default)]
struct UpstreamState {
    health: Health,
    /// A task waits to probe the ejected upstream.
    has_probe_task: bool,
    /// An idle probe is running.
    is_being_probed: bool,
    /// A lane or a probe has reported its outcome, good or bad.
    has_reported: bool,
    /// Failed lanes and ejections since the start.
    failures: u64,
    ejections: u64,
    /// Lanes that wait in the upstream's queue although nothing needs them.
    unneeded: u32,
}

/// The state of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Load, and whether the upstream is ejected.
    pub load: UpstreamLoad,
    /// Open sessions.
    pub sessions: u32,
    /// Places, if the upstream has no queue of its own.
    pub places: PlacesStatus,
    /// Failed lanes since the start.
    pub failures: u64,
    /// Ejections since the start.
    pub ejections: u64,
    /// Lanes that wait in the upstream's queue although nothing needs them. They close once a worker is assigned.
    pub unneeded: u32,
}

impl PooledUpstream {
    pub(super) fn new(name: String, probe: Prober, signals: Signals) -> Self {
        let places = Places::new(probe.capacity(), signals.clone());
        Self { name, probe: probe.into(), state: Mutex::default(), places, signals }
    }

    /// The places of the upstream.
    pub(super) const fn places(&self) -> &Places {
        &self.places
    }

    /// True if it is not ejected.
    pub(super) fn is_in_service(&self) -> bool {
        self.state().health.ejected_until().is_none()
    }

    /// True if it is in service, has room for another lane, no queue, and it does not report that no worker is idle.
    pub(super) fn has_free_worker(&self) -> bool {
        self.places.has_place()
            && !self.has_queue()
            && !self.utilisation().is_some_and(is_busy)
            && self.is_in_service()
    }

    /// True if a lane waits for a worker in the upstream's own queue.
    pub(super) fn has_queue(&self) -> bool {
        self.state().health.has_queue(Instant::now())
    }

    /// Replaces the probe, and the number of places, after the connection settings or the dialect changed. Failures under the
    /// old settings are forgotten.
    pub(super) fn replace_probe(&self, probe: Prober) {
        self.places.set_capacity(probe.capacity());
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = probe;
        if self.state().health.reset_failures() {
            self.signals.notify_readmission();
            info!(upstream = self.name, "connection settings changed: upstream back in service");
        }
    }

    fn prober(&self) -> Prober {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Probes the upstream now, and keeps what it reports of its workers.
    pub(super) async fn probe(&self) -> Result<(), String> {
        let result = timeout(PROBE_TIMEOUT, self.prober().probe()).await;
        let report =
            result.unwrap_or_else(|_| Err(format!("no answer within {} s", PROBE_TIMEOUT.as_secs())))?;
        if let Some(report) = report {
            self.state().health.workers_reported(Instant::now(), report);
        }
        Ok(())
    }

    /// Sessions and queued clients of everyone, in thousandths of the workers; `None` if the upstream does not say.
    pub(super) fn utilisation(&self) -> Option<u32> {
        self.state().health.utilisation(Instant::now())
    }

    /// Its status, while this many lanes wait for its places.
    pub(super) fn status(&self, waiting: u32) -> UpstreamStatus {
        let places = PlacesStatus { max: self.places.max(), waiting };
        let state = self.state();
        let load = state.health.load(Instant::now());
        UpstreamStatus {
            load,
            sessions: state.health.lanes().saturating_sub(places.waiting),
            places,
            failures: state.failures,
            ejections: state.ejections,
            unneeded: state.unneeded,
        }
    }

    fn state(&self) -> MutexGuard<'_, UpstreamState> {
        // Every change leaves valid counters, so a poisoned lock holds valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lane_opened(&self) -> LeaseId {
        self.state().health.lane_opened()
    }

    pub(super) fn lane_closed(&self) {
        self.state().health.lane_closed();
    }

    pub(super) fn lane_queued(&self, position: u32) {
        self.state().health.lane_queued(Instant::now(), position);
    }

    /// Counts a lane that begins to wait in a queue only to be closed, or no longer does.
    pub(super) fn count_unneeded(&self, is_unneeded: bool) {
        let mut state = self.state();
        let count = state.unneeded;
        state.unneeded = if is_unneeded { count + 1 } else { count.saturating_sub(1) };
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

    /// Records an answer of a lane.
    pub(super) fn lane_answered(&self, id: LeaseId, purpose: LanePurpose) {
        self.state().health.lane_answered(Instant::now(), id, purpose);
    }

    /// True if it refused the last requests of this purpose because of its configuration.
    pub(super) fn is_misconfigured(&self, purpose: LanePurpose) -> bool {
        self.state().health.is_misconfigured(Instant::now(), purpose)
    }

    /// Records a refusal that only the operator can change.
    pub(super) fn lane_misconfigured(&self, purpose: LanePurpose, message: &str) {
        let mut state = self.state();
        state.failures += 1;
        state.health.lane_misconfigured(Instant::now(), purpose);
        drop(state);
        warn!(upstream = self.name, "the upstream refuses requests: {message}");
    }

    pub(super) fn lane_served(&self) {
        let is_readmitted = self.state().health.lane_served();
        self.log_readmission(is_readmitted);
    }

    fn log_readmission(&self, is_readmitted: bool) {
        if is_readmitted {
            self.signals.notify_readmission();
            info!(upstream = self.name, "a lane succeeded: upstream back in service");
        }
    }

    /// Records a failed lane and ejects the upstream after too many failures.
    pub(super) fn lane_failed(self: &Arc<Self>, failure: LaneFailure, message: &str) {
        let mut state = self.state();
        state.failures += 1;
        state.has_reported = true;
        let Some(pause) = state.health.lane_failed(Instant::now(), failure, fastrand::f64()) else {
            drop(state);
            return debug!(upstream = self.name, "lane failed: {message}");
        };
        state.ejections += 1;
        let has_probe_task = std::mem::replace(&mut state.has_probe_task, true);
        drop(state);
        // The lanes in line choose again.
        self.signals.notify_places();
        warn!(upstream = self.name, ejected_ms = pause.as_millis(), "upstream ejected: {message}");
        // Without a runtime the program is ending.
        if let (false, Ok(runtime)) = (has_probe_task, Handle::try_current()) {
            runtime.spawn(Self::probe_until_readmitted(Arc::downgrade(self)));
        }
    }

    /// True if the upstream has reported and is in service.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.state();
        state.has_reported && state.health.ejected_until().is_none()
    }

    /// True if an idle probe should run now: no lane is open, no outcome is known, or the upstream reports its workers; and no
    /// probe runs. Marks the probe as running.
    pub(super) fn begin_idle_probe(&self) -> bool {
        let reports_workers = self.prober().reports_workers();
        let mut state = self.state();
        let UpstreamLoad { ejected_until, lanes } = state.health.load(Instant::now());
        let is_asked = lanes == 0 || reports_workers;
        let is_due = ejected_until.is_none() && is_asked || !state.has_reported;
        is_due && !std::mem::replace(&mut state.is_being_probed, true)
    }

    /// Probes an upstream, so that an outage is known before a session needs it.
    pub(super) async fn probe_idle(self: Arc<Self>) {
        let result = self.probe().await;
        let mut state = self.state();
        (state.is_being_probed, state.has_reported) = (false, true);
        drop(state);
        if let Err(message) = result {
            // A busy server may be slow to answer; its lanes show whether it works.
            let is_in_use = self.load().lanes > 0;
            let failure = if is_in_use { LaneFailure::Refused } else { LaneFailure::Unreachable };
            self.lane_failed(failure, &message);
        }
    }

    /// Probes an ejected upstream whenever a probe is due, and when another upstream is back: they may have failed together.
    /// Ends once it is back in service or dropped.
    async fn probe_until_readmitted(upstream: Weak<Self>) {
        let Some(signals) = upstream.upgrade().map(|upstream| upstream.signals.clone()) else { return };
        while let Some(due) = upstream.upgrade().and_then(|upstream| upstream.next_probe_at()) {
            let is_early = timeout_at(due, signals.readmitted()).await.is_ok();
            let Some(upstream) = upstream.upgrade() else { return };
            // A lane may have been faster.
            if upstream.load().ejected_until != Some(due) {
                continue;
            }
            let result = upstream.probe().await;
            // A failure before its time does not make the ejection longer.
            if result.is_ok() || !is_early {
                upstream.probe_finished(result);
            }
        }
    }

    /// When to probe the ejected upstream; `None` ends the probe task because the upstream is in service.
    fn next_probe_at(&self) -> Option<Instant> {
        let mut state = self.state();
        let due = state.health.ejected_until();
        state.has_probe_task = due.is_some();
        due
    }

    /// Records the outcome of a probe while ejected.
    fn probe_finished(&self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if self.state().health.probe_succeeded() {
                    self.signals.notify_readmission();
                    info!(upstream = self.name, "probe succeeded: upstream back in service");
                }
            }
            Err(message) => {
                let out = self.state().health.probe_failed(Instant::now(), fastrand::f64());
                let out_ms = out.map(|out| out.as_millis());
                debug!(upstream = self.name, out_ms, "probe failed, upstream still ejected: {message}");
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
