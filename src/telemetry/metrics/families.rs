//! Metrics that are updated as events happen, and their buckets.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry, Unit},
};

use super::labels::{
    CertificateLabel, CloseLabels, ErrorLabels, FateLabel, LaneLabels, ReasonLabel, RejectionLabels,
    ResultLabel, SessionEndLabels, SessionLabels, StageLabel, ToolCallLabels, ToolServerLabel, TrafficLabels,
    TriggerLabel, UpstreamLabels,
};

use crate::{
    error::{ErrorKind, Origin},
    session::EndReason,
};

/// Counter of seconds.
pub(super) type SecondsCounter = Counter<f64, AtomicU64>;
type FloatGauge = Gauge<f64, AtomicU64>;
/// Histograms by label set, all with the same buckets.
pub(super) type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;
type WithSession<L> = (SessionLabels, L);

/// Buckets of user-visible latencies. People notice 0.3 s, find 1 s long and give up after 10 s, so the buckets
/// are finest below.
const LATENCY_BUCKETS: [f64; 12] = [0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0];
/// Buckets of queue waits. A free worker is assigned at once; the gateway's queue takes minutes, and 10 min is
/// the longest wait of any client.
const QUEUE_BUCKETS: [f64; 11] = [0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Buckets of session starts. A chat session is ready within 1 s; a conversation's model takes 10 to 16 s.
const INIT_BUCKETS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0];
/// Buckets of real-time factors, finest just below 1, where an upstream becomes too slow.
const RATIO_BUCKETS: [f64; 12] = [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 2.0, 5.0];
/// Buckets of barge-in stages. Reporting takes milliseconds, detection some hundred, and the model stops after a
/// unit or two.
const BARGE_IN_BUCKETS: [f64; 12] = [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0];
/// Buckets of rollover gaps: none with a standby session; without one, the model's 10 to 16 s.
const GAP_BUCKETS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0];
/// Buckets of context sizes. The model's context holds 8192 tokens; rollovers come shortly before.
const TOKEN_BUCKETS: [f64; 9] = [500.0, 1000.0, 2000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 16000.0];
/// Buckets of session durations, from a single question to a working day.
const DURATION_BUCKETS: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 28800.0];

/// Buckets of network times: a good line has 20 ms, and above 150 ms a conversation suffers (ITU-T G.114). An inference takes
/// about 0.1 s.
const NETWORK_BUCKETS: [f64; 9] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.3, 1.0];

/// Defines the metrics: name of the field, and of the metric if that is another; type; kind, description and buckets.
macro_rules! families {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    ($($field:ident $(as $name:literal)?: $Type:ty = $register:ident($help:literal $(, $buckets:ident)?);)+) => {
        /// All metrics updated as events happen.
        #[derive(Debug)]
        pub(crate) struct Families {
            $(pub(super) $field: $Type,)+
        }

        impl Families {
            fn register(r: &mut Registrar<'_>) -> Self {
                Self {
                    $($field: r.$register(
                        families!(@name $field $($name)?), $help $(, || Histogram::new($buckets))?
                    ),)+
                }
            }
        }
    };
}

families! {
    sessions_opened: Family<SessionLabels, Counter> = register("Sessions opened");
    sessions_ended: Family<WithSession<SessionEndLabels>, Counter> = register("Sessions ended, by reason and origin");
    session_duration: HistogramFamily<SessionLabels> = seconds_histogram("Duration of sessions", DURATION_BUCKETS);
    connections_rejected: Family<RejectionLabels, Counter> = register("Connections rejected, by reason and HTTP status");
    first_transcript: HistogramFamily<SessionLabels> =
        seconds_histogram("Time from the detected end of an utterance to its next transcript", LATENCY_BUCKETS);
    first_audio: HistogramFamily<WithSession<TriggerLabel>> =
        seconds_histogram("Time from a text's request or the end of the user's speech to the first audio sent", LATENCY_BUCKETS);
    barge_in: HistogramFamily<WithSession<StageLabel>> =
        seconds_histogram("Barge-in latency by stage: first sound to detection, detection to end of speech sent, detection to model listening", BARGE_IN_BUCKETS);
    interruptions: Family<SessionLabels, Counter> = register("Interruptions of the model or of a text");
    underruns: Family<SessionLabels, Counter> = register("Times a client ran out of audio during playback");
    rollovers: Family<WithSession<ReasonLabel>, Counter> = register("Upstream sessions replaced during a session, by reason");
    rollover_gap: HistogramFamily<WithSession<ReasonLabel>> =
        seconds_histogram("Time without audio to the model during a rollover", GAP_BUCKETS);
    audio_in: Family<SessionLabels, SecondsCounter> = seconds("Audio received from clients");
    audio_out: Family<SessionLabels, SecondsCounter> = seconds("Audio sent to clients");
    audio_appended: Family<SessionLabels, SecondsCounter> = seconds("User audio sent to conversations");
    audio_dropped: Family<WithSession<ReasonLabel>, SecondsCounter> = seconds("User audio dropped, by reason");
    audio_muted: Family<WithSession<ReasonLabel>, SecondsCounter> = seconds("User audio muted, by reason");
    transferred_bytes as "transferred": Family<TrafficLabels, Counter> =
        bytes("Bytes transferred, without TLS overhead, by side and direction");
    frames: Family<TrafficLabels, Counter> = register("WebSocket messages, by side and direction");
    errors: Family<WithSession<ErrorLabels>, Counter> = register("Errors sent to clients, by kind and origin");
    connections_closed: Family<CloseLabels, Counter> = register("Connections closed, by side, closing party and close code");
    lanes: Family<LaneLabels, Gauge> = register("Upstream sessions currently connected");
    lanes_connected: Family<LaneLabels, Counter> = register("Upstream sessions connected in total");
    lane_retries: Family<SessionLabels, Counter> = register("Failed attempts to open an upstream session that were retried");
    lane_queue: HistogramFamily<LaneLabels> = seconds_histogram("Time from connecting to a granted worker", QUEUE_BUCKETS);
    lane_init: HistogramFamily<LaneLabels> =
        seconds_histogram("Time from a granted worker to an initialised session", INIT_BUCKETS);
    realtime_factor: HistogramFamily<UpstreamLabels> =
        histogram("Time the model took for a unit of audio, divided by the unit's length; above 1 it is too slow", RATIO_BUCKETS);
    context_peak_tokens: HistogramFamily<UpstreamLabels> =
        histogram("Largest model context in use in an upstream session, in tokens", TOKEN_BUCKETS);
    certificate_expiry as "certificate_expiry_timestamp": Family<CertificateLabel, FloatGauge> =
        seconds("Expiry of a certificate, since 1970");
    call_packets: Family<FateLabel, Counter> = register("Packets of audio from the clients of calls, by their fate");
    call_concealed as "call_audio_concealed": SecondsCounter =
        seconds("Audio of calls that was made up because packets were lost");
    call_round_trip: Histogram = seconds_plain_histogram("Time from a call's server to its client and back");
    call_jitter: Histogram = seconds_plain_histogram("Jitter of the packets from the clients of calls");
    turn_decisions: Family<WithSession<ResultLabel>, Counter> =
        register("Pauses in the user's speech that a model was to judge, by result");
    turn_inference: Histogram = seconds_plain_histogram("Time of a judgement by the end-of-turn model");
    early_questions: Family<WithSession<ResultLabel>, Counter> =
        register("Questions to the model before the user's turn was certain to be over, by result");
    tool_calls as "tool_call": HistogramFamily<ToolCallLabels> =
        seconds_histogram("Time of a call on a tool server, by result", LATENCY_BUCKETS);
    tool_servers_up as "tool_server_up": Family<ToolServerLabel, Gauge> =
        register("1 for a tool server that is connected, 0 for one that is not");
    webhooks: Family<ResultLabel, Counter> =
        register("Messages of webhooks, by result: delivered, sent again, given up, or dropped because too many waited");
    config_reloads: Family<ResultLabel, Counter> = register("Configuration reloads, by result");
    config_reloaded_at as "config_last_reload_success_timestamp": FloatGauge =
        seconds("Time the current configuration was loaded, since 1970");
}

impl Families {
    /// Creates all metrics and registers them.
    pub(super) fn register_all(registry: &mut Registry) -> Self {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of voxbridge", version);
        Self::register(&mut Registrar(registry)).with_zeroed_metrics()
    }

    /// Sets metrics without a session's labels to zero, so that they exist before the first event.
    fn with_zeroed_metrics(self) -> Self {
        for result in ["ok", "failed"] {
            self.config_reloads.get_or_create(&ResultLabel { result }).inc_by(0);
        }
        for result in ["delivered", "retried", "failed", "dropped"] {
            self.webhooks.get_or_create(&ResultLabel { result }).inc_by(0);
        }
        for reason in super::RejectReason::ALL {
            self.connections_rejected
                .get_or_create(&RejectionLabels { reason: reason.name(), status: reason.status() })
                .inc_by(0);
        }
        for (side, direction) in
            [("client", "in"), ("client", "out"), ("upstream", "in"), ("upstream", "out")]
        {
            let labels = TrafficLabels { side, direction };
            self.transferred_bytes.get_or_create(&labels).inc_by(0);
            self.frames.get_or_create(&labels).inc_by(0);
        }
        self.config_reloaded_at.set(super::scrape::unix_now_s());
        self
    }

    /// Sets the counters of sessions of a protocol and profile to zero, unless they exist: `increase()` counts the first event
    /// only if the counter was there before. Errors that clients cause are not among them.
    pub(super) fn add_session_kind(&self, labels: &SessionLabels) {
        for counters in [&self.sessions_opened, &self.interruptions, &self.underruns, &self.lane_retries] {
            counters.get_or_create(labels).inc_by(0);
        }
        for counters in [&self.audio_in, &self.audio_out, &self.audio_appended] {
            counters.get_or_create(labels).inc_by(0.0);
        }
        for reason in EndReason::ALL {
            let end_labels = SessionEndLabels { reason: reason.name(), origin: reason.side() };
            self.sessions_ended.get_or_create(&(labels.clone(), end_labels)).inc_by(0);
        }
        for kind in ErrorKind::SESSION_KINDS.into_iter().filter(|kind| kind.origin() == Origin::Upstream) {
            let error_labels = ErrorLabels { kind: kind.name(), origin: "upstream" };
            self.errors.get_or_create(&(labels.clone(), error_labels)).inc_by(0);
        }
    }

    pub(super) fn record_reload(&self, is_ok: bool, now_unix_s: f64) {
        self.config_reloads.get_or_create(&ResultLabel { result: if is_ok { "ok" } else { "failed" } }).inc();
        if is_ok {
            self.config_reloaded_at.set(now_unix_s);
        }
    }
}

/// Registers a metric and returns it.
struct Registrar<'r>(&'r mut Registry);

impl Registrar<'_> {
    fn register<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    fn seconds<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }

    fn bytes<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register_with_unit(name, help, Unit::Bytes, metric.clone());
        metric
    }

    /// A histogram of short times, without labels.
    fn seconds_plain_histogram(&mut self, name: &str, help: &str) -> Histogram {
        let metric = Histogram::new(NETWORK_BUCKETS);
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }

    fn seconds_histogram<L>(
        &mut self,
        name: &str,
        help: &str,
        new_histogram: fn() -> Histogram,
    ) -> HistogramFamily<L>
    where
        L: std::hash::Hash + Eq + Clone,
        HistogramFamily<L>: Metric,
    {
        let family = Family::new_with_constructor(new_histogram);
        self.0.register_with_unit(name, help, Unit::Seconds, family.clone());
        family
    }

    fn histogram<L>(&mut self, name: &str, help: &str, new_histogram: fn() -> Histogram) -> HistogramFamily<L>
    where
        L: std::hash::Hash + Eq + Clone,
        HistogramFamily<L>: Metric,
    {
        let family = Family::new_with_constructor(new_histogram);
        self.0.register(name, help, family.clone());
        family
    }
}
