//! Metrics for operators, in the text formats of OpenMetrics and of Prometheus.
//!
//! Each server has its own [`Metrics`], so several servers in one process are counted separately. Label values
//! come from the operator's files (protocol, profile, upstream) or from enums. Sessions, keys, addresses and
//! client-chosen values are never labels.
//!
//! - [`families`]: metrics updated as events happen; [`meters`]: handles to them, looked up once per session
//! - [`scrape`]: metrics computed at each scrape; [`process`]: statistics of the process
//! - [`labels`]: label sets; [`rejection`]: reasons for rejecting a connection
//! - [`exposition`]: the formats, and the choice between them
//!
//! Format: <https://prometheus.io/docs/specs/om/open_metrics_spec/> 1.0; names by <https://prometheus.io/docs/practices/naming/>.

mod exposition;
mod families;
mod labels;
pub(crate) mod meters;
mod process;
mod rejection;
pub mod scrape;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use prometheus_client::{encoding::text::encode, registry::Registry};

pub use self::{exposition::MetricsFormat, rejection::RejectReason};
pub(crate) use self::{families::Families, labels::SessionLabels};
use self::{
    labels::{RejectionLabels, ToolCallLabels, ToolServerLabel},
    scrape::SnapshotSource,
};

/// Prefix of every metric name.
const PREFIX: &str = "voxbridge";

/// Handle to the metrics of one server; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<MetricsInner>);

#[derive(Debug)]
struct MetricsInner {
    registry: Registry,
    families: Families,
}

impl Metrics {
    /// Creates the metrics; `source` is called at each scrape.
    pub fn new(source: impl SnapshotSource) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let families = Families::register_all(&mut registry);
        registry.register_collector(Box::new(scrape::ScrapeCollector::new(source)));
        Self(Arc::new(MetricsInner { registry, families }))
    }

    /// Renders all metrics in this format.
    pub fn render_as(&self, format: MetricsFormat) -> String {
        match format {
            MetricsFormat::OpenMetrics => self.render(),
            MetricsFormat::Text => exposition::text_of(&self.render()),
        }
    }

    /// Renders all metrics as OpenMetrics text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail. If a metric cannot be encoded, it and the following ones are
        // missing.
        if encode(&mut text, &self.0.registry).is_err() {
            tracing::warn!("some metrics could not be encoded and are missing");
        }
        text
    }

    /// Number of lanes that upstreams have initialised, and the seconds that took.
    pub(crate) fn initialised_lanes(&self) -> (u64, f64) {
        let text = self.render();
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        (sum("voxbridge_lane_init_seconds_count{") as u64, sum("voxbridge_lane_init_seconds_sum{"))
    }

    /// Records a connection rejected before or right after the start of its session.
    pub fn record_rejection(&self, reason: RejectReason) {
        let (reason, status) = (reason.name(), reason.status());
        self.0.families.connections_rejected.get_or_create(&RejectionLabels { reason, status }).inc();
    }

    /// Sets the counters of sessions of these protocols and profiles to zero, unless they exist.
    pub fn add_session_kinds(&self, kinds: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) {
        for (protocol, profile) in kinds {
            self.0.families.add_session_kind(&SessionLabels { protocol, profile });
        }
    }

    /// Records a configuration reload; on failure, the previous configuration stays in effect.
    pub fn record_reload(&self, is_ok: bool) {
        self.0.families.record_reload(is_ok, scrape::unix_now_s());
    }

    /// Records what a call's jitter buffer did: packets by their fate, and the audio that was made up, seconds.
    pub fn record_call_audio(&self, packets: [(&'static str, u64); 4], concealed_s: f64) {
        for (fate, count) in packets {
            self.0.families.call_packets.get_or_create(&labels::FateLabel { fate }).inc_by(count);
        }
        self.0.families.call_concealed.inc_by(concealed_s);
    }

    /// Records the round trip of a call's packets, seconds.
    pub fn record_call_round_trip(&self, seconds: f64) {
        self.0.families.call_round_trip.observe(seconds);
    }

    /// Records the jitter of a call's packets, seconds.
    pub fn record_call_jitter(&self, seconds: f64) {
        self.0.families.call_jitter.observe(seconds);
    }

    /// Records the time of a judgement by the end-of-turn model, seconds.
    pub fn record_turn_inference(&self, seconds: f64) {
        self.0.families.turn_inference.observe(seconds);
    }

    /// Records a call on a tool server that took this long.
    pub(crate) fn record_tool_call(&self, server: &str, result: &'static str, seconds: f64) {
        let labels = ToolCallLabels { server: server.into(), result };
        self.0.families.tool_calls.get_or_create(&labels).observe(seconds);
    }

    /// Records whether a tool server is connected.
    pub(crate) fn set_tool_server_up(&self, server: &str, is_up: bool) {
        let label = ToolServerLabel { server: server.into() };
        self.0.families.tool_servers_up.get_or_create(&label).set(is_up.into());
    }

    /// Records what became of a message of a webhook: `delivered`, `retried`, `failed` or `dropped`.
    pub(crate) fn record_webhook(&self, result: &'static str) {
        self.0.families.webhooks.get_or_create(&labels::ResultLabel { result }).inc();
    }

    /// Sets the expiry of the certificate shown to clients, in seconds since 1970.
    pub fn set_certificate_expiry(&self, unix_s: f64) {
        self.0
            .families
            .certificate_expiry
            .get_or_create(&labels::CertificateLabel { listener: "clients" })
            .set(unix_s);
    }

    pub(crate) fn families(&self) -> &Families {
        &self.0.families
    }
}
