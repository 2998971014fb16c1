//! What is found out when somebody asks: the sessions by state, the upstreams, the process.

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
use crate::session::State;

/// Who knows what [`Seen`] holds.
pub trait Source: Fn() -> Seen + Send + Sync + 'static {}
impl<T: Fn() -> Seen + Send + Sync + 'static> Source for T {}

/// What is there at this moment.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// What sessions there may be: protocol, profile.
    pub kinds: Vec<(Arc<str>, Arc<str>)>,
    /// Every session: protocol, profile, where it is.
    pub sessions: Vec<(Arc<str>, Arc<str>, State)>,
    /// Every upstream in use.
    pub upstreams: Vec<SeenUpstream>,
    /// Lines that traces lost, in all.
    pub trace_lines_lost: u64,
}

/// An upstream at this moment.
#[derive(Debug, Clone)]
pub struct SeenUpstream {
    /// Its name.
    pub name: String,
    /// It is not left out.
    pub in_service: bool,
    /// Lanes it carries, and those its queue told of.
    pub load: u32,
    /// Lanes it failed, in all.
    pub failures: u64,
    /// How often it was left out, in all.
    pub left_out: u64,
}

/// Asks when it is asked.
pub(super) struct Scrape {
    source: Box<dyn Source>,
    /// Kinds of sessions that could be, or were: their gauges are zero before the first, and do not go away.
    known: Mutex<BTreeSet<(Arc<str>, Arc<str>)>>,
    started_at: f64,
}

impl Scrape {
    pub(super) fn new(source: impl Source) -> Self {
        Self { source: Box::new(source), known: Mutex::default(), started_at: unix_now_s() }
    }

    fn sessions(&self, seen: &Seen, out: &mut Out<'_>) -> fmt::Result {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(seen.kinds.iter().cloned());
        known.extend(seen.sessions.iter().map(|(protocol, profile, _)| (protocol.clone(), profile.clone())));
        let mut family = Vec::new();
        for (protocol, profile) in known.iter() {
            for state in State::ALL {
                let is_it = |at: &&(Arc<str>, Arc<str>, State)| {
                    at.0 == *protocol && at.1 == *profile && at.2 == state
                };
                let count = seen.sessions.iter().filter(is_it).count() as i64;
                let labels = [("protocol", &**protocol), ("profile", &**profile), ("state", state.name())];
                family.push((labels, count));
            }
        }
        out.gauges("sessions", "Sessions that run, by where they are.", None, &family)
    }

    fn upstreams(seen: &Seen, out: &mut Out<'_>) -> fmt::Result {
        let of = |what: fn(&SeenUpstream) -> i64| -> Vec<_> {
            seen.upstreams.iter().map(|it| ([("upstream", it.name.as_str())], what(it))).collect()
        };
        let up = of(|it| it.in_service.into());
        out.gauges(
            "upstream_in_service",
            "Whether an upstream is in service, or left out for a while.",
            None,
            &up,
        )?;
        let load = of(|it| it.load.into());
        out.gauges("upstream_load", "Lanes an upstream carries, and those its queue told of.", None, &load)?;
        let failures = of(|it| it.failures.cast_signed());
        out.counters("upstream_failures", "Lanes that an upstream failed.", &failures)?;
        let left_out = of(|it| it.left_out.cast_signed());
        out.counters("upstream_left_out", "Times an upstream was left out.", &left_out)
    }

    fn process(&self, out: &mut Out<'_>) -> fmt::Result {
        let now = process::now();
        let second = Some(&Unit::Seconds);
        out.gauge("process_start_timestamp", "When the server began, since 1970.", second, self.started_at)?;
        if let Some(cpu_s) = now.cpu_s {
            out.counter("process_cpu", "Processor time of the process.", second, cpu_s)?;
        }
        let byte = Some(&Unit::Bytes);
        for (name, help, unit, value) in [
            ("process_resident_memory", "Memory of the process.", byte, now.resident_bytes),
            ("process_open_fds", "File descriptors that are open.", None, now.open_fds),
            ("process_max_fds", "File descriptors that may be open.", None, now.max_fds),
        ] {
            if let Some(value) = value {
                out.gauge(name, help, unit, value as f64)?;
            }
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (seen, mut out) = ((self.source)(), Out(encoder));
        self.sessions(&seen, &mut out)?;
        Self::upstreams(&seen, &mut out)?;
        let lost = seen.trace_lines_lost as f64;
        out.counter(
            "trace_lines_lost",
            "Lines of traces that were lost: the disk cannot keep up.",
            None,
            lost,
        )?;
        self.process(&mut out)
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

/// Writes what was found out.
struct Out<'e>(DescriptorEncoder<'e>);

impl Out<'_> {
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
        family.iter().try_for_each(|(of, value)| ConstGauge::new(*value).encode(metric.encode_family(of)?))
    }

    fn counters<L: EncodeLabelSet>(&mut self, name: &str, help: &str, family: &[(L, i64)]) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        let value = |value: i64| ConstCounter::new(value.cast_unsigned());
        family.iter().try_for_each(|(of, count)| value(*count).encode(metric.encode_family(of)?))
    }
}

/// The wall clock, seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "when the process and its configuration began is told as wall time"
)]
pub(super) fn unix_now_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
