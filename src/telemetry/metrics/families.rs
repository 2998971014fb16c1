//! The metrics that are counted as things happen, and their buckets.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry, Unit},
};

use super::labels::{
    AskedFor, AtStage, Because, Certificate, Closed, Ended, OfLane, OfRefusal, OfSession, OfUpstream,
    Outcome, Told, Way,
};

/// A counter of seconds.
pub(super) type Seconds = Counter<f64, AtomicU64>;
type Number = Gauge<f64, AtomicU64>;
/// Histograms by label set, all with the same buckets.
pub(super) type Spread<L> = Family<L, Histogram, fn() -> Histogram>;
type By<L> = (OfSession, L);

/// People notice a third of a second, find one long and give up after ten: what they wait for is told finely up to there.
const WAIT: [f64; 12] = [0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0];
/// A free worker is there at once; the gateway's queue tells of minutes, and ten are as long as anybody waits.
const QUEUE: [f64; 11] = [0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// A chat session is ready within a second, a conversation's model in ten to sixteen.
const INIT: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0];
/// One is real time: finest just below it, where an upstream begins to be too slow.
const RATIO: [f64; 12] = [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 2.0, 5.0];
/// Telling takes milliseconds, noticing some hundred, yielding a unit or two.
const BARGE_IN: [f64; 12] = [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0];
/// With a session in readiness there is none, without one a model's 10 to 16 s.
const GAP: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0];
/// The model's context holds 8192 positions; rollovers come shortly before.
const TOKENS: [f64; 9] = [500.0, 1000.0, 2000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 16000.0];
/// From a question to a working day.
const LENGTH: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 28800.0];

/// All of them.
#[derive(Debug)]
pub(crate) struct Families {
    pub(super) opened: Family<OfSession, Counter>,
    pub(super) ended: Family<By<Ended>, Counter>,
    pub(super) lasted: Spread<OfSession>,
    pub(super) refused: Family<OfRefusal, Counter>,
    pub(super) first_transcript: Spread<OfSession>,
    pub(super) first_audio: Spread<By<AskedFor>>,
    pub(super) barge_in: Spread<By<AtStage>>,
    pub(super) interruptions: Family<OfSession, Counter>,
    pub(super) underruns: Family<OfSession, Counter>,
    pub(super) rollovers: Family<By<Because>, Counter>,
    pub(super) rollover_gap: Spread<By<Because>>,
    pub(super) audio_in: Family<OfSession, Seconds>,
    pub(super) audio_out: Family<OfSession, Seconds>,
    pub(super) audio_appended: Family<OfSession, Seconds>,
    pub(super) audio_dropped: Family<By<Because>, Seconds>,
    pub(super) audio_muted: Family<By<Because>, Seconds>,
    pub(super) bytes: Family<Way, Counter>,
    pub(super) frames: Family<Way, Counter>,
    pub(super) errors: Family<By<Told>, Counter>,
    pub(super) closes: Family<Closed, Counter>,
    pub(super) lanes: Family<OfLane, Gauge>,
    pub(super) lanes_connected: Family<OfLane, Counter>,
    pub(super) lane_retries: Family<OfSession, Counter>,
    pub(super) lane_queue: Spread<OfLane>,
    pub(super) lane_init: Spread<OfLane>,
    pub(super) step: Spread<OfUpstream>,
    pub(super) context: Spread<OfUpstream>,
    pub(super) certificate_expiry: Family<Certificate, Number>,
    pub(super) access_log_lost: Counter,
    reloads: Family<Outcome, Counter>,
    reloaded_at: Number,
}

impl Families {
    /// Makes them known.
    #[expect(clippy::too_many_lines, reason = "a table: one row a metric")]
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which voxbridge this is", version);
        let r = &mut Table(registry);
        Self {
            opened: r.plain("sessions_opened", "Sessions that were begun"),
            ended: r.plain("sessions_ended", "Sessions that ended, by why and whose doing it was"),
            lasted: r.spread("session_duration", "How long sessions lasted", || Histogram::new(LENGTH)),
            refused: r.plain("refused", "Connections that were refused, by why and with which HTTP status"),
            first_transcript: r.spread(
                "first_transcript",
                "From the decided end of an utterance to the first words of it told after that",
                || Histogram::new(WAIT),
            ),
            first_audio: r.spread(
                "first_audio",
                "From a text's request, or from the end of the user's speech, to the first audio sent",
                || Histogram::new(WAIT),
            ),
            barge_in: r.spread(
                "barge_in",
                "Interruptions: first sound to noticed, deciding frame to end of speech told, decided to model listens",
                || Histogram::new(BARGE_IN),
            ),
            interruptions: r.plain("interruptions", "Times a model or a text was interrupted"),
            underruns: r.plain("underruns", "Times a client ran out of audio in the middle of speech"),
            rollovers: r.plain("rollovers", "Upstream sessions that were replaced in a session, by why"),
            rollover_gap: r.spread(
                "rollover_gap",
                "How long no audio reached a model while its session was replaced",
                || Histogram::new(GAP),
            ),
            audio_in: r.seconds("audio_in", "Audio that came from clients"),
            audio_out: r.seconds("audio_out", "Audio that was sent to clients"),
            audio_appended: r.seconds("audio_appended", "Audio of users that was sent to conversations"),
            audio_dropped: r.seconds("audio_dropped", "Audio of users that was dropped, by why"),
            audio_muted: r.seconds("audio_muted", "Audio of users that was not listened to, by why"),
            bytes: r.bytes("transferred", "Bytes on the wire under TLS, by side and direction"),
            frames: r.plain("frames", "WebSocket messages, by side and direction"),
            errors: r.plain("errors", "Errors that clients were told, by kind and whose doing it was"),
            closes: r.plain("closes", "Connections that were closed, by side, by whom and with which code"),
            lanes: r.plain("lanes", "Upstream sessions that are connected"),
            lanes_connected: r.plain("lanes_connected", "Upstream sessions that were connected"),
            lane_retries: r.plain("lane_retries", "Attempts to get an upstream session that failed and were repeated"),
            lane_queue: r.spread("lane_queue", "From connected to a worker granted", || Histogram::new(QUEUE)),
            lane_init: r.spread("lane_init", "From a worker granted to its session initialised", || {
                Histogram::new(INIT)
            }),
            step: r.ratios(
                "step",
                "Time a model took for a unit of a conversation, by the unit's length; above 1 it is too slow",
                || Histogram::new(RATIO),
            ),
            context: r.unitless(
                "context_peak_tokens",
                "Most positions of a model's context that were in use in an upstream session",
                || Histogram::new(TOKENS),
            ),
            certificate_expiry: r.seconds("certificate_expiry_timestamp", "When a certificate expires, since 1970"),
            access_log_lost: r.plain("access_log_lost", "Lines of the access log that were lost"),
            reloads: r.plain("config_reloads", "Times the configuration was read again"),
            reloaded_at: r.seconds(
                "config_last_reload_success_timestamp",
                "When the configuration in use was read, since 1970",
            ),
        }
        .zeroed()
    }

    /// What is worth an alarm is there before it happens.
    fn zeroed(self) -> Self {
        for result in ["ok", "failed"] {
            self.reloads.get_or_create(&Outcome { result });
        }
        for reason in super::Refused::ALL {
            self.refused.get_or_create(&OfRefusal { reason: reason.name(), status: reason.status() });
        }
        self.reloaded_at.set(super::scrape::unix_now_s());
        self
    }

    pub(super) fn reloaded(&self, ok: bool, now_unix_s: f64) {
        self.reloads.get_or_create(&Outcome { result: if ok { "ok" } else { "failed" } }).inc();
        if ok {
            self.reloaded_at.set(now_unix_s);
        }
    }
}

/// Registers a metric and hands it back.
struct Table<'r>(&'r mut Registry);

impl Table<'_> {
    fn plain<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
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

    fn spread<L>(&mut self, name: &str, help: &str, make: fn() -> Histogram) -> Spread<L>
    where
        L: std::hash::Hash + Eq + Clone,
        Spread<L>: Metric,
    {
        let family = Family::new_with_constructor(make);
        self.0.register_with_unit(name, help, Unit::Seconds, family.clone());
        family
    }

    fn ratios<L>(&mut self, name: &str, help: &str, make: fn() -> Histogram) -> Spread<L>
    where
        L: std::hash::Hash + Eq + Clone,
        Spread<L>: Metric,
    {
        let family = Family::new_with_constructor(make);
        self.0.register_with_unit(name, help, Unit::Ratios, family.clone());
        family
    }

    fn unitless<L>(&mut self, name: &str, help: &str, make: fn() -> Histogram) -> Spread<L>
    where
        L: std::hash::Hash + Eq + Clone,
        Spread<L>: Metric,
    {
        let family = Family::new_with_constructor(make);
        self.0.register(name, help, family.clone());
        family
    }
}
