//! Metrics computed at each scrape: sessions by state, upstreams, the process.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use super::process;
use crate::session::SessionState;

/// Provides a [`ServerSnapshot`].
pub trait SnapshotSource: Fn() -> ServerSnapshot + Send + Sync + 'static {}
impl<T: Fn() -> ServerSnapshot + Send + Sync + 'static> SnapshotSource for T {}

/// State of the server at a scrape.
#[derive(Debug, Clone, Default)]
pub struct ServerSnapshot {
    /// Combinations of protocol and profile that sessions may have.
    pub kinds: Vec<(Arc<str>, Arc<str>)>,
    /// Protocol, profile and state of each session.
    pub sessions: Vec<(Arc<str>, Arc<str>, SessionState)>,
    /// Number of connections, calls and pages that wait for a session, by their kind.
    pub waiting: Vec<(&'static str, usize)>,
    /// All upstreams in use.
    pub upstreams: Vec<UpstreamSnapshot>,
    /// Trace lines lost in total.
    pub trace_lines_lost: u64,
    /// Access log lines lost in total.
    pub access_log_lines_lost: u64,
    /// Log lines lost in total.
    pub log_lines_lost: u64,
    /// Recordings of sessions that are missing or have gaps, in total.
    pub recordings_incomplete: u64,
    /// What a collector of OpenTelemetry did not get, in total, by signal; empty without a collector.
    pub otlp_lost: Vec<(&'static str, u64)>,
}

/// State of an upstream at a scrape.
#[derive(Debug, Clone)]
pub struct UpstreamSnapshot {
    /// Name of the upstream.
    pub name: String,
    /// Name of its dialect.
    pub dialect: String,
    /// True unless the upstream is ejected.
    pub in_service: bool,
    /// Lanes on the upstream, plus those that its queue reported.
    pub load: u32,
    /// Lanes that failed on the upstream, in total.
    pub failures: u64,
    /// Ejections of the upstream, in total.
    pub ejections: u64,
    /// Lanes that wait in the upstream's queue although nothing needs them.
    pub unneeded: u32,
}

/// Collects a snapshot at each scrape.
pub(super) struct ScrapeCollector {
    source: Box<dyn SnapshotSource>,
    /// Combinations seen so far. Their gauges start at zero and never disappear.
    known_kinds: Mutex<BTreeSet<(Arc<str>, Arc<str>)>>,
    started_at: f64,
}

impl ScrapeCollector {
    pub(super) fn new(source: impl SnapshotSource) -> Self {
        Self { source: Box::new(source), known_kinds: Mutex::default(), started_at: unix_now_s() }
    }

    fn sessions(&self, snapshot: &ServerSnapshot, writer: &mut MetricWriter<'_>) -> fmt::Result {
        let mut kinds = self.known_kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.extend(snapshot.kinds.iter().cloned());
        kinds.extend(
            snapshot.sessions.iter().map(|(protocol, profile, _)| (protocol.clone(), profile.clone())),
        );
        let mut family = Vec::new();
        for (protocol, profile) in kinds.iter() {
            for state in SessionState::ALL {
                let is_counted = |at: &&(Arc<str>, Arc<str>, SessionState)| {
                    at.0 == *protocol && at.1 == *profile && at.2 == state
                };
                let count = snapshot.sessions.iter().filter(is_counted).count() as i64;
                let labels = [("protocol", &**protocol), ("profile", &**profile), ("state", state.name())];
                family.push((labels, count));
            }
        }
        writer.gauges("sessions", "Running sessions, by state.", None, &family)
    }

    fn upstreams(snapshot: &ServerSnapshot, writer: &mut MetricWriter<'_>) -> fmt::Result {
        let per_upstream = |value: fn(&UpstreamSnapshot) -> i64| -> Vec<_> {
            snapshot
                .upstreams
                .iter()
                .map(|upstream| ([("upstream", upstream.name.as_str())], value(upstream)))
                .collect()
        };
        let dialect_of = |upstream| {
            let UpstreamSnapshot { name, dialect, .. }: &UpstreamSnapshot = upstream;
            ([("upstream", name.as_str()), ("dialect", dialect.as_str())], 1)
        };
        let dialects: Vec<_> = snapshot.upstreams.iter().map(dialect_of).collect();
        writer.gauges("upstream_dialect", "1 for the dialect of an upstream.", None, &dialects)?;
        let in_service = per_upstream(|upstream| upstream.in_service.into());
        writer.gauges(
            "upstream_in_service",
            "1 if the upstream is in service, 0 while it is ejected.",
            None,
            &in_service,
        )?;
        let load = per_upstream(|upstream| upstream.load.into());
        writer.gauges(
            "upstream_load",
            "Lanes on an upstream, plus those reported by its queue.",
            None,
            &load,
        )?;
        let unneeded = per_upstream(|upstream| upstream.unneeded.into());
        writer.gauges(
            "upstream_lanes_unneeded",
            "Lanes in an upstream's queue that nothing needs any more. They close once they have a worker.",
            None,
            &unneeded,
        )?;
        let failures = per_upstream(|upstream| upstream.failures.cast_signed());
        writer.counters("upstream_failures", "Lanes that failed on an upstream.", &failures)?;
        let ejections = per_upstream(|upstream| upstream.ejections.cast_signed());
        writer.counters("upstream_ejections", "Ejections of an upstream.", &ejections)
    }

    fn process(&self, writer: &mut MetricWriter<'_>) -> fmt::Result {
        let now = process::read_stats();
        let seconds = Some(&Unit::Seconds);
        writer.gauge(
            "process_start_timestamp",
            "Start of the server, since 1970.",
            seconds,
            self.started_at,
        )?;
        if let Some(cpu_s) = now.cpu_s {
            writer.counter("process_cpu", "CPU time of the process.", seconds, cpu_s)?;
        }
        let bytes = Some(&Unit::Bytes);
        for (name, help, unit, value) in [
            ("process_resident_memory", "Resident memory of the process.", bytes, now.resident_bytes),
            ("process_open_fds", "Open file descriptors.", None, now.open_fds),
            ("process_max_fds", "Limit of open file descriptors.", None, now.max_fds),
        ] {
            if let Some(value) = value {
                writer.gauge(name, help, unit, value as f64)?;
            }
        }
        Ok(())
    }
}

impl Collector for ScrapeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (snapshot, mut writer) = ((self.source)(), MetricWriter(encoder));
        self.sessions(&snapshot, &mut writer)?;
        let waiting = snapshot.waiting.iter().map(|(kind, count)| ([("kind", *kind)], *count as i64));
        let help = "Connections, calls and pages of the playground that wait for their session.";
        writer.gauges("waiting", help, None, &waiting.collect::<Vec<_>>())?;
        Self::upstreams(&snapshot, &mut writer)?;
        for (name, help, lost) in [
            (
                "trace_lines_lost",
                "Trace lines lost because the disk was too slow.",
                snapshot.trace_lines_lost,
            ),
            ("access_log_lines_lost", "Access log lines lost.", snapshot.access_log_lines_lost),
            ("log_lines_lost", "Log lines lost because nobody read them in time.", snapshot.log_lines_lost),
            (
                "recordings_incomplete",
                "Recordings of sessions that are missing or have gaps.",
                snapshot.recordings_incomplete,
            ),
        ] {
            writer.counter(name, help, None, lost as f64)?;
        }
        if !snapshot.otlp_lost.is_empty() {
            let lost =
                snapshot.otlp_lost.iter().map(|(signal, count)| ([("signal", *signal)], count.cast_signed()));
            let help =
                "Spans, log lines and reports of metrics that the OpenTelemetry collector did not take.";
            writer.counters("otlp_lost", help, &lost.collect::<Vec<_>>())?;
        }
        self.process(&mut writer)
    }
}

impl fmt::Debug for ScrapeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

/// Writes metrics with constant values.
struct MetricWriter<'e>(DescriptorEncoder<'e>);

impl MetricWriter<'_> {
    fn gauge<N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: N,
    ) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        family: &[(L, i64)],
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        family
            .iter()
            .try_for_each(|(labels, value)| ConstGauge::new(*value).encode(metric.encode_family(labels)?))
    }

    fn counters<L: EncodeLabelSet>(&mut self, name: &str, help: &str, family: &[(L, i64)]) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        let value = |value: i64| ConstCounter::new(value.cast_unsigned());
        family.iter().try_for_each(|(labels, count)| value(*count).encode(metric.encode_family(labels)?))
    }
}

/// Wall-clock time in seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "start times are reported as wall-clock time")]
pub(in crate::telemetry) fn unix_now_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
