//! The report: a table with a line for each phase, and the same as JSON.

use serde_json::{Value, json};

use crate::{fleet::Fleet, options::Options, tally::PhaseTally};

/// Result of a simulation.
pub(crate) struct Report {
    options: Options,
    pub(crate) phases: Vec<PhaseReport>,
    /// Workers that stay busy for ever.
    pub(crate) lost_workers: usize,
    /// Clients that never got what they wanted.
    pub(crate) stuck_clients: u64,
    connects: u64,
}

/// Result of a phase.
#[derive(Debug)]
pub(crate) struct PhaseReport {
    pub(crate) name: String,
    is_sudden: bool,
    pub(crate) clients: u64,
    /// Waits for the first answer of a worker.
    pub(crate) waits: Waits,
    /// Waits of clients that had lost their session.
    pub(crate) waits_again: Waits,
    /// Until the last of those was served, s.
    pub(crate) all_served_s: f64,
    pub(crate) errors: u64,
    pub(crate) reconnects: u64,
    pub(crate) retries: u64,
    /// Load of the fullest gateway beside the mean: the mean of all seconds.
    pub(crate) imbalance: f64,
    /// The same for the loads' means over the phase.
    pub(crate) imbalance_of_means: f64,
    /// Clients in a queue while a worker elsewhere is idle, on average.
    pub(crate) stranded: f64,
}

/// Distribution of waits, s.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) worst: f64,
}

impl Waits {
    fn new(waits: &[f64]) -> Self {
        let mut sorted = waits.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |part: f64| {
            let at = (sorted.len() as f64 * part).ceil() as usize;
            sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { count: sorted.len(), p50: quantile(0.5), p99: quantile(0.99), worst: quantile(1.0) }
    }

    fn to_cells(&self) -> String {
        match self.count {
            0 => "–".to_owned(),
            _ => format!("{:.1} / {:.1} / {:.1}", self.p50, self.p99, self.worst),
        }
    }

    fn to_json(&self) -> Value {
        json!({ "count": self.count, "p50_s": self.p50, "p99_s": self.p99, "worst_s": self.worst })
    }
}

impl PhaseReport {
    fn new(tally: &PhaseTally) -> Self {
        let seconds = tally.imbalances.len().max(1) as f64;
        let up: Vec<f64> = tally.loads.iter().flatten().copied().collect();
        let mean = up.iter().sum::<f64>() / up.len().max(1) as f64;
        let most = up.iter().copied().fold(0.0, f64::max);
        Self {
            name: tally.name.clone(),
            is_sudden: tally.is_sudden,
            clients: tally.clients,
            waits: Waits::new(&tally.waits),
            waits_again: Waits::new(&tally.waits_again),
            all_served_s: tally.all_served_s,
            errors: tally.errors,
            reconnects: tally.reconnects,
            retries: tally.retries,
            imbalance: tally.imbalances.iter().sum::<f64>() / seconds,
            imbalance_of_means: if mean > 0.0 { most / mean } else { 1.0 },
            stranded: tally.stranded / seconds,
        }
    }

    fn to_line(&self) -> String {
        let all_served = match self.waits_again.count {
            0 => "–".to_owned(),
            count if self.is_sudden => format!("{count}, {:.1}", self.all_served_s),
            count => count.to_string(),
        };
        format!(
            "| {} | {} | {} | {} | {all_served} | {} | {} | {} | {:.2} | {:.2} | {:.1} |\n",
            self.name,
            self.clients,
            self.waits.to_cells(),
            self.waits_again.to_cells(),
            self.errors,
            self.reconnects,
            self.retries,
            self.imbalance,
            self.imbalance_of_means,
            self.stranded
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "phase": self.name, "clients": self.clients, "wait": self.waits.to_json(),
            "wait_after_loss": self.waits_again.to_json(), "all_served_s": self.all_served_s,
            "errors": self.errors, "reconnects": self.reconnects, "retries": self.retries,
            "imbalance": self.imbalance, "imbalance_of_means": self.imbalance_of_means,
            "stranded": self.stranded,
        })
    }
}

impl Report {
    pub(crate) fn new(fleet: &Fleet) -> Self {
        let tally = fleet.tally();
        Self {
            options: fleet.options.clone(),
            phases: tally.phases.iter().map(PhaseReport::new).collect(),
            lost_workers: fleet.sites.iter().map(|site| site.lost_workers()).sum(),
            stuck_clients: tally.running(),
            connects: fleet.sites.iter().map(|site| site.connects()).sum(),
        }
    }

    /// The table.
    pub(crate) fn to_markdown(&self) -> String {
        let options = &self.options;
        let known = if options.known == 0 { options.gateway_count() } else { options.known };
        let mut text = format!(
            "{} replicas, {} workers behind {} gateways in {} zones; each replica knows {known} gateways; load {}\n\n",
            options.replica_count(),
            options.worker_count(),
            options.gateway_count(),
            options.zones,
            options.load
        );
        text += "| phase | clients | wait, s: p50 / p99 / worst | after a loss | lost sessions, all served again after, s | \
                 errors | reconnects | retries | imbalance | of the means | stranded |\n";
        text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
        self.phases.iter().for_each(|phase| text += &phase.to_line());
        text += &format!(
            "\n{} connections to gateways; {} workers lost for ever; {} clients stuck\n",
            self.connects, self.lost_workers, self.stuck_clients
        );
        text
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "replicas": self.options.replica_count(), "workers": self.options.worker_count(),
            "gateways": self.options.gateway_count(), "known": self.options.known, "load": self.options.load,
            "zones": self.options.zones, "seed": self.options.seed, "connects": self.connects,
            "phases": self.phases.iter().map(PhaseReport::to_json).collect::<Vec<_>>(),
            "lost_workers": self.lost_workers, "stuck_clients": self.stuck_clients,
        })
    }
}
