//! A session's observer: its metrics, its live statistics and its access log line.
//!
//! It runs in the session's task. Counting a frame is one addition; shared values are updated once a second and at
//! named events.

mod record;

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Duration, Instant};
use tracing::info;

use self::record::AccessLogNotes;
use super::{LiveSession, WireBytes};
use crate::{
    bridge::Bridge,
    error::Error,
    net::Traffic,
    session::{AudioTotals, EndReason, Measurement, Observation, SessionState},
    telemetry::{
        access_log::AccessLog,
        context::TraceContext,
        metrics::{
            Metrics,
            meters::{ConnectionSide, LaneMeters, SessionMeters, TrafficMeters},
        },
    },
    vocabulary::{DisconnectReason, Lane, LanePurpose},
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
    pub(crate) trace_context: Arc<TraceContext>,
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
    /// The totals that the shared counters already include.
    published: (TrafficCounts, AudioTotals),
    publish_at: Instant,
    notes: AccessLogNotes,
    /// The published state.
    state: SessionState,
}

/// Frame and byte counters, in and out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TrafficCounts {
    pub(crate) client_frames: [u64; 2],
    pub(crate) upstream_frames: [u64; 2],
    client_bytes: [u64; 2],
    upstream_bytes: [u64; 2],
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
        session.record_event("opened");
        Self {
            session,
            meters,
            sinks,
            client_traffic,
            lanes: Vec::new(),
            closed_lane_bytes: [0; 2],
            counts: TrafficCounts::default(),
            published: Default::default(),
            publish_at: Instant::now(),
            notes: AccessLogNotes::default(),
            state: SessionState::Opening,
        }
    }

    /// A lane is connected.
    pub(crate) fn lane_connected(&mut self, lane: Lane, upstream: &str, traffic: Arc<Traffic>) {
        let upstream: Arc<str> = upstream.into();
        {
            let mut stats = self.session.stats();
            (stats.upstream, stats.upstream_session) = (Some(upstream.clone()), None);
        }
        self.session.record_event("lane_connected");
        self.notes.add_lane(&upstream);
        if let Some(observed) = self.lanes.iter_mut().find(|observed| observed.lane == lane) {
            observed.connection = Some((self.meters.begin_lane(&upstream, observed.purpose), traffic));
        }
    }

    /// A lane is closed: by its upstream with this `reason`, or by voxbridge without one.
    pub(crate) fn lane_closed(&mut self, lane: Lane, reason: Option<&DisconnectReason>) {
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
        self.notes.record_upstream_close(reason.is_some(), code);
        let mut stats = self.session.stats();
        (stats.queue_position, stats.context_tokens) = (0, 0);
    }

    /// The client's connection is closed by either side, with this close code.
    pub(crate) fn client_closed(&mut self, by_client: bool, code: Option<u16>) {
        if self.notes.record_client_close(by_client, code) {
            self.meters.record_close(ConnectionSide::Client, by_client, code);
        }
    }

    /// Records an observation of the session that is no measurement.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        let session = &self.session;
        match observation {
            Observation::LaneQueued { position, .. } => {
                session.stats().queue_position = position.unwrap_or(0);
                session.record_event("queued");
            }
            Observation::LaneReady { session_id, .. } => {
                session.stats().queue_position = 0;
                session.record_event("lane_ready");
                if let Some(id) = session_id {
                    session.stats().upstream_session = Some(id.clone());
                    self.notes.add_upstream_session(id);
                }
            }
            Observation::LaneRetry { .. } => {
                session.record_event("lane_retried");
                self.meters.record_lane_retry();
            }
            Observation::LaneFailed { .. }
            | Observation::LaneRefused { .. }
            | Observation::LaneTrouble { .. } => {
                session.record_event("lane_failed");
            }
            Observation::RolledOver { reason, gap_ms, .. } => self.record_rollover(reason.name(), *gap_ms),
            Observation::RelayResumed { gap_ms, .. } => self.record_rollover("upstream_lost", *gap_ms),
            Observation::Interrupted => {
                session.record_event("interrupted");
                self.notes.barge_ins += 1;
                self.meters.record_interruption();
            }
            Observation::Underrun => {
                self.notes.underruns += 1;
                self.meters.record_underrun();
            }
            Observation::ErrorTold(error) => self.record_error(error),
            Observation::LaneUnneeded { .. } => self.session.record_event("lane_unneeded"),
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
        let session = &self.session;
        match figure {
            Measurement::LaneDialled { lane, purpose } => {
                self.lanes.reserve_exact(1);
                self.lanes.push(ObservedLane { lane, purpose, connection: None, context_peak: 0 });
            }
            Measurement::LaneGranted { lane, after } => {
                self.notes.record_queue_wait(after);
                self.with_lane(lane, |meters| meters.queue_wait.observe(after.as_secs_f64()));
            }
            Measurement::LaneInitialised { lane, after } => {
                self.with_lane(lane, |meters| meters.init_time.observe(after.as_secs_f64()));
            }
            Measurement::FirstTranscript { after } => {
                session.record_event("first_transcript");
                self.notes.first_transcript.get_or_insert(after);
                self.meters.record_first_transcript(after);
            }
            Measurement::FirstAudio { origin, after } => {
                session.record_event("first_audio");
                self.notes.first_audio.get_or_insert(after);
                self.meters.record_first_audio(origin, after);
            }
            Measurement::UnitProcessed { lane, took, unit } => {
                self.with_lane(lane, |meters| meters.realtime_factor.observe(took.div_duration_f64(unit)));
            }
            Measurement::ContextUsage { lane, tokens } => {
                session.stats().context_tokens = tokens;
                self.notes.record_context(tokens);
                if let Some(observed) = self.lanes.iter_mut().find(|observed| observed.lane == lane) {
                    observed.context_peak = observed.context_peak.max(tokens);
                }
            }
            Measurement::TurnDecided(decision) => self.meters.record_turn_decision(decision.name()),
            // For the upstream pool.
            Measurement::LaneAnswered { .. } => {}
            Measurement::EarlyQuestion(result) => self.meters.record_early_question(result.name()),
            Measurement::BargeIn { stage, after } => self.meters.record_barge_in(stage, after),
            Measurement::SessionEnding(reason) => {
                session.record_event("ending");
                if reason == EndReason::CutOff {
                    self.notes.reason = Some(reason);
                    session.cut_off.store(true, Ordering::Relaxed);
                }
                self.notes.reason.get_or_insert(reason);
            }
        }
    }

    fn with_lane(&self, lane: Lane, act: impl FnOnce(&LaneMeters)) {
        let observed = self.lanes.iter().find(|observed| observed.lane == lane);
        if let Some((meters, _)) = observed.and_then(|observed| observed.connection.as_ref()) {
            act(meters);
        }
    }

    fn record_rollover(&mut self, reason: &'static str, gap_ms: u64) {
        self.session.record_event("rolled_over");
        self.session.stats().rollovers += 1;
        self.notes.record_rollover(gap_ms);
        self.meters.record_rollover(reason, Duration::from_millis(gap_ms));
    }

    fn record_error(&mut self, error: &Error) {
        self.session.record_event("error");
        self.session.stats().errors += 1;
        self.notes.record_error(error.kind);
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
        let ([client_in, client_out], [upstream_in, upstream_out]) =
            (self.counts.client_bytes, self.counts.upstream_bytes);
        let audio = bridge.audio_totals();
        {
            let mut stats = self.session.stats();
            stats.bytes = WireBytes { client_in, client_out, upstream_in, upstream_out };
            stats.audio = audio.or(stats.audio);
        }
        let (counts, before) = (self.counts, self.published.0);
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
        self.published.0 = counts;
        if let Some(audio) = audio {
            self.publish_audio(&audio);
        }
    }

    fn publish_audio(&mut self, now: &AudioTotals) {
        let (meters, published) = (&self.meters, &mut self.published.1);
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
    pub(crate) fn mark_cut_off(&mut self) {
        self.notes.reason.get_or_insert(EndReason::CutOff);
        self.client_closed(false, None);
    }

    fn log_end(&self, reason: EndReason, audio: Option<AudioTotals>) {
        let (reason, duration_s) = (reason.name(), seconds(self.session.opened.elapsed()));
        let Some(audio) = audio else { return info!(reason, duration_s, "session ended") };
        info!(
            reason,
            duration_s,
            audio_in_s = seconds(audio.received),
            audio_out_s = seconds(audio.sent),
            audio_muted_s = seconds(audio.muted),
            audio_silenced_s = seconds(audio.silenced),
            audio_to_model_s = seconds(audio.appended),
            audio_dropped_s = seconds(audio.dropped_too_fast + audio.dropped_backlog),
            barge_ins = self.notes.barge_ins,
            "session ended"
        );
    }

    /// Ends the observation and writes the access log line.
    pub(crate) fn finish(mut self, bridge: &Bridge) {
        for lane in self.lanes.iter().map(|observed| observed.lane).collect::<Vec<_>>() {
            self.lane_closed(lane, None);
        }
        self.publish(bridge);
        let reason = self.notes.end_reason();
        self.log_end(reason, bridge.audio_totals());
        self.meters.record_end(reason, self.session.opened.elapsed());
        let Some(log) = &self.sinks.access_log else { return };
        let mut record = self.notes.to_record(&self.session, reason);
        record.trace_id = Some(self.sinks.trace_context.trace_id.to_string());
        (
            [record.client_in_bytes, record.client_out_bytes],
            [record.upstream_in_bytes, record.upstream_out_bytes],
        ) = (self.counts.client_bytes, self.counts.upstream_bytes);
        if let Some(tally) = bridge.audio_totals() {
            record.audio_in_s = Some(tally.received.as_secs_f64());
            record.audio_out_s = Some(tally.sent.as_secs_f64());
            record.dropped_s = Some((tally.dropped_too_fast + tally.dropped_backlog).as_secs_f64());
            record.muted_s = Some((tally.muted + tally.silenced).as_secs_f64());
        }
        log.write(&record);
    }
}

/// Rounded to hundredths of a second, for the log.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100.0).round() / 100.0
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
