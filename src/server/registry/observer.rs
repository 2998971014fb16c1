//! A session's observer: keeps its metrics and its statistics, and writes its access log line.
//!
//! It runs in the session's task. Counting a frame is one addition; shared values are updated once a second and at
//! named events.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{LiveSession, SessionNotifier, stats::TrafficCounts};
use crate::{
    bridge::Bridge,
    error::Error,
    net::Traffic,
    session::{AudioTotals, Measurement, Observation, SessionState},
    telemetry::{
        access_log::AccessLog,
        metrics::{
            Metrics,
            meters::{ConnectionSide, LaneMeters, SessionMeters, TrafficMeters},
        },
        otlp::session_spans::SessionSpans,
    },
    vocabulary::{ClientEvent, DisconnectReason, Lane, LanePurpose},
};

/// How often counters are published. An idle session publishes when it next wakes.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// Direction of a message, seen from voxbridge.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameDirection {
    In,
    Out,
}

/// Where observations go.
pub(crate) struct ObserverSinks {
    pub(crate) metrics: Metrics,
    pub(crate) access_log: Option<AccessLog>,
    /// The session's spans, if its trace is recorded.
    pub(crate) spans: Option<SessionSpans>,
    pub(crate) notifier: Option<SessionNotifier>,
}

/// One session's observer.
pub(crate) struct Observer {
    session: Arc<LiveSession>,
    meters: SessionMeters,
    sinks: ObserverSinks,
    client_traffic: Arc<Traffic>,
    lanes: Vec<ObservedLane>,
    /// Bytes of lanes that have closed.
    closed_lane_bytes: [u64; 2],
    /// The driver counts the frames, by [`FrameDirection`].
    pub(crate) counts: TrafficCounts,
    /// The audio that the metrics already include.
    published: AudioTotals,
    publish_at: Instant,
    /// The published state.
    state: SessionState,
}

struct ObservedLane {
    lane: Lane,
    purpose: LanePurpose,
    /// Set once the lane is connected.
    connection: Option<(LaneMeters, Arc<Traffic>)>,
    context_peak: u32,
}

impl ObservedLane {
    fn bytes(&self) -> [u64; 2] {
        self.connection.as_ref().map_or([0; 2], |(_, traffic)| traffic_bytes(traffic))
    }
}

fn traffic_bytes(traffic: &Traffic) -> [u64; 2] {
    [traffic.bytes_read(), traffic.bytes_written()]
}

impl Observer {
    /// Starts to observe a session.
    pub(crate) fn begin(
        session: Arc<LiveSession>,
        client_traffic: Arc<Traffic>,
        sinks: ObserverSinks,
    ) -> Self {
        let meters = SessionMeters::begin(&sinks.metrics, &session.info.client, &session.info.profile);
        session.record_event("opened", |_| ());
        if let Some(notifier) = &sinks.notifier {
            notifier.session_started(&session.info);
        }
        Self {
            session,
            meters,
            sinks,
            client_traffic,
            lanes: Vec::new(),
            closed_lane_bytes: [0; 2],
            counts: TrafficCounts::default(),
            published: AudioTotals::default(),
            publish_at: Instant::now(),
            state: SessionState::Opening,
        }
    }

    /// Id of a lane's span, if the session's trace is recorded.
    pub(crate) fn lane_span_id(&self, lane: Lane) -> Option<u64> {
        self.sinks.spans.as_ref()?.lane_span_id(lane)
    }

    /// A lane is connected to this upstream, which speaks this dialect.
    pub(crate) fn lane_connected(
        &mut self,
        lane: Lane,
        upstream: &str,
        dialect: &str,
        model: Option<&str>,
        traffic: Arc<Traffic>,
    ) {
        if let Some(spans) = &self.sinks.spans {
            spans.lane_connected(std_now(), lane, upstream, dialect, model);
        }
        let upstream: Arc<str> = upstream.into();
        self.session.record_event("lane_connected", |stats| stats.add_lane(&upstream));
        if let Some(observed) = self.lanes.iter_mut().find(|observed| observed.lane == lane) {
            observed.connection = Some((self.meters.begin_lane(&upstream, observed.purpose), traffic));
        }
    }

    /// A lane is closed: by its upstream with this `reason`, or by voxbridge without one.
    pub(crate) fn lane_closed(&mut self, lane: Lane, reason: Option<&DisconnectReason>) {
        if let Some(spans) = &self.sinks.spans {
            spans.lane_closed(std_now(), lane, reason);
        }
        let Some(index) = self.lanes.iter().position(|observed| observed.lane == lane) else { return };
        let observed = self.lanes.swap_remove(index);
        let Some((meters, traffic)) = &observed.connection else { return };
        let [read, written] = traffic_bytes(traffic);
        self.closed_lane_bytes = [self.closed_lane_bytes[0] + read, self.closed_lane_bytes[1] + written];
        if observed.context_peak > 0 {
            meters.context_peak_tokens.observe(observed.context_peak.into());
        }
        let code = reason.map_or(Some(1000), close_code);
        self.meters.record_close(ConnectionSide::Upstream, reason.is_some(), code);
        self.session.stats().close_lane(reason.is_some(), code);
    }

    /// The client's connection is closed by either side, with this close code.
    pub(crate) fn client_closed(&self, by_client: bool, code: Option<u16>) {
        if self.session.stats().close_client(by_client, code) {
            self.meters.record_close(ConnectionSide::Client, by_client, code);
        }
    }

    /// Records an observation of the session that is no measurement.
    pub(crate) fn observe(&self, observation: &Observation) {
        if let Some(spans) = &self.sinks.spans {
            spans.observe(std_now(), observation);
        }
        let session = &self.session;
        match observation {
            Observation::LaneQueued { position, .. } => {
                session.record_event("queued", |stats| stats.queue_position = position.unwrap_or(0));
            }
            Observation::LaneReady { session_id, .. } => {
                session.record_event("lane_ready", |stats| {
                    stats.queue_position = 0;
                    session_id.iter().for_each(|id| stats.add_upstream_session(id));
                });
            }
            Observation::LaneRetry { .. } => {
                session.record_event("lane_retried", |_| ());
                self.meters.record_lane_retry();
            }
            Observation::LaneFailed { .. }
            | Observation::LaneRefused { .. }
            | Observation::LaneTrouble { .. } => {
                session.record_event("lane_failed", |_| ());
            }
            Observation::RolledOver { reason, gap_ms, .. } => self.record_rollover(reason.name(), *gap_ms),
            Observation::RelayResumed { gap_ms, .. } => self.record_rollover("upstream_lost", *gap_ms),
            Observation::Interrupted => {
                session.record_event("interrupted", |stats| stats.barge_ins += 1);
                self.meters.record_interruption();
            }
            Observation::Underrun => {
                session.stats().underruns += 1;
                self.meters.record_underrun();
            }
            Observation::ErrorTold(error) => self.record_error(error),
            Observation::LaneUnneeded { .. } => session.record_event("lane_unneeded", |_| ()),
            Observation::SlowStep { .. }
            | Observation::UnknownFromLane { .. }
            | Observation::Measured(_)
            | Observation::AskedAgain(_)
            | Observation::ModelMistake(_)
            | Observation::NoEffect(_)
            | Observation::Note(_)
            | Observation::Unsupported(_) => {}
        }
    }

    /// Records a measurement.
    pub(crate) fn record_measurement(&mut self, figure: Measurement) {
        if let Some(spans) = &self.sinks.spans {
            spans.measure(std_now(), &figure);
        }
        let session = &self.session;
        match figure {
            Measurement::LaneDialled { lane, purpose } => {
                self.lanes.reserve_exact(1);
                self.lanes.push(ObservedLane { lane, purpose, connection: None, context_peak: 0 });
            }
            Measurement::LaneGranted { lane, after } => {
                session.stats().add_queue_wait(after);
                self.with_lane(lane, |meters| meters.queue_wait.observe(after.as_secs_f64()));
            }
            Measurement::LaneInitialised { lane, after } => {
                self.with_lane(lane, |meters| meters.init_time.observe(after.as_secs_f64()));
            }
            Measurement::FirstTranscript { after } => {
                session.record_event("first_transcript", |stats| {
                    stats.first_transcript.get_or_insert(after);
                });
                self.meters.record_first_transcript(after);
            }
            Measurement::FirstAudio { origin, after } => {
                session.record_event("first_audio", |stats| {
                    stats.first_audio.get_or_insert(after);
                });
                self.meters.record_first_audio(origin, after);
            }
            Measurement::UnitProcessed { lane, took, unit } => {
                self.with_lane(lane, |meters| meters.realtime_factor.observe(took.div_duration_f64(unit)));
            }
            Measurement::ContextUsage { lane, tokens } => {
                session.stats().set_context(tokens);
                if let Some(observed) = self.lanes.iter_mut().find(|observed| observed.lane == lane) {
                    observed.context_peak = observed.context_peak.max(tokens);
                }
            }
            Measurement::TurnDecided(decision) => self.meters.record_turn_decision(decision.name()),
            // For the upstream pool.
            Measurement::LaneAnswered { .. } => {}
            Measurement::EarlyQuestion(result) => self.meters.record_early_question(result.name()),
            Measurement::BargeIn { stage, after } => self.meters.record_barge_in(stage, after),
            Measurement::SessionEnding(reason) => session.record_end(reason),
        }
    }

    /// Tells webhooks about an answer that has ended. Other events are not told.
    pub(crate) fn tell_event(&mut self, event: &ClientEvent) {
        if let Some(notifier) = &mut self.sinks.notifier {
            notifier.tell_event(&self.session.info, event);
        }
    }

    fn with_lane(&self, lane: Lane, act: impl FnOnce(&LaneMeters)) {
        let observed = self.lanes.iter().find(|observed| observed.lane == lane);
        if let Some((meters, _)) = observed.and_then(|observed| observed.connection.as_ref()) {
            act(meters);
        }
    }

    fn record_rollover(&self, reason: &'static str, gap_ms: u64) {
        self.session.record_event("rolled_over", |stats| stats.add_rollover(gap_ms));
        self.meters.record_rollover(reason, Duration::from_millis(gap_ms));
    }

    fn record_error(&self, error: &Error) {
        self.session.record_event("error", |stats| stats.add_error(error.kind));
        self.meters.record_error(error);
    }

    /// Publishes the state, and once a second the counters. Called when the bridge has no more output.
    pub(crate) fn publish_if_due(&mut self, now: Instant, state: SessionState, bridge: &Bridge) {
        if state != self.state {
            (self.state, self.session.stats().state) = (state, state);
        }
        if now >= self.publish_at {
            self.publish_at = now + PUBLISH_INTERVAL;
            self.publish(bridge);
        }
    }

    fn publish(&mut self, bridge: &Bridge) {
        let lanes = self.lanes.iter().map(ObservedLane::bytes);
        self.counts.client_bytes = traffic_bytes(&self.client_traffic);
        self.counts.upstream_bytes =
            lanes.fold(self.closed_lane_bytes, |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        let (audio, counts) = (bridge.audio_totals(), self.counts);
        let before = {
            let mut stats = self.session.stats();
            stats.audio = audio;
            std::mem::replace(&mut stats.traffic, counts)
        };
        add_changes(
            &self.meters.client,
            (counts.client_bytes, before.client_bytes),
            (counts.client_frames, before.client_frames),
        );
        add_changes(
            &self.meters.upstream,
            (counts.upstream_bytes, before.upstream_bytes),
            (counts.upstream_frames, before.upstream_frames),
        );
        if let Some(audio) = audio {
            self.publish_audio(&audio);
        }
    }

    fn publish_audio(&mut self, now: &AudioTotals) {
        let (meters, published) = (&self.meters, &mut self.published);
        for (meter, now, published) in [
            (&meters.audio_in, now.received, &mut published.received),
            (&meters.audio_out, now.sent, &mut published.sent),
            (&meters.audio_appended, now.appended, &mut published.appended),
            (&meters.dropped_too_fast, now.dropped_too_fast, &mut published.dropped_too_fast),
            (&meters.dropped_backlog, now.dropped_backlog, &mut published.dropped_backlog),
            (&meters.audio_muted, now.muted, &mut published.muted),
            (&meters.audio_silenced, now.silenced, &mut published.silenced),
        ] {
            // Silenced audio can decrease when it is given to a model after all. Counters cannot, so the decrease is
            // skipped.
            if now > *published {
                meter.inc_by((now - *published).as_secs_f64());
                *published = now;
            }
        }
    }

    /// Records that the session was cut off.
    pub(crate) fn mark_cut_off(&self) {
        self.session.stats().cut_off();
        self.client_closed(false, None);
    }

    /// Ends the observation, its spans among them, and writes the access log line.
    pub(crate) fn finish(mut self, bridge: &Bridge) {
        for lane in self.lanes.iter().map(|observed| observed.lane).collect::<Vec<_>>() {
            self.lane_closed(lane, None);
        }
        self.publish(bridge);
        let (session, lasted) = (&self.session, self.session.opened.elapsed());
        session.log_end(lasted);
        let reason = session.stats().end_reason();
        self.meters.record_end(reason, lasted);
        let ObserverSinks { access_log, notifier, spans, .. } = &self.sinks;
        if access_log.is_none() && notifier.is_none() && spans.is_none() {
            return;
        }
        let record = session.access_record(lasted);
        if let Some(log) = access_log {
            log.write(&record);
        }
        if let Some(spans) = spans {
            spans.finish(std_now(), &record);
        }
        if let Some(notifier) = notifier {
            notifier.session_ended(&record);
        }
    }
}

fn std_now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Values now and before, each in and out.
type CounterChange = ([u64; 2], [u64; 2]);

fn add_changes(wire: &TrafficMeters, bytes: CounterChange, frames: CounterChange) {
    for (counters, (now, before)) in [(&wire.bytes, bytes), (&wire.frames, frames)] {
        for (counter, (now, before)) in counters.iter().zip(now.into_iter().zip(before)) {
            counter.inc_by(now.saturating_sub(before));
        }
    }
}

/// The peer's close code; `None` if it sent none.
pub(crate) const fn close_code(reason: &DisconnectReason) -> Option<u16> {
    match reason {
        DisconnectReason::Closed(code, _) => Some(*code),
        _ => None,
    }
}
