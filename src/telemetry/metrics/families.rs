//! The metrics that are counted as things happen, and their buckets.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry, Unit},
};

use super::labels::{
    CertificateLabel, CloseLabels, ErrorLabels, LaneLabels, ReasonLabel, RejectionLabels, ResultLabel,
    SessionEndLabels, SessionLabels, StageLabel, TrafficLabels, TriggerLabel, UpstreamLabels,
};

/// A counter of seconds.
pub(super) type SecondsCounter = Counter<f64, AtomicU64>;
type FloatGauge = Gauge<f64, AtomicU64>;
/// Histograms by label set, all with the same buckets.
pub(super) type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;
type WithSession<L> = (SessionLabels, L);

/// People notice a third of a second, find one long and give up after ten: what they wait for is told finely up to there.
const LATENCY_BUCKETS: [f64; 12] = [0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0];
/// A free worker is there at once; the gateway's queue tells of minutes, and ten are as long as anybody waits.
const QUEUE_BUCKETS: [f64; 11] = [0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// A chat session is ready within a second, a conversation's model in ten to sixteen.
const INIT_BUCKETS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0];
/// One is real time: finest just below it, where an upstream begins to be too slow.
const RATIO_BUCKETS: [f64; 12] = [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 2.0, 5.0];
/// Telling takes milliseconds, noticing some hundred, yielding a unit or two.
const BARGE_IN_BUCKETS: [f64; 12] = [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0];
/// With a session in readiness there is none, without one a model's 10 to 16 s.
const GAP_BUCKETS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0];
/// The model's context holds 8192 positions; rollovers come shortly before.
const TOKEN_BUCKETS: [f64; 9] = [500.0, 1000.0, 2000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 16000.0];
/// From a question to a working day.
const DURATION_BUCKETS: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 28800.0];

/// All of them.
#[derive(Debug)]
pub(crate) struct Families {
    pub(super) sessions_opened: Family<SessionLabels, Counter>,
    pub(super) sessions_ended: Family<WithSession<SessionEndLabels>, Counter>,
    pub(super) session_duration: HistogramFamily<SessionLabels>,
    pub(super) connections_rejected: Family<RejectionLabels, Counter>,
    pub(super) first_transcript: HistogramFamily<SessionLabels>,
    pub(super) first_audio: HistogramFamily<WithSession<TriggerLabel>>,
    pub(super) barge_in: HistogramFamily<WithSession<StageLabel>>,
    pub(super) interruptions: Family<SessionLabels, Counter>,
    pub(super) underruns: Family<SessionLabels, Counter>,
    pub(super) rollovers: Family<WithSession<ReasonLabel>, Counter>,
    pub(super) rollover_gap: HistogramFamily<WithSession<ReasonLabel>>,
    pub(super) audio_in: Family<SessionLabels, SecondsCounter>,
    pub(super) audio_out: Family<SessionLabels, SecondsCounter>,
    pub(super) audio_appended: Family<SessionLabels, SecondsCounter>,
    pub(super) audio_dropped: Family<WithSession<ReasonLabel>, SecondsCounter>,
    pub(super) audio_muted: Family<WithSession<ReasonLabel>, SecondsCounter>,
    pub(super) transferred_bytes: Family<TrafficLabels, Counter>,
    pub(super) frames: Family<TrafficLabels, Counter>,
    pub(super) errors: Family<WithSession<ErrorLabels>, Counter>,
    pub(super) connections_closed: Family<CloseLabels, Counter>,
    pub(super) lanes: Family<LaneLabels, Gauge>,
    pub(super) lanes_connected: Family<LaneLabels, Counter>,
    pub(super) lane_retries: Family<SessionLabels, Counter>,
    pub(super) lane_queue: HistogramFamily<LaneLabels>,
    pub(super) lane_init: HistogramFamily<LaneLabels>,
    pub(super) realtime_factor: HistogramFamily<UpstreamLabels>,
    pub(super) context_peak_tokens: HistogramFamily<UpstreamLabels>,
    pub(super) certificate_expiry: Family<CertificateLabel, FloatGauge>,
    pub(super) access_log_lines_lost: Counter,
    config_reloads: Family<ResultLabel, Counter>,
    config_reloaded_at: FloatGauge,
}

impl Families {
    /// Makes them known.
    pub(super) fn register_all(registry: &mut Registry) -> Self {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which voxbridge this is", version);
        let r = &mut Registrar(registry);
        Self {
            sessions_opened: r.register("sessions_opened", "Sessions that were begun"),
            sessions_ended: r.register("sessions_ended", "Sessions that ended, by why and whose doing it was"),
            session_duration: r.seconds_histogram("session_duration", "How long sessions lasted", || Histogram::new(DURATION_BUCKETS)),
            connections_rejected: r.register("connections_rejected", "Connections that were refused, by why and with which HTTP status"),
            first_transcript: r.seconds_histogram(
                "first_transcript",
                "From the decided end of an utterance to the first words of it told after that",
                || Histogram::new(LATENCY_BUCKETS),
            ),
            first_audio: r.seconds_histogram(
                "first_audio",
                "From a text's request, or from the end of the user's speech, to the first audio sent",
                || Histogram::new(LATENCY_BUCKETS),
            ),
            barge_in: r.seconds_histogram(
                "barge_in",
                "Interruptions: first sound to noticed, deciding frame to end of speech told, decided to model listens",
                || Histogram::new(BARGE_IN_BUCKETS),
            ),
            interruptions: r.register("interruptions", "Times a model or a text was interrupted"),
            underruns: r.register("underruns", "Times a client ran out of audio in the middle of speech"),
            rollovers: r.register("rollovers", "Upstream sessions that were replaced in a session, by why"),
            rollover_gap: r.seconds_histogram(
                "rollover_gap",
                "How long no audio reached a model while its session was replaced",
                || Histogram::new(GAP_BUCKETS),
            ),
            audio_in: r.seconds("audio_in", "Audio that came from clients"),
            audio_out: r.seconds("audio_out", "Audio that was sent to clients"),
            audio_appended: r.seconds("audio_appended", "Audio of users that was sent to conversations"),
            audio_dropped: r.seconds("audio_dropped", "Audio of users that was dropped, by why"),
            audio_muted: r.seconds("audio_muted", "Audio of users that was not listened to, by why"),
            transferred_bytes: r.bytes("transferred", "Bytes on the wire under TLS, by side and direction"),
            frames: r.register("frames", "WebSocket messages, by side and direction"),
            errors: r.register("errors", "Errors that clients were told, by kind and whose doing it was"),
            connections_closed: r.register("connections_closed", "Connections that were closed, by side, by whom and with which code"),
            lanes: r.register("lanes", "Upstream sessions that are connected"),
            lanes_connected: r.register("lanes_connected", "Upstream sessions that were connected"),
            lane_retries: r.register("lane_retries", "Attempts to get an upstream session that failed and were repeated"),
            lane_queue: r.seconds_histogram("lane_queue", "From connected to a worker granted", || Histogram::new(QUEUE_BUCKETS)),
            lane_init: r.seconds_histogram("lane_init", "From a worker granted to its session initialised", || {
                Histogram::new(INIT_BUCKETS)
            }),
            realtime_factor: r.histogram(
                "realtime_factor",
                "Time a model took for a unit of a conversation, by the unit's length; above 1 it is too slow",
                || Histogram::new(RATIO_BUCKETS),
            ),
            context_peak_tokens: r.histogram(
                "context_peak_tokens",
                "Most positions of a model's context that were in use in an upstream session",
                || Histogram::new(TOKEN_BUCKETS),
            ),
            certificate_expiry: r.seconds("certificate_expiry_timestamp", "When a certificate expires, since 1970"),
            access_log_lines_lost: r.register("access_log_lines_lost", "Lines of the access log that were lost"),
            config_reloads: r.register("config_reloads", "Times the configuration was read again"),
            config_reloaded_at: r.seconds(
                "config_last_reload_success_timestamp",
                "When the configuration in use was read, since 1970",
            ),
        }
        .with_zeroed_alarm_metrics()
    }

    /// What is worth an alarm is there before it happens.
    fn with_zeroed_alarm_metrics(self) -> Self {
        for result in ["ok", "failed"] {
            self.config_reloads.get_or_create(&ResultLabel { result }).inc_by(0);
        }
        for reason in super::RejectReason::ALL {
            self.connections_rejected
                .get_or_create(&RejectionLabels { reason: reason.name(), status: reason.status() })
                .inc_by(0);
        }
        self.config_reloaded_at.set(super::scrape::unix_now_s());
        self
    }

    pub(super) fn record_reload(&self, is_ok: bool, now_unix_s: f64) {
        self.config_reloads.get_or_create(&ResultLabel { result: if is_ok { "ok" } else { "failed" } }).inc();
        if is_ok {
            self.config_reloaded_at.set(now_unix_s);
        }
    }
}

/// Registers a metric and hands it back.
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
