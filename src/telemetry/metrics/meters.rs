//! Metric handles of one session and one lane. Counters that change every second use handles looked up once at
//! the start; rare events look up theirs when they happen.

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

use super::{
    Metrics, SessionLabels,
    families::SecondsCounter,
    labels::{
        CloseLabels, ErrorLabels, LaneLabels, ReasonLabel, ResultLabel, SessionEndLabels, StageLabel,
        TrafficLabels, TriggerLabel, UpstreamLabels,
    },
};
use crate::{
    error::Error,
    named_enum::named_enum,
    session::{AudioOrigin, BargeInStage, EndReason},
    vocabulary::LanePurpose,
};

named_enum! {
    /// Side of a connection.
    pub(crate) enum ConnectionSide {
        Client = "client",
        Upstream = "upstream",
    }
}

/// Metric handles of one session.
#[derive(Debug)]
pub(crate) struct SessionMeters {
    metrics: Metrics,
    labels: SessionLabels,
    pub(crate) audio_in: SecondsCounter,
    pub(crate) audio_out: SecondsCounter,
    pub(crate) audio_appended: SecondsCounter,
    pub(crate) dropped_too_fast: SecondsCounter,
    pub(crate) dropped_backlog: SecondsCounter,
    pub(crate) audio_muted: SecondsCounter,
    pub(crate) audio_silenced: SecondsCounter,
    pub(crate) client: TrafficMeters,
    pub(crate) upstream: TrafficMeters,
}

/// Byte and message counters of one side, in and out.
#[derive(Debug)]
pub(crate) struct TrafficMeters {
    pub(crate) bytes: [Counter; 2],
    pub(crate) frames: [Counter; 2],
}

impl TrafficMeters {
    fn new(metrics: &Metrics, side: ConnectionSide) -> Self {
        let traffic_labels = |direction| TrafficLabels { side: side.name(), direction };
        let families = metrics.families();
        Self {
            bytes: ["in", "out"]
                .map(|direction| families.transferred_bytes.get_or_create_owned(&traffic_labels(direction))),
            frames: ["in", "out"]
                .map(|direction| families.frames.get_or_create_owned(&traffic_labels(direction))),
        }
    }
}

impl SessionMeters {
    /// Starts a session of this protocol and profile.
    pub(crate) fn begin(metrics: &Metrics, protocol: &str, profile: &str) -> Self {
        let families = metrics.families();
        let labels = SessionLabels { protocol: protocol.into(), profile: profile.into() };
        let with_reason = |reason| (labels.clone(), ReasonLabel { reason });
        families.sessions_opened.get_or_create(&labels).inc();
        Self {
            metrics: metrics.clone(),
            audio_in: families.audio_in.get_or_create_owned(&labels),
            audio_out: families.audio_out.get_or_create_owned(&labels),
            audio_appended: families.audio_appended.get_or_create_owned(&labels),
            dropped_too_fast: families.audio_dropped.get_or_create_owned(&with_reason("too_fast")),
            dropped_backlog: families.audio_dropped.get_or_create_owned(&with_reason("backlog")),
            audio_muted: families.audio_muted.get_or_create_owned(&with_reason("playback")),
            audio_silenced: families.audio_muted.get_or_create_owned(&with_reason("tts")),
            client: TrafficMeters::new(metrics, ConnectionSide::Client),
            upstream: TrafficMeters::new(metrics, ConnectionSide::Upstream),
            labels,
        }
    }

    pub(crate) fn record_end(&self, reason: EndReason, duration: Duration) {
        let families = self.metrics.families();
        let end_labels = SessionEndLabels { reason: reason.name(), origin: reason.side() };
        families.sessions_ended.get_or_create(&(self.labels.clone(), end_labels)).inc();
        families.session_duration.get_or_create(&self.labels).observe(duration.as_secs_f64());
    }

    pub(crate) fn record_first_transcript(&self, latency: Duration) {
        self.metrics.families().first_transcript.get_or_create(&self.labels).observe(latency.as_secs_f64());
    }

    pub(crate) fn record_first_audio(&self, asked: AudioOrigin, latency: Duration) {
        let labels = (self.labels.clone(), TriggerLabel { trigger: asked.name() });
        self.metrics.families().first_audio.get_or_create(&labels).observe(latency.as_secs_f64());
    }

    pub(crate) fn record_barge_in(&self, stage: BargeInStage, latency: Duration) {
        let labels = (self.labels.clone(), StageLabel { stage: stage.name() });
        self.metrics.families().barge_in.get_or_create(&labels).observe(latency.as_secs_f64());
    }

    pub(crate) fn record_interruption(&self) {
        self.metrics.families().interruptions.get_or_create(&self.labels).inc();
    }

    pub(crate) fn record_turn_decision(&self, result: &'static str) {
        let labels = (self.labels.clone(), ResultLabel { result });
        self.metrics.families().turn_decisions.get_or_create(&labels).inc();
    }

    pub(crate) fn record_early_question(&self, result: &'static str) {
        let labels = (self.labels.clone(), ResultLabel { result });
        self.metrics.families().early_questions.get_or_create(&labels).inc();
    }

    pub(crate) fn record_underrun(&self) {
        self.metrics.families().underruns.get_or_create(&self.labels).inc();
    }

    pub(crate) fn record_rollover(&self, reason: &'static str, gap: Duration) {
        let (labels, families) = ((self.labels.clone(), ReasonLabel { reason }), self.metrics.families());
        families.rollovers.get_or_create(&labels).inc();
        families.rollover_gap.get_or_create(&labels).observe(gap.as_secs_f64());
    }

    pub(crate) fn record_lane_retry(&self) {
        self.metrics.families().lane_retries.get_or_create(&self.labels).inc();
    }

    pub(crate) fn record_error(&self, error: &Error) {
        let error_labels = ErrorLabels { kind: error.kind.name(), origin: error.kind.origin().name() };
        self.metrics.families().errors.get_or_create(&(self.labels.clone(), error_labels)).inc();
    }

    /// Records a closed connection, closed by the peer or by voxbridge; `code` is `None` without a close
    /// frame.
    pub(crate) fn record_close(&self, side: ConnectionSide, by_peer: bool, code: Option<u16>) {
        let closed_by = if by_peer { "peer" } else { "bridge" };
        let close_labels = CloseLabels { side: side.name(), closed_by, code: close_code_label(code) };
        self.metrics.families().connections_closed.get_or_create(&close_labels).inc();
    }

    /// Starts a lane that is connected to this upstream.
    pub(crate) fn begin_lane(&self, upstream: &Arc<str>, purpose: LanePurpose) -> LaneMeters {
        let families = self.metrics.families();
        let labels = LaneLabels { upstream: upstream.clone(), purpose: purpose.name() };
        let upstream = UpstreamLabels { upstream: upstream.clone() };
        families.lanes_connected.get_or_create(&labels).inc();
        let connected = families.lanes.get_or_create_owned(&labels);
        connected.inc();
        LaneMeters {
            connected,
            queue_wait: families.lane_queue.get_or_create_owned(&labels),
            init_time: families.lane_init.get_or_create_owned(&labels),
            realtime_factor: families.realtime_factor.get_or_create_owned(&upstream),
            context_peak_tokens: families.context_peak_tokens.get_or_create_owned(&upstream),
        }
    }
}

/// Metric handles of one lane. Dropping them counts the lane as disconnected.
#[derive(Debug)]
pub(crate) struct LaneMeters {
    connected: Gauge,
    pub(crate) queue_wait: Histogram,
    pub(crate) init_time: Histogram,
    pub(crate) realtime_factor: Histogram,
    pub(crate) context_peak_tokens: Histogram,
}

impl Drop for LaneMeters {
    fn drop(&mut self) {
        self.connected.dec();
    }
}

/// Close code as a label; unknown codes share one value, so that peers cannot create new ones.
pub(crate) const fn close_code_label(code: Option<u16>) -> &'static str {
    match code {
        None => "lost",
        Some(1000) => "1000",
        Some(1001) => "1001",
        Some(1002) => "1002",
        Some(1003) => "1003",
        Some(1005) => "1005",
        Some(1007) => "1007",
        Some(1008) => "1008",
        Some(1009) => "1009",
        Some(1011) => "1011",
        Some(1012) => "1012",
        Some(1013) => "1013",
        Some(_) => "other",
    }
}
