//! Counts, phase by phase.

use std::time::Duration;

use tokio::time::Instant;

use crate::script::WaitKind;

/// Counts of a phase.
#[derive(Debug)]
pub(crate) struct PhaseTally {
    pub(crate) name: String,
    /// All its events happen at its start.
    pub(crate) is_sudden: bool,
    began: Instant,
    /// Clients that came.
    pub(crate) clients: u64,
    /// Waits that began in this phase, s.
    pub(crate) waits: Vec<f64>,
    /// Waits of clients that had lost their session in this phase, s.
    pub(crate) waits_again: Vec<f64>,
    /// When the last of these was over, s after the begin of the phase.
    pub(crate) all_served_s: f64,
    /// Sessions and answers that failed.
    pub(crate) errors: u64,
    /// Sessions that ended because their replica stopped.
    pub(crate) reconnects: u64,
    /// Attempts to open a lane that failed, and that voxbridge repeated.
    pub(crate) retries: u64,
    /// Load of the fullest gateway beside the mean, once a second.
    pub(crate) imbalances: Vec<f64>,
    /// Sums of each gateway's load over the phase, if it was up all the time.
    pub(crate) loads: Vec<Option<f64>>,
    /// Clients in a queue while a worker elsewhere is idle, summed over the seconds.
    pub(crate) stranded: f64,
}

/// Counts of all phases.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) phases: Vec<PhaseTally>,
    /// Clients that have come, and that have what they wanted.
    pub(crate) begun: u64,
    pub(crate) complete: u64,
}

/// Number of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhaseId(usize);

/// Load of one gateway: clients per worker, and how many of either are left over; `None` if it is down.
pub(crate) type SiteLoad = Option<(f64, f64)>;

impl Tally {
    pub(crate) fn begin_phase(&mut self, name: String, is_sudden: bool, sites: usize) {
        self.phases.push(PhaseTally {
            name,
            is_sudden,
            began: Instant::now(),
            clients: 0,
            waits: Vec::new(),
            waits_again: Vec::new(),
            all_served_s: 0.0,
            errors: 0,
            reconnects: 0,
            retries: 0,
            imbalances: Vec::new(),
            loads: vec![Some(0.0); sites],
            stranded: 0.0,
        });
    }

    /// Clients that have not got what they want.
    pub(crate) fn running(&self) -> u64 {
        self.begun - self.complete
    }

    /// The phase that runs now.
    pub(crate) fn phase(&self) -> PhaseId {
        PhaseId(self.phases.len().saturating_sub(1))
    }

    pub(crate) fn of(&mut self, phase: PhaseId) -> &mut PhaseTally {
        &mut self.phases[phase.0]
    }

    /// A client is served after this wait. It counts where the wait began.
    pub(crate) fn served(&mut self, now: Instant, waited: Duration, kind: WaitKind) {
        let since = now - waited;
        let at = self.phases.iter().rposition(|phase| phase.began <= since).unwrap_or(0);
        let phase = &mut self.phases[at];
        match kind {
            WaitKind::First => phase.waits.push(waited.as_secs_f64()),
            WaitKind::Again => {
                phase.waits_again.push(waited.as_secs_f64());
                phase.all_served_s = phase.all_served_s.max((now - phase.began).as_secs_f64());
            }
        }
    }

    /// Records the loads of all gateways.
    pub(crate) fn sample(&mut self, sites: &[SiteLoad]) {
        let up: Vec<_> = sites.iter().flatten().collect();
        let mean = up.iter().map(|(load, _)| load).sum::<f64>() / up.len().max(1) as f64;
        let most = up.iter().map(|(load, _)| *load).fold(0.0, f64::max);
        let waiting: f64 = up.iter().map(|(_, spare)| (-spare).max(0.0)).sum();
        let idle: f64 = up.iter().map(|(_, spare)| spare.max(0.0)).sum();
        let phase = self.phase();
        let phase = self.of(phase);
        phase.imbalances.push(if mean > 0.0 { most / mean } else { 1.0 });
        phase.stranded += waiting.min(idle);
        for (sum, site) in phase.loads.iter_mut().zip(sites) {
            *sum = sum.zip(*site).map(|(sum, (load, _))| sum + load);
        }
    }
}
