//! Figures for operators, in the OpenMetrics text format.
//!
//! One [`Metrics`] a server, so that several servers of one process do not count together. Label sets are closed: what
//! stands in a label is named by a file of the operator's (protocol, profile, upstream) or by an enum here. Never a session,
//! a key, an address, or anything a client chose.
//!
//! - [`families`] are the metrics that are counted as things happen; [`meters`] are one session's handles into them, looked up once
//! - [`scrape`] is what is found out when somebody asks; [`process`] is that of the process itself
//! - [`labels`] are the label sets, [`rejection`] why a connection is refused
//!
//! Format: <https://prometheus.io/docs/specs/om/open_metrics_spec/> 1.0; names by <https://prometheus.io/docs/practices/naming/>.

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

pub use self::rejection::RejectReason;
pub(crate) use self::{families::Families, labels::SessionLabels};
use self::{labels::RejectionLabels, scrape::SnapshotSource};

/// The content type of what [`Metrics::render`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What every metric's name begins with.
const PREFIX: &str = "voxbridge";

/// One server's metrics. A clone is another handle.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<MetricsInner>);

#[derive(Debug)]
struct MetricsInner {
    registry: Registry,
    families: Families,
}

impl Metrics {
    /// Metrics that ask `source` when they are rendered.
    #[must_use]
    pub fn new(source: impl SnapshotSource) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let families = Families::register_all(&mut registry);
        registry.register_collector(Box::new(scrape::ScrapeCollector::new(source)));
        Self(Arc::new(MetricsInner { registry, families }))
    }

    /// All of them, as OpenMetrics text; see [`CONTENT_TYPE`].
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail; what a metric refuses to encode is left out with what follows.
        if encode(&mut text, &self.0.registry).is_err() {
            tracing::warn!("not all metrics could be encoded");
        }
        text
    }

    /// A connection was refused, or a session that had just begun.
    pub fn record_rejection(&self, reason: RejectReason) {
        let (reason, status) = (reason.name(), reason.status());
        self.0.families.connections_rejected.get_or_create(&RejectionLabels { reason, status }).inc();
    }

    /// The configuration was read again, and it holds; or it was bad, and the old one still holds.
    pub fn record_reload(&self, is_ok: bool) {
        self.0.families.record_reload(is_ok, scrape::unix_now_s());
    }

    /// When the certificate that clients are shown expires, seconds since 1970.
    pub fn set_certificate_expiry(&self, unix_s: f64) {
        self.0
            .families
            .certificate_expiry
            .get_or_create(&labels::CertificateLabel { listener: "clients" })
            .set(unix_s);
    }

    /// A line of the access log was lost: the disk cannot keep up.
    pub(crate) fn record_lost_access_log_line(&self) {
        self.0.families.access_log_lines_lost.inc();
    }

    pub(crate) fn families(&self) -> &Families {
        &self.0.families
    }
}
